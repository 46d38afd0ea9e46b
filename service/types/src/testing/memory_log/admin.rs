//! Topics of the memory log.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    MemoryLog, down,
    state::{Body, Partition, State},
};
use crate::{Created, ErrorKind, LogError, Offset, PartitionOffsets, TopicAdmin, TopicInfo, TopicSpec};

#[derive(Debug)]
pub(super) struct MemoryAdmin(pub(super) MemoryLog);

impl MemoryAdmin {
    fn ask<T>(&self, question: impl FnOnce(&State) -> Result<T, LogError>) -> Result<T, LogError> {
        let state = self.0.lock();
        if state.unavailable { Err(down()) } else { question(&state) }
    }
}

#[async_trait]
impl TopicAdmin for MemoryAdmin {
    async fn create(&self, spec: &TopicSpec) -> Result<Created, LogError> {
        if spec.name.is_empty()
            || !spec.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        {
            return Err(LogError::new(ErrorKind::Invalid, "not a legal topic name").topic(spec.name.as_str()));
        }
        self.0.change(|s| {
            if s.unavailable {
                return Err(down());
            }
            Ok(if s.create(&spec.name, spec.partitions, spec.config.clone()) { Created::New } else { Created::Existed })
        })
    }

    async fn describe(&self, topic: &str) -> Result<Option<TopicInfo>, LogError> {
        self.ask(|s| {
            Ok(s.topics.get(topic).map(|t| TopicInfo {
                name: topic.to_owned(),
                topic_id: t.topic_id.clone(),
                partitions: t.partitions.len() as i32,
                config: t.config.clone(),
            }))
        })
    }

    async fn list(&self) -> Result<Vec<String>, LogError> {
        self.ask(|s| Ok(s.topics.keys().cloned().collect()))
    }

    async fn offsets(&self, topic: &str) -> Result<Vec<PartitionOffsets>, LogError> {
        self.ask(|s| Ok(s.topic(topic)?.partitions.iter().map(Partition::offsets).collect()))
    }

    async fn offsets_at(&self, topic: &str, timestamp_ms: i64) -> Result<Vec<Offset>, LogError> {
        self.ask(|s| {
            let first = |p: &Partition| {
                let at =
                    p.entries.iter().find(|e| matches!(&e.body, Body::Record(r) if r.timestamp_ms >= timestamp_ms));
                at.map_or(p.offsets().stable, |e| Offset(e.offset))
            };
            Ok(s.topic(topic)?.partitions.iter().map(first).collect())
        })
    }

    async fn delete(&self, topic: &str) -> Result<(), LogError> {
        self.0.change(|s| {
            if s.unavailable {
                return Err(down());
            }
            s.topic(topic)?;
            s.topics.remove(topic);
            Ok(())
        })
    }

    async fn ping(&self, _timeout: Duration) -> Result<String, LogError> {
        self.ask(|s| Ok(format!("memory log with {} topics", s.topics.len())))
    }
}
