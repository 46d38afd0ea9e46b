//! Topics through librdkafka, as any producer or consumer would: create, produce, read committed records, run transactions.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    message::{DeliveryResult, Headers},
    producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer},
    util::Timeout,
};

pub const WAIT: Duration = Duration::from_secs(60);

/// One record as a consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub epoch: Option<u64>,
}

fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap).create().expect("an admin client can be made")
}

/// Creates a topic; `config` as `("cleanup.policy", "compact")`.
pub async fn create(bootstrap: &str, name: &str, partitions: i32, config: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    for (k, v) in config {
        topic = topic.set(k, v);
    }
    let options = AdminOptions::new().operation_timeout(Some(WAIT));
    let results = admin(bootstrap).create_topics([&topic], &options).await.expect("the broker answers");
    for r in results {
        r.unwrap_or_else(|(t, e)| panic!("create {t}: {e}"));
    }
    // The controller has the topic; clients ask the broker, which learns of it a moment later.
    let c = consumer(bootstrap);
    let start = Instant::now();
    while !c.fetch_metadata(Some(name), WAIT).is_ok_and(|m| {
        m.topics().first().is_some_and(|t| {
            t.error().is_none()
                && t.partitions().len() == partitions as usize
                && t.partitions().iter().all(|p| p.leader() >= 0)
        })
    }) {
        assert!(start.elapsed() < WAIT, "{name} has no leaders");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Changes topic configuration, for retention scenarios.
pub async fn set_config(bootstrap: &str, topic: &str, config: &[(&str, &str)]) {
    let mut change = rdkafka::admin::AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (k, v) in config {
        change = change.set(k, v);
    }
    admin(bootstrap).alter_configs([&change], &AdminOptions::new()).await.expect("the broker answers");
}

/// DeleteRecords below `offset` of a partition.
pub async fn delete_records(bootstrap: &str, topic: &str, partition: i32, offset: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("a valid offset");
    admin(bootstrap).delete_records(&list, &AdminOptions::new()).await.expect("the broker answers");
}

/// A fast idempotent producer whose `flush` tells that all of its records are acknowledged.
pub struct Feed {
    producer: ThreadedProducer<Lost>,
}

/// The first record that could not be delivered: the truth would be wrong.
#[derive(Default)]
struct Lost(Mutex<Option<String>>);

impl ClientContext for Lost {}

impl ProducerContext for Lost {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((e, m)) = result {
            let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert_with(|| format!("a record of {}-{}: {e}", m.topic(), m.partition()));
        }
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Feed")
    }
}

impl Feed {
    pub fn new(bootstrap: &str) -> Feed {
        Feed::with(bootstrap, &[])
    }

    /// A transactional producer: `init` was called.
    pub fn transactional(bootstrap: &str, id: &str) -> Feed {
        let feed = Feed::with(bootstrap, &[("transactional.id", id), ("transaction.timeout.ms", "120000")]);
        feed.producer.init_transactions(WAIT).expect("transactions can be initialised");
        feed
    }

    fn with(bootstrap: &str, extra: &[(&str, &str)]) -> Feed {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("linger.ms", "5")
            .set("compression.type", "lz4")
            .set("queue.buffering.max.messages", "500000")
            .set("message.max.bytes", "4000000")
            .set("message.timeout.ms", "120000");
        for (k, v) in extra {
            config.set(*k, *v);
        }
        Feed { producer: config.create_with_context(Lost::default()).expect("a producer can be made") }
    }

    pub fn send(&self, topic: &str, partition: i32, key: Option<&[u8]>, value: Option<&[u8]>) {
        loop {
            let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition);
            if let Some(k) = key {
                record = record.key(k);
            }
            if let Some(v) = value {
                record = record.payload(v);
            }
            match self.producer.send(record) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                Err((e, _)) => panic!("produce to {topic}-{partition}: {e}"),
            }
        }
    }

    pub fn flush(&self) {
        self.producer.flush(Timeout::After(Duration::from_secs(180))).expect("all records are acknowledged");
        let lost = self.producer.context().0.lock().unwrap_or_else(PoisonError::into_inner).take();
        assert!(lost.is_none(), "the generator lost {}", lost.unwrap_or_default());
    }

    pub fn begin(&self) {
        self.producer.begin_transaction().expect("a transaction can begin");
    }

    pub fn commit(&self) {
        self.producer.commit_transaction(WAIT).expect("the transaction commits");
    }

    pub fn abort(&self) {
        self.producer.abort_transaction(WAIT).expect("the transaction aborts");
    }
}

fn consumer(bootstrap: &str) -> BaseConsumer {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "e2e-oracle")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "50")
        .create()
        .expect("a consumer can be made")
}

/// High watermark of each partition.
pub fn ends(bootstrap: &str, topic: &str) -> BTreeMap<i32, i64> {
    let c = consumer(bootstrap);
    let meta = c.fetch_metadata(Some(topic), WAIT).expect("the broker answers");
    let partitions = meta.topics().first().map(|t| t.partitions().len()).unwrap_or(0);
    let start = Instant::now();
    let end_of = |p: i32| loop {
        match c.fetch_watermarks(topic, p, WAIT) {
            Ok((_, end)) => return end,
            // A broker that has just started has no leader for a moment.
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::NotLeaderForPartition)) if start.elapsed() < WAIT => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(e) => panic!("{topic}-{p}: {e}"),
        }
    };
    (0..partitions as i32).map(|p| (p, end_of(p))).collect()
}

/// Every record that a `read_committed` consumer sees up to the end of the time of the call.
pub fn read_committed(bootstrap: &str, topic: &str) -> Vec<Record> {
    let ends = ends(bootstrap, topic);
    let c = consumer(bootstrap);
    let mut list = TopicPartitionList::new();
    for p in ends.keys() {
        list.add_partition_offset(topic, *p, Offset::Beginning).expect("a valid partition");
    }
    c.assign(&list).expect("partitions can be assigned");
    let mut open: BTreeMap<i32, i64> = ends.into_iter().filter(|(_, end)| *end > 0).collect();
    let mut records = Vec::new();
    let start = Instant::now();
    while !open.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(180), "reading {topic}: partitions {open:?} did not end");
        match c.poll(Duration::from_millis(200)) {
            None => settle(&c, topic, &mut open),
            Some(Ok(m)) => {
                let epoch = m.headers().and_then(|h| {
                    h.iter()
                        .find(|h| h.key == "millstream-epoch")
                        .and_then(|h| std::str::from_utf8(h.value?).ok()?.parse().ok())
                });
                records.push(Record {
                    partition: m.partition(),
                    offset: m.offset(),
                    key: m.key().map(<[u8]>::to_vec),
                    value: m.payload().map(<[u8]>::to_vec),
                    epoch,
                });
            }
            Some(Err(KafkaError::PartitionEOF(_))) => settle(&c, topic, &mut open),
            Some(Err(e)) => panic!("reading {topic}: {e}"),
        }
    }
    records
}

/// Partitions whose position reached the captured end are done: position, not the last record, since markers and aborted records take offsets too.
fn settle(consumer: &BaseConsumer, topic: &str, open: &mut BTreeMap<i32, i64>) {
    let Ok(list) = consumer.position() else { return };
    open.retain(
        |p, end| !matches!(list.find_partition(topic, *p).map(|e| e.offset()), Some(Offset::Offset(at)) if at >= *end),
    );
}
