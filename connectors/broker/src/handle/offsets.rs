//! Offsets of groups: commit (alone or in a transaction), fetch, delete.

use std::sync::Arc;

use kafka_protocol::{
    ResponseError,
    messages::{
        OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse, OffsetFetchRequest,
        OffsetFetchResponse, TopicName, TxnOffsetCommitRequest, TxnOffsetCommitResponse,
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic},
        offset_fetch_response::{
            OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
            OffsetFetchResponseTopic, OffsetFetchResponseTopics,
        },
        txn_offset_commit_response::{TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic},
    },
    protocol::StrBytes,
};

use super::{Context, code, once};
use crate::{
    group::{Held, offsets::Committed},
    topics::partition::Partition,
    txn::state::Expected,
};

/// Kafka's `offset.metadata.max.bytes`.
const METADATA_LIMIT: usize = 4096;

type Row = (String, i32, Committed);

/// The topics of a commit, and whether they are all still there when it is written.
#[derive(Default)]
pub(super) struct Targets(pub(super) Vec<Arc<Partition>>);

impl Targets {
    pub(super) fn check(&self) -> Result<(), ResponseError> {
        if self.0.iter().any(|p| p.is_closed()) { Err(ResponseError::UnknownTopicOrPartition) } else { Ok(()) }
    }
}

/// One entry of a commit with its own error, if it has one.
fn row(
    context: Context<'_>,
    topic: &str,
    partition: i32,
    (offset, leader_epoch): (i64, i32),
    metadata: Option<StrBytes>,
    targets: &mut Targets,
) -> Result<Row, ResponseError> {
    let metadata = metadata.map(|m| m.as_str().to_owned()).unwrap_or_default();
    if metadata.len() > METADATA_LIMIT {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let found = context.node.topics.partition(topic, partition);
    targets.0.push(found.ok_or(ResponseError::UnknownTopicOrPartition)?);
    Ok((topic.to_owned(), partition, Committed { offset, leader_epoch, metadata }))
}

pub(super) async fn commit(context: Context<'_>, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let (mut rows, mut targets) = (Vec::new(), Targets::default());
    let mut response = OffsetCommitResponse::default();
    for topic in request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for p in topic.partitions {
            let at = (p.committed_offset, p.committed_leader_epoch);
            let row = row(context, &topic.name, p.partition_index, at, p.committed_metadata, &mut targets);
            let answer = OffsetCommitResponsePartition::default().with_partition_index(p.partition_index);
            answers.push(answer.with_error_code(code(&row)));
            rows.extend(row);
        }
        response.topics.push(OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(answers));
    }
    let instance = request.group_instance_id.as_ref().map(|i| i.as_str());
    let who = (request.member_id.as_str(), instance, request.generation_id_or_member_epoch);
    let outcome = store(context, &request.group_id, who, None, rows, || targets.check()).await;
    if let Err(e) = outcome {
        for p in response.topics.iter_mut().flat_map(|t| &mut t.partitions).filter(|p| p.error_code == 0) {
            p.error_code = e.code();
        }
    }
    response
}

async fn store(
    context: Context<'_>,
    group: &str,
    who: (&str, Option<&str>, i32),
    producer: Option<i64>,
    rows: Vec<Row>,
    allowed: impl FnOnce() -> Result<(), ResponseError>,
) -> Result<(), ResponseError> {
    if group.is_empty() && producer.is_some() {
        return Err(ResponseError::InvalidGroupId);
    }
    let ticket = context.node.groups.commit(group, who, producer, rows, allowed)?;
    context.node.groups.durable(ticket).await
}

pub(super) async fn commit_in_transaction(
    context: Context<'_>,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse {
    let (mut rows, mut targets) = (Vec::new(), Targets::default());
    let mut response = TxnOffsetCommitResponse::default();
    for topic in request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for p in topic.partitions {
            let at = (p.committed_offset, p.committed_leader_epoch);
            let row = row(context, &topic.name, p.partition_index, at, p.committed_metadata, &mut targets);
            let answer = TxnOffsetCommitResponsePartition::default().with_partition_index(p.partition_index);
            answers.push(answer.with_error_code(code(&row)));
            rows.extend(row);
        }
        response.topics.push(TxnOffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(answers));
    }
    let producer = Expected { producer_id: request.producer_id.0, epoch: request.producer_epoch };
    let group = request.group_id.as_str();
    let allowed = || {
        context.node.transactions.check_group(&request.transactional_id, producer, group)?;
        targets.check()
    };
    let instance = request.group_instance_id.as_ref().map(|i| i.as_str());
    let who = (request.member_id.as_str(), instance, request.generation_id);
    let outcome = store(context, group, who, Some(producer.producer_id), rows, allowed).await;
    if let Err(e) = outcome {
        for p in response.topics.iter_mut().flat_map(|t| &mut t.partitions).filter(|p| p.error_code == 0) {
            p.error_code = e.code();
        }
    }
    response
}

/// Answers of one topic.
type Found = (TopicName, Vec<(i32, Result<Committed, ResponseError>)>);

const NONE: i64 = -1;

/// What is committed for the partitions asked for, or for all (`None`).
fn look(held: Option<&Held>, asked: Option<Vec<(TopicName, Vec<i32>)>>, stable: bool) -> Vec<Found> {
    let none = Committed { offset: NONE, leader_epoch: -1, metadata: String::new() };
    let one = |topic: &str, partition: i32| {
        let key = (topic.to_owned(), partition);
        let Some(held) = held else { return Ok(none.clone()) };
        if stable && held.offsets.is_unstable(&key) {
            return Err(ResponseError::UnstableOffsetCommit);
        }
        Ok(held.offsets.committed.get(&key).cloned().unwrap_or_else(|| none.clone()))
    };
    let asked = asked.unwrap_or_else(|| {
        let mut all: Vec<(TopicName, Vec<i32>)> = Vec::new();
        for (topic, partition) in held.iter().flat_map(|h| h.offsets.committed.keys()) {
            match all.last_mut() {
                Some((name, partitions)) if name.as_str() == topic => partitions.push(*partition),
                _ => all.push((TopicName(topic.clone().into()), vec![*partition])),
            }
        }
        all
    });
    once(asked, |(topic, _)| topic.clone())
        .into_iter()
        .map(|(topic, partitions)| {
            let rows = once(partitions, |p| *p).into_iter().map(|p| (p, one(&topic, p))).collect();
            (topic, rows)
        })
        .collect()
}

pub(super) async fn fetch(context: Context<'_>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let (groups, version) = (&context.node.groups, context.version);
    if version >= 8 {
        let one = |g: kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup| {
            let asked = g.topics.map(|t| t.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
            let found = groups.with(&g.group_id, |held| look(held, asked, request.require_stable));
            let topics = found.into_iter().map(|(name, rows)| {
                let partitions = rows.into_iter().map(|(index, outcome)| {
                    let (c, code) = parts(outcome);
                    OffsetFetchResponsePartitions::default()
                        .with_partition_index(index)
                        .with_committed_offset(c.offset)
                        .with_committed_leader_epoch(c.leader_epoch)
                        .with_metadata(Some(c.metadata.into()))
                        .with_error_code(code)
                });
                OffsetFetchResponseTopics::default().with_name(name).with_partitions(partitions.collect())
            });
            OffsetFetchResponseGroup::default().with_group_id(g.group_id).with_topics(topics.collect())
        };
        return OffsetFetchResponse::default()
            .with_groups(once(request.groups, |g| g.group_id.clone()).into_iter().map(one).collect());
    }
    // "All" is null from version 2 on.
    let asked = request.topics.map(|t| t.into_iter().map(|t| (t.name, t.partition_indexes)).collect());
    let found = groups.with(&request.group_id, |held| look(held, asked, request.require_stable));
    let topics = found.into_iter().map(|(name, rows)| {
        let partitions = rows.into_iter().map(|(index, outcome)| {
            let (c, code) = parts(outcome);
            let answer = OffsetFetchResponsePartition::default()
                .with_partition_index(index)
                .with_committed_offset(c.offset)
                .with_metadata(Some(c.metadata.into()))
                .with_error_code(code);
            if version >= 5 { answer.with_committed_leader_epoch(c.leader_epoch) } else { answer }
        });
        OffsetFetchResponseTopic::default().with_name(name).with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default().with_topics(topics.collect())
}

fn parts(outcome: Result<Committed, ResponseError>) -> (Committed, i16) {
    let code = code(&outcome);
    (outcome.unwrap_or(Committed { offset: NONE, leader_epoch: -1, metadata: String::new() }), code)
}

pub(super) async fn delete(context: Context<'_>, request: OffsetDeleteRequest) -> OffsetDeleteResponse {
    let groups = &context.node.groups;
    let asked = request
        .topics
        .iter()
        .flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str().to_owned(), p.partition_index)));
    let outcome = match groups.delete_offsets(&request.group_id, asked.collect()) {
        Ok((ticket, subscribed)) => groups.durable(ticket).await.map(|()| subscribed),
        Err(e) => Err(e),
    };
    let subscribed = match outcome {
        Ok(subscribed) => subscribed,
        Err(e) => return OffsetDeleteResponse::default().with_error_code(e.code()),
    };
    let topics = request.topics.into_iter().map(|t| {
        let error = if subscribed.contains(t.name.as_str()) { ResponseError::GroupSubscribedToTopic.code() } else { 0 };
        let partitions = t.partitions.iter().map(|p| {
            OffsetDeleteResponsePartition::default().with_partition_index(p.partition_index).with_error_code(error)
        });
        let partitions = partitions.collect();
        OffsetDeleteResponseTopic::default().with_name(t.name).with_partitions(partitions)
    });
    OffsetDeleteResponse::default().with_topics(topics.collect())
}
