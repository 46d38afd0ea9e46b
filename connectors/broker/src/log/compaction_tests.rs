//! Compaction against a model: a table made of the records is the same before and after, whatever a run can remember, and deleted keys stay deleted.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::{
    batch::{BatchHeader, HEADER_BYTES, tests::sample},
    tests::{NOBODY, open_with, read_all, settings},
    *,
};

/// Everything is dirty again, as after a restart.
fn again(log: &mut Log) {
    let settings = Arc::clone(&log.settings);
    log.set_settings(settings);
}

/// Offset, key and value (or none) of all records in the files.
fn contents(log: &Log) -> Vec<(i64, String, bool)> {
    let mut found = Vec::new();
    for segment in &log.segments {
        for step in segment.walk(0) {
            let (position, header) = step.unwrap();
            let plain = records::uncompressed(&header, &segment.batch(position, &header).unwrap()).unwrap();
            for r in records::records(&plain).map(Result::unwrap) {
                let key = String::from_utf8(r.key.unwrap().to_vec()).unwrap();
                found.push((header.base_offset + i64::from(r.offset_delta), key, r.has_value));
            }
        }
    }
    found
}

/// Keys that are there for a reader of everything, with the offsets of their values.
fn table(log: &Log) -> BTreeMap<String, i64> {
    let mut table = BTreeMap::new();
    for (offset, key, has_value) in contents(log) {
        if has_value {
            table.insert(key, offset);
        } else {
            table.remove(&key);
        }
    }
    table
}

fn compacted(retention_ms: i64) -> LogSettings {
    LogSettings { compact: true, segment_bytes: 300, delete_retention_ms: retention_ms, ..settings() }
}

fn put_key(log: &mut Log, key: &str, value: Option<&str>) {
    log.append(&keyed(&[(key, value)]), 0, |_, _| true).unwrap();
}

fn keyed(records: &[(&str, Option<&str>)]) -> Bytes {
    let mut out = Vec::new();
    for (i, (key, value)) in records.iter().enumerate() {
        let mut body = vec![0, 0, (i * 2) as u8, (key.len() * 2) as u8];
        body.extend_from_slice(key.as_bytes());
        match value {
            Some(v) => {
                body.push((v.len() * 2) as u8);
                body.extend_from_slice(v.as_bytes());
            }
            None => body.push(1),
        }
        body.push(0);
        out.push((body.len() * 2) as u8);
        out.extend_from_slice(&body);
    }
    let header = BatchHeader::parse(&sample(records.len() as i32, NOBODY, false, 0)).unwrap();
    let new = batch::NewBatch {
        base_offset: 0,
        leader_epoch: 0,
        attributes: 0,
        last_offset_delta: header.last_offset_delta,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count: header.count,
    };
    batch::build(&new, &out)
}

#[test]
fn compaction_keeps_the_newest_of_each_key_and_all_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), LogSettings { compact: true, segment_bytes: 400, ..settings() });
    for round in 0..10 {
        let text = round.to_string();
        let batch = keyed(&[
            ("a", Some(&text)),
            ("b", Some(&text)),
            ("gone", if round == 3 { None } else { Some("x") }).to_owned(),
        ]);
        let batch = if round > 3 { keyed(&[("a", Some(&text)), ("b", Some(&text))]) } else { batch };
        log.append(&batch, 0, |_, _| true).unwrap();
    }
    let next = log.next();
    assert!(log.compact(1).unwrap() > 0);
    again(&mut log);
    log.compact(2).unwrap();
    let check = |log: &Log| {
        let mut found = std::collections::BTreeMap::new();
        for segment in &log.segments {
            for step in segment.walk(0) {
                let (position, header) = step.unwrap();
                let bytes = segment.batch(position, &header).unwrap();
                let plain = records::uncompressed(&header, &bytes).unwrap();
                for r in records::records(&plain) {
                    let r = r.unwrap();
                    let key = String::from_utf8(r.key.unwrap().to_vec()).unwrap();
                    found.insert(key, header.base_offset + i64::from(r.offset_delta));
                }
            }
        }
        assert_eq!(found["a"], next - 2);
        assert_eq!(found["b"], next - 1);
        assert!(!found.contains_key("gone"), "{found:?}");
        assert_eq!((log.start(), log.next()), (0, next));
        let first = read_all(log, 0, false);
        assert!(first.is_sorted_by_key(|h| h.base_offset) && first.last().unwrap().last_offset() == next - 1);
    };
    check(&log);
    drop(log);
    check(&open_with(dir.path(), LogSettings { compact: true, segment_bytes: 400, ..settings() }));
    assert!(!has_keys(&keyless()).unwrap());
    assert!(has_keys(&keyed(&[("", Some("v"))])).unwrap());
}

fn keyless() -> Bytes {
    let header = BatchHeader::parse(&sample(1, NOBODY, false, 0)).unwrap();
    let mut bytes = keyed(&[("", Some("v"))]).to_vec();
    // A key of length -1 instead of 0.
    bytes[HEADER_BYTES + 4] = 1;
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(header.count, 1);
    bytes.into()
}

#[test]
fn a_tombstone_stays_for_its_time_after_the_first_run_however_old_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), compacted(1000));
    put_key(&mut log, "gone", Some("v"));
    // Its timestamp is 0, that is 50 years ago.
    put_key(&mut log, "gone", None);
    let fill = |log: &mut Log| (0..10).for_each(|i| put_key(log, &format!("k{i}"), Some("v")));
    fill(&mut log);
    let rows = |log: &Log| contents(log).into_iter().filter(|(_, k, _)| k == "gone").map(|r| r.2).collect::<Vec<_>>();
    let now = 1_600_000_000_000;
    log.compact(now).unwrap();
    assert_eq!(rows(&log), [false], "the value is gone, the tombstone is not");
    // The time of the first run is known after a restart.
    let mut log = open_with(dir.path(), compacted(1000));
    log.compact(now + 1000).unwrap();
    assert_eq!(rows(&log), [false]);
    fill(&mut log);
    log.compact(now + 1001).unwrap();
    assert!(rows(&log).is_empty());
}

#[test]
fn with_more_keys_than_a_run_remembers_the_next_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), compacted(0));
    for round in 0..3 {
        for i in 0..20 {
            put_key(&mut log, &format!("k{i}"), (round < 2 || i % 2 == 0).then_some("v"));
        }
    }
    (0..10).for_each(|_| put_key(&mut log, "end", Some("v")));
    let expected = table(&log);
    assert_eq!(expected.len(), 11);
    let before = contents(&log).len();
    let mut now = 0;
    for _ in 0..30 {
        now += 10;
        log.compact_with(4, now).unwrap();
        assert_eq!(table(&log), expected);
    }
    assert!(contents(&log).len() < before / 2, "{} of {before}", contents(&log).len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// A table made of the records never changes by a run, with any memory, at any time, over restarts.
    #[test]
    fn compaction_changes_no_table(steps in prop::collection::vec((0u8..12, prop::bool::ANY, 0u8..8), 1..120), limit in 1usize..8) {
        let dir = tempfile::tempdir().unwrap();
        let mut log = open_with(dir.path(), compacted(15));
        for (now, (key, value, what)) in (0i64..).step_by(10).zip(steps) {
            match what {
                0 => { log.compact_with(limit, now).unwrap(); }
                1 => { drop(log); log = open_with(dir.path(), compacted(15)); }
                2 => { log.compact(now).unwrap(); }
                _ => {
                    let before = table(&log);
                    put_key(&mut log, &format!("k{key}"), value.then_some("v"));
                    let mut expected = before;
                    if value { expected.insert(format!("k{key}"), log.next() - 1); } else { expected.remove(&format!("k{key}")); }
                    prop_assert_eq!(table(&log), expected);
                    continue;
                }
            }
            let now_there = table(&log);
            again(&mut log);
            log.compact_with(limit, now).unwrap();
            prop_assert_eq!(table(&log), now_there);
        }
    }
}
