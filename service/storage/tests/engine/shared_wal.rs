//! The shared WAL: client writes with every outcome, checkpoints applied once, replay, pruning (R2, S2, K1).

use std::{collections::BTreeMap, time::Duration};

use millstream_storage::{
    Storage, StorageError,
    listener::Point,
    wal::{EpochBatch, entry::EntryLimits},
};
use millstream_types::{
    Classified, CommitOutcome, Epoch, ErrorKind, JobId, LogSystem, Op, OutBatch, ShardId, TopicPartition,
    testing::CommitFault,
};

use super::env::{
    Env, WAL, append_schema, appended, as_of, batch, checkpoint, commit_only, content, epoch_batch, eventually,
    job_writer, keyed_schema, shared_spec, small, write,
};

fn wal() -> TopicPartition {
    TopicPartition::new(WAL, 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ack_implies_visible() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, keyed_schema())).await;
    for i in 0..50 {
        let (from, end) = write(&region, &[(i, Some(i * 2)), (1000, Some(i))], i as u128 + 1).await.unwrap();
        assert!(from < end && region.applied() >= end);
        let map = as_of(&region, end).await;
        assert_eq!((map[&i], map[&1000], map.len()), (i * 2, i, i as usize + 2));
    }
    let before = region.applied();
    write(&region, &[(3, None)], 1000).await.unwrap();
    assert!(!content(&region).await.contains_key(&3));
    assert!(as_of(&region, before).await.contains_key(&3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_share_transactions() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    let gate = env.log.hold_commits();
    let writes: Vec<_> = (0..40)
        .map(|i| {
            let region = region.clone();
            tokio::spawn(async move { write(&region, &[(i, Some(i))], i as u128 + 1).await })
        })
        .collect();
    gate.reached(1).await;
    gate.release();
    for w in writes {
        w.await.unwrap().unwrap();
    }
    let mut values = appended(&region).await;
    values.sort_unstable();
    assert_eq!(values, (0..40).collect::<Vec<_>>());
    assert!(env.gates.passed(Point::AppendCommitted) < 40, "{} transactions", env.gates.passed(Point::AppendCommitted));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_id_repeated() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, append_schema());
    let region = env.create_open(&spec).await;
    let first = write(&region, &[(1, Some(1))], 77).await.unwrap();
    assert_eq!(write(&region, &[(1, Some(1))], 77).await.unwrap(), first);
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(write(&region, &[(1, Some(1))], 77).await.unwrap(), first, "found in the replayed log");
    assert_eq!(appended(&region).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_was_aborted_is_reported_and_absent() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    env.log.abort_next_commit();
    let e = write(&region, &[(1, Some(1))], 1).await.unwrap_err();
    assert!(matches!(e, StorageError::AppendFailed { .. }), "{e}");
    write(&region, &[(2, Some(2))], 2).await.unwrap();
    assert_eq!(appended(&region).await, [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_append_committed() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    env.log.fail_next_commit(CommitFault::Unknown { committed: true });
    let (from, end) = write(&region, &[(2, Some(2))], 2).await.unwrap();
    assert!(region.applied() >= end && from < end);
    write(&region, &[(3, Some(3))], 3).await.unwrap();
    assert_eq!(appended(&region).await, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_append_lost() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    env.log.fail_next_commit(CommitFault::Unknown { committed: false });
    let e = write(&region, &[(2, Some(2))], 2).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    write(&region, &[(2, Some(2))], 2).await.unwrap();
    assert_eq!(appended(&region).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_append_is_unknown_until_it_is_known() {
    let mut config = small();
    config.wal.append_deadline = Duration::from_millis(50);
    let env = Env::with(config).await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    let gate = env.log.hold_commits();
    let e = write(&region, &[(1, Some(1))], 9).await.unwrap_err();
    assert!(matches!(e, StorageError::AppendUnknown { write_id: 9, .. }), "{e}");
    let asked = {
        let region = region.clone();
        tokio::spawn(async move { write(&region, &[(1, Some(1))], 9).await })
    };
    gate.release();
    asked.await.unwrap().unwrap();
    assert_eq!(appended(&region).await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_write_is_cut_into_entries_and_stays_one_write() {
    let mut config = small();
    config.wal.entry_bytes = 4096;
    let mut env = Env::with(config).await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    let rows: Vec<_> = (0..5000).map(|i| (i, Some(i))).collect();
    let (from, end) = write(&region, &rows, 1).await.unwrap();
    assert!(end.0 - from.0 > 10, "{from} to {end}");
    let expected: BTreeMap<i64, i64> = (0..5000).map(|i| (i, i)).collect();
    assert_eq!(content(&region).await, expected);
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(content(&region).await, expected);
    assert_eq!(write(&region, &rows, 1).await.unwrap(), (from, end), "its write id covers all entries");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_applied_once_also_when_it_is_replayed() {
    let mut env = Env::new().await;
    let (view, progress) = (shared_spec(1, keyed_schema()), shared_spec(2, keyed_schema()));
    let (v, p) = (env.create_open(&view).await, env.create_open(&progress).await);
    let mut writer = job_writer(&env, 5).await;
    checkpoint(&env, &mut writer, 5, 100, &[(&v, &[(1, Some(1)), (2, Some(2))]), (&p, &[(0, Some(100))])]).await;
    let (batch, offsets) =
        commit_only(&mut writer, 5, 101, &[(&v, &[(2, None), (3, Some(3))]), (&p, &[(0, Some(101))])]).await;
    env.engine.replay_shard(ShardId(0), JobId(5), &[view.id, progress.id]).await.unwrap();
    let expected = BTreeMap::from([(1, 1), (3, 3)]);
    assert_eq!((content(&v).await, content(&p).await), (expected.clone(), BTreeMap::from([(0, 101)])));
    batch.apply(&*env.engine, &offsets).await.unwrap();
    batch.apply(&*env.engine, &offsets).await.unwrap();
    env.engine.replay_shard(ShardId(0), JobId(5), &[view.id, progress.id]).await.unwrap();
    assert_eq!(content(&v).await, expected);

    // Committed, not applied, crash: the start applies it.
    commit_only(&mut writer, 5, 102, &[(&v, &[(4, Some(4))]), (&p, &[(0, Some(102))])]).await;
    env.crash().await;
    for (_, r) in env.engine.open_regions(vec![view.clone(), progress.clone()]).await {
        r.unwrap();
    }
    let (v, p) = (env.engine.region(view.id).unwrap(), env.engine.region(progress.id).unwrap());
    assert_eq!(
        (content(&v).await, content(&p).await),
        (BTreeMap::from([(1, 1), (3, 3), (4, 4)]), BTreeMap::from([(0, 102)]))
    );
    env.engine.replay_shard(ShardId(0), JobId(5), &[view.id, progress.id]).await.unwrap();
    assert_eq!(content(&v).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_commit_is_resolved_both_ways() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let v = env.create_open(&spec).await;
    let mut writer = job_writer(&env, 5).await;
    for committed in [true, false] {
        env.log.fail_next_commit(CommitFault::Unknown { committed });
        let epoch = if committed { 100 } else { 101 };
        let batch = epoch_batch(5, epoch, &[(&v, &[(epoch as i64, Some(1))])]);
        assert!(matches!(writer.commit(std::slice::from_ref(batch.out_batch())).await, CommitOutcome::Unknown(_)));
        writer.init().await.unwrap();
        env.engine.replay_shard(ShardId(0), JobId(5), &[spec.id]).await.unwrap();
        assert_eq!(content(&v).await.contains_key(&(epoch as i64)), committed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_reads_to_the_high_watermark() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, append_schema());
    let region = env.create_open(&spec).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    let mut foreign = OutBatch::new(WAL, 0);
    foreign.push(0, None, Some(b"open"));
    env.log.open_transaction("t.other", &foreign);
    // Ours is committed above another's open transaction: no reader sees it before that one ends.
    write(&region, &[(2, Some(2))], 2).await.unwrap();
    env.crash().await;
    let (engine, again) = (env.engine.clone(), spec.clone());
    let opening = tokio::spawn(async move { engine.open_region(&again).await.unwrap() });
    eventually("the end is captured", async || (env.gates.passed(Point::EndCaptured) > 0, ())).await;
    assert!(!opening.is_finished());
    env.log.end_transaction("t.other", false);
    assert_eq!(appended(&opening.await.unwrap()).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_record_is_skipped_and_corrupt_entry_hurts_one_region() {
    let mut env = Env::new().await;
    let (good, bad) = (shared_spec(1, append_schema()), shared_spec(2, append_schema()));
    let (g, b) = (env.create_open(&good).await, env.create_open(&bad).await);
    write(&g, &[(1, Some(1))], 1).await.unwrap();
    env.log.put(WAL, 0, None, Some("hello"));
    let mut broken = OutBatch::new(WAL, 0);
    broken.push(
        0,
        Some(&bad.id.as_u64().to_be_bytes()),
        Some(b"MSW1 but nothing that follows has a checksum that fits, by far not"),
    );
    env.log.append(&broken);
    write(&b, &[(1, Some(1))], 2).await.unwrap();
    write(&g, &[(2, Some(2))], 3).await.unwrap();
    env.crash().await;
    let opened = env.engine.open_regions(vec![good.clone(), bad.clone()]).await;
    assert_eq!(appended(opened[0].1.as_ref().unwrap()).await, [1, 2]);
    assert_eq!(opened[1].1.as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
    eventually("quarantined", async || {
        let state = env.engine.region(bad.id).map(|r| r.status().state);
        (state == Some("quarantined"), state)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_somebody_else_trimmed_is_a_loss_and_no_empty_log() {
    let mut env = Env::new().await;
    let (flushed, lost) = (shared_spec(1, append_schema()), shared_spec(2, append_schema()));
    let (f, l) = (env.create_open(&flushed).await, env.create_open(&lost).await);
    write(&l, &[(1, Some(1))], 1).await.unwrap();
    write(&f, &[(1, Some(1))], 2).await.unwrap();
    f.flush().await.unwrap();
    env.crash().await;
    let end = env.log.ends(&wal()).unwrap().high_watermark.0;
    // Up to what one region has in files, and the whole log.
    for to in [f.status().flushed.0, end] {
        env.log.trim(&wal(), to);
        let opened = env.engine.open_regions(vec![flushed.clone(), lost.clone()]).await;
        if to < end {
            assert_eq!(appended(opened[0].1.as_ref().unwrap()).await, [1]);
        }
        let error = opened[1].1.as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("starts at {to}")), "{error}");
        env.crash().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_outcome_was_trimmed_away_stays_unknown() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    env.gates.hold(Point::AppendUnknown);
    env.log.fail_next_commit(CommitFault::Unknown { committed: true });
    let asked = {
        let region = region.clone();
        tokio::spawn(async move { write(&region, &[(2, Some(2))], 2).await })
    };
    env.gates.waiting(Point::AppendUnknown).await;
    env.log.trim(&wal(), env.log.ends(&wal()).unwrap().high_watermark.0);
    env.gates.release(Point::AppendUnknown);
    let e = asked.await.unwrap().unwrap_err();
    assert!(matches!(e, StorageError::AppendUnknown { write_id: 2, .. }), "{e}");
    eventually("the region is quarantined: its rows are lost", async || {
        (region.status().state == "quarantined", region.status().state)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_made_again_takes_no_rows_of_regions_that_are_further() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, append_schema());
    let region = env.create_open(&spec).await;
    for i in 0..5 {
        write(&region, &[(i, Some(i))], i as u128 + 1).await.unwrap();
    }
    region.flush().await.unwrap();
    env.log.recreate_topic(WAL);
    let error = write(&region, &[(9, Some(9))], 9).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "offset 0 would count as applied: {error}");
    env.crash().await;
    let error = env.engine.open_region(&spec).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains("created again"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_the_broker_fenced_for_being_slow_goes_on() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    // The broker ends a transaction that stands too long, and raises the epoch of its producer.
    env.log.epoch_writer(&format!("t.shard.{}", ShardId(0))).init().await.unwrap();
    let e = write(&region, &[(2, Some(2))], 2).await.unwrap_err();
    assert!(matches!(e, StorageError::AppendFailed { .. }), "nothing was written, and it may be tried again: {e}");
    write(&region, &[(2, Some(2))], 3).await.unwrap();
    assert_eq!(appended(&region).await, [1, 2]);
    assert_eq!(region.status().state, "writable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_removes_nothing_needed() {
    let mut env = Env::new().await;
    let specs = [shared_spec(1, append_schema()), shared_spec(2, keyed_schema()), shared_spec(3, append_schema())];
    let mut regions = Vec::new();
    for spec in &specs {
        regions.push(env.create_open(spec).await);
    }
    write(&regions[0], &[(1, Some(1))], 1).await.unwrap();
    let (kept, _) = write(&regions[1], &[(1, Some(1))], 2).await.unwrap();
    write(&regions[0], &[(2, Some(2))], 3).await.unwrap();
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start.0, 0, "region 1 needs its first row");
    regions[0].flush().await.unwrap();
    env.engine.prune().await;
    assert_eq!(
        env.log.ends(&wal()).unwrap().start.0,
        kept.0,
        "now region 2 holds it back; region 3 has no rows and holds nothing"
    );

    // A closed region counts by its manifest.
    env.engine.close_region(specs[1].id).await.unwrap();
    write(&regions[0], &[(3, Some(3))], 4).await.unwrap();
    regions[0].flush().await.unwrap();
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start.0, kept.0);
    // So does one that a new process never opens.
    env.crash().await;
    let first = env.engine.open_region(&specs[0]).await.unwrap();
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start.0, kept.0);

    let second = env.engine.open_region(&specs[1]).await.unwrap();
    assert_eq!(content(&second).await, BTreeMap::from([(1, 1)]));
    second.flush().await.unwrap();
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start.0, kept.0, "region 3 is not open: nobody knows that it has no rows");
    env.engine.open_region(&specs[2]).await.unwrap();
    env.engine.prune().await;
    let stable = env.log.ends(&wal()).unwrap();
    assert_eq!(stable.start, stable.stable);
    env.crash().await;
    let opened = env.engine.open_regions(specs.to_vec()).await;
    assert_eq!(appended(opened[0].1.as_ref().unwrap()).await, [1, 2, 3]);
    assert_eq!(content(opened[1].1.as_ref().unwrap()).await, BTreeMap::from([(1, 1)]));
    drop(first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_no_region_has_yet_hold_back_the_prune() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let v = env.create_open(&spec).await;
    let mut writer = job_writer(&env, 5).await;
    let (batch, offsets) = commit_only(&mut writer, 5, 100, &[(&v, &[(1, Some(1))])]).await;
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start.0, 0);
    batch.apply(&*env.engine, &offsets).await.unwrap();
    v.flush().await.unwrap();
    env.engine.prune().await;
    assert_eq!(env.log.ends(&wal()).unwrap().start, env.log.ends(&wal()).unwrap().stable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_region_does_not_read_the_old_log() {
    let env = Env::new().await;
    let old = env.create_open(&shared_spec(1, append_schema())).await;
    let (_, end) = write(&old, &[(1, Some(1))], 1).await.unwrap();
    let new = env.create_open(&shared_spec(2, append_schema())).await;
    assert!(new.status().flushed >= end);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_batch_is_the_same_applied_and_replayed() {
    let mut env = Env::new().await;
    let specs = [shared_spec(1, keyed_schema()), shared_spec(2, append_schema())];
    let (view, log) = (env.create_open(&specs[0]).await, env.create_open(&specs[1]).await);
    let mut writer = job_writer(&env, 5).await;
    checkpoint(&env, &mut writer, 5, 1, &[(&view, &[(1, Some(1)), (2, Some(2))])]).await;
    // An update pair is one put; small entries are cut; the end comes last.
    let (mut rows, mut ops) = batch(&keyed_schema(), &[(1, Some(1)), (1, Some(10)), (2, None), (3, Some(3))]);
    ops.splice(0..2, [Op::UpdateDelete, Op::UpdateInsert]);
    let limits = EntryLimits { entry_bytes: 2048, max_row_bytes: 1 << 20 };
    let mut epoch = EpochBatch::new(WAL, ShardId(0), JobId(5), Epoch(2), 7).with_limits(limits);
    epoch.add(&*view, rows.clone(), ops).unwrap();
    rows = batch(&append_schema(), &(0..1000).map(|i| (i, Some(i))).collect::<Vec<_>>()).0;
    epoch.add(&*log, rows, vec![Op::Insert; 1000]).unwrap();
    epoch.end(b"positions");
    let out = epoch.out_batch();
    assert!(out.want_offsets && out.len() > 8 && epoch.size_bytes() > out.size_bytes(), "{} records", out.len());
    let CommitOutcome::Committed { offsets } = writer.commit(std::slice::from_ref(out)).await else {
        panic!("not committed")
    };
    epoch.apply(&*env.engine, &offsets[0]).await.unwrap();
    let applied = (content(&view).await, appended(&log).await);
    assert_eq!(applied, (BTreeMap::from([(1, 10), (3, 3)]), (0..1000).collect()));
    env.crash().await;
    let opened = env.engine.open_regions(specs.to_vec()).await;
    let replayed = (content(opened[0].1.as_ref().unwrap()).await, appended(opened[1].1.as_ref().unwrap()).await);
    assert_eq!(replayed, applied);
}
