//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs. Topic configs change at once; the broker's own come from its start and are read-only.

use kafka_protocol::{
    ResponseError,
    messages::{
        AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, alter_configs_response,
        describe_configs_request::DescribeConfigsResource,
        describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym},
        incremental_alter_configs_request::AlterableConfig,
        incremental_alter_configs_response,
    },
    protocol::StrBytes,
};

use super::Context;
use crate::{
    config::BrokerConfig,
    node::NODE_ID,
    topics::{
        Refused,
        config::{self, Kind, Overrides},
    },
};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// Where a value comes from.
const OF_TOPIC: i8 = 1;
const OF_START: i8 = 4;
const DEFAULT: i8 = 5;

pub(super) async fn describe(context: Context<'_>, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let mut response = DescribeConfigsResponse::default();
    for asked in request.resources {
        let result = DescribeConfigsResult::default()
            .with_resource_type(asked.resource_type)
            .with_resource_name(asked.resource_name.clone());
        response.results.push(match describe_one(context, &asked, request.include_synonyms) {
            Ok(configs) => result.with_configs(configs),
            Err((e, why)) => result.with_error_code(e.code()).with_error_message(why.map(Into::into)),
        });
    }
    response
}

fn describe_one(
    context: Context<'_>,
    asked: &DescribeConfigsResource,
    synonyms: bool,
) -> Result<Vec<DescribeConfigsResourceResult>, Refused> {
    let wanted = |name: &str| asked.configuration_keys.as_ref().is_none_or(|k| k.iter().any(|k| k.as_str() == name));
    let entry = |name: &'static str, value: String, source: i8, kind: Kind, read_only: bool| {
        let name = StrBytes::from_static_str(name);
        let mut entry = DescribeConfigsResourceResult::default()
            .with_name(name.clone())
            .with_value(Some(value.clone().into()))
            .with_config_source(source)
            .with_read_only(read_only);
        if context.version >= 3 {
            entry.config_type = kind as i8;
        }
        if synonyms {
            let synonym = DescribeConfigsSynonym::default().with_name(name).with_value(Some(value.into()));
            entry.synonyms.push(synonym.with_source(source));
        }
        entry
    };
    match asked.resource_type {
        TOPIC => {
            let topic = context.node.topics.get(&asked.resource_name);
            let topic = topic.ok_or((ResponseError::UnknownTopicOrPartition, None))?;
            let options = config::TOPIC_OPTIONS.iter().filter(|o| wanted(o.name));
            let options = options.map(|o| {
                let source = if topic.config.contains_key(o.name) { OF_TOPIC } else { DEFAULT };
                entry(o.name, config::value(&topic.config, o.name).to_owned(), source, o.kind, false)
            });
            Ok(options.collect())
        }
        BROKER => {
            if !asked.resource_name.is_empty() && asked.resource_name.as_str() != NODE_ID.to_string() {
                let why = format!("Unexpected broker id, expected {NODE_ID}, but received {}", asked.resource_name);
                return Err((ResponseError::InvalidRequest, Some(why)));
            }
            let set = &context.node.config;
            let defaults = broker_values(&BrokerConfig::new(&set.data_dir));
            let values = broker_values(set).into_iter().zip(defaults).filter(|((name, ..), _)| wanted(name));
            let entries = values.map(|((name, value, kind), (_, default, _))| {
                let source = if value == default && !ALWAYS_SET.contains(&name) { DEFAULT } else { OF_START };
                entry(name, value, source, kind, true)
            });
            Ok(entries.collect())
        }
        other => Err((ResponseError::InvalidRequest, Some(format!("Resource type {other} has no configs here")))),
    }
}

/// What no broker starts without.
const ALWAYS_SET: [&str; 4] = ["broker.id", "log.dirs", "node.id", "process.roles"];

fn broker_values(c: &BrokerConfig) -> Vec<(&'static str, String, Kind)> {
    let topic = |name: &str| config::value(&Overrides::new(), name).to_owned();
    vec![
        ("auto.create.topics.enable", c.auto_create_topics.to_string(), Kind::Boolean),
        ("broker.id", NODE_ID.to_string(), Kind::Int),
        ("default.replication.factor", "1".to_owned(), Kind::Int),
        ("log.cleaner.enable", c.compaction.to_string(), Kind::Boolean),
        ("log.cleanup.policy", topic("cleanup.policy"), Kind::List),
        ("log.dirs", c.data_dir.display().to_string(), Kind::String),
        ("log.message.timestamp.type", topic("message.timestamp.type"), Kind::String),
        ("log.retention.bytes", topic("retention.bytes"), Kind::Long),
        ("log.retention.check.interval.ms", c.retention_interval.as_millis().to_string(), Kind::Long),
        ("log.retention.ms", topic("retention.ms"), Kind::Long),
        ("log.segment.bytes", topic("segment.bytes"), Kind::Int),
        ("max.connections", c.max_connections.to_string(), Kind::Int),
        ("message.max.bytes", topic("max.message.bytes"), Kind::Int),
        ("min.insync.replicas", "1".to_owned(), Kind::Int),
        ("node.id", NODE_ID.to_string(), Kind::Int),
        ("num.partitions", c.default_partitions.to_string(), Kind::Int),
        ("process.roles", "broker,controller".to_owned(), Kind::List),
        ("socket.request.max.bytes", (100 << 20).to_string(), Kind::Int),
        ("transaction.max.timeout.ms", c.transaction_max_timeout.as_millis().to_string(), Kind::Int),
    ]
}

/// One change of an incremental request.
fn apply(config: &mut Overrides, change: &AlterableConfig) -> Result<(), Refused> {
    const SET: i8 = 0;
    const DELETE: i8 = 1;
    const APPEND: i8 = 2;
    const SUBTRACT: i8 = 3;
    let name = change.name.as_str();
    let option = config::option(name)
        .ok_or_else(|| (ResponseError::InvalidConfig, Some(format!("Unknown topic config name: {name}"))))?;
    let value = change.value.as_ref().map(|v| v.as_str().to_owned());
    let missing = || (ResponseError::InvalidConfig, Some(format!("Null value not supported for {name}")));
    match change.config_operation {
        SET => {
            config.insert(name.to_owned(), value.ok_or_else(missing)?);
        }
        DELETE => {
            config.remove(name);
        }
        APPEND | SUBTRACT if option.kind == Kind::List => {
            let value = value.ok_or_else(missing)?;
            let mut words: Vec<String> =
                config::value(config, name).split(',').filter(|w| !w.is_empty()).map(str::to_owned).collect();
            for word in value.split(',') {
                words.retain(|w| w != word);
                if change.config_operation == APPEND {
                    words.push(word.to_owned());
                }
            }
            config.insert(name.to_owned(), words.join(","));
        }
        _ => {
            let why = format!("Config value append is not allowed for config key: {name}");
            return Err((ResponseError::InvalidConfig, Some(why)));
        }
    }
    Ok(())
}

async fn change(
    context: Context<'_>,
    (kind, name): (i8, &str),
    only_check: bool,
    edit: impl FnOnce(&mut Overrides) -> Result<(), Refused>,
) -> Result<(), Refused> {
    if kind != TOPIC {
        let why = "Only topic configs can be changed; the broker's own are set at its start";
        return Err((ResponseError::InvalidRequest, Some(why.to_owned())));
    }
    let ticket = context.node.topics.configure(name, only_check, edit)?;
    let waited = context.node.topics.durable(ticket).await;
    waited.map_err(|e| (ResponseError::KafkaStorageError, Some(e.to_string())))
}

pub(super) async fn incremental_alter(
    context: Context<'_>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut response = IncrementalAlterConfigsResponse::default();
    for r in request.resources {
        let edit = |config: &mut Overrides| r.configs.iter().try_for_each(|c| apply(config, c));
        let outcome = change(context, (r.resource_type, &r.resource_name), request.validate_only, edit).await;
        let (code, why) = outcome.err().map_or((0, None), |(e, why)| (e.code(), why));
        response.responses.push(
            incremental_alter_configs_response::AlterConfigsResourceResponse::default()
                .with_resource_type(r.resource_type)
                .with_resource_name(r.resource_name)
                .with_error_code(code)
                .with_error_message(why.map(Into::into)),
        );
    }
    response
}

/// The old call: what it does not name goes back to its default.
pub(super) async fn alter(context: Context<'_>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut response = AlterConfigsResponse::default();
    for r in request.resources {
        let edit = |config: &mut Overrides| {
            let named =
                r.configs.iter().filter_map(|c| Some((c.name.as_str().to_owned(), c.value.as_ref()?.to_string())));
            *config = named.collect();
            Ok(())
        };
        let outcome = change(context, (r.resource_type, &r.resource_name), request.validate_only, edit).await;
        let (code, why) = outcome.err().map_or((0, None), |(e, why)| (e.code(), why));
        response.responses.push(
            alter_configs_response::AlterConfigsResourceResponse::default()
                .with_resource_type(r.resource_type)
                .with_resource_name(r.resource_name)
                .with_error_code(code)
                .with_error_message(why.map(Into::into)),
        );
    }
    response
}
