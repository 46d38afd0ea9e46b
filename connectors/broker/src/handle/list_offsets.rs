//! ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, and what lies at a time or an epoch.

use std::sync::Arc;

use kafka_protocol::{
    ResponseError,
    messages::{
        ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
        list_offsets_request::ListOffsetsPartition,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
    },
};

use super::Context;
use crate::{log::Log, node, topics::partition::Partition};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const NEWEST: i64 = -3;

/// The epoch that a client believes in must be the current one; -1 is no belief.
pub(super) fn check_leader_epoch(log: &Log, epoch: i32) -> Result<(), ResponseError> {
    match epoch {
        -1 => Ok(()),
        e if e < log.leader_epoch() => Err(ResponseError::FencedLeaderEpoch),
        e if e > log.leader_epoch() => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

pub(super) async fn list_offsets(context: Context<'_>, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let committed = request.isolation_level == 1;
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let answer = ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
            answers.push(match look(context, &topic.name, asked, committed).await {
                Ok((timestamp, offset, epoch)) => {
                    let answer = answer.with_timestamp(timestamp).with_offset(offset);
                    if context.version >= 4 { answer.with_leader_epoch(epoch) } else { answer }
                }
                Err(e) => answer.with_error_code(e.code()).with_timestamp(-1).with_offset(-1),
            });
        }
        response.topics.push(ListOffsetsTopicResponse::default().with_name(topic.name).with_partitions(answers));
    }
    response
}

async fn look(
    context: Context<'_>,
    topic: &str,
    asked: &ListOffsetsPartition,
    committed: bool,
) -> Result<(i64, i64, i32), ResponseError> {
    let partition = context.node.topics.partition(topic, asked.partition_index);
    let partition = partition.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let timestamp = {
        let log = partition.log();
        check_leader_epoch(&log, asked.current_leader_epoch)?;
        let end = if committed { log.stable() } else { log.next() };
        match asked.timestamp {
            LATEST => return Ok((-1, end, epoch_of(&log, end))),
            EARLIEST => return Ok((-1, log.start(), epoch_of(&log, log.start()))),
            NEWEST if context.version >= 7 => log.max_timestamp(),
            // Tiers, and what nobody has invented yet.
            t if t < 0 => return Err(ResponseError::UnsupportedVersion),
            t => t,
        }
    };
    let searched = Arc::clone(&partition);
    let found = node::blocking(move || search(&searched, timestamp)).await.map_err(|e| {
        tracing::error!(topic, partition = asked.partition_index, error = %e, "a log cannot be searched");
        ResponseError::KafkaStorageError
    })?;
    let log = partition.log();
    let end = if committed { log.stable() } else { log.next() };
    // What is not stable yet is not found.
    let found = found.filter(|(_, offset)| *offset < end);
    Ok(found.map_or((-1, -1, -1), |(timestamp, offset)| (timestamp, offset, epoch_of(&log, offset))))
}

/// (timestamp, offset) of the first record that is not older than `timestamp`. Batches are looked into without the lock: one may take long to decompress.
fn search(partition: &Partition, timestamp: i64) -> std::io::Result<Option<(i64, i64)>> {
    if timestamp < 0 {
        return Ok(None);
    }
    let mut from = 0;
    loop {
        let (batch, start) = {
            let log = partition.log();
            (log.batch_for_time(timestamp, from)?, log.start())
        };
        let Some(batch) = batch else { return Ok(None) };
        if let Some(found) = batch.first_record(timestamp, start)? {
            return Ok(Some(found));
        }
        from = batch.next();
    }
}

fn epoch_of(log: &Log, offset: i64) -> i32 {
    log.epochs().iter().rev().find(|(_, at)| *at <= offset).map_or(-1, |(epoch, _)| *epoch)
}

pub(super) async fn offset_for_leader_epoch(
    context: Context<'_>,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in request.topics {
        let mut answers = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let answer = EpochEndOffset::default().with_partition(asked.partition);
            let partition = context.node.topics.partition(&topic.topic, asked.partition);
            let found = partition.ok_or(ResponseError::UnknownTopicOrPartition).and_then(|p| {
                let log = p.log();
                check_leader_epoch(&log, asked.current_leader_epoch)?;
                Ok(log.epoch_end(asked.leader_epoch).unwrap_or((-1, -1)))
            });
            answers.push(match found {
                Ok((epoch, end)) => answer.with_leader_epoch(epoch).with_end_offset(end),
                Err(e) => answer.with_error_code(e.code()),
            });
        }
        response.topics.push(OffsetForLeaderTopicResult::default().with_topic(topic.topic).with_partitions(answers));
    }
    response
}
