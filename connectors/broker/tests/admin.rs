//! Topics, configs, deletion, start and stop.

use futures::executor::block_on;
use millstream_broker::{Broker, BrokerError, Listener};
use rdkafka::{
    Offset, TopicPartitionList,
    admin::{AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication},
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
};

use crate::support::*;

#[test]
fn topics_are_created_grown_and_deleted() {
    let mut b = Running::start();
    let a = admin(&b.bootstrap);
    create(&b.bootstrap, "t", 2, &[("retention.ms", "-1")]);
    let options = AdminOptions::new();
    let again = |name: &str, n: i32, replicas: i32, config: &[(&str, &str)]| {
        let mut new = NewTopic::new(name, n, TopicReplication::Fixed(replicas));
        for (k, v) in config {
            new = new.set(k, v);
        }
        block_on(a.create_topics([&new], &options)).unwrap().remove(0).map_err(|(_, code)| code)
    };
    assert_eq!(again("t", 1, 1, &[]), Err(RDKafkaErrorCode::TopicAlreadyExists));
    assert_eq!(again("u", 1, 3, &[]), Err(RDKafkaErrorCode::InvalidReplicationFactor));
    assert_eq!(again("a b", 1, 1, &[]), Err(RDKafkaErrorCode::InvalidTopic));
    assert_eq!(again("u", 1, 1, &[("cleanup.policy", "keep")]), Err(RDKafkaErrorCode::InvalidConfig));
    assert_eq!(again("u", 5000, 1, &[]), Err(RDKafkaErrorCode::PolicyViolation));
    let grown = block_on(a.create_partitions([&NewPartitions::new("t", 4)], &options)).unwrap();
    assert_eq!(grown, [Ok("t".to_owned())]);
    let shrunk = block_on(a.create_partitions([&NewPartitions::new("t", 3)], &options)).unwrap();
    assert_eq!(shrunk, [Err(("t".to_owned(), RDKafkaErrorCode::InvalidPartitions))]);
    b.restart(true);
    let count = |topic: &str| {
        let c: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
        let m = c.fetch_metadata(None, DEADLINE).unwrap();
        m.topics().iter().find(|t| t.name() == topic).map(|t| t.partitions().len())
    };
    assert_eq!(count("t"), Some(4));
    assert_eq!(block_on(admin(&b.bootstrap).delete_topics(&["t"], &options)).unwrap(), [Ok("t".to_owned())]);
    assert_eq!(count("t"), None);
    assert!(std::fs::read_dir(b.dir.path().join("topics")).unwrap().next().is_none(), "no folder is left");
    create(&b.bootstrap, "t", 1, &[]);
    assert_eq!(ends(&b.bootstrap, "t"), (0, 0));
}

#[test]
fn configs_are_described_and_altered() {
    let mut b = Running::start();
    create(&b.bootstrap, "t", 1, &[("retention.ms", "1234")]);
    let options = AdminOptions::new();
    let value = |b: &Running, resource: ResourceSpecifier<'_>, name: &str| {
        let found = block_on(admin(&b.bootstrap).describe_configs([&resource], &options)).unwrap().remove(0).unwrap();
        let entry = found.get(name).unwrap();
        (entry.value.clone().unwrap(), format!("{:?}", entry.source))
    };
    let topic = ResourceSpecifier::Topic("t");
    assert_eq!(value(&b, topic, "retention.ms"), ("1234".to_owned(), "DynamicTopic".to_owned()));
    assert_eq!(value(&b, topic, "cleanup.policy"), ("delete".to_owned(), "Default".to_owned()));
    let of_broker = |b: &Running, name: &str| value(b, ResourceSpecifier::Broker(1), name);
    assert_eq!(of_broker(&b, "transaction.max.timeout.ms"), ("900000".to_owned(), "Default".to_owned()));
    assert_eq!(of_broker(&b, "node.id"), ("1".to_owned(), "StaticBroker".to_owned()));
    let other = Running::with(|c| c.transaction_max_timeout = std::time::Duration::from_secs(7));
    assert_eq!(of_broker(&other, "transaction.max.timeout.ms"), ("7000".to_owned(), "StaticBroker".to_owned()));
    let change = AlterConfig::new(topic).set("cleanup.policy", "compact");
    block_on(admin(&b.bootstrap).alter_configs([&change], &options)).unwrap().remove(0).unwrap();
    b.restart(false);
    assert_eq!(value(&b, topic, "cleanup.policy").0, "compact");
    assert_eq!(value(&b, topic, "retention.ms").0, "604800000", "the old call resets what it does not name");
}

#[test]
fn records_are_deleted_up_to_an_offset() {
    let mut b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    create(&b.bootstrap, "c", 1, &[("cleanup.policy", "compact")]);
    send(&producer(&b.bootstrap, &[]), "t", 0..10);
    let delete = |b: &Running, topic: &str, offset: Offset| {
        let mut up_to = TopicPartitionList::new();
        up_to.add_partition_offset(topic, 0, offset).unwrap();
        let found = block_on(admin(&b.bootstrap).delete_records(&up_to, &AdminOptions::new())).unwrap();
        found.elements()[0].error().map_err(|e| e.rdkafka_error_code())
    };
    assert_eq!(delete(&b, "t", Offset::Offset(4)), Ok(()));
    assert_eq!(ends(&b.bootstrap, "t"), (4, 10));
    assert_eq!(read(&b.bootstrap, "t", Offset::Beginning, "read_committed").first(), Some(&(4, 4)));
    assert_eq!(delete(&b, "t", Offset::Offset(11)), Err(Some(RDKafkaErrorCode::OffsetOutOfRange)));
    assert_eq!(delete(&b, "c", Offset::Offset(0)), Err(Some(RDKafkaErrorCode::PolicyViolation)));
    b.restart(false);
    assert_eq!(ends(&b.bootstrap, "t"), (4, 10));
    assert_eq!(delete(&b, "t", Offset::End), Ok(()));
    assert_eq!(ends(&b.bootstrap, "t"), (10, 10));
}

#[test]
fn a_topic_is_made_on_first_use_only_if_allowed() {
    for allowed in [false, true] {
        let b = Running::with(|c| c.auto_create_topics = allowed);
        let p = producer(&b.bootstrap, &[("allow.auto.create.topics", "true"), ("message.timeout.ms", "2000")]);
        send(&p, "fresh", [1]);
        let c: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
        let m = c.fetch_metadata(None, DEADLINE).unwrap();
        assert_eq!(m.topics().len(), usize::from(allowed));
    }
}

#[test]
fn a_folder_has_one_broker_and_strangers_are_kept_out() {
    let b = Running::start();
    let second = block_on(Broker::start(config(b.dir.path())));
    assert!(matches!(second, Err(BrokerError::InUse { .. })), "{second:?}");
    let dir = tempfile::tempdir().unwrap();
    let mut open = config(dir.path());
    open.listeners = vec![Listener::new("0.0.0.0:0".parse().unwrap())];
    assert!(matches!(block_on(Broker::start(open)), Err(BrokerError::Remote { .. })));
    let taken = block_on(Broker::start(config(dir.path()).port(b.broker.as_ref().unwrap().addr().port())));
    assert!(matches!(taken, Err(BrokerError::Listen { .. })), "{taken:?}");
}
