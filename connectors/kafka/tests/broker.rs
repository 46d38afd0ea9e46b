//! Brokers, topics and small actions for tests.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use millstream_e2e::broker::{Broker, Kind, Options as BrokerOptions};
use millstream_kafka::{KafkaCluster, KafkaOptions};
use millstream_types::{
    CommitOutcome, Created, EpochWriter, LogEvent, LogReader, LogStore, LogSystem, Offset, OutBatch, PartitionOffsets,
    RawBatch, TopicPartition, TopicSpec,
};

/// `RUST_LOG=debug` shows what clients say.
fn show_logs() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // Fails if another test was first.
    tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init().unwrap_or_default();
}

/// One for a test that only uses it, with topics of its own.
pub(crate) fn broker(kind: Kind) -> Broker {
    show_logs();
    Broker::start(kind)
}

/// One that a test may hurt. Its start takes seconds.
pub(crate) async fn own_broker(kind: Kind, options: BrokerOptions) -> Broker {
    show_logs();
    tokio::task::spawn_blocking(move || Broker::own_with(kind, &options)).await.unwrap()
}

pub(crate) fn options(bootstrap: &str) -> KafkaOptions {
    KafkaOptions::new(bootstrap)
}

pub(crate) fn cluster(broker: &Broker) -> Arc<KafkaCluster> {
    KafkaCluster::connect(options(broker.bootstrap())).unwrap()
}

/// A name that no other test or run has.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:08x}", rand::random::<u32>())
}

pub(crate) async fn topic_with(
    cluster: &KafkaCluster,
    name: &str,
    partitions: i32,
    config: &[(&str, &str)],
) -> Arc<str> {
    // Test records have old timestamps: with a retention they would go at once.
    let config =
        [("retention.ms", "-1")].iter().chain(config).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let spec = TopicSpec { name: name.to_owned(), partitions, replicas: -1, config };
    assert_eq!(cluster.admin().create(&spec).await.unwrap(), Created::New);
    name.into()
}

pub(crate) async fn topic(cluster: &KafkaCluster, name: &str, partitions: i32) -> Arc<str> {
    topic_with(cluster, &unique(name), partitions, &[]).await
}

/// One batch of `keys`, with values `v<key>`, all to partition 0.
pub(crate) fn batch(topic: &Arc<str>, keys: std::ops::Range<u32>) -> OutBatch {
    let mut b = OutBatch::new(Arc::clone(topic), 1_700_000_000_000);
    for k in keys {
        b.push(0, Some(k.to_string().as_bytes()), Some(format!("v{k}").as_bytes()));
    }
    b
}

pub(crate) fn committed(outcome: CommitOutcome) -> Vec<Vec<i64>> {
    match outcome {
        CommitOutcome::Committed { offsets } => offsets,
        other => panic!("{other:?}"),
    }
}

/// As a caller does: what was aborted is sent again. For short timeouts on a busy machine.
pub(crate) async fn commit_at_last(writer: &mut dyn EpochWriter, batches: &[OutBatch]) {
    eventually("the transaction commits", async || match writer.commit(batches).await {
        CommitOutcome::Committed { .. } => true,
        CommitOutcome::Aborted(_) => false,
        other => panic!("{other:?}"),
    })
    .await;
}

/// Sends one transaction through a client of its own and ends it by commit or abort.
pub(crate) fn raw_transaction(
    bootstrap: &str,
    topic: &Arc<str>,
    keys: std::ops::Range<u32>,
    end: End,
) -> rdkafka::producer::BaseProducer {
    use rdkafka::producer::{BaseRecord, Producer};
    let producer: rdkafka::producer::BaseProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", unique("raw"))
        .create()
        .unwrap();
    producer.init_transactions(Duration::from_secs(30)).unwrap();
    producer.begin_transaction().unwrap();
    for k in keys {
        let (key, value) = (k.to_string(), format!("v{k}"));
        producer.send(BaseRecord::to(topic).partition(0).key(&key).payload(&value)).map_err(|(e, _)| e).unwrap();
    }
    producer.flush(Duration::from_secs(10)).unwrap();
    match end {
        End::Commit => producer.commit_transaction(Duration::from_secs(10)).unwrap(),
        End::Abort => producer.abort_transaction(Duration::from_secs(10)).unwrap(),
        End::LeaveOpen => {}
    }
    producer
}

#[derive(Clone, Copy)]
pub(crate) enum End {
    Commit,
    Abort,
    LeaveOpen,
}

pub(crate) fn log(cluster: &KafkaCluster, topic: &Arc<str>, partition: i32) -> Arc<dyn LogStore> {
    cluster.log(&TopicPartition::new(Arc::clone(topic), partition))
}

/// The next event within 20 s.
pub(crate) async fn next(reader: &mut dyn LogReader) -> LogEvent {
    tokio::time::timeout(Duration::from_secs(20), reader.next()).await.expect("no event in 20 s")
}

/// What a reader found up to an end.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) batches: Vec<RawBatch>,
    /// Highest position that any event told.
    pub(crate) position: i64,
    pub(crate) ends: Vec<i64>,
}

impl Read {
    pub(crate) fn offsets(&self) -> Vec<i64> {
        self.batches.iter().flat_map(|b| b.offsets.iter().copied()).collect()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let text = |k: Option<&[u8]>| String::from_utf8_lossy(k.unwrap_or(b"null")).into_owned();
        self.batches.iter().flat_map(|b| b.keys.iter().map(text)).collect()
    }
}

/// Reads until the position has reached `end` and, if `to_end`, an end event has told so (K1: position, never the last record).
pub(crate) async fn read_to(reader: &mut dyn LogReader, end: i64) -> Read {
    let mut read = Read::default();
    let deadline = Instant::now() + Duration::from_secs(60);
    while read.position < end || (end == 0 && read.ends.is_empty()) {
        assert!(Instant::now() < deadline, "position {} of {end}", read.position);
        match next(reader).await {
            LogEvent::Records(b) => {
                assert!(b.next.0 > read.position, "the position must rise");
                assert!(b.offsets.is_sorted() && b.next.0 > *b.offsets.last().unwrap());
                read.position = b.next.0;
                read.batches.push(b);
            }
            LogEvent::Position { next } => {
                assert!(next.0 > read.position);
                read.position = next.0;
            }
            LogEvent::EndReached { end } => {
                assert!(read.position >= end.0, "the position is at least the end");
                read.ends.push(end.0);
            }
            LogEvent::Failed(e) if e.kind == millstream_types::ErrorKind::Unavailable => {}
            other => panic!("{other:?}"),
        }
    }
    read
}

/// The ends of partition 0 once no transaction is open: markers are written after the commit is answered.
pub(crate) async fn settled(cluster: &KafkaCluster, topic: &Arc<str>) -> PartitionOffsets {
    let log = log(cluster, topic, 0);
    eventually("no transaction is open", async || {
        let ends = log.offsets().await.unwrap();
        ends.stable == ends.high_watermark
    })
    .await;
    log.offsets().await.unwrap()
}

/// All committed records of partition 0, and the stable end that they were read to.
pub(crate) async fn read_all(cluster: &KafkaCluster, topic: &Arc<str>) -> Read {
    let log = log(cluster, topic, 0);
    let ends = settled(cluster, topic).await;
    let mut reader = log.read(ends.start).await.unwrap();
    read_to(reader.as_mut(), ends.stable.0).await
}

/// Waits until `check` is true; it is asked every 100 ms.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !check().await {
        assert!(Instant::now() < deadline, "not in 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub(crate) const ZERO: Offset = Offset(0);
