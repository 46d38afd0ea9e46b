//! What the memory log promises beyond the conformance suite: transaction states that only its switches can make.

use super::{reader::reader, *};
use crate::{
    CommitOutcome, ErrorKind, LogEvent,
    testing::log_suite::{self, batch, next, read_to},
};

fn tp() -> TopicPartition {
    TopicPartition::new("t", 0)
}

fn log() -> MemoryLog {
    let log = MemoryLog::new();
    log.create_topic("t", 1);
    log
}

fn keys(log: &MemoryLog) -> String {
    log.committed(&tp()).iter().filter_map(StoredRecord::key_text).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn the_memory_log_passes_the_conformance_suite() {
    log_suite::run(&MemoryLog::new(), "suite").await;
}

#[tokio::test]
async fn readers_stop_at_an_open_transaction_and_never_see_an_aborted_one() {
    let log = log();
    log.put("t", 0, Some("a"), Some("1"));
    log.open_transaction("foreign", &batch(&tp(), "x=1 y=2"));
    log.put("t", 0, Some("b"), Some("2"));
    let ends = log.ends(&tp()).unwrap();
    assert_eq!((ends.stable, ends.high_watermark), (Offset(1), Offset(4)));
    let mut r = reader(&log, &tp(), 0);
    let (seen, _) = read_to(r.as_mut(), Offset(0), Offset(1)).await;
    assert_eq!(seen.len(), 1);
    assert!(matches!(next(r.as_mut()).await, LogEvent::EndReached { end: Offset(1) }));
    log.end_transaction("foreign", false);
    let (seen, position) = read_to(r.as_mut(), Offset(1), Offset(5)).await;
    assert_eq!((seen[0].1.as_deref(), seen.len(), position), (Some("b"), 1, Offset(5)));
    assert_eq!(keys(&log), "a b");
}

#[tokio::test]
async fn a_lost_answer_leaves_the_transaction_committed_or_open() {
    let log = log();
    let mut w = log.epoch_writer("id");
    w.init().await.unwrap();
    log.fail_next_commit(CommitFault::Unknown { committed: true });
    assert!(matches!(w.commit(&[batch(&tp(), "a=1")]).await, CommitOutcome::Unknown(_)));
    assert!(
        matches!(w.commit(&[batch(&tp(), "b=1")]).await, CommitOutcome::Aborted(_)),
        "without init nothing is sent"
    );
    w.init().await.unwrap();
    log.fail_next_commit(CommitFault::Unknown { committed: false });
    assert!(matches!(w.commit(&[batch(&tp(), "c=1")]).await, CommitOutcome::Unknown(_)));
    assert_eq!(log.ends(&tp()).unwrap().stable, Offset(2), "the open transaction holds the last stable offset");
    w.init().await.unwrap();
    log.abort_next_commit();
    assert!(matches!(w.commit(&[batch(&tp(), "d=1")]).await, CommitOutcome::Aborted(_)));
    assert!(matches!(w.commit(&[batch(&tp(), "e=1")]).await, CommitOutcome::Committed { .. }));
    assert_eq!(keys(&log), "a e");
    assert_eq!(log.ends(&tp()).unwrap().high_watermark, Offset(8));
}

#[tokio::test]
async fn a_held_commit_can_be_fenced_at_its_edge() {
    let log = log();
    let mut w = log.epoch_writer("id");
    w.init().await.unwrap();
    let gate = log.hold_commits();
    let held = tokio::spawn(async move { w.commit(&[batch(&tp(), "a=1")]).await });
    gate.reached(1).await;
    assert_eq!(log.ends(&tp()).unwrap().stable, Offset(0));
    log.epoch_writer("id").init().await.unwrap();
    gate.release();
    assert!(matches!(held.await.unwrap(), CommitOutcome::Fenced(_)));
    assert_eq!(keys(&log), "");
    assert_eq!(log.producer_epoch("id"), 2);
}

#[tokio::test]
async fn an_outage_is_told_once_and_heals() {
    let log = log();
    let mut r = reader(&log, &tp(), 0);
    log.unavailable(true);
    assert!(matches!(next(r.as_mut()).await, LogEvent::Failed(e) if e.kind == ErrorKind::Unavailable));
    assert_eq!(log.log(&tp()).offsets().await.unwrap_err().kind, ErrorKind::Unavailable);
    let waiting = tokio::spawn(async move { next(r.as_mut()).await });
    log.unavailable(false);
    log.put("t", 0, None, Some("x"));
    // Whether the end or the record comes first depends on who runs first; no failure may come again.
    assert!(matches!(waiting.await.unwrap(), LogEvent::Records(_) | LogEvent::EndReached { end: Offset(0) }));
}

#[tokio::test]
async fn compaction_keeps_offsets_and_the_end_event_covers_a_lost_tail() {
    let log = log();
    let mut w = log.epoch_writer("id");
    w.init().await.unwrap();
    w.commit(&[batch(&tp(), "a=1 b=1")]).await;
    w.commit(&[batch(&tp(), "a=2 b=")]).await;
    log.compact(&tp(), true);
    assert_eq!(log.committed(&tp()).iter().map(|r| r.offset).collect::<Vec<_>>(), [3]);
    let mut r = reader(&log, &tp(), 4);
    assert!(matches!(next(r.as_mut()).await, LogEvent::EndReached { end: Offset(6) }));
    let mut r = reader(&log, &tp(), 0);
    let (seen, position) = read_to(r.as_mut(), Offset(0), Offset(6)).await;
    assert_eq!((seen.len(), seen[0].0, position), (1, 3, Offset(6)));
}

#[tokio::test]
async fn a_lost_tail_and_a_new_topic_are_noticed() {
    let log = log();
    for i in 0..4 {
        log.put("t", 0, Some(&i.to_string()), Some("v"));
    }
    let mut r = reader(&log, &tp(), 0);
    read_to(r.as_mut(), Offset(0), Offset(4)).await;
    log.lose_tail(&tp(), 2);
    loop {
        match next(r.as_mut()).await {
            LogEvent::EndReached { .. } => {}
            LogEvent::OutOfRange { wanted: Offset(4), end: Offset(2), .. } => break,
            other => panic!("{other:?}"),
        }
    }
    log.recreate_topic("t");
    assert!(matches!(next(r.as_mut()).await, LogEvent::Failed(e) if e.kind == ErrorKind::Corrupt));
}

#[tokio::test]
async fn small_batches_end_at_their_last_record() {
    let log = log();
    log.set_batch_records(1);
    let mut w = log.epoch_writer("id");
    w.init().await.unwrap();
    w.commit(&[batch(&tp(), "a=1 b=2")]).await;
    let mut r = reader(&log, &tp(), 0);
    assert!(matches!(next(r.as_mut()).await, LogEvent::Records(b) if b.len() == 1 && b.next == Offset(1)));
    assert!(matches!(next(r.as_mut()).await, LogEvent::Records(b) if b.len() == 1 && b.next == Offset(2)));
    assert!(matches!(next(r.as_mut()).await, LogEvent::Position { next: Offset(3) }));
    assert!(matches!(next(r.as_mut()).await, LogEvent::EndReached { end: Offset(3) }));
}
