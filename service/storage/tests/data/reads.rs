//! Scans, net changes and look-ups equal the model, whatever was flushed and compacted in between. Defends S1's storage half and the keep rule (02 11).

use millstream_storage::{KeyMatch, ScanItem, ScanRequest};
use millstream_types::{Key, Op, Pos, Seq};
use proptest::prelude::*;

use super::rig::{Rig, RowKey, Value};

#[derive(Debug, Clone)]
enum Act {
    Write(Vec<(RowKey, Option<Value>)>),
    Flush,
    Compact(bool),
    Pin,
    /// Everything before now may go unless pinned.
    Horizon,
}

fn key() -> impl Strategy<Value = RowKey> {
    (0..6i32, "[ab]{0,2}")
}

fn act() -> impl Strategy<Value = Act> {
    let row = (key(), prop_oneof![1 => Just(None), 4 => proptest::option::of(0..4i64).prop_map(Some)]);
    prop_oneof![
        10 => proptest::collection::vec(row, 1..12).prop_map(Act::Write),
        3 => Just(Act::Flush),
        2 => any::<bool>().prop_map(Act::Compact),
        1 => Just(Act::Pin),
        1 => Just(Act::Horizon),
    ]
}

async fn play(rig: &mut Rig, acts: &[Act]) {
    for act in acts {
        match act {
            Act::Write(entry) => rig.write(entry),
            Act::Flush => rig.flush().await,
            Act::Compact(all) => rig.compact(*all).await,
            Act::Pin => {
                rig.pins.insert(rig.applied);
            }
            Act::Horizon => rig.horizon = rig.applied,
        }
    }
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

/// Sequences whose views are still exact.
fn kept(rig: &Rig) -> Vec<i64> {
    let mut kept: Vec<i64> = rig.pins.iter().copied().collect();
    kept.extend((rig.horizon.max(10)..=rig.applied).step_by(3));
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn scan_get_changes_match_model(acts in proptest::collection::vec(act(), 1..40), a in 0..6i32) {
        block_on(async {
            let mut rig = Rig::new(true);
            play(&mut rig, &acts).await;
            let now = rig.applied;
            let want = rig.model_at(now);
            assert_eq!(rig.snapshot(now).await, want);
            assert!(rig.estimate().rows >= want.len() as u64);

            // Resume after each key, and stop at it.
            let all: Vec<RowKey> = want.keys().cloned().collect();
            for (i, (a, b)) in all.iter().enumerate().step_by(3) {
                let at = Pos::At(rig.key(*a, Some(b)));
                let after = rig.rows(ScanRequest { after: at.clone(), ..ScanRequest::snapshot(Seq(now)) }).await;
                assert_eq!(after.into_iter().map(|(_, (k, _))| k).collect::<Vec<_>>(), all[i + 1..]);
                let until = rig.rows(ScanRequest { until: at, max_rows: 3, ..ScanRequest::snapshot(Seq(now)) }).await;
                assert_eq!(until.into_iter().map(|(_, (k, _))| k).collect::<Vec<_>>(), all[..=i]);
            }

            // Whole keys, present or not, then a prefix with all its keys, twice: cold and from the cache.
            for _ in 0..2 {
                let strangers = [(6, "a".to_owned()), (7, String::new())];
                let asked: Vec<RowKey> = rig.model.keys().cloned().chain(strangers).collect();
                let found = rig.lookup(asked.iter().map(|(a, b)| rig.key(*a, Some(b))).collect(), KeyMatch::Whole, now).await;
                let present = asked.iter().enumerate().filter_map(|(i, k)| Some((i as u32, (k.clone(), *want.get(k)?)))).collect::<Vec<_>>();
                assert_eq!(found, present);
                let found = rig.lookup(vec![rig.key(a, None), rig.key(a, Some("a"))], KeyMatch::Prefix, now).await;
                let mut present: Vec<_> = want.range((a, String::new())..(a + 1, String::new())).map(|(k, v)| (0, (k.clone(), *v))).collect();
                present.extend(want.get_key_value(&(a, "a".to_owned())).map(|(k, v)| (1, (k.clone(), *v))));
                assert_eq!(found, present);
            }
        });
    }

    #[test]
    fn pins_and_diffs_match_model(acts in proptest::collection::vec(act(), 1..40)) {
        block_on(async {
            let mut rig = Rig::new(true);
            play(&mut rig, &acts).await;
            let kept = kept(&rig);
            for from in kept.iter().copied().take(6) {
                for to in kept.iter().rev().copied().take(4).filter(|to| *to >= from) {
                    assert_eq!(rig.changes(from, to).await, rig.model_changes(from, to), "changes({from}, {to})");
                }
            }
        });
    }

    #[test]
    fn every_pinned_view_survives(acts in proptest::collection::vec(act(), 1..40)) {
        block_on(async {
            let mut rig = Rig::new(true);
            play(&mut rig, &acts).await;
            for round in 0..3 {
                for at in kept(&rig) {
                    assert_eq!(rig.snapshot(at).await, rig.model_at(at), "as of {at} in round {round}");
                }
                if round == 0 {
                    rig.flush().await;
                } else {
                    rig.horizon = rig.applied;
                    rig.compact(true).await;
                }
            }
            // Without pins only live rows are left.
            rig.pins.clear();
            rig.compact(true).await;
            assert_eq!(rig.files.iter().map(|f| f.rows).sum::<u64>(), rig.model_at(rig.applied).len() as u64);
            assert!(rig.files.iter().all(|f| f.single_version && f.deletes == 0));
        });
    }

    #[test]
    fn append_scans_match_the_log(acts in proptest::collection::vec(act(), 1..30), resume in any::<prop::sample::Index>()) {
        block_on(async {
            let mut rig = Rig::new(false);
            let acts: Vec<Act> = acts.into_iter().map(|act| match act {
                Act::Write(entry) => Act::Write(entry.into_iter().map(|(k, v)| (k, Some(v.unwrap_or(None)))).collect()),
                other => other,
            }).collect();
            play(&mut rig, &acts).await;
            let to = rig.applied;
            let all: Vec<_> = rig.log.iter().map(|(_, _, row)| row.clone()).collect();
            let plain = |found: Vec<(Op, (RowKey, Value))>| found.into_iter().map(|(_, row)| row).collect::<Vec<_>>();
            assert_eq!(plain(rig.rows(ScanRequest { max_rows: 5, ..ScanRequest::snapshot(Seq(to)) }).await), all);
            let mid = (10 + to) / 2;
            let new: Vec<_> = rig.log.iter().filter(|(s, _, _)| *s >= mid).map(|(_, _, row)| row.clone()).collect();
            assert_eq!(plain(rig.rows(ScanRequest::changes(Seq(mid), Seq(to))).await), new);
            let old: Vec<_> = rig.log.iter().filter(|(s, _, _)| *s < mid).map(|(_, _, row)| row.clone()).collect();
            assert_eq!(plain(rig.rows(ScanRequest::snapshot(Seq(mid))).await), old);
            if !rig.log.is_empty() {
                let i = resume.index(rig.log.len());
                let at = Pos::At(Key::append(rig.log[i].0, rig.log[i].1));
                assert_eq!(plain(rig.rows(ScanRequest { after: at.clone(), ..ScanRequest::snapshot(Seq(to)) }).await), all[i + 1..]);
                assert_eq!(plain(rig.rows(ScanRequest { until: at, ..ScanRequest::snapshot(Seq(to)) }).await), all[..=i]);
            }
        });
    }
}

/// 60,000 keys in a compacted file, then some updates: many segments and row groups, and few changes, so `changes` looks old rows up.
#[test]
fn large_files_are_read_by_segment() {
    block_on(async {
        let mut rig = Rig::new(true);
        rig.options = millstream_storage::sst::SstOptions { row_group_rows: 20_000, ..Default::default() };
        let row = |i: i32| ((i, "k".to_owned()), Some(Some(i64::from(i) * 10)));
        for start in (0..60_000).step_by(6000) {
            rig.write(&(start..start + 6000).map(row).collect::<Vec<_>>());
        }
        // A key with so many versions that they cover several segments.
        for _ in 0..3 {
            rig.write(&[((30_000, "hot".to_owned()), Some(Some(1)))]);
        }
        rig.pins.insert(rig.applied);
        rig.flush().await;
        let first = rig.applied;
        rig.write(&(0..60_000).step_by(997).map(|i| ((i, "k".to_owned()), Some(Some(-1)))).collect::<Vec<_>>());
        rig.write(&(1..60_000).step_by(5003).map(|i| ((i, "k".to_owned()), None)).collect::<Vec<_>>());
        rig.write(&[row(5), row(6), ((60_001, "new".to_owned()), Some(None))]);
        for flushed in [false, true] {
            if flushed {
                rig.flush().await;
            }
            let now = rig.applied;
            assert_eq!(rig.model_changes(first, now), rig.changes(first, now).await);
            let keys: Vec<RowKey> = rig.model.keys().step_by(613).cloned().collect();
            let found =
                rig.lookup(keys.iter().map(|(a, b)| rig.key(*a, Some(b))).collect(), KeyMatch::Whole, now).await;
            let want = rig.model_at(now);
            assert_eq!(found.len(), keys.iter().filter(|k| want.contains_key(*k)).count());
            assert!(found.iter().all(|(_, (k, v))| want[k] == *v));
            let all = rig.rows(ScanRequest::snapshot(Seq(now))).await;
            assert_eq!(all.into_iter().map(|(_, row)| row).collect::<Vec<_>>(), want.into_iter().collect::<Vec<_>>());
        }
    });
}

/// A scan that begins or ends in the middle of a row group reads from and to a segment; at its borders no row is lost or doubled.
#[test]
fn scans_begin_and_end_anywhere_in_a_large_file() {
    for keyed in [true, false] {
        block_on(async {
            let mut rig = Rig::new(keyed);
            rig.options = millstream_storage::sst::SstOptions { row_group_rows: 10_000, ..Default::default() };
            let rows: Vec<(RowKey, Value)> = (0..30_000).map(|i| ((i, "k".to_owned()), Some(i64::from(i)))).collect();
            for part in rows.chunks(7001) {
                rig.write(&part.iter().map(|(k, v)| (k.clone(), Some(*v))).collect::<Vec<_>>());
            }
            rig.flush().await;
            let position = |i: usize| match keyed {
                true => Pos::At(rig.key(rows[i].0.0, Some(&rows[i].0.1))),
                false => Pos::At(Key::append(rig.log[i].0, rig.log[i].1)),
            };
            let segment = millstream_storage::sst::SEGMENT_ROWS;
            let edges = [segment, 2 * segment, 4 * segment, 10_000, 12_048, 20_000, 7001, 14_002];
            let places = edges.into_iter().flat_map(|e| [e - 2, e - 1, e, e + 1]).chain([0, 5, 17_777, 29_998, 29_999]);
            for i in places {
                let to = Seq(rig.applied);
                let plain = |found: Vec<(Op, (RowKey, Value))>| found.into_iter().map(|(_, r)| r).collect::<Vec<_>>();
                let after = rig.rows(ScanRequest { after: position(i), ..ScanRequest::snapshot(to) }).await;
                assert_eq!(plain(after), rows[i + 1..], "keyed {keyed} after {i}");
                let until = rig.rows(ScanRequest { until: position(i), ..ScanRequest::snapshot(to) }).await;
                assert_eq!(plain(until), rows[..=i], "keyed {keyed} until {i}");
                let both = ScanRequest { after: position(i / 2), until: position(i), ..ScanRequest::snapshot(to) };
                assert_eq!(
                    plain(rig.rows(both).await),
                    rows[i / 2 + 1..(i + 1).max(i / 2 + 1)],
                    "keyed {keyed} to {i}"
                );
            }
        });
    }
}

/// A scan over hidden rows tells where it is and can be resumed there.
#[test]
fn scan_resumes_after_each_mark() {
    block_on(async {
        let mut rig = Rig::new(true);
        rig.options = Default::default();
        rig.horizon = i64::MAX;
        for start in (0..200_000).step_by(20_000) {
            rig.write(&(start..start + 20_000).map(|i| ((i, String::new()), Some(None))).collect::<Vec<_>>());
        }
        rig.flush().await;
        rig.write(&(0..199_990).map(|i| ((i, String::new()), None)).collect::<Vec<_>>());
        let items = rig.scan(ScanRequest::snapshot(Seq(rig.applied))).await;
        let marks: Vec<Key> = items
            .iter()
            .filter_map(|i| if let ScanItem::Mark { at, .. } = i { Some(at.clone()) } else { None })
            .collect();
        assert!(marks.len() >= 5, "{} marks", marks.len());
        let scanned: u64 = items
            .iter()
            .map(|i| match i {
                ScanItem::Mark { scanned, .. } | ScanItem::Rows { scanned, .. } => *scanned,
            })
            .sum();
        assert_eq!(scanned, 200_000 + 199_990);
        for mark in marks {
            let rest = rig.rows(ScanRequest { after: Pos::At(mark), ..ScanRequest::snapshot(Seq(rig.applied)) }).await;
            assert_eq!(
                rest.iter().map(|(_, ((a, _), _))| *a).collect::<Vec<_>>(),
                (199_990..200_000).collect::<Vec<_>>()
            );
        }
        let count = rig.scan(ScanRequest { columns: Some(vec![]), ..ScanRequest::snapshot(Seq(rig.applied)) }).await;
        let rows: usize =
            count.iter().map(|i| if let ScanItem::Rows { chunk, .. } = i { chunk.rows.num_rows() } else { 0 }).sum();
        assert_eq!(rows, 10);
    });
}
