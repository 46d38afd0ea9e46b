//! The log against a model: what was acknowledged is read back, in order, whatever happens between (rolls, restarts, torn tails, deletions).

use std::{fs::OpenOptions, io::Write, os::unix::fs::FileExt, path::Path, sync::Arc};

use proptest::prelude::*;

use super::{
    batch::{BatchHeader, Marker, tests::sample},
    *,
};

pub(super) fn settings() -> LogSettings {
    LogSettings {
        segment_bytes: 2000,
        segment_ms: i64::MAX,
        retention_ms: -1,
        retention_bytes: -1,
        delete: true,
        compact: false,
        delete_retention_ms: 0,
        max_message_bytes: 1 << 20,
        append_time: false,
        timestamp_before_ms: i64::MAX,
        timestamp_after_ms: i64::MAX,
    }
}

pub(super) fn open_with(dir: &Path, settings: LogSettings) -> Log {
    Log::open(dir.to_owned(), Arc::new(settings), &Known::default(), 0, DiskFull::default()).unwrap()
}

pub(super) fn open(dir: &Path) -> Log {
    open_with(dir, settings())
}

pub(super) fn put(log: &mut Log, n: i32, producer: (i64, i16, i32), transactional: bool, timestamp: i64) -> Appended {
    log.append(&sample(n, producer, transactional, timestamp), 0, |_, _| true).unwrap()
}

pub(super) const NOBODY: (i64, i16, i32) = (-1, -1, -1);

fn offset_for_time(log: &Log, timestamp: i64) -> Option<(i64, i64)> {
    let batch = log.batch_for_time(timestamp, 0).unwrap()?;
    batch.first_record(timestamp, log.start()).unwrap()
}

/// Where retention moved the log start, if it did.
fn retain(log: &mut Log, now_ms: i64) -> bool {
    let cut = log.retention_cut(now_ms);
    cut.is_some_and(|cut| log.delete_below(cut, now_ms).unwrap() == cut)
}

/// Headers of all batches that reads from `from` find.
pub(super) fn read_all(log: &Log, from: i64, committed: bool) -> Vec<BatchHeader> {
    let mut found = Vec::new();
    let mut offset = from;
    while let Some(slice) = log.read(offset, 700, true, committed).unwrap().and_then(|f| f.slice) {
        let mut bytes = vec![0; slice.length as usize];
        slice.file.read_exact_at(&mut bytes, slice.position).unwrap();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = batch::check_stored(rest).unwrap();
            rest = &rest[header.size()..];
            offset = header.last_offset() + 1;
            found.push(header);
        }
    }
    found
}

#[test]
fn what_was_appended_is_read_across_segments_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..200 {
        assert_eq!(put(&mut log, 3, NOBODY, false, i).base_offset, i * 3);
    }
    assert!(log.segments.len() > 5);
    for log in [&log, &open(dir.path())] {
        let seen: Vec<i64> = read_all(log, 0, false).iter().map(|h| h.base_offset).collect();
        assert_eq!(seen, (0..200).map(|i| i * 3).collect::<Vec<_>>());
        assert_eq!(read_all(log, 301, false)[0].base_offset, 300, "from the batch that holds the offset");
        assert!(log.read(601, 1, true, false).unwrap().is_none(), "behind the end");
        assert!(log.read(600, 1, true, false).unwrap().unwrap().slice.is_none(), "at the end");
    }
}

#[test]
fn a_torn_tail_is_cut_and_nothing_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    put(&mut log, 2, (5, 0, 0), false, 1);
    put(&mut log, 2, (5, 0, 2), false, 2);
    log.flush_indexes().unwrap();
    let path = log.segments[0].path.clone();
    let torn = sample(4, (5, 0, 4), false, 3);
    OpenOptions::new().append(true).open(path).unwrap().write_all(&torn[..torn.len() - 3]).unwrap();
    let mut log = open(dir.path());
    assert_eq!(log.next(), 4);
    let again = log.append(&sample(2, (5, 0, 2), false, 2), 0, |_, _| true).unwrap();
    assert!(again.repeat, "the producer's batches are known again");
    assert_eq!(put(&mut log, 4, (5, 0, 4), false, 3).base_offset, 4);
}

#[test]
fn an_index_that_is_gone_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..100 {
        put(&mut log, 9, NOBODY, false, i);
    }
    log.close().unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e != "log") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let log = open(dir.path());
    assert_eq!(read_all(&log, 0, false).len(), 100);
    assert_eq!(offset_for_time(&log, 50), Some((50, 450)));
}

#[test]
fn open_transactions_hold_the_stable_offset_and_aborted_ones_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    put(&mut log, 1, NOBODY, false, 0);
    put(&mut log, 2, (1, 0, 0), true, 0);
    put(&mut log, 2, (2, 0, 0), true, 0);
    assert_eq!((log.stable(), log.next()), (1, 5));
    assert_eq!(read_all(&log, 0, true).len(), 1);
    assert_eq!(log.append_marker(Marker::Abort, 1, 0, 0).unwrap(), 5);
    assert_eq!(log.stable(), 3);
    let mut log = open(dir.path());
    assert_eq!(log.stable(), 3, "known again after a restart");
    log.append_marker(Marker::Commit, 2, 0, 0).unwrap();
    assert_eq!(log.stable(), 7);
    assert_eq!(log.read(0, 10_000, true, true).unwrap().unwrap().aborted, [(1, 1)]);
    assert_eq!(log.read(5, 10_000, true, true).unwrap().unwrap().aborted, [(1, 1)]);
    assert_eq!(log.read(6, 10_000, true, true).unwrap().unwrap().aborted, []);
    let log = open(dir.path());
    assert_eq!(log.read(0, 10_000, true, true).unwrap().unwrap().aborted, [(1, 1)]);
}

#[test]
fn a_batch_outside_of_its_transaction_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let outcome = log.append(&sample(1, (1, 0, 0), true, 0), 0, |_, _| false);
    assert!(matches!(outcome, Err(AppendError::NotInTransaction)));
    assert_eq!(log.next(), 0);
}

#[test]
fn deleting_moves_the_start_and_removes_whole_segments() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..100 {
        put(&mut log, 3, NOBODY, false, i);
    }
    let before = log.segments.len();
    assert_eq!(log.delete_below(100, 0).unwrap(), 100);
    assert!(log.segments.len() < before);
    assert!(log.read(99, 100, true, false).unwrap().is_none());
    assert_eq!(read_all(&log, 100, false)[0].base_offset, 99);
    assert_eq!(log.delete_below(300, 0).unwrap(), 300);
    assert_eq!((log.segments.len(), log.size()), (1, 0));
    assert_eq!(put(&mut log, 1, NOBODY, false, 0).base_offset, 300);
    let known = Known { start: 300, epochs: vec![] };
    let log = Log::open(dir.path().to_owned(), Arc::new(settings()), &known, 0, DiskFull::default()).unwrap();
    assert_eq!((log.start(), log.next()), (300, 301));
}

#[test]
fn retention_removes_what_is_old_or_too_much() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), LogSettings { retention_ms: 50, ..settings() });
    for i in 0..100 {
        put(&mut log, 3, NOBODY, false, i);
    }
    assert!(!retain(&mut log, 50));
    assert!(retain(&mut log, 100));
    let newest_gone = log.start() / 3 - 1;
    assert!((30..50).contains(&newest_gone), "records up to {newest_gone} are gone");
    assert!(retain(&mut log, 1000));
    assert_eq!(log.start(), 300, "all is old");

    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), LogSettings { retention_bytes: 5000, ..settings() });
    for i in 0..100 {
        put(&mut log, 3, NOBODY, false, i);
    }
    assert!(retain(&mut log, 0));
    assert!((5000..7500).contains(&log.size()), "{}", log.size());
}

#[test]
fn times_are_found_to_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    for i in 0..200 {
        put(&mut log, 2, NOBODY, false, i * 10);
    }
    for log in [&log, &open(dir.path())] {
        assert_eq!(offset_for_time(log, 0), Some((0, 0)));
        assert_eq!(offset_for_time(log, 995), Some((1000, 200)));
        assert_eq!(offset_for_time(log, 1000), Some((1000, 200)));
        assert_eq!(offset_for_time(log, 1991), None);
        assert_eq!(offset_for_time(log, log.max_timestamp()), Some((1990, 398)));
    }
}

#[test]
fn leader_epochs_tell_where_they_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    put(&mut log, 5, NOBODY, false, 0);
    assert_eq!(log.epoch_end(0), Some((0, 5)));
    log.begin_epoch(1);
    put(&mut log, 5, NOBODY, false, 0);
    log.begin_epoch(3);
    assert_eq!(log.epoch_end(0), Some((0, 5)));
    assert_eq!(log.epoch_end(2), Some((1, 10)));
    assert_eq!(log.epoch_end(3), Some((3, 10)));
    assert_eq!(log.epoch_end(4), None);
    assert_eq!(read_all(&log, 0, false).iter().map(|h| h.leader_epoch).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn truncation_forgets_records_producers_and_aborts() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    put(&mut log, 2, (1, 0, 0), true, 0);
    log.append_marker(Marker::Abort, 1, 0, 0).unwrap();
    put(&mut log, 2, (1, 0, 2), true, 0);
    log.append_marker(Marker::Abort, 1, 0, 0).unwrap();
    log.truncate(5, 0).unwrap();
    assert_eq!((log.next(), log.stable()), (5, 3), "the second transaction is open again");
    log.truncate(3, 0).unwrap();
    assert_eq!((log.next(), log.stable()), (3, 3));
    assert_eq!(log.read(0, 10_000, true, true).unwrap().unwrap().aborted, [(1, 0)]);
    assert_eq!(put(&mut log, 2, (1, 0, 2), true, 0).base_offset, 3);
}

#[test]
fn a_full_disk_refuses_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open_with(dir.path(), LogSettings { max_message_bytes: 100, ..settings() });
    let outcome = log.append(&sample(9, NOBODY, false, 0), 0, |_, _| true);
    assert!(matches!(outcome, Err(AppendError::TooLarge { .. })));
    assert_eq!((log.next(), log.size()), (0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Data { producer: i64, n: i32 },
    Marker { producer: i64, commit: bool },
    Restart,
    Close,
    Tear,
    DeleteBelow(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0i64..4, 1i32..6).prop_map(|(producer, n)| Step::Data { producer, n }),
        2 => (0i64..4, prop::bool::ANY).prop_map(|(producer, commit)| Step::Marker { producer, commit }),
        1 => Just(Step::Restart),
        1 => Just(Step::Close),
        1 => Just(Step::Tear),
        1 => (0u8..=100).prop_map(Step::DeleteBelow),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Restarts and torn tails at any point change nothing that a client can see.
    #[test]
    fn a_log_survives_any_life(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let small = LogSettings { segment_bytes: 600, ..settings() };
        let mut log = open_with(dir.path(), small.clone());
        let mut model: Vec<(i64, i32)> = Vec::new();
        let mut sequences = [0i32; 4];
        let mut open_since: [Option<i64>; 4] = [None; 4];
        let mut aborted: Vec<(i64, i64, i64)> = Vec::new();
        let (mut start, mut next) = (0i64, 0i64);
        for step in steps {
            match step {
                Step::Data { producer, n } => {
                    let p = producer as usize;
                    // Producer 0 is plain, the others are transactional.
                    let who = if producer == 0 { NOBODY } else { (producer, 0, sequences[p]) };
                    prop_assert_eq!(put(&mut log, n, who, producer != 0, next).base_offset, next);
                    sequences[p] += n;
                    if producer != 0 { open_since[p].get_or_insert(next); }
                    model.push((next, n));
                    next += i64::from(n);
                }
                Step::Marker { producer, commit } if producer != 0 => {
                    let marker = if commit { Marker::Commit } else { Marker::Abort };
                    prop_assert_eq!(log.append_marker(marker, producer, 0, 0).unwrap(), next);
                    if let Some(first) = open_since[producer as usize].take() && !commit {
                        aborted.push((producer, first, next));
                    }
                    model.push((next, 1));
                    next += 1;
                }
                Step::Marker { .. } => {}
                Step::Close => log.close().unwrap(),
                Step::Restart | Step::Tear => {
                    if matches!(step, Step::Tear) {
                        log.flush_indexes().unwrap();
                        let path = log.segments.last().unwrap().path.clone();
                        let torn = sample(5, NOBODY, false, 0);
                        OpenOptions::new().append(true).open(path).unwrap().write_all(&torn[..70]).unwrap();
                    }
                    drop(log);
                    let known = Known { start, epochs: vec![] };
                    log = Log::open(dir.path().to_owned(), Arc::new(small.clone()), &known, 0, DiskFull::default()).unwrap();
                }
                Step::DeleteBelow(percent) => {
                    let stable = open_since.iter().flatten().min().copied().unwrap_or(next);
                    let at = (start + (next - start) * i64::from(percent) / 100).min(stable);
                    start = log.delete_below(at, 0).unwrap();
                    prop_assert_eq!(start, at);
                }
            }
            prop_assert_eq!((log.start(), log.next()), (start, next));
            let stable = open_since.iter().flatten().min().copied().unwrap_or(next);
            prop_assert_eq!(log.stable(), stable);
            let expected: Vec<i64> = model.iter().filter(|(at, n)| at + i64::from(*n) > start).map(|(at, _)| *at).collect();
            let seen: Vec<i64> = read_all(&log, start, false).iter().map(|h| h.base_offset).collect();
            prop_assert_eq!(seen, expected);
            let listed = log.read(start, u64::MAX >> 1, true, true).unwrap().unwrap().aborted;
            for (producer, first, last) in &aborted {
                let behind = log.segments.iter().find(|s| s.base > start).map_or(next, |s| s.base).min(stable);
                if *last >= start && *first < behind && start < stable {
                    prop_assert!(listed.contains(&(*producer, *first)), "{listed:?} lacks {producer} {first}");
                }
            }
        }
    }
}
