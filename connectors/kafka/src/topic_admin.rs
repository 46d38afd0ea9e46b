//! Topics: create, describe, list, offsets, delete, and whether the cluster answers.
//!
//! Owns: waiting for leaders, topic ids. Not here: what a topic's config must be (its user verifies), trimming (`log_store`).

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use base64::Engine;
use millstream_types::{Created, ErrorKind, LogError, Offset, PartitionOffsets, TopicAdmin, TopicInfo, TopicSpec};
use rdkafka::{
    admin::{AdminOptions, ConfigEntry, NewTopic, ResourceSpecifier, TopicReplication},
    error::RDKafkaErrorCode as Code,
};

use crate::{
    KafkaCluster,
    client::Admin,
    error::{call_failed, code_failed},
    sys::{self, Spec},
};

/// A new topic has its leaders within a second on a healthy cluster.
const LEADER_DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct KafkaAdmin {
    pub(crate) cluster: Arc<KafkaCluster>,
}

impl KafkaAdmin {
    fn call_options(&self) -> AdminOptions {
        let timeout = Some(self.cluster.options().request_timeout);
        AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
    }

    async fn partitions(&self, topic: &str) -> Result<Vec<i32>, LogError> {
        let missing = || LogError::new(ErrorKind::NotFound, "there is no such topic").topic(topic);
        let (name, timeout) = (topic.to_owned(), self.cluster.options().request_timeout);
        let found = self
            .cluster
            .blocking(move |admin| sys::describe_topic(admin.inner().into(), &name, timeout))
            .await?
            .map_err(|code| code_failed("the topic could not be described", code).topic(topic))?;
        found.map(|(_, n)| (0..n as i32).collect()).ok_or_else(missing)
    }
}

/// Whether every one of `partitions` partitions has a leader now.
fn has_leaders(admin: &Admin, topic: &str, partitions: i32, timeout: Duration) -> Result<bool, LogError> {
    let metadata =
        admin.inner().fetch_metadata(Some(topic), timeout).map_err(|e| call_failed("no metadata", e).topic(topic))?;
    Ok(metadata.topics().iter().filter(|t| t.name() == topic && t.error().is_none()).any(|t| {
        t.partitions().len() >= usize::try_from(partitions).unwrap_or(0)
            && t.partitions().iter().all(|p| p.leader() >= 0)
    }))
}

fn wait_for_leaders(admin: &Admin, topic: &str, partitions: i32, timeout: Duration) -> Result<(), LogError> {
    let deadline = Instant::now() + LEADER_DEADLINE;
    loop {
        match has_leaders(admin, topic, partitions, timeout) {
            Ok(true) => return Ok(()),
            Err(e) if Instant::now() >= deadline => return Err(e),
            Ok(false) if Instant::now() >= deadline => {
                return Err(LogError::new(ErrorKind::Unavailable, "partitions have no leader after 30 s").topic(topic));
            }
            Ok(false) | Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[async_trait]
impl TopicAdmin for KafkaAdmin {
    async fn create(&self, spec: &TopicSpec) -> Result<Created, LogError> {
        let failed = |e| call_failed("the topic could not be created", e).topic(spec.name.as_str());
        let mut topic = NewTopic::new(&spec.name, spec.partitions, TopicReplication::Fixed(spec.replicas));
        for (name, value) in &spec.config {
            topic = topic.set(name, value);
        }
        let answer = self.cluster.admin_client().create_topics([&topic], &self.call_options()).await.map_err(failed)?;
        let created = match answer.into_iter().next() {
            Some(Ok(_)) => Created::New,
            Some(Err((_, Code::TopicAlreadyExists))) => Created::Existed,
            Some(Err((_, code))) => return Err(failed(rdkafka::error::KafkaError::AdminOp(code))),
            None => return Err(LogError::new(ErrorKind::Internal, "no topic in the answer").topic(spec.name.as_str())),
        };
        // An existing topic may have fewer partitions than asked for: that is for the caller to find.
        let partitions = if created == Created::New { spec.partitions } else { 1 };
        let (name, timeout) = (spec.name.clone(), self.cluster.options().request_timeout);
        self.cluster.blocking(move |admin| wait_for_leaders(admin, &name, partitions, timeout)).await??;
        Ok(created)
    }

    async fn describe(&self, topic: &str) -> Result<Option<TopicInfo>, LogError> {
        let (name, timeout) = (topic.to_owned(), self.cluster.options().request_timeout);
        let found = self
            .cluster
            .blocking(move |admin| sys::describe_topic(admin.inner().into(), &name, timeout))
            .await?
            .map_err(|code| code_failed("the topic could not be described", code).topic(topic))?;
        let Some((id, partitions)) = found else { return Ok(None) };
        let resource = ResourceSpecifier::Topic(topic);
        let answer = self.cluster.admin_client().describe_configs([&resource], &self.call_options()).await;
        let config = match answer.map(|all| all.into_iter().next()) {
            Ok(Some(Ok(found))) => known_values(found.entries),
            Ok(Some(Err(Code::UnknownTopicOrPartition))) => return Ok(None),
            Ok(Some(Err(code))) => {
                return Err(code_failed("the topic's config could not be described", code).topic(topic));
            }
            Ok(None) => BTreeMap::new(),
            Err(e) => return Err(call_failed("the topic's config could not be described", e).topic(topic)),
        };
        Ok(Some(TopicInfo { name: topic.to_owned(), topic_id: topic_id(id), partitions: partitions as i32, config }))
    }

    async fn list(&self) -> Result<Vec<String>, LogError> {
        let timeout = self.cluster.options().request_timeout;
        let mut names = self
            .cluster
            .blocking(move |admin| {
                let metadata = admin
                    .inner()
                    .fetch_metadata(None, timeout)
                    .map_err(|e| call_failed("topics could not be listed", e))?;
                Ok::<_, LogError>(metadata.topics().iter().map(|t| t.name().to_owned()).collect::<Vec<_>>())
            })
            .await??;
        names.sort_unstable();
        Ok(names)
    }

    async fn offsets(&self, topic: &str) -> Result<Vec<PartitionOffsets>, LogError> {
        let partitions = self.partitions(topic).await?;
        self.cluster.partition_offsets(&topic.into(), partitions).await
    }

    async fn offsets_at(&self, topic: &str, timestamp_ms: i64) -> Result<Vec<Offset>, LogError> {
        let partitions = self.partitions(topic).await?;
        let specs = vec![Spec::AtTime(timestamp_ms), Spec::StableEnd];
        let found = self.cluster.list_offsets(&topic.into(), partitions, specs).await?;
        // -1: no record so late. A record behind the stable end is not committed yet.
        Ok(found[0]
            .iter()
            .zip(&found[1])
            .map(|(at, end)| Offset(if *at < 0 { *end } else { (*at).min(*end) }))
            .collect())
    }

    async fn delete(&self, topic: &str) -> Result<(), LogError> {
        let failed = |e| call_failed("the topic could not be deleted", e).topic(topic);
        let answer = self.cluster.admin_client().delete_topics(&[topic], &self.call_options()).await.map_err(failed)?;
        match answer.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            Some(Err((_, code))) => Err(failed(rdkafka::error::KafkaError::AdminOp(code))),
            None => Err(LogError::new(ErrorKind::Internal, "no topic in the answer").topic(topic)),
        }
    }

    async fn ping(&self, timeout: Duration) -> Result<String, LogError> {
        self.cluster
            .blocking(move |admin| {
                let metadata = admin
                    .inner()
                    .fetch_metadata(None, timeout)
                    .map_err(|e| call_failed("the cluster does not answer", e))?;
                let brokers: Vec<_> = metadata.brokers().iter().map(|b| format!("{}:{}", b.host(), b.port())).collect();
                // Known from the answer above, so this does not wait.
                let cluster = admin.inner().fetch_cluster_id(timeout).unwrap_or_else(|| "unknown".into());
                Ok(format!("cluster {cluster}, brokers {}", brokers.join(", ")))
            })
            .await?
    }
}

fn known_values(entries: Vec<ConfigEntry>) -> BTreeMap<String, String> {
    entries.into_iter().filter_map(|e| e.value.map(|value| (e.name, value))).collect()
}

/// As Kafka prints it; empty if the broker has no topic ids (all zero).
fn topic_id(id: [u8; 16]) -> String {
    if id == [0; 16] { String::new() } else { base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(id) }
}

impl KafkaCluster {
    /// The broker's `transaction.max.timeout.ms`.
    pub(crate) async fn broker_transaction_limit(&self) -> Result<Duration, LogError> {
        let timeout = self.options().request_timeout;
        let broker = self
            .blocking(move |admin| {
                let metadata =
                    admin.inner().fetch_metadata(None, timeout).map_err(|e| call_failed("no metadata", e))?;
                let first = metadata.brokers().first().map(|b| b.id());
                first.ok_or_else(|| LogError::new(ErrorKind::Unavailable, "metadata without brokers"))
            })
            .await??;
        let options = AdminOptions::new().request_timeout(Some(timeout));
        let resource = ResourceSpecifier::Broker(broker);
        let failed = |e| call_failed("the broker's config could not be described", e);
        let answer = self.admin_client().describe_configs([&resource], &options).await.map_err(failed)?;
        let config = match answer.into_iter().next() {
            Some(Ok(config)) => config,
            Some(Err(code)) => return Err(code_failed("the broker's config could not be described", code)),
            None => return Err(LogError::new(ErrorKind::Internal, "no broker in the answer")),
        };
        let limit =
            config.get("transaction.max.timeout.ms").and_then(|e| e.value.as_deref()).and_then(|v| v.parse().ok());
        limit
            .map(Duration::from_millis)
            .ok_or_else(|| LogError::new(ErrorKind::Unavailable, "the broker does not tell its transaction limit"))
    }
}
