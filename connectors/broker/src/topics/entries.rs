//! The topic journal: its entries, and what they come to when they are read again.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::config::Overrides;
use crate::log::Known;

/// A topic's id as journaled.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct TopicId(pub(super) Uuid);

impl From<TopicId> for String {
    fn from(id: TopicId) -> Self {
        id.0.simple().to_string()
    }
}

impl TryFrom<String> for TopicId {
    type Error = uuid::Error;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Uuid::try_parse(&text).map(Self)
    }
}

/// What happened to topics, as journaled.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Entry {
    Created {
        name: String,
        id: TopicId,
        partitions: i32,
        config: Overrides,
    },
    Deleted {
        id: TopicId,
    },
    Grown {
        id: TopicId,
        partitions: i32,
    },
    Configured {
        id: TopicId,
        config: Overrides,
    },
    LogStart {
        id: TopicId,
        partition: i32,
        offset: i64,
    },
    LeaderEpochs {
        id: TopicId,
        partition: i32,
        epochs: Vec<(i32, i64)>,
    },
    /// Producer ids below this may be in use.
    ProducerIds {
        next: i64,
    },
}

/// What the journal says of partitions, by index.
pub(super) type ByPartition = HashMap<i32, Known>;

#[derive(Debug, Default)]
pub(super) struct ById {
    pub(super) known: ByPartition,
    pub(super) name: String,
    pub(super) partitions: i32,
    pub(super) config: Overrides,
}

/// What the entries of the journal come to.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) by_id: HashMap<Uuid, ById>,
    /// Folders of deleted topics.
    pub(super) deleted: HashSet<String>,
    pub(super) next_producer_id: i64,
}

impl Found {
    pub(super) fn replay(&mut self, entry: Entry) {
        match entry {
            Entry::Created { name, id: TopicId(id), partitions, config } => {
                self.by_id.insert(id, ById { known: HashMap::new(), name, partitions, config });
            }
            Entry::Deleted { id: TopicId(id) } => {
                if let Some(t) = self.by_id.remove(&id) {
                    self.deleted.extend((0..t.partitions).map(|i| format!("{}-{i}", t.name)));
                }
            }
            Entry::Grown { id: TopicId(id), partitions } => {
                self.by_id.entry(id).and_modify(|t| t.partitions = partitions);
            }
            Entry::Configured { id: TopicId(id), config } => {
                self.by_id.entry(id).and_modify(|t| t.config = config);
            }
            Entry::LogStart { id: TopicId(id), partition, offset } => {
                let moved = |known: &mut Known| known.start = known.start.max(offset);
                self.by_id.entry(id).and_modify(|t| moved(t.known.entry(partition).or_default()));
            }
            Entry::LeaderEpochs { id: TopicId(id), partition, epochs } => {
                self.by_id.entry(id).and_modify(|t| t.known.entry(partition).or_default().epochs = epochs);
            }
            Entry::ProducerIds { next } => self.next_producer_id = self.next_producer_id.max(next),
        }
    }
}
