//! Answers to requests that a client should not send: Apache Kafka's error codes. Method: handlers without a socket.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        fetch_request::{FetchPartition, FetchTopic},
        list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        produce_request::{PartitionProduceData, TopicProduceData},
        *,
    },
    protocol::StrBytes,
};

use super::*;
use crate::{
    config::{BrokerConfig, Fsync},
    log::batch::tests::sample,
    topics::config::Overrides,
};

struct Served {
    node: Arc<Node>,
    client: Client,
    _dir: tempfile::TempDir,
}

const NOBODY: (i64, i16, i32) = (-1, -1, -1);

fn name() -> TopicName {
    TopicName(StrBytes::from_static_str("t"))
}

impl Served {
    /// A topic with three records of time 5.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = BrokerConfig { fsync: Fsync::Never, ..BrokerConfig::new(dir.path()) };
        let node = Arc::new(Node::open(config).unwrap());
        node.topics.create("t", 1, Overrides::new(), false).unwrap();
        let partition = node.topics.partition("t", 0).unwrap();
        partition.log().append(&sample(3, NOBODY, false, 5), 0, |_, _| true).unwrap();
        let client = Client::new(SocketAddr::from(([127, 0, 0, 1], 1)), ("localhost".to_owned(), 9092));
        Self { node, client, _dir: dir }
    }

    fn context(&self, version: i16) -> Context<'_> {
        Context { node: &self.node, client: &self.client, version, correlation: 1 }
    }

    async fn offset_at(&self, version: i16, timestamp: i64) -> (i16, i64) {
        let asked = ListOffsetsPartition::default().with_current_leader_epoch(-1).with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default().with_name(name()).with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        let answer = list_offsets::list_offsets(self.context(version), request).await;
        let p = &answer.topics[0].partitions[0];
        (p.error_code, p.offset)
    }

    async fn produce(&self, id: Option<&'static str>, batch: Bytes) -> i16 {
        let data = PartitionProduceData::default().with_index(0).with_records(Some(batch));
        let topic = TopicProduceData::default().with_name(name()).with_partition_data(vec![data]);
        let id = id.map(|id| TransactionalId(StrBytes::from_static_str(id)));
        let request = ProduceRequest::default().with_acks(-1).with_transactional_id(id).with_topic_data(vec![topic]);
        let answer = produce::produce(self.context(9), request).await;
        answer.responses[0].partition_responses[0].error_code
    }

    async fn commit(&self, member: &'static str, generation: i32) -> i16 {
        let partition = OffsetCommitRequestPartition::default().with_committed_offset(1);
        let topic = OffsetCommitRequestTopic::default().with_name(name()).with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_static_str("g")))
            .with_member_id(StrBytes::from_static_str(member))
            .with_generation_id_or_member_epoch(generation)
            .with_topics(vec![topic]);
        offsets::commit(self.context(8), request).await.topics[0].partitions[0].error_code
    }

    fn fetch(&self, offset: i64, max: i32) -> i16 {
        let asked = FetchPartition::default()
            .with_current_leader_epoch(-1)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(max);
        let topic = FetchTopic::default().with_topic(name()).with_partitions(vec![asked]);
        let request = FetchRequest::default().with_max_bytes(1 << 20).with_topics(vec![topic]);
        fetch::gather(self.context(11), &request).0.topics[0].partitions[0].error
    }
}

#[tokio::test]
async fn times_below_zero_are_those_that_the_version_knows() {
    let s = Served::new();
    assert_eq!(s.offset_at(7, -1).await, (0, 3));
    assert_eq!(s.offset_at(7, -2).await, (0, 0));
    assert_eq!(s.offset_at(7, -3).await, (0, 0));
    assert_eq!(s.offset_at(6, -3).await, (35, -1), "the newest record is asked for from version 7 on");
    for time in [-4, -5, -6, -100, i64::MIN] {
        assert_eq!(s.offset_at(7, time).await, (35, -1), "{time}");
    }
    assert_eq!(s.offset_at(7, 5).await, (0, 0));
    assert_eq!(s.offset_at(7, 6).await, (0, -1));
}

#[tokio::test]
async fn batches_of_producers_have_a_sequence_and_transactional_ones_an_id() {
    let s = Served::new();
    assert_eq!(s.produce(None, sample(1, (7, 0, -1), false, 0)).await, 87);
    assert_eq!(s.produce(None, sample(1, (7, 0, 0), true, 0)).await, 53);
    assert_eq!(s.produce(Some("x"), sample(1, (7, 0, 0), true, 0)).await, 48, "not in a transaction");
    assert_eq!(s.produce(None, sample(1, NOBODY, false, 0)).await, 0);
}

#[tokio::test]
async fn a_commit_without_generation_is_good_for_an_empty_group_whoever_it_says_it_is() {
    let s = Served::new();
    for _ in 0..2 {
        assert_eq!(s.commit("somebody", -1).await, 0);
        assert_eq!(s.commit("", -1).await, 0);
    }
    assert_eq!(s.commit("somebody", 0).await, 25);
}

#[tokio::test]
async fn a_negative_size_is_no_size() {
    let s = Served::new();
    assert_eq!(s.fetch(0, -1), -1);
    assert_eq!(s.fetch(0, 0), 0);
    assert_eq!(s.fetch(4, -1), 1, "out of range comes first");
}

#[tokio::test]
async fn a_commit_does_not_reach_a_topic_that_goes_meanwhile() {
    let s = Served::new();
    let partition = s.node.topics.partition("t", 0).unwrap();
    s.node.delete_topic("t").unwrap();
    assert_eq!(s.commit("", -1).await, 3);
    assert!(offsets::Targets(vec![partition]).check().is_err());
}
