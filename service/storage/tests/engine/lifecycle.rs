//! Regions come and go (R1, R4): creation is idempotent, a claim fences, a drop is finished by whoever comes next.

use std::{collections::BTreeMap, sync::Arc};

use millstream_storage::{Region, Storage, StorageError, listener::Point};
use millstream_types::{Classified, Column, Epoch, ErrorKind, SqlType, TableSchema};

use super::env::{Env, append_schema, content, eventually, keyed_schema, shared_spec, topic_spec, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_is_idempotent() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    env.engine.create_region(&spec).await.unwrap();
    env.engine.create_region(&spec).await.unwrap();
    let region = env.create_open(&spec).await;
    write(&region, &[(1, Some(10))], 1).await.unwrap();
    env.engine.create_region(&spec).await.unwrap();
    assert_eq!(content(&region).await, BTreeMap::from([(1, 10)]));

    let other = shared_spec(1, append_schema());
    assert!(matches!(env.engine.create_region(&other).await, Err(StorageError::RegionDiffers { what: "schema", .. })));
    assert_eq!(env.engine.open_region(&shared_spec(9, keyed_schema())).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_joins_waiters() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    env.engine.create_region(&spec).await.unwrap();
    env.gates.hold(Point::EndCaptured);
    let opens: Vec<_> = (0..4)
        .map(|_| {
            let (engine, spec) = (env.engine.clone(), spec.clone());
            tokio::spawn(async move { engine.open_region(&spec).await.map(|r| r.leader_epoch()) })
        })
        .collect();
    env.gates.waiting(Point::EndCaptured).await;
    env.gates.release(Point::EndCaptured);
    for open in opens {
        assert_eq!(open.await.unwrap().unwrap().0, 1, "one claim for all");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reopen_continues_sequences() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    let (_, first) = write(&region, &[(1, Some(10)), (2, Some(20))], 1).await.unwrap();
    env.engine.close_region(spec.id).await.unwrap();
    assert!(env.engine.region(spec.id).is_none());
    assert_eq!(write(&region, &[(3, Some(30))], 2).await.unwrap_err().kind(), ErrorKind::NotFound);
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(region.leader_epoch().0, 2);
    assert!(region.applied() >= first);
    let (second, _) = write(&region, &[(3, Some(30))], 3).await.unwrap();
    assert!(second >= first);
    assert_eq!(content(&region).await, BTreeMap::from([(1, 10), (2, 20), (3, 30)]));
    env.engine.close_region(spec.id).await.unwrap();
    env.engine.close_region(spec.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_one_corrupt_of_many() {
    let mut env = Env::new().await;
    let specs: Vec<_> = (1..=3).map(|t| shared_spec(t, keyed_schema())).collect();
    for spec in &specs {
        let region = env.create_open(spec).await;
        write(&region, &[(1, Some(i64::from(spec.id.table.0)))], u128::from(spec.id.table.0)).await.unwrap();
    }
    let path = format!("regions/{}/manifest/{:020}.json", specs[1].id.folder(), 1);
    env.bucket.put(&path, bytes::Bytes::from_static(b"{}")).await.unwrap();
    env.crash().await;
    let opened = env.engine.open_regions(specs).await;
    let kinds: Vec<_> = opened.iter().map(|(_, r)| r.as_ref().map(|_| ()).map_err(|e| e.kind())).collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Corrupt), Ok(())]);
    let third: &Arc<dyn Region> = opened[2].1.as_ref().unwrap();
    assert_eq!(content(third).await, BTreeMap::from([(1, 3)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_cannot_commit_after_fencing() {
    let env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let old = env.create_open(&spec).await;
    write(&old, &[(1, Some(10))], 1).await.unwrap();
    let second = env.second().await;
    let new = second.open_region(&spec).await.unwrap();
    assert_eq!(content(&new).await, BTreeMap::from([(1, 10)]));

    // Its writes are fenced by the producer, its flush by the manifest.
    let e = write(&old, &[(2, Some(20))], 2).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Fenced, "{e}");
    eventually("the region is fenced", async || (old.status().state == "fenced", old.status().state)).await;
    assert_eq!(old.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(write(&old, &[(2, Some(20))], 3).await.unwrap_err().kind(), ErrorKind::Fenced);

    write(&new, &[(3, Some(30))], 4).await.unwrap();
    new.flush().await.unwrap();
    assert_eq!(content(&new).await, BTreeMap::from([(1, 10), (3, 30)]));
    assert_eq!(new.status().files.len(), 1);
    second.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_an_older_leader_is_fenced_and_waiters_hear_it() {
    let env = Env::new().await;
    env.log.create_topic("in", 1);
    let spec = topic_spec(&env, 1, "in", keyed_schema()).await;
    let old = env.create_open(&spec).await;
    env.log.put("in", 0, Some("1"), Some("10"));
    old.wait_applied(super::env::at(1)).await.unwrap();
    let second = env.second().await;
    let new = second.open_region(&spec).await.unwrap();
    assert_eq!(old.flush().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(old.wait_applied(super::env::at(100)).await.unwrap_err().kind(), ErrorKind::Fenced);
    new.flush().await.unwrap();
    assert_eq!(content(&new).await, BTreeMap::from([(1, 10)]));
    second.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drop_is_idempotent_and_finished_by_the_next_process() {
    let mut env = Env::new().await;
    let spec = shared_spec(1, keyed_schema());
    let region = env.create_open(&spec).await;
    write(&region, &[(1, Some(10))], 1).await.unwrap();
    region.flush().await.unwrap();
    env.gates.hold(Point::DropMarked);
    let (engine, id) = (env.engine.clone(), spec.id);
    let drop = tokio::spawn(async move { engine.drop_region(id).await });
    env.gates.waiting(Point::DropMarked).await;
    drop.abort();
    env.crash().await;
    assert_eq!(env.engine.open_region(&spec).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(matches!(env.engine.create_region(&spec).await, Err(StorageError::WrongState { state: "dropping", .. })));
    env.engine.sweep().await;
    assert!(env.bucket.list(&format!("regions/{}", spec.id.folder())).await.unwrap().is_empty());
    env.engine.drop_region(spec.id).await.unwrap();
    env.engine.drop_region(spec.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_cuts_every_open_region_at_what_is_applied() {
    let env = Env::new().await;
    let specs: Vec<_> = (1..=5).map(|t| shared_spec(t, keyed_schema())).collect();
    let mut ends = BTreeMap::new();
    for spec in &specs {
        let region = env.create_open(spec).await;
        let (_, end) = write(&region, &[(1, Some(1))], u128::from(spec.id.table.0)).await.unwrap();
        ends.insert(spec.id, end);
    }
    let cuts = env.engine.barrier(Epoch(7)).await;
    assert_eq!(cuts.epoch, Epoch(7));
    for (id, end) in &ends {
        assert_eq!(cuts.cuts[id], *end);
    }
    assert_eq!(cuts.cuts.len(), 5);
    env.engine.close_region(specs[0].id).await.unwrap();
    assert_eq!(env.engine.barrier(Epoch(8)).await.cuts.len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_do_not_fit_are_refused_before_they_are_logged() {
    let env = Env::new().await;
    let region = env.create_open(&shared_spec(1, append_schema())).await;
    let e = write(&region, &[(1, None)], 1).await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Invalid, "{e}");
    let texts = TableSchema { id: 1, columns: vec![Column::new(1, "t", SqlType::Varchar)], primary_key: vec![] };
    let (rows, ops) = (arrow::array::RecordBatch::new_empty(texts.arrow()), Vec::new());
    assert_eq!(region.write(rows, ops, 2).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(env.log.ends(&millstream_types::TopicPartition::new(super::env::WAL, 0)).unwrap().high_watermark.0, 0);
}
