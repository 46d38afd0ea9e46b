//! What the catalog keeps of a table, a view and a sink. Stored as JSON: a field may be added with a default, never changed.
//!
//! Plans are not stored: they are built anew from the SQL text at every start and compared with the stored schema.

use std::collections::BTreeMap;

use millstream_storage::{WalBinding, api::OnDataLoss};
use millstream_types::{JobId, RegionId, ShardId, TableId, TableSchema};
use serde::{Deserialize, Serialize};

use crate::parser::statement::{DerivedKind, ObjectKind};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Object {
    Table(Table),
    View(Derived),
    Sink(Derived),
}

impl Object {
    pub fn name(&self) -> &str {
        match self {
            Object::Table(t) => &t.name,
            Object::View(d) | Object::Sink(d) => &d.name,
        }
    }

    pub fn kind(&self) -> ObjectKind {
        match self {
            Object::Table(_) => ObjectKind::Table,
            Object::View(_) => ObjectKind::View,
            Object::Sink(_) => ObjectKind::Sink,
        }
    }

    pub fn sql(&self) -> &str {
        match self {
            Object::Table(t) => &t.sql,
            Object::View(d) | Object::Sink(d) => &d.sql,
        }
    }

    pub fn schema(&self) -> &TableSchema {
        match self {
            Object::Table(t) => &t.schema,
            Object::View(d) | Object::Sink(d) => &d.schema,
        }
    }

    pub fn options(&self) -> &BTreeMap<String, String> {
        match self {
            Object::Table(t) => &t.options,
            Object::View(d) | Object::Sink(d) => &d.options,
        }
    }

    /// The view or sink inside, if it is one.
    pub fn derived(&self) -> Option<&Derived> {
        match self {
            Object::Table(_) => None,
            Object::View(d) | Object::Sink(d) => Some(d),
        }
    }

    /// A table or view that queries can read, with its regions.
    pub fn readable(&self) -> Option<(TableId, Vec<RegionId>)> {
        match self {
            Object::Table(t) => Some((t.id, t.regions())),
            Object::View(d) => Some((d.id, vec![RegionId::new(d.id, 0)])),
            Object::Sink(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub id: TableId,
    pub name: String,
    /// The statement as written.
    pub sql: String,
    pub schema: TableSchema,
    pub options: BTreeMap<String, String>,
    pub source: TableSource,
    pub created_ms: u64,
}

impl Table {
    pub fn topic(&self) -> Option<&TopicSource> {
        match &self.source {
            TableSource::Topic(t) => Some(t),
            TableSource::Shared { .. } => None,
        }
    }

    /// One region per partition of the topic; without a topic one.
    pub fn regions(&self) -> Vec<RegionId> {
        let count = self.topic().map_or(1, |t| t.starts.len());
        (0..count as u32).map(|n| RegionId::new(self.id, n)).collect()
    }

    pub fn wal(&self, number: u32) -> WalBinding {
        match &self.source {
            TableSource::Shared { shard } => WalBinding::Shared { shard: *shard },
            TableSource::Topic(t) => WalBinding::Topic {
                partition: millstream_types::TopicPartition::new(t.topic.as_str(), number as i32),
                topic_id: t.topic_id.clone(),
                start: t.starts[number as usize],
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "wal", rename_all = "snake_case")]
pub enum TableSource {
    Topic(TopicSource),
    Shared { shard: ShardId },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicSource {
    pub topic: String,
    pub topic_id: String,
    /// First offset to read of each partition, resolved once at CREATE (`latest` is a number from then on).
    pub starts: Vec<millstream_types::Seq>,
    pub on_data_loss: OnDataLoss,
}

/// A view or sink: one job, its input, its own regions, and the topic it writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Derived {
    /// Of the view's region; a sink has the number too, but no region.
    pub id: TableId,
    pub job: JobId,
    pub name: String,
    pub sql: String,
    /// Visible and hidden columns. For a sink: the columns of its output.
    pub schema: TableSchema,
    pub options: BTreeMap<String, String>,
    pub input: TableId,
    pub shard: ShardId,
    pub progress: TableId,
    /// State tables of the operators, in the order in which the planner asks for them.
    pub state: Vec<TableId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<TopicTarget>,
    #[serde(default)]
    pub desired: Desired,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill_rate_limit: Option<u64>,
    pub created_ms: u64,
}

impl Derived {
    pub fn derived_kind(object: &Object) -> Option<DerivedKind> {
        match object {
            Object::Table(_) => None,
            Object::View(_) => Some(DerivedKind::View),
            Object::Sink(_) => Some(DerivedKind::Sink),
        }
    }

    /// Every region that belongs to the job, for a drop that must work without a plan.
    pub fn own_regions(&self, is_view: bool) -> Vec<RegionId> {
        let view = is_view.then_some(self.id);
        view.into_iter().chain([self.progress]).chain(self.state.iter().copied()).map(|t| RegionId::new(t, 0)).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopicTarget {
    pub topic: String,
    /// The recorded count decides where a key goes, whatever happens to the topic later.
    pub partitions: i32,
    pub envelope: TopicEnvelope,
    /// Visible or hidden columns by name; empty = records without a key.
    pub key_columns: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicEnvelope {
    Append,
    Upsert,
}

impl TopicEnvelope {
    pub fn as_str(self) -> &'static str {
        match self {
            TopicEnvelope::Append => "append",
            TopicEnvelope::Upsert => "upsert",
        }
    }
}

/// What the user wants of a job; what it does is computed and shown, never stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    #[default]
    Running,
    Paused,
}
