//! Conformance suite of the log traits. What passes here behaves as storage and stream expect; runs on the memory log and on Kafka.
//!
//! Method: each case makes its own topics below a prefix that the caller keeps unique. Nothing sleeps; each wait has a deadline. Defends K1 and S3.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    CommitOutcome, Created, ErrorKind, LogEvent, LogReader, LogSystem, Offset, OutBatch, TopicPartition, TopicSpec,
};

const DEADLINE: Duration = Duration::from_secs(60);

/// Runs all cases one after the other.
///
/// # Panics
/// If the log behaves otherwise than the traits promise.
pub async fn run(log: &dyn LogSystem, prefix: &str) {
    topics_are_created_once(log, &format!("{prefix}-create")).await;
    records_come_back_as_they_were_sent(log, &format!("{prefix}-read")).await;
    the_position_moves_over_markers(log, &format!("{prefix}-markers")).await;
    an_aborted_transaction_is_invisible(log, &format!("{prefix}-abort")).await;
    a_second_producer_fences_the_first(log, &format!("{prefix}-fence")).await;
    truncation_moves_the_log_start(log, &format!("{prefix}-truncate.wal")).await;
    a_waiting_reader_wakes_and_loses_nothing(log, &format!("{prefix}-wake")).await;
    times_are_found(log, &format!("{prefix}-times")).await;
}

/// Key and value of a record as text, with its offset.
pub type Seen = (i64, Option<String>, Option<String>);

/// Creates a topic with `retention.ms = -1`.
///
/// # Panics
/// If it cannot be created or was there.
pub async fn create(log: &dyn LogSystem, name: &str, partitions: i32) -> TopicPartition {
    let config = BTreeMap::from([("retention.ms".to_owned(), "-1".to_owned())]);
    let spec = TopicSpec { name: name.to_owned(), partitions, replicas: -1, config };
    assert_eq!(log.admin().create(&spec).await.expect("create a topic"), Created::New);
    TopicPartition::new(name, 0)
}

/// A batch for partition 0: `a=1 b=2 c=` where an empty value is a tombstone.
pub fn batch(tp: &TopicPartition, text: &str) -> OutBatch {
    let mut batch = OutBatch::new(tp.topic.to_string(), 1_700_000_000_000);
    batch.want_offsets = true;
    for pair in text.split_whitespace() {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        batch.push(tp.partition, Some(key.as_bytes()), (!value.is_empty()).then_some(value.as_bytes()));
    }
    batch
}

/// Reads until the position is at or after `end` and returns what was seen and the position (K1).
///
/// # Panics
/// If the reader fails, goes out of range, goes back, or does not get there.
pub async fn read_to(reader: &mut dyn LogReader, mut position: Offset, end: Offset) -> (Vec<Seen>, Offset) {
    let mut seen = Vec::new();
    let text = |b: Option<&[u8]>| b.map(|b| String::from_utf8_lossy(b).into_owned());
    while position < end {
        let next = match next(reader).await {
            LogEvent::Records(b) => {
                assert_eq!(b.keys.len(), b.len());
                assert_eq!(b.values.len(), b.len());
                assert_eq!(b.timestamps.len(), b.len());
                for i in 0..b.len() {
                    assert!(b.offsets[i] >= position.0, "offset {} below the position {position}", b.offsets[i]);
                    seen.push((b.offsets[i], text(b.keys.get(i)), text(b.values.get(i))));
                }
                assert!(b.offsets.is_sorted() && b.offsets.last().is_none_or(|o| *o < b.next.0));
                b.next
            }
            LogEvent::Position { next } => next,
            LogEvent::EndReached { end } => end.max(position),
            LogEvent::Failed(e) if e.kind == ErrorKind::Unavailable => position,
            other => panic!("the reader at {position} on its way to {end} found {other:?}"),
        };
        assert!(next >= position, "the position went back from {position} to {next}");
        position = next;
    }
    (seen, position)
}

/// The next event, within the deadline of the suite.
///
/// # Panics
/// If none comes.
pub async fn next(reader: &mut dyn LogReader) -> LogEvent {
    tokio::time::timeout(DEADLINE, reader.next()).await.expect("an event within the deadline")
}

/// Everything that a new reader finds from the log start to the last stable offset.
///
/// # Panics
/// As [`read_to`].
pub async fn read_all(log: &dyn LogSystem, tp: &TopicPartition) -> Vec<Seen> {
    let store = log.log(tp);
    let ends = store.offsets().await.expect("offsets");
    let mut reader = store.read(ends.start).await.expect("a reader");
    read_to(reader.as_mut(), ends.start, ends.stable).await.0
}

fn keys(seen: &[Seen]) -> String {
    seen.iter().filter_map(|(_, k, _)| k.as_deref()).collect::<Vec<_>>().join(" ")
}

fn committed(outcome: CommitOutcome) -> Vec<Vec<i64>> {
    match outcome {
        CommitOutcome::Committed { offsets } => offsets,
        other => panic!("expected a commit, got {other:?}"),
    }
}

async fn topics_are_created_once(log: &dyn LogSystem, name: &str) {
    create(log, name, 3).await;
    let admin = log.admin();
    let spec = TopicSpec { name: name.to_owned(), partitions: 5, replicas: -1, config: BTreeMap::new() };
    assert_eq!(admin.create(&spec).await.expect("create again"), Created::Existed);
    let info = admin.describe(name).await.expect("describe").expect("the topic is there");
    assert_eq!((info.name.as_str(), info.partitions), (name, 3));
    assert_eq!(info.config.get("retention.ms").map(String::as_str), Some("-1"));
    assert!(admin.list().await.expect("list").iter().any(|t| t == name));
    assert_eq!(admin.offsets(name).await.expect("offsets").len(), 3);
    assert!(admin.describe(&format!("{name}-not-there")).await.expect("describe").is_none());
    admin.ping(DEADLINE).await.expect("ping");
}

async fn records_come_back_as_they_were_sent(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    let mut sent = batch(&tp, "a=1 b=2 c=");
    sent.headers.push(("h".to_owned(), bytes::Bytes::from_static(b"x")));
    sent.push(0, None, Some(b""));
    assert_eq!(log.producer().produce(&sent).await.expect("produce"), [0, 1, 2, 3]);
    let some = |s: &str| Some(s.to_owned());
    let expected = [(0, some("a"), some("1")), (1, some("b"), some("2")), (2, some("c"), None), (3, None, some(""))];
    let store = log.log(&tp);
    let mut reader = store.read(Offset(0)).await.expect("a reader");
    assert_eq!(read_to(reader.as_mut(), Offset(0), Offset(4)).await.0, expected);
    let mut reader = store.read(Offset(2)).await.expect("a reader in the middle");
    let LogEvent::Records(b) = next(reader.as_mut()).await else { panic!("expected records first") };
    assert_eq!((b.offsets[0], b.timestamps[0]), (2, sent.timestamp_ms));
    assert_eq!(b.headers[0], [("h".to_owned(), Some(bytes::Bytes::from_static(b"x")))]);
    let ends = store.offsets().await.expect("offsets");
    assert_eq!((ends.start, ends.stable, ends.high_watermark), (Offset(0), Offset(4), Offset(4)));
}

async fn the_position_moves_over_markers(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    let mut writer = log.epoch_writer(name);
    writer.init().await.expect("init");
    let offsets = committed(writer.commit(&[batch(&tp, "a=1 b=2")]).await);
    assert_eq!(offsets, [vec![0, 1]]);
    let offsets = committed(writer.commit(&[batch(&tp, "c=3")]).await);
    assert_eq!(offsets, [vec![3]], "a marker takes an offset");
    assert!(committed(writer.commit(&[]).await).is_empty());
    let end = log.log(&tp).offsets().await.expect("offsets").high_watermark;
    assert_eq!(end, Offset(5));
    let mut reader = log.log(&tp).read(Offset(0)).await.expect("a reader");
    let (seen, position) = read_to(reader.as_mut(), Offset(0), end).await;
    assert_eq!(
        (keys(&seen).as_str(), position),
        ("a b c", end),
        "the position passes the last marker without a record"
    );
    let mut reader = log.log(&tp).read(Offset(4)).await.expect("a reader at the marker");
    assert_eq!(read_to(reader.as_mut(), Offset(4), end).await, (vec![], end));
}

async fn an_aborted_transaction_is_invisible(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    let mut writer = log.epoch_writer(name);
    writer.init().await.expect("init");
    let nowhere = TopicPartition::new(tp.topic.to_string(), 99);
    match writer.commit(&[batch(&tp, "lost=1"), batch(&nowhere, "x=1")]).await {
        CommitOutcome::Aborted(_) => {}
        // A client may be unable to tell; then init decides.
        CommitOutcome::Unknown(_) => writer.init().await.expect("init after an unknown outcome"),
        other => panic!("a batch for a partition that is not there ended as {other:?}"),
    }
    committed(writer.commit(&[batch(&tp, "kept=1")]).await);
    assert_eq!(keys(&read_all(log, &tp).await), "kept");
}

async fn a_second_producer_fences_the_first(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    let mut old = log.epoch_writer(name);
    old.init().await.expect("init");
    committed(old.commit(&[batch(&tp, "a=1")]).await);
    let mut new = log.epoch_writer(name);
    new.init().await.expect("init of the newer one");
    match old.commit(&[batch(&tp, "zombie=1")]).await {
        CommitOutcome::Fenced(e) => assert_eq!(e.kind, ErrorKind::Fenced),
        other => panic!("the zombie's commit ended as {other:?}"),
    }
    committed(new.commit(&[batch(&tp, "b=2")]).await);
    assert_eq!(keys(&read_all(log, &tp).await), "a b");
}

async fn truncation_moves_the_log_start(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    log.producer().produce(&batch(&tp, "a=1 b=2 c=3 d=4")).await.expect("produce");
    let store = log.log(&tp);
    store.truncate_to(Offset(2)).await.expect("truncate");
    store.truncate_to(Offset(1)).await.expect("below the log start is fine");
    assert_eq!(store.offsets().await.expect("offsets").start, Offset(2));
    assert_eq!(keys(&read_all(log, &tp).await), "c d");
    let mut reader = store.read(Offset(0)).await.expect("a reader");
    match next(reader.as_mut()).await {
        LogEvent::OutOfRange { wanted, start, end } => {
            assert_eq!((wanted, start, end), (Offset(0), Offset(2), Offset(4)));
        }
        other => panic!("a reader below the log start found {other:?}"),
    }
}

async fn a_waiting_reader_wakes_and_loses_nothing(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    let mut reader = log.log(&tp).read(Offset(0)).await.expect("a reader");
    match next(reader.as_mut()).await {
        LogEvent::EndReached { end } => assert_eq!(end, Offset(0)),
        other => panic!("an empty partition began with {other:?}"),
    }
    for i in 0..20 {
        log.producer().produce(&batch(&tp, &format!("k{i}=v"))).await.expect("produce");
    }
    let mut seen = Vec::new();
    let mut position = Offset(0);
    while position < Offset(20) {
        // A future that is dropped at once must not take its event with it.
        let event = tokio::select! {
            biased;
            event = reader.next() => event,
            () = tokio::task::yield_now() => continue,
        };
        match event {
            LogEvent::Records(b) => {
                seen.extend(b.offsets.iter().copied());
                position = b.next;
            }
            LogEvent::Position { next } => position = position.max(next),
            LogEvent::EndReached { end } => position = position.max(end),
            other => panic!("a quiet log gave {other:?}"),
        }
    }
    assert_eq!(seen, (0..20).collect::<Vec<i64>>());
}

async fn times_are_found(log: &dyn LogSystem, name: &str) {
    let tp = create(log, name, 1).await;
    for (i, key) in ["a", "b", "c"].into_iter().enumerate() {
        let mut one = batch(&tp, key);
        one.timestamp_ms += 1_000 * i as i64;
        log.producer().produce(&one).await.expect("produce");
    }
    let admin = log.admin();
    let at = async |ms: i64| admin.offsets_at(name, 1_700_000_000_000 + ms).await.expect("offsets by time");
    assert_eq!(at(-1).await, [Offset(0)]);
    assert_eq!(at(1_000).await, [Offset(1)]);
    assert_eq!(at(1_001).await, [Offset(2)]);
    assert_eq!(at(9_000).await, [Offset(3)]);
}
