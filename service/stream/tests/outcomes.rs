//! Goal: what a job does where the easy answer would be wrong: rows that cannot be written, failures that come back, keys that two partitions hold.
//! Method: the engine over the twins of log and storage, as in `end_to_end`; one case a test.

use std::time::Duration;

use millstream_storage::{Region, wal::entry::EntryLimits};
use millstream_stream::{Envelope, JobPlan, JobState, OnEvalError, StreamConfig, StreamError};
use millstream_types::testing::literal;

use crate::{
    end_to_end::{DEADLINE, TOPIC, WAL, World, eventually, expect_filtered, filtered, input_table, put},
    support::{plan, small, with_topic, with_view},
};

#[tokio::test]
async fn a_key_of_two_partitions_is_two_rows_of_a_view_and_one_record_of_its_topic() {
    let world = World::new(filtered(), small(), 0).await;
    put(&world, 0, "+ 1 a 50 | + 2 a 60 | + 3 a 70");
    put(&world, 1, "+ 1 a 80 | + 3 a 10");
    world.create().await;
    let step = async |view: &str, topic: &str| {
        world.settle().await;
        assert_eq!(literal::print_sorted(&world.view()), view);
        assert_eq!(world.folded().into_values().collect::<Vec<_>>().join(" | "), topic);
    };
    step("1 100 | 1 160 | 2 120 | 3 140", "1 160 | 2 120 | 3 140").await;
    put(&world, 0, "+ 1 a 45");
    step("1 160 | 1 90 | 2 120 | 3 140", "1 90 | 2 120 | 3 140").await;
    put(&world, 0, "- 1 a 45 | - 3 a 70");
    step("1 160 | 2 120", "1 160 | 2 120").await;
    // the filter lets it go: as good as a delete
    put(&world, 0, "+ 1 a 44");
    put(&world, 1, "+ 1 a 3");
    step("1 88 | 2 120", "1 88 | 2 120").await;
    put(&world, 0, "- 1 a 44");
    step("2 120", "2 120").await;
}

#[tokio::test]
async fn a_sink_without_view_keeps_a_key_that_another_partition_has() {
    let mut p = filtered();
    p.output.view = None;
    let mut world = World::new(p, small(), 0).await;
    put(&world, 0, "+ 1 a 50");
    put(&world, 1, "+ 1 a 80");
    world.create().await;
    let step = async |world: &World, topic: &str| {
        world.settle().await;
        assert_eq!(world.folded().into_values().collect::<Vec<_>>().join(" | "), topic);
    };
    step(&world, "1 160").await;
    put(&world, 1, "- 1 a 80");
    step(&world, "1 100").await;
    world.crash().await;
    put(&world, 0, "- 1 a 50");
    step(&world, "").await;
}

fn large_rows() -> (JobPlan, StreamConfig) {
    let t = input_table();
    let p = with_topic(with_view(plan(&t, 1), t.columns.clone(), vec![0]), TOPIC, 3, Envelope::Upsert);
    let limits = EntryLimits { entry_bytes: 1 << 16, max_row_bytes: 1 << 20 };
    (p, StreamConfig { wal: limits, ..small() })
}

#[tokio::test]
async fn a_row_above_the_limit_of_the_wal_quarantines_its_job_at_once_and_names_the_row() {
    let (p, config) = large_rows();
    let world = World::new(p, config, 0).await;
    put(&world, 0, "+ 1 a 1 | + 2 b 2");
    world.create().await;
    world.settle().await;
    put(&world, 0, &format!("+ 41 {} 1 | + 3 c 3", "x".repeat(2 << 20)));
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    let status = world.service.job(world.plan.job).unwrap();
    let reason = status.reason.unwrap();
    assert_eq!(reason.code, "row_too_large");
    for word in ["view v", "k = 41", "1048576", "storage.wal.max_row_bytes", "resume"] {
        assert!(reason.message.contains(word), "{}", reason.message);
    }
    assert!(reason.message.len() < 500, "the row itself is not in the message");
    assert_eq!(status.restarts, 1);
    let wanted = [(world.inputs[0].id(), world.inputs[0].applied())];
    let waited = world.service.wait_for(world.plan.job, &wanted, DEADLINE).await;
    assert!(matches!(waited, Err(StreamError::WrongState { .. })), "nobody waits in vain: {waited:?}");
    assert_eq!(literal::print_sorted(&world.view()), "1 a 1 | 2 b 2", "nothing of the epoch is there");
    // the same again, until the row is gone
    world.service.resume(world.plan.job).unwrap();
    eventually(&world, "quarantined again", |s| s.state == JobState::Quarantined && s.restarts == 2).await;
    put(&world, 0, "- 41 a 1");
    world.service.resume(world.plan.job).unwrap();
    eventually(&world, "running", |s| s.state == JobState::Running).await;
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "1 a 1 | 2 b 2 | 3 c 3");
}

#[tokio::test]
async fn a_record_above_the_limit_of_its_topic_quarantines_its_job_at_once_and_names_the_record() {
    let (p, mut config) = large_rows();
    config.wal.max_row_bytes = 8 << 20;
    let world = World::new(p, config, 0).await;
    world.log.set_topic_config(WAL, "max.message.bytes", "10485760");
    put(&world, 0, &format!("+ 41 {} 1 | + 3 c 3", "x".repeat(2 << 20)));
    world.create().await;
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    let status = world.service.job(world.plan.job).unwrap();
    let reason = status.reason.unwrap();
    assert_eq!((reason.code.as_str(), status.restarts), ("record_too_large", 1));
    for word in ["topic derived", "key is 41", "max.message.bytes", "resume"] {
        assert!(reason.message.contains(word), "{}", reason.message);
    }
    assert_eq!(world.view().num_rows(), 0);
    put(&world, 0, "+ 41 small 1");
    world.service.resume(world.plan.job).unwrap();
    eventually(&world, "running", |s| s.state == JobState::Running).await;
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "3 c 3 | 41 small 1");
}

#[tokio::test]
async fn a_quarantined_job_keeps_the_position_that_is_stored_and_not_that_of_a_light_epoch() {
    let config = StreamConfig { idle_checkpoint: Duration::from_secs(3600), ..small() };
    let world = World::new(filtered(), config, 0).await;
    put(&world, 0, "+ 1 a 50");
    world.create().await;
    world.settle().await;
    // rows that lead to nothing: the job's position moves on, the stored one does not
    for k in 2..6 {
        put(&world, 0, &format!("+ {k} a 1"));
        world.settle().await;
    }
    world.inputs[0].break_reads(true);
    put(&world, 0, "+ 1 a 60 | + 2 a 70");
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    world.inputs[0].break_reads(false);
    world.service.resume(world.plan.job).unwrap();
    eventually(&world, "running", |s| s.state == JobState::Running).await;
    world.settle().await;
    world.check(&expect_filtered, 0);
}

#[tokio::test]
async fn a_failure_that_trying_again_cannot_heal_is_given_up_soon_and_taken_up_by_resume() {
    let mut p = with_view(plan(&input_table(), 1), input_table().columns, vec![0]);
    p.options.on_eval_error = OnEvalError::Fail;
    let world = World::new(p, small(), 0).await;
    world.create().await;
    world.settle().await;
    world.service.pause(world.plan.job).unwrap();
    eventually(&world, "paused", |s| s.state == JobState::Paused).await;
    world.inputs[0].break_reads(true);
    put(&world, 0, "+ 1 a 1");
    world.service.resume(world.plan.job).unwrap();
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    let status = world.service.job(world.plan.job).unwrap();
    assert!(status.restarts <= 3, "{status:?}");
    world.inputs[0].break_reads(false);
    world.service.resume(world.plan.job).unwrap();
    world.service.wait_running(world.plan.job).await.unwrap();
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "1 a 1");
}
