//! Producer ids and transactions: from messages to the coordinator and back.

use kafka_protocol::{
    ResponseError,
    messages::{
        AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
        EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse, ProducerId,
        add_partitions_to_txn_response::{AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult},
    },
};

use super::{Context, code};
use crate::{log::batch::Marker, txn::state::Expected};

/// Versions before `since` know only one word for a producer that was replaced.
fn for_version(error: ResponseError, version: i16, since: i16) -> ResponseError {
    match error {
        ResponseError::ProducerFenced if version < since => ResponseError::InvalidProducerEpoch,
        other => other,
    }
}

pub(super) async fn init(context: Context<'_>, request: InitProducerIdRequest) -> InitProducerIdResponse {
    let node = context.node;
    let expected = (request.producer_epoch >= 0)
        .then_some(Expected { producer_id: request.producer_id.0, epoch: request.producer_epoch });
    let outcome = match &request.transactional_id {
        None => match node.topics.new_producer_id().await {
            Ok(producer_id) => Ok(Expected { producer_id, epoch: 0 }),
            Err(e) => {
                tracing::error!(error = %e, "the topic journal cannot be written");
                Err(ResponseError::CoordinatorNotAvailable)
            }
        },
        Some(id) if id.is_empty() => Err(ResponseError::InvalidRequest),
        Some(id) => node.transactions.init(id, expected, i64::from(request.transaction_timeout_ms)).await,
    };
    match outcome.map_err(|e| for_version(e, context.version, 4)) {
        Ok(got) => InitProducerIdResponse::default()
            .with_producer_id(ProducerId(got.producer_id))
            .with_producer_epoch(got.epoch),
        Err(e) => InitProducerIdResponse::default()
            .with_error_code(e.code())
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1),
    }
}

pub(super) async fn add_partitions(
    context: Context<'_>,
    request: AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponse {
    let node = context.node;
    let who = Expected { producer_id: request.v3_and_below_producer_id.0, epoch: request.v3_and_below_producer_epoch };
    let topics = request.v3_and_below_topics;
    let asked = topics.iter().flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), *p)));
    let asked: Vec<(&str, i32)> = asked.collect();
    let exists = |topic: &str, p: i32| node.topics.partition(topic, p).is_some();
    let all_exist = asked.iter().all(|(t, p)| exists(t, *p));
    let outcome = if all_exist {
        node.transactions.add(&request.v3_and_below_transactional_id, who, &asked, None).await
    } else {
        // All or nothing.
        Err(ResponseError::OperationNotAttempted)
    };
    let error = code(&outcome.map_err(|e| for_version(e, context.version, 2)));
    let results = topics.iter().map(|t| {
        let partitions = t.partitions.iter().map(|p| {
            let error = if exists(&t.name, *p) { error } else { ResponseError::UnknownTopicOrPartition.code() };
            AddPartitionsToTxnPartitionResult::default().with_partition_index(*p).with_partition_error_code(error)
        });
        let partitions = partitions.collect();
        AddPartitionsToTxnTopicResult::default().with_name(t.name.clone()).with_results_by_partition(partitions)
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results.collect())
}

pub(super) async fn add_offsets(context: Context<'_>, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse {
    let who = Expected { producer_id: request.producer_id.0, epoch: request.producer_epoch };
    let outcome = if request.group_id.is_empty() {
        Err(ResponseError::InvalidGroupId)
    } else {
        let transactions = &context.node.transactions;
        transactions.add(&request.transactional_id, who, &[], Some(request.group_id.as_str())).await
    };
    let outcome = outcome.map_err(|e| for_version(e, context.version, 2));
    AddOffsetsToTxnResponse::default().with_error_code(code(&outcome))
}

pub(super) async fn end(context: Context<'_>, request: EndTxnRequest) -> EndTxnResponse {
    let who = Expected { producer_id: request.producer_id.0, epoch: request.producer_epoch };
    let marker = if request.committed { Marker::Commit } else { Marker::Abort };
    let outcome = context.node.transactions.end(&request.transactional_id, who, marker).await;
    let outcome = outcome.map_err(|e| for_version(e, context.version, 2));
    EndTxnResponse::default().with_error_code(code(&outcome))
}
