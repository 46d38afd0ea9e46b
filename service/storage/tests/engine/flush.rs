//! Flush, pressure, compaction and pins: what is kept, what waits, what is refused (R1, R2, R3).

use std::{collections::BTreeMap, time::Duration};

use millstream_storage::{Pin, PinOwner, ScanRequest, Storage, StorageConfig, StorageError, listener::Point};
use millstream_types::{Classified, ErrorKind, InputId, JobId, Op, OutBatch, Seq};

use super::env::{
    Env, append_schema, appended, as_of, at, checkpoint, content, eventually, job_writer, keyed_schema, scanned,
    shared_spec, small, topic_spec, write,
};
use crate::data::faulty::{Verb, When};

fn big(region: i64, n: i64) -> Vec<(i64, Option<i64>)> {
    (0..n).map(|i| (region * 1_000_000 + i, Some(i))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_flush_returns_sequence() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    let (_, end) = write(&region, &[(1, Some(10)), (2, Some(20))], 1).await.unwrap();
    assert_eq!(region.flush().await.unwrap(), end);
    assert_eq!(region.flush().await.unwrap(), end);
    let status = region.status();
    assert_eq!((status.flushed, status.memtable_rows, status.files.len()), (end, 0, 1));
    write(&region, &[(2, None), (3, Some(30))], 2).await.unwrap();
    assert_eq!(content(&region).await, BTreeMap::from([(1, 10), (3, 30)]));
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(content(&region).await, BTreeMap::from([(1, 10), (3, 30)]));
    assert_eq!(env.engine.write_buffer().0 as u64, region.status().memtable_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_overlap_commits_do_not() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    env.gates.hold(Point::SstUploaded);
    let mut flushes = Vec::new();
    for i in 0..3 {
        write(&region, &[(i, Some(i))], i as u128 + 1).await.unwrap();
        let r = region.clone();
        flushes.push(tokio::spawn(async move { r.flush().await }));
        eventually("frozen", async || {
            (env.gates.passed(Point::Frozen) == i as usize + 1, env.gates.passed(Point::Frozen))
        })
        .await;
    }
    env.gates.waiting(Point::SstUploaded).await;
    assert_eq!(appended(&region).await, [0, 1, 2]);
    env.gates.release(Point::SstUploaded);
    for f in flushes {
        f.await.unwrap().unwrap();
    }
    let ranges: Vec<_> = region.status().files.iter().map(|f| (f.from, f.end)).collect();
    assert_eq!(ranges.len(), 3);
    assert!(ranges.windows(2).all(|w| w[0].1 <= w[1].0), "{ranges:?}");
    assert_eq!(appended(&region).await, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flush_retries_with_a_failing_bucket_and_lists_files_once() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    // More failures than the bucket's own retries take.
    env.store.fail(Verb::Put, "/sst/", When::Before, 400);
    assert!(region.flush().await.is_err());
    assert_eq!(appended(&region).await, [1]);
    eventually("flushed in the end", async || (region.status().files.len() == 1, region.status())).await;
    // The answer of a manifest put is lost: read back, not repeated.
    write(&region, &[(2, Some(2))], 2).await.unwrap();
    env.store.fail(Verb::Put, "/manifest/", When::After, 1);
    region.flush().await.unwrap();
    let status = region.status();
    assert_eq!((status.files.len(), status.files.iter().map(|f| f.rows).sum::<u64>()), (2, 2));
    assert_eq!(env.store.left(), 0);
    assert_eq!(appended(&region).await, [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_region_flushes_itself() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    for i in 0..12 {
        write(&region, &big(i, 8000), i as u128 + 1).await.unwrap();
    }
    eventually("flushed", async || (!region.status().files.is_empty(), region.status().memtable_bytes)).await;
    assert_eq!(appended(&region).await.len(), 96_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn biggest_of_any_worker_flushes() {
    let config = StorageConfig { region_buffer_bytes: 2 << 20, ..small() };
    let env = Env::with(config).await;
    let mut regions = Vec::new();
    for t in 1..=4 {
        regions.push(env.create_open(&shared_spec(t, append_schema())).await);
    }
    for i in 0..8 {
        for (n, region) in regions.iter().enumerate() {
            write(region, &big(i, if n == 2 { 8000 } else { 1000 }), (i * 10 + n as i64 + 1) as u128).await.unwrap();
        }
    }
    eventually("the biggest is flushed", async || (!regions[2].status().files.is_empty(), env.engine.write_buffer()))
        .await;
    assert!(regions[0].status().files.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_reject_and_recovery() {
    let env = Env::new().await;
    let (hot, cold) = (
        env.create_open(&shared_spec(1, append_schema())).await,
        env.create_open(&shared_spec(2, append_schema())).await,
    );
    env.gates.hold(Point::FlushStart);
    let mut id = 0;
    let refused = loop {
        id += 1;
        match write(&hot, &big(id, 8000), id as u128).await {
            Ok(_) => assert!(id < 60, "a region with a stuck flush must stall"),
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
    assert!(matches!(refused, StorageError::WriteBufferFull { retry_after_ms: 100..=10_000, .. }), "{refused}");
    // hot_region_stalls_only_itself
    write(&cold, &[(1, Some(1))], 10_000).await.unwrap();

    let parked = {
        let hot = hot.clone();
        tokio::spawn(async move { write(&hot, &[(0, Some(0))], 20_000).await })
    };
    eventually("parked", async || (env.gates.passed(Point::WriteParked) >= 2, env.gates.passed(Point::WriteParked)))
        .await;
    env.gates.release(Point::FlushStart);
    parked.await.unwrap().unwrap();
    write(&hot, &[(1, Some(1))], 20_001).await.unwrap();
    let rows = appended(&hot).await.len() as i64;
    assert_eq!(rows, (id - 1) * 8000 + 2, "a refused write never turns up");
    hot.flush().await.unwrap();
    cold.flush().await.unwrap();
    eventually("memory returns", async || (env.engine.write_buffer().0 == 0, env.engine.write_buffer())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apply_waits_at_a_stall_and_is_never_rejected() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, keyed_schema())).await;
    let mut writer = job_writer(&env, 5).await;
    env.gates.hold(Point::FlushStart);
    let mut epoch = 0;
    while region.status().memtable_bytes < 2 << 20 {
        epoch += 1;
        checkpoint(&env, &mut writer, 5, epoch, &[(&region, &big(epoch as i64, 8000))]).await;
    }
    let (batch, offsets) = super::env::commit_only(&mut writer, 5, epoch + 1, &[(&region, &[(1, Some(1))])]).await;
    let engine = env.engine.clone();
    let applying = tokio::spawn(async move { batch.apply(&*engine, &offsets).await });
    tokio::time::timeout(Duration::from_millis(600), async { env.gates.waiting(Point::FlushStart).await })
        .await
        .unwrap();
    eventually("parked", async || (env.gates.passed(Point::WriteParked) >= 1, ())).await;
    assert!(!applying.is_finished());
    env.gates.release(Point::FlushStart);
    applying.await.unwrap().unwrap();
    assert_eq!(content(&region).await.len(), epoch as usize * 8000 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_faster_than_the_bucket_waits() {
    let mut env =
        Env::with(StorageConfig { tail_ahead_bytes: 256 << 10, tail_ahead_total_bytes: 512 << 10, ..small() }).await;
    env.log.create_topic("in", 1);
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    env.gates.hold(Point::FlushStart);
    const ROWS: i64 = 300_000;
    let mut batch = OutBatch::new("in", 0);
    for v in 0..ROWS {
        batch.push(0, Some(b"1"), Some(v.to_string().as_bytes()));
    }
    env.log.append(&batch);
    eventually("parked", async || (env.gates.passed(Point::WriteParked) > 0, env.engine.write_buffer())).await;
    assert!(region.applied() < at(ROWS));
    let used = region.status().memtable_bytes;
    assert!(used < 3 << 20, "{used} bytes in the memtable of a stalled region");
    env.gates.release(Point::FlushStart);
    region.wait_applied(at(ROWS)).await.unwrap();
    assert_eq!(appended(&region).await, (0..ROWS).collect::<Vec<_>>());
    // replay_bigger_than_memory
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(appended(&region).await.len() as i64, ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_merges_runs_and_removed_files_are_purged() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    for i in 0..6_i64 {
        write(&region, &[(i, Some(i)), (100, Some(i)), (i - 1, None)], i as u128 + 1).await.unwrap();
        region.flush().await.unwrap();
    }
    let before = content(&region).await;
    assert_eq!(region.status().files.len(), 6);
    region.compact().await.unwrap();
    assert_eq!(region.status().files.len(), 1);
    assert_eq!(content(&region).await, before);
    let folder = format!("regions/{}/sst", spec.id.folder());
    eventually("purged", async || {
        let n = env.bucket.list(&folder).await.unwrap().len();
        (n == 1, n)
    })
    .await;
    env.crash().await;
    assert_eq!(content(&env.engine.open_region(&spec).await.unwrap()).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn automatic_compaction_bounds_the_runs() {
    let mut config = small();
    config.compaction.automatic = true;
    let env = Env::with(config).await;
    let region = env.create_open(&shared_spec(1, keyed_schema())).await;
    for i in 0..40_i64 {
        write(&region, &[(i, Some(i)), (100, Some(i))], i as u128 + 1).await.unwrap();
        region.flush().await.unwrap();
    }
    eventually("few runs", async || (region.status().files.len() <= 12, region.status().files.len())).await;
    assert_eq!(content(&region).await.len(), 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_survive_a_restart_and_are_honoured_by_flush_and_compaction() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    let owner = |input| PinOwner { job: JobId(9), input: InputId(input) };
    let mut history = Vec::new();
    let mut floor = Seq::ZERO;
    for i in 0..8_i64 {
        write(&region, &[(1, Some(i)), (i % 3 + 10, Some(i)), ((i + 1) % 3 + 10, None)], i as u128 + 1).await.unwrap();
        let cut = region.applied();
        history.push((cut, content(&region).await));
        match i {
            2 => region.pin(owner(0), Pin { exact: vec![cut], floor: None }).await.unwrap(),
            5 => {
                floor = cut;
                region.pin(owner(1), Pin { exact: vec![], floor: Some(cut) }).await.unwrap();
            }
            _ => {}
        }
        if i == 4 {
            // Nobody moved a pin since the restart: what the last process published must do.
            env.crash().await;
            break;
        }
    }
    let region = env.engine.open_region(&spec).await.unwrap();
    for i in 5..12_i64 {
        write(&region, &[(1, Some(i)), (i % 3 + 10, Some(i)), ((i + 1) % 3 + 10, None)], 100 + i as u128)
            .await
            .unwrap();
        let cut = region.applied();
        history.push((cut, content(&region).await));
        if i == 7 {
            floor = cut;
            region.pin(owner(1), Pin { exact: vec![], floor: Some(cut) }).await.unwrap();
        }
        region.flush().await.unwrap();
    }
    region.compact().await.unwrap();
    let pinned = history[2].0;
    for (cut, map) in &history {
        let got = scanned(&region, ScanRequest::snapshot(*cut)).await;
        if *cut == pinned || *cut >= floor {
            let got: BTreeMap<i64, i64> = got.unwrap().into_iter().map(|(_, id, v)| (id, v.unwrap())).collect();
            assert_eq!(&got, map, "as of {cut}");
        } else if let Err(e) = got {
            assert_eq!(e.kind(), ErrorKind::NotFound);
        }
    }
    let now = region.applied();
    let changes = scanned(&region, ScanRequest::changes(pinned, now)).await.unwrap();
    let mut replayed = history[2].1.clone();
    for (op, id, v) in changes {
        match op {
            Op::Insert | Op::UpdateInsert => replayed.insert(id, v.unwrap()),
            Op::Delete | Op::UpdateDelete => replayed.remove(&id),
        };
    }
    assert_eq!(replayed, content(&region).await);

    // Without the pins a compaction drops what nobody needs, and says so to those who ask.
    env.engine.unpin_job(JobId(9)).await.unwrap();
    write(&region, &[(1, Some(99))], 999).await.unwrap();
    eventually("history moves on", async || {
        write(&region, &[(1, Some(100))], rand::random()).await.unwrap();
        region.flush().await.unwrap();
        region.compact().await.unwrap();
        let e = scanned(&region, ScanRequest::snapshot(pinned)).await.err();
        (e.is_some(), region.status().history_from)
    })
    .await;
    assert!(env.bucket.list("pins/9").await.unwrap().is_empty());
    assert_eq!(as_of(&region, region.applied()).await, content(&region).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moving_floor_is_published_by_interval_not_by_commit() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, keyed_schema())).await;
    let owner = PinOwner { job: JobId(3), input: InputId(0) };
    for i in 0..50 {
        region.pin(owner, Pin { exact: vec![], floor: Some(at(i)) }).await.unwrap();
    }
    assert_eq!(env.bucket.list("pins/3").await.unwrap().len(), 1);
    assert_eq!(env.gates.passed(Point::PinPut), 1);
    env.engine.publish_pins().await.unwrap();
    env.engine.publish_pins().await.unwrap();
    assert_eq!(env.gates.passed(Point::PinPut), 2);
    assert_eq!(region.status().pins, [(owner, Pin { exact: vec![], floor: Some(at(49)) })]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashed_flush_leaves_no_orphan() {
    let mut config = small();
    config.gc.orphan_age = Duration::ZERO;
    config.gc.upload_max_age = Duration::ZERO;
    let mut env = Env::with(config).await;
    let spec = shared_spec(1, append_schema());
    let region = env.create_open(&spec).await;
    write(&region, &[(1, Some(1))], 1).await.unwrap();
    env.gates.hold(Point::SstUploaded);
    let r = region.clone();
    let flushing = tokio::spawn(async move { r.flush().await });
    env.gates.waiting(Point::SstUploaded).await;
    env.crash().await;
    flushing.abort();
    let region = env.engine.open_region(&spec).await.unwrap();
    region.flush().await.unwrap();
    let folder = format!("regions/{}/sst", spec.id.folder());
    assert_eq!(env.bucket.list(&folder).await.unwrap().len(), 2);
    env.engine.sweep().await;
    assert_eq!(env.bucket.list(&folder).await.unwrap().len(), 1);
    assert_eq!(appended(&region).await, [1]);
}
