//! Brokers, clients and small actions for tests.

use std::{
    net::TcpStream,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use millstream_broker::{Broker, BrokerConfig};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer},
};

/// Serves its own events: without, an abort waits for a poll that never comes.
pub(crate) type Sender = ThreadedProducer<DefaultProducerContext>;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A broker in this process, in a folder that goes with it.
pub(crate) struct Running {
    pub(crate) broker: Option<Broker>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) bootstrap: String,
}

pub(crate) fn config(dir: &std::path::Path) -> BrokerConfig {
    // `RUST_LOG=debug` shows what both sides say. Fails if another test was first.
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init().unwrap_or_default();
    BrokerConfig::new(dir)
}

impl Running {
    pub(crate) fn start() -> Running {
        Running::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut BrokerConfig)) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        let broker = block_on(Broker::start(config)).unwrap();
        Running { bootstrap: broker.bootstrap(), broker: Some(broker), dir }
    }

    /// Stops, or ends like a kill, and starts on the same port.
    pub(crate) fn restart(&mut self, clean: bool) {
        let broker = self.broker.take().unwrap();
        let port = broker.addr().port();
        if clean {
            block_on(broker.stop()).unwrap();
        } else {
            drop(broker);
        }
        // The old runtime may still hold folder and port for a moment.
        let deadline = Instant::now() + DEADLINE;
        self.broker = Some(loop {
            match block_on(Broker::start(config(self.dir.path()).port(port))) {
                Ok(broker) => break broker,
                Err(e) => assert!(Instant::now() < deadline, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        });
    }

    #[cfg(feature = "faults")]
    pub(crate) fn faults(&self) -> millstream_broker::faults::FaultHandle {
        self.broker.as_ref().unwrap().faults()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.bootstrap).unwrap()
    }
}

pub(crate) fn client(bootstrap: &str, options: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    // Brokers come back within milliseconds here.
    config.set("reconnect.backoff.ms", "20").set("reconnect.backoff.max.ms", "200");
    for (name, value) in options {
        config.set(*name, *value);
    }
    config
}

pub(crate) fn admin(bootstrap: &str) -> AdminClient<DefaultClientContext> {
    client(bootstrap, &[]).create().unwrap()
}

pub(crate) fn create(bootstrap: &str, topic: &str, partitions: i32, config: &[(&str, &str)]) {
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in config {
        new = new.set(name, value);
    }
    let outcome = block_on(admin(bootstrap).create_topics([&new], &AdminOptions::new())).unwrap();
    assert_eq!(outcome, [Ok(topic.to_owned())]);
}

pub(crate) fn producer(bootstrap: &str, options: &[(&str, &str)]) -> Sender {
    client(bootstrap, &[("linger.ms", "1"), ("message.timeout.ms", "60000")]).clone_with(options).create().unwrap()
}

pub(crate) fn transactional(bootstrap: &str, id: &str, options: &[(&str, &str)]) -> Sender {
    let base = client(bootstrap, &[("transactional.id", id), ("linger.ms", "1")]);
    base.clone_with(options).create().unwrap()
}

pub(crate) trait CloneWith {
    fn clone_with(&self, options: &[(&str, &str)]) -> ClientConfig;
}

impl CloneWith for ClientConfig {
    fn clone_with(&self, options: &[(&str, &str)]) -> ClientConfig {
        let mut config = self.clone();
        for (name, value) in options {
            config.set(*name, *value);
        }
        config
    }
}

/// Sends keys as records `key=v<key>` to partition 0 and waits for them.
pub(crate) fn send(producer: &Sender, topic: &str, keys: impl IntoIterator<Item = u32>) {
    queue(producer, topic, keys);
    producer.flush(DEADLINE).unwrap();
}

pub(crate) fn queue(producer: &Sender, topic: &str, keys: impl IntoIterator<Item = u32>) {
    for k in keys {
        let (key, value) = (k.to_string(), format!("v{k}"));
        let mut record = BaseRecord::to(topic).partition(0).key(&key).payload(&value);
        while let Err((e, again)) = producer.send(record) {
            assert_eq!(e, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull));
            std::thread::sleep(Duration::from_millis(10));
            record = again;
        }
    }
}

/// (offset, key) of what a consumer finds in partition 0 from `from` to the end that it sees (`partition.eof`).
pub(crate) fn read(bootstrap: &str, topic: &str, from: Offset, isolation: &str) -> Vec<(i64, u32)> {
    let options = [
        ("group.id", "reader"),
        ("enable.auto.commit", "false"),
        ("enable.partition.eof", "true"),
        ("auto.offset.reset", "error"),
        ("check.crcs", "true"),
        ("isolation.level", isolation),
    ];
    let consumer: BaseConsumer = client(bootstrap, &options).create().unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset(topic, 0, from).unwrap();
    consumer.assign(&assignment).unwrap();
    let mut found = Vec::new();
    let deadline = Instant::now() + DEADLINE;
    loop {
        assert!(Instant::now() < deadline, "no end in sight after {} records", found.len());
        match consumer.poll(Duration::from_millis(200)) {
            None => {}
            Some(Err(KafkaError::PartitionEOF(_))) => return found,
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            ))) => {}
            Some(Err(e)) => panic!("{e}"),
            Some(Ok(m)) => {
                let key = std::str::from_utf8(m.key().unwrap()).unwrap().parse().unwrap();
                assert_eq!(m.payload().unwrap(), format!("v{key}").as_bytes());
                found.push((m.offset(), key));
            }
        }
    }
}

pub(crate) fn keys(found: &[(i64, u32)]) -> Vec<u32> {
    found.iter().map(|(_, k)| *k).collect()
}

/// (log start, high watermark)
pub(crate) fn ends(bootstrap: &str, topic: &str) -> (i64, i64) {
    let consumer: BaseConsumer = client(bootstrap, &[("group.id", "ends")]).create().unwrap();
    consumer.fetch_watermarks(topic, 0, DEADLINE).unwrap()
}

/// Waits until `check` is true; asks every 20 ms.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !check() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn code(e: &KafkaError) -> Option<RDKafkaErrorCode> {
    match e {
        KafkaError::Transaction(e) => Some(e.code()),
        other => other.rdkafka_error_code(),
    }
}
