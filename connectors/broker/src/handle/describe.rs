//! What tools ask: API versions, transactions, producers. Kafka's own tools find a hanging transaction with these.

use kafka_protocol::{
    ResponseError,
    messages::{
        ApiVersionsResponse, DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest,
        DescribeTransactionsResponse, ListTransactionsRequest, ListTransactionsResponse, ProducerId, TopicName,
        TransactionalId,
        api_versions_response::ApiVersion,
        describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
        describe_transactions_response::{TopicData, TransactionState},
        list_transactions_response,
    },
    protocol::StrBytes,
};

use super::{Context, once};
use crate::{
    log,
    protocol::versions::SERVED,
    txn::state::{Status, Transaction},
};

/// No finalized features: clients use the first version of transactions.
pub(super) fn api_versions(error: i16) -> ApiVersionsResponse {
    let one = |(api, low, high): &(kafka_protocol::messages::ApiKey, i16, i16)| {
        ApiVersion::default().with_api_key(*api as i16).with_min_version(*low).with_max_version(*high)
    };
    ApiVersionsResponse::default().with_error_code(error).with_api_keys(SERVED.iter().map(one).collect())
}

const STATES: [Status; 6] = [
    Status::Empty,
    Status::Ongoing,
    Status::PrepareCommit,
    Status::PrepareAbort,
    Status::CompleteCommit,
    Status::CompleteAbort,
];

pub(super) async fn list_transactions(
    context: Context<'_>,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let (states, producers) = (&request.state_filters, &request.producer_id_filters);
    let wanted = |t: &Transaction| {
        (states.is_empty() || states.iter().any(|s| s.as_str() == t.status.name()))
            && (producers.is_empty() || producers.iter().any(|p| p.0 == t.producer_id))
    };
    let found = context.node.transactions.all().into_iter().filter(|(_, t)| wanted(t)).map(|(id, t)| {
        list_transactions_response::TransactionState::default()
            .with_transactional_id(TransactionalId(id.into()))
            .with_producer_id(ProducerId(t.producer_id))
            .with_transaction_state(StrBytes::from_static_str(t.status.name()))
    });
    let unknown = states.iter().filter(|s| STATES.iter().all(|known| known.name() != s.as_str())).cloned();
    ListTransactionsResponse::default()
        .with_transaction_states(found.collect())
        .with_unknown_state_filters(unknown.collect())
}

pub(super) async fn describe_transactions(
    context: Context<'_>,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let one = |id: TransactionalId| {
        let state = TransactionState::default().with_transactional_id(id.clone());
        let Some(t) = context.node.transactions.get(&id) else {
            return state.with_error_code(ResponseError::TransactionalIdNotFound.code());
        };
        let topics = t.partitions.iter().map(|(name, partitions)| {
            let name = TopicName(name.clone().into());
            TopicData::default().with_topic(name).with_partitions(partitions.iter().copied().collect())
        });
        state
            .with_topics(topics.collect())
            .with_transaction_state(StrBytes::from_static_str(t.status.name()))
            .with_transaction_timeout_ms(i32::try_from(t.timeout_ms).unwrap_or(i32::MAX))
            .with_transaction_start_time_ms(t.started_ms)
            .with_producer_id(ProducerId(t.producer_id))
            .with_producer_epoch(t.epoch)
    };
    let states = once(request.transactional_ids, TransactionalId::clone).into_iter().map(one);
    DescribeTransactionsResponse::default().with_transaction_states(states.collect())
}

fn producer((id, state): (i64, &log::ProducerState)) -> ProducerState {
    ProducerState::default()
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(i32::from(state.epoch))
        .with_last_sequence(state.recent.back().map_or(-1, |r| r.last_sequence))
        .with_last_timestamp(state.seen_ms)
        .with_coordinator_epoch(0)
        .with_current_txn_start_offset(state.open_since.unwrap_or(-1))
}

pub(super) async fn describe_producers(
    context: Context<'_>,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut response = DescribeProducersResponse::default();
    for topic in once(request.topics, |t| t.name.clone()) {
        let one = |index: i32| {
            let answer = PartitionResponse::default().with_partition_index(index);
            match context.node.topics.partition(&topic.name, index) {
                Some(p) => answer.with_active_producers(p.log().producers().map(producer).collect()),
                None => answer.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
            }
        };
        let partitions = once(topic.partition_indexes, |p| *p).into_iter().map(one).collect();
        response.topics.push(TopicResponse::default().with_name(topic.name).with_partitions(partitions));
    }
    response
}
