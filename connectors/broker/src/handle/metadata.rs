//! Metadata, DescribeCluster, FindCoordinator: there is one node, and clients reach it where they reached it before.

use kafka_protocol::{
    ResponseError,
    messages::{
        BrokerId, DescribeClusterRequest, DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
        MetadataRequest, MetadataResponse, TopicName,
        describe_cluster_response::DescribeClusterBroker,
        find_coordinator_response::Coordinator,
        metadata_request::MetadataRequestTopic,
        metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic},
    },
};

use super::{Context, once};
use crate::{
    node::NODE_ID,
    topics::{Topic, config::Overrides},
};

pub(super) async fn metadata(context: Context<'_>, request: MetadataRequest) -> MetadataResponse {
    let (host, port) = &context.client.advertised;
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(NODE_ID))
        .with_host(host.clone())
        .with_port(i32::from(*port));
    let mut response = MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(context.node.cluster_id.clone().into()))
        .with_controller_id(BrokerId(NODE_ID));
    let all = match &request.topics {
        None => true,
        Some(topics) => context.version == 0 && topics.is_empty(),
    };
    response.topics = if all {
        context.node.topics.all().iter().map(|t| found(context, t)).collect()
    } else {
        let auto = request.allow_auto_topic_creation && context.node.config.auto_create_topics;
        let asked = once(request.topics.unwrap_or_default(), |t| (t.name.clone(), t.topic_id));
        asked.iter().map(|t| one(context, t, auto)).collect()
    };
    response
}

fn one(context: Context<'_>, asked: &MetadataRequestTopic, auto_create: bool) -> MetadataResponseTopic {
    let topics = &context.node.topics;
    let missing = MetadataResponseTopic::default().with_topic_id(asked.topic_id);
    let Some(name) = &asked.name else {
        return match topics.by_id(asked.topic_id) {
            Some(t) => found(context, &t),
            None => missing.with_name(None).with_error_code(ResponseError::UnknownTopicId.code()),
        };
    };
    if let Some(t) = topics.get(name) {
        return found(context, &t);
    }
    let partitions = context.node.config.default_partitions;
    let outcome = topics.create(name, partitions, Overrides::new(), !auto_create);
    let error = match (outcome, topics.get(name)) {
        (_, Some(t)) => return found(context, &t),
        (Err((ResponseError::InvalidTopicException, _)), None) => ResponseError::InvalidTopicException,
        _ => ResponseError::UnknownTopicOrPartition,
    };
    missing.with_name(Some(name.clone())).with_error_code(error.code())
}

fn found(context: Context<'_>, topic: &Topic) -> MetadataResponseTopic {
    let node = vec![BrokerId(NODE_ID)];
    let partition = |p: &std::sync::Arc<crate::topics::partition::Partition>| {
        let answer = MetadataResponsePartition::default()
            .with_partition_index(p.index)
            .with_leader_id(BrokerId(NODE_ID))
            .with_replica_nodes(node.clone())
            .with_isr_nodes(node.clone());
        if context.version >= 7 { answer.with_leader_epoch(p.log().leader_epoch()) } else { answer }
    };
    let answer = MetadataResponseTopic::default()
        .with_name(Some(TopicName(topic.name.clone())))
        .with_partitions(topic.partitions.iter().map(partition).collect());
    if context.version >= 10 { answer.with_topic_id(topic.id) } else { answer }
}

pub(super) async fn describe_cluster(context: Context<'_>, request: DescribeClusterRequest) -> DescribeClusterResponse {
    let (host, port) = &context.client.advertised;
    if context.version >= 1 && request.endpoint_type != 1 {
        let error = ResponseError::UnsupportedEndpointType;
        return DescribeClusterResponse::default().with_error_code(error.code());
    }
    let broker = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(NODE_ID))
        .with_host(host.clone())
        .with_port(i32::from(*port));
    DescribeClusterResponse::default()
        .with_cluster_id(context.node.cluster_id.clone().into())
        .with_controller_id(BrokerId(NODE_ID))
        .with_brokers(vec![broker])
}

pub(super) async fn find_coordinator(context: Context<'_>, request: FindCoordinatorRequest) -> FindCoordinatorResponse {
    let (host, port) = &context.client.advertised;
    // 0: groups, 1: transactions
    let known = matches!(request.key_type, 0 | 1);
    let code = if known { 0 } else { ResponseError::InvalidRequest.code() };
    let (host, port) = if known { (host.clone(), i32::from(*port)) } else { (Default::default(), -1) };
    let id = BrokerId(if known { NODE_ID } else { -1 });
    if context.version < 4 {
        return FindCoordinatorResponse::default()
            .with_error_code(code)
            .with_node_id(id)
            .with_host(host)
            .with_port(port);
    }
    let one = |key| {
        Coordinator::default()
            .with_key(key)
            .with_error_code(code)
            .with_node_id(id)
            .with_host(host.clone())
            .with_port(port)
    };
    FindCoordinatorResponse::default().with_coordinators(request.coordinator_keys.into_iter().map(one).collect())
}
