//! Topic-fed regions: tails that end in markers, restart at the flushed offset, lost ranges under both policies, recreated topics (K1, R2).

use std::collections::BTreeMap;

use millstream_storage::{RegionSpec, Storage, StorageError, api::OnDataLoss, listener::Point};
use millstream_types::{Classified, ErrorKind, OutBatch, TopicPartition};

use super::env::{Env, append_schema, appended, at, content, eventually, keyed_schema, topic_spec};

fn input() -> TopicPartition {
    TopicPartition::new("in", 0)
}

fn records(values: std::ops::Range<i64>) -> OutBatch {
    let mut batch = OutBatch::new("in", 0);
    for v in values {
        batch.push(0, Some(v.to_string().as_bytes()), Some(v.to_string().as_bytes()));
    }
    batch
}

async fn env_with_topic() -> Env {
    let env = Env::new().await;
    env.log.create_topic("in", 1);
    env
}

fn policy(spec: &RegionSpec, on_data_loss: OnDataLoss) -> RegionSpec {
    RegionSpec { on_data_loss, ..spec.clone() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_become_rows_and_tombstones_delete() {
    let env = env_with_topic().await;
    env.log.append(&records(0..100));
    let region = env.create_open(&topic_spec(&env, 1, "in", keyed_schema()).await).await;
    assert_eq!(content(&region).await.len(), 100, "what was there at CREATE is there when it returns");
    env.log.put("in", 0, Some("7"), None);
    env.log.put("in", 0, Some("8"), Some("80"));
    env.log.put("in", 0, Some("no number"), Some("1"));
    region.wait_applied(at(103)).await.unwrap();
    let map = content(&region).await;
    assert_eq!((map.get(&7), map.get(&8), map.len()), (None, Some(&80), 99));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tail_that_ends_in_markers_is_read_to_its_end() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    env.log.open_transaction("producer", &records(0..3));
    env.log.end_transaction("producer", true);
    env.log.open_transaction("producer", &records(3..5));
    env.log.end_transaction("producer", false);
    let end = env.log.ends(&input()).unwrap().stable;
    let region = env.create_open(&spec).await;
    assert_eq!(region.applied(), end.into(), "the position moved over an aborted tail and its marker");
    assert_eq!(appended(&region).await, [0, 1, 2]);
    // Compaction may take markers and aborted records away altogether.
    env.log.compact(&input(), true);
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!((region.applied(), appended(&region).await), (end.into(), vec![0, 1, 2]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_reads_from_flushed_and_doubles_nothing() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    let mut written = 0;
    for round in 0..6 {
        env.log.append(&records(written..written + 50));
        written += 50;
        let region = env.engine.region(spec.id).unwrap();
        region.wait_applied(at(written)).await.unwrap();
        if round % 2 == 0 {
            assert_eq!(region.flush().await.unwrap(), at(written));
            // What retention removes below flushed is not missed.
            env.log.trim(&input(), written);
        }
        env.crash().await;
        let region = env.engine.open_region(&spec).await.unwrap();
        assert_eq!(appended(&region).await, (0..written).collect::<Vec<_>>());
    }
    drop(region);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_at_each_step_of_a_flush_loses_and_doubles_nothing() {
    for point in [
        Point::Frozen,
        Point::FlushStart,
        Point::SstUploaded,
        Point::ManifestPutSent,
        Point::ManifestPutDone,
        Point::VersionSwapped,
    ] {
        let mut env = env_with_topic().await;
        let spec = topic_spec(&env, 1, "in", append_schema()).await;
        let region = env.create_open(&spec).await;
        env.log.append(&records(0..500));
        region.wait_applied(at(500)).await.unwrap();
        env.gates.hold(point);
        let flushing = tokio::spawn(async move { region.flush().await });
        match point {
            // Passed by the loop, which nobody can hold.
            Point::Frozen | Point::VersionSwapped => {
                eventually("point", async || (env.gates.passed(point) > 0, ())).await;
            }
            _ => env.gates.waiting(point).await,
        }
        env.crash().await;
        flushing.abort();
        let region = env.engine.open_region(&spec).await.unwrap();
        assert_eq!(appended(&region).await, (0..500).collect::<Vec<_>>(), "{point:?}");
        region.flush().await.unwrap();
        assert_eq!(appended(&region).await, (0..500).collect::<Vec<_>>(), "{point:?}");
        let status = region.status();
        assert_eq!(status.files.iter().map(|f| f.rows).sum::<u64>(), 500, "{point:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_that_were_added_are_told_since_nobody_reads_them() {
    let env = env_with_topic().await;
    let region = env.create_open(&topic_spec(&env, 1, "in", append_schema()).await).await;
    env.engine.guard().await;
    assert_eq!(region.status().reason, None);
    let partitions = env.log.system().admin().describe("in").await.unwrap().unwrap().partitions;
    env.log.grow_topic("in", partitions + 2);
    env.engine.guard().await;
    let status = region.status();
    assert_eq!(status.state, "writable");
    let reason = status.reason.unwrap();
    assert!(reason.starts_with("partition_growth") && reason.contains("partitions more than at CREATE"), "{reason}");
    env.log.append(&records(0..10));
    region.wait_applied(at(10)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_position_follows_the_policy() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    env.log.append(&records(0..10));
    region.wait_applied(at(10)).await.unwrap();
    region.flush().await.unwrap();
    env.engine.kill().await;
    env.log.append(&records(10..30));
    env.log.trim(&input(), 20);
    env.crash().await;

    let e = env.engine.open_region(&spec).await.unwrap_err();
    let StorageError::DataLoss { from, to, .. } = &e else { panic!("{e}") };
    assert_eq!((*from, *to), (at(10), at(20)));
    let standing = env.engine.region(spec.id).unwrap();
    let status = standing.status();
    assert_eq!(
        (status.state, status.gaps.as_slice()),
        ("quarantined", &["retention [10, 20) policy fail".to_owned()][..])
    );
    assert!(status.reason.unwrap().contains("drop table in and create it again"));
    assert_eq!(appended(&standing).await, (0..10).collect::<Vec<_>>(), "reads go on");

    // The same find is listed once.
    env.crash().await;
    env.engine.open_region(&spec).await.unwrap_err();
    assert_eq!(env.engine.region(spec.id).unwrap().status().gaps.len(), 1);

    let region = env.engine.open_region(&policy(&spec, OnDataLoss::Continue)).await.unwrap();
    assert_eq!(appended(&region).await, (0..10).chain(20..30).collect::<Vec<_>>());
    assert_eq!(region.status().gaps[1], "retention [10, 20) policy continue");
    region.flush().await.unwrap();
    env.crash().await;
    let region = env.engine.open_region(&spec).await.unwrap();
    assert_eq!(appended(&region).await.len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_read_before_a_gap_are_kept() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    env.log.append(&records(0..10));
    env.create_open(&spec).await;
    env.engine.close_region(spec.id).await.unwrap();
    // Closed, so that the reader meets a moved log start with rows in memory from before.
    let region = env.engine.open_region(&spec).await.unwrap();
    env.log.unavailable(true);
    env.log.unavailable(false);
    env.log.append(&records(10..12));
    region.wait_applied(at(12)).await.unwrap();
    env.engine.kill().await;
    env.log.append(&records(12..20));
    env.log.trim(&input(), 15);
    env.crash().await;
    let region = env.engine.open_region(&policy(&spec, OnDataLoss::Continue)).await.unwrap();
    // Nothing was flushed: all that retention took is lost, and the range says so.
    assert_eq!(region.status().gaps, ["retention [0, 15) policy continue"]);
    assert_eq!(appended(&region).await, (15..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_topic_is_not_mixed_in() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    env.log.append(&records(0..10));
    region.wait_applied(at(10)).await.unwrap();
    region.flush().await.unwrap();
    env.log.recreate_topic("in");
    env.log.append(&records(100..120));
    eventually("the tail notices", async || (region.status().state == "quarantined", region.status().state)).await;
    env.crash().await;
    assert_eq!(env.engine.open_region(&spec).await.unwrap_err().kind(), ErrorKind::Conflict);
    let region = env.engine.region(spec.id).unwrap();
    assert_eq!(appended(&region).await, (0..10).collect::<Vec<_>>());
    assert!(region.status().reason.unwrap().contains("created again"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_log_quarantines() {
    let env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    env.log.append(&records(0..10));
    region.wait_applied(at(10)).await.unwrap();
    env.log.lose_tail(&input(), 5);
    env.engine.guard().await;
    eventually("quarantined", async || (region.status().state == "quarantined", region.status().state)).await;
    assert!(region.status().reason.unwrap().contains("log_truncated"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broker_outage_only_pauses() {
    let env = env_with_topic().await;
    let region = env.create_open(&topic_spec(&env, 1, "in", append_schema()).await).await;
    env.log.append(&records(0..5));
    region.wait_applied(at(5)).await.unwrap();
    env.log.unavailable(true);
    tokio::task::yield_now().await;
    env.log.unavailable(false);
    env.log.append(&records(5..10));
    region.wait_applied(at(10)).await.unwrap();
    assert_eq!(appended(&region).await, (0..10).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_region_moves_its_position() {
    let mut env = env_with_topic().await;
    let spec = topic_spec(&env, 1, "in", append_schema()).await;
    let region = env.create_open(&spec).await;
    // Only aborted records: no row ever comes.
    env.log.open_transaction("producer", &records(0..20));
    env.log.end_transaction("producer", false);
    let end = env.log.ends(&input()).unwrap().stable;
    region.wait_applied(end.into()).await.unwrap();
    assert_eq!(region.flush().await.unwrap(), end.into());
    assert_eq!((region.status().files.len(), region.status().flushed), (0, end.into()));
    env.log.trim(&input(), end.0);
    env.crash().await;
    env.engine.open_region(&spec).await.unwrap();
    assert_eq!(BTreeMap::from([(0, 0)]).len(), 1);
}
