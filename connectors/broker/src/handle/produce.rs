//! Produce: batches go to their logs as they came. Killing the process loses nothing that was answered; `Fsync::Always` also waits for the disk.

use std::{fs::File, sync::Arc};

use bytes::Bytes;
use kafka_protocol::{
    ResponseError,
    messages::{
        ProduceRequest, ProduceResponse,
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
    },
};

use super::{Context, Outcome, Unreadable, encode};
use crate::{
    config::Fsync,
    log::{
        AppendError, Appended,
        batch::{BadBatch, says_transactional},
        has_keys,
    },
    node,
    txn::state::Expected,
};

pub(super) async fn handle(context: Context<'_>, request: ProduceRequest) -> Result<Outcome, Unreadable> {
    let silent = request.acks == 0;
    let response = produce(context, request).await;
    Ok(if silent { Outcome::Nothing } else { encode(context.correlation, context.version, &response) })
}

pub(super) async fn produce(context: Context<'_>, request: ProduceRequest) -> ProduceResponse {
    let acks = request.acks;
    let records = || request.topic_data.iter().flat_map(|t| &t.partition_data).filter_map(|p| p.records.as_deref());
    let bad = if !(-1..=1).contains(&acks) {
        Some(ResponseError::InvalidRequiredAcks)
    } else if request.transactional_id.is_none() && records().any(says_transactional) {
        Some(ResponseError::TransactionalIdAuthorizationFailed)
    } else {
        None
    };
    let mut dirty: Vec<Arc<File>> = Vec::new();
    let mut response = ProduceResponse::default();
    for topic in request.topic_data {
        let mut answers = Vec::with_capacity(topic.partition_data.len());
        for data in topic.partition_data {
            let outcome = match bad {
                None => append(context, &topic.name, data.index, data.records.unwrap_or_default(), &mut dirty).await,
                Some(error) => Err((error, None)),
            };
            answers.push(answer(context.version, data.index, outcome));
        }
        response
            .responses
            .push(TopicProduceResponse::default().with_name(topic.name).with_partition_responses(answers));
    }
    if !dirty.is_empty()
        && let Err(e) = node::blocking(move || dirty.iter().try_for_each(|f| f.sync_data())).await
    {
        tracing::error!(error = %e, "appended records cannot be synced");
        for p in response.responses.iter_mut().flat_map(|t| &mut t.partition_responses) {
            p.error_code = ResponseError::KafkaStorageError.code();
        }
    }
    response
}

/// The log start goes with the offsets.
struct Stored {
    at: Appended,
    start: i64,
}

type Refused = (ResponseError, Option<String>);

async fn append(
    context: Context<'_>,
    topic: &str,
    index: i32,
    batch: Bytes,
    dirty: &mut Vec<Arc<File>>,
) -> Result<Stored, Refused> {
    let node = context.node;
    let unknown = (ResponseError::UnknownTopicOrPartition, None);
    let partition = node.topics.partition(topic, index).ok_or(unknown.clone())?;
    node.faults.thawed(topic, index).await;
    // Clients that old cannot read zstd.
    if context.version < 7 && batch.get(22).is_some_and(|attributes| attributes & 7 == 4) {
        return Err((ResponseError::UnsupportedCompressionType, None));
    }
    let compacted = partition.log().settings().compact;
    if compacted {
        check_keys(batch.clone()).await?;
    }
    let stored = {
        let mut log = partition.log();
        if partition.is_closed() {
            return Err(unknown);
        }
        let in_transaction =
            |producer_id, epoch| node.transactions.has_partition(Expected { producer_id, epoch }, topic, index);
        let at = log.append(&batch, node.clock.now_ms(), in_transaction).map_err(|e| refusal(topic, index, &e))?;
        if node.config.fsync == Fsync::Always {
            dirty.extend(log.take_dirty());
        }
        Stored { at, start: log.start() }
    };
    partition.wake();
    Ok(stored)
}

/// A compacted topic keeps the newest record of each key. The batch may be large inside, so this is no work for a thread that serves others.
async fn check_keys(batch: Bytes) -> Result<(), Refused> {
    match node::blocking(move || has_keys(&batch)).await {
        Ok(true) => Ok(()),
        Ok(false) => Err((ResponseError::InvalidRecord, Some("a record without key in a compacted topic".to_owned()))),
        Err(e) => Err((ResponseError::CorruptMessage, Some(format!("the records cannot be read: {e}")))),
    }
}

fn refusal(topic: &str, partition: i32, e: &AppendError) -> Refused {
    let error = match e {
        AppendError::Bad(BadBatch::Checksum | BadBatch::Short) => ResponseError::CorruptMessage,
        AppendError::Bad(BadBatch::Magic(_)) => ResponseError::UnsupportedForMessageFormat,
        AppendError::Bad(_) => ResponseError::InvalidRecord,
        AppendError::Timestamp => ResponseError::InvalidTimestamp,
        AppendError::TooLarge { .. } => ResponseError::MessageTooLarge,
        AppendError::OldProducerEpoch => ResponseError::InvalidProducerEpoch,
        AppendError::SequenceGap => ResponseError::OutOfOrderSequenceNumber,
        AppendError::NotInTransaction => ResponseError::InvalidTxnState,
        AppendError::Io(io) => {
            tracing::error!(topic, partition, error = %io, "a batch cannot be written");
            ResponseError::KafkaStorageError
        }
    };
    tracing::debug!(topic, partition, error = %e, "a batch was refused");
    (error, Some(e.to_string()))
}

fn answer(version: i16, index: i32, outcome: Result<Stored, Refused>) -> PartitionProduceResponse {
    let answer = PartitionProduceResponse::default().with_index(index);
    match outcome {
        Ok(stored) => {
            let answer = answer
                .with_base_offset(stored.at.base_offset)
                .with_log_append_time_ms(stored.at.append_time.unwrap_or(-1));
            if version >= 5 { answer.with_log_start_offset(stored.start) } else { answer }
        }
        Err((error, why)) => {
            let answer = answer.with_error_code(error.code()).with_base_offset(-1).with_log_append_time_ms(-1);
            if version >= 8 { answer.with_error_message(why.map(Into::into)) } else { answer }
        }
    }
}
