//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::HashMap;

use kafka_protocol::{
    ResponseError,
    messages::{
        CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
        DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
        create_partitions_request::CreatePartitionsTopic,
        create_partitions_response::CreatePartitionsTopicResult,
        create_topics_request::CreatableTopic,
        create_topics_response::{CreatableTopicConfigs, CreatableTopicResult},
        delete_topics_request::DeleteTopicState,
        delete_topics_response::DeletableTopicResult,
    },
    protocol::StrBytes,
};

use super::Context;
use crate::{
    journal::Ticket,
    node::NODE_ID,
    topics::{
        Refused,
        config::{self, Overrides},
    },
};

/// Waits until what was done is as durable as the broker's settings say.
async fn durable(context: Context<'_>, outcome: Result<Ticket, Refused>) -> Result<(), Refused> {
    let ticket = outcome?;
    let waited = context.node.topics.durable(ticket).await;
    waited.map_err(|e| (ResponseError::KafkaStorageError, Some(e.to_string())))
}

fn refuse(error: ResponseError, why: impl Into<String>) -> Refused {
    (error, Some(why.into()))
}

pub(super) async fn create(context: Context<'_>, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut times: HashMap<StrBytes, usize> = HashMap::new();
    for t in &request.topics {
        *times.entry(t.name.0.clone()).or_default() += 1;
    }
    let mut response = CreateTopicsResponse::default();
    // Each has a partition at least. Also with `validate_only`: the answer has all configs of each topic.
    let too_many = request.topics.len() > context.node.config.max_partitions;
    for topic in request.topics {
        let outcome = if too_many {
            Err(refuse(ResponseError::PolicyViolation, "More topics than this broker may have partitions."))
        } else if times.get(&topic.name.0).is_some_and(|n| *n > 1) {
            Err(refuse(ResponseError::InvalidRequest, "Duplicate topic name."))
        } else {
            create_one(context, &topic, request.validate_only).await
        };
        response.topics.push(created(context.version, topic.name, outcome));
    }
    response
}

struct Made {
    id: uuid::Uuid,
    partitions: i32,
    config: Overrides,
}

async fn create_one(context: Context<'_>, topic: &CreatableTopic, only_check: bool) -> Result<Made, Refused> {
    let partitions = partition_count(topic, context.node.config.default_partitions)?;
    let config: Overrides = topic
        .configs
        .iter()
        .filter_map(|c| Some((c.name.as_str().to_owned(), c.value.as_ref()?.as_str().to_owned())))
        .collect();
    let (id, ticket) = context.node.topics.create(&topic.name, partitions, config.clone(), only_check)?;
    durable(context, Ok(ticket)).await?;
    Ok(Made { id, partitions, config })
}

fn partition_count(topic: &CreatableTopic, default: i32) -> Result<i32, Refused> {
    if !topic.assignments.is_empty() {
        let here = |a: &kafka_protocol::messages::create_topics_request::CreatableReplicaAssignment| {
            a.broker_ids.iter().all(|b| b.0 == NODE_ID) && a.broker_ids.len() == 1
        };
        let mut indexes: Vec<i32> = topic.assignments.iter().map(|a| a.partition_index).collect();
        indexes.sort_unstable();
        if !topic.assignments.iter().all(here) || !indexes.iter().copied().eq(0..indexes.len() as i32) {
            return Err(refuse(
                ResponseError::InvalidReplicaAssignment,
                "There is one node, and partitions start at 0.",
            ));
        }
        return Ok(topic.assignments.len() as i32);
    }
    if !matches!(topic.replication_factor, -1 | 1) {
        let why = format!("Replication factor: {} larger than available brokers: 1.", topic.replication_factor);
        return Err(refuse(ResponseError::InvalidReplicationFactor, why));
    }
    Ok(if topic.num_partitions == -1 { default } else { topic.num_partitions })
}

fn created(version: i16, name: TopicName, outcome: Result<Made, Refused>) -> CreatableTopicResult {
    let result = CreatableTopicResult::default().with_name(name);
    let made = match outcome {
        Ok(made) => made,
        Err((error, why)) => return result.with_error_code(error.code()).with_error_message(why.map(Into::into)),
    };
    if version < 5 {
        return result;
    }
    let configs = config::TOPIC_OPTIONS.iter().map(|o| {
        let own = made.config.contains_key(o.name);
        CreatableTopicConfigs::default()
            .with_name(StrBytes::from_static_str(o.name))
            .with_value(Some(config::value(&made.config, o.name).to_owned().into()))
            .with_config_source(if own { 1 } else { 5 })
    });
    let result =
        result.with_num_partitions(made.partitions).with_replication_factor(1).with_configs(Some(configs.collect()));
    if version >= 7 { result.with_topic_id(made.id) } else { result }
}

pub(super) async fn delete(context: Context<'_>, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    let asked = if context.version >= 6 {
        request.topics
    } else {
        request.topic_names.into_iter().map(|n| DeleteTopicState::default().with_name(Some(n))).collect()
    };
    let mut response = DeleteTopicsResponse::default();
    for topic in asked {
        let name = match &topic.name {
            Some(n) => Ok(n.as_str().to_owned()),
            None => {
                let found = context.node.topics.by_id(topic.topic_id).map(|t| t.name.as_str().to_owned());
                found.ok_or((ResponseError::UnknownTopicId, None))
            }
        };
        let id = name.as_ref().ok().and_then(|n| context.node.topics.get(n)).map_or(topic.topic_id, |t| t.id);
        let outcome = match &name {
            Ok(n) => delete_one(context, n).await,
            Err(e) => Err(e.clone()),
        };
        let (code, why) = outcome.err().map_or((0, None), |(e, why)| (e.code(), why));
        let mut result = DeletableTopicResult::default().with_error_code(code);
        result.name = name.ok().map(|n| TopicName(n.into()));
        if context.version >= 5 {
            result.error_message = why.map(Into::into);
        }
        if context.version >= 6 {
            result.topic_id = id;
        }
        response.responses.push(result);
    }
    response
}

async fn delete_one(context: Context<'_>, name: &str) -> Result<(), Refused> {
    let (topic, offsets) = context.node.delete_topic(name)?;
    durable(context, Ok(topic)).await?;
    context.node.groups.durable(offsets).await.map_err(|e| (e, None))
}

pub(super) async fn create_partitions(
    context: Context<'_>,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut response = CreatePartitionsResponse::default();
    for topic in request.topics {
        let outcome = durable(context, grow(context, &topic, request.validate_only)).await;
        let (code, why) = outcome.err().map_or((0, None), |(e, why)| (e.code(), why));
        let result = CreatePartitionsTopicResult::default().with_name(topic.name);
        response.results.push(result.with_error_code(code).with_error_message(why.map(Into::into)));
    }
    response
}

fn grow(context: Context<'_>, topic: &CreatePartitionsTopic, only_check: bool) -> Result<Ticket, Refused> {
    let elsewhere = topic.assignments.iter().flatten().flat_map(|a| &a.broker_ids).any(|b| b.0 != NODE_ID);
    if elsewhere {
        return Err(refuse(ResponseError::InvalidReplicaAssignment, "There is one node."));
    }
    context.node.topics.grow(&topic.name, topic.count, only_check)
}
