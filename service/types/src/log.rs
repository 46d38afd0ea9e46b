//! The log as Millstream sees it: partitions to read, transactions to write, topics to manage.
//!
//! Implemented by `connectors/kafka` and, for tests and simulation, by the memory log of `service/storage`. Each method says when it returns.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{BoxError, Classified, ErrorKind, Offset, OutBatch, RawBatch, TopicPartition};

/// A failed call to the log, with its coordinates.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}{}", .topic.as_ref().map(|t| format!(", topic {t}")).unwrap_or_default(), .partition.map(|p| format!(", partition {p}")).unwrap_or_default())]
pub struct LogError {
    pub kind: ErrorKind,
    /// What was tried and what to do, lower-case.
    pub what: String,
    pub topic: Option<Arc<str>>,
    pub partition: Option<i32>,
    #[source]
    pub source: Option<BoxError>,
}

impl LogError {
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), topic: None, partition: None, source: None }
    }

    #[must_use]
    pub fn at(mut self, tp: &TopicPartition) -> Self {
        self.topic = Some(Arc::clone(&tp.topic));
        self.partition = Some(tp.partition);
        self
    }

    #[must_use]
    pub fn topic(mut self, topic: impl Into<Arc<str>>) -> Self {
        self.topic = Some(topic.into());
        self
    }

    #[must_use]
    pub fn caused_by(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl Classified for LogError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// What a reader finds. A stream never ends by itself.
#[derive(Debug)]
pub enum LogEvent {
    Records(RawBatch),
    /// The position moved without records: control records, aborted or compacted offsets (K1).
    Position {
        next: Offset,
    },
    /// A fetch found the log end (last stable offset for `read_committed`): the only proof of idleness. The position is at least `end`.
    EndReached {
        end: Offset,
    },
    /// The position is below the log start or above its end.
    OutOfRange {
        wanted: Offset,
        start: Offset,
        end: Offset,
    },
    /// Broker trouble. `Unavailable` heals by itself, the reader goes on at its position; any other kind is final.
    Failed(LogError),
}

/// Reads one partition from a position on, `read_committed`. Bounded: what is not taken is not fetched, so not calling `next` is a pause.
#[async_trait]
pub trait LogReader: Send + Debug {
    /// The next event. Cancel safe: nothing is lost if the future is dropped.
    async fn next(&mut self) -> LogEvent;
}

/// The ends of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionOffsets {
    pub start: Offset,
    /// Last stable offset: no open transaction below it.
    pub stable: Offset,
    pub high_watermark: Offset,
}

/// One partition of a topic.
#[async_trait]
pub trait LogStore: Send + Sync + Debug {
    fn partition(&self) -> &TopicPartition;

    /// Opens a reader at `from`. Returns without waiting for the broker.
    async fn read(&self, from: Offset) -> Result<Box<dyn LogReader>, LogError>;

    /// Asks the broker now; never cached.
    async fn offsets(&self) -> Result<PartitionOffsets, LogError>;

    /// DeleteRecords below `offset`. Idempotent; below the log start is Ok. Returns when the broker has moved the log start.
    async fn truncate_to(&self, offset: Offset) -> Result<(), LogError>;
}

/// How one transaction ended. There is no fifth case, and only `Committed` means committed.
#[derive(Debug)]
pub enum CommitOutcome {
    /// Final and visible. For each batch with `want_offsets` the offset of each record in order, else an empty list.
    Committed { offsets: Vec<Vec<i64>> },
    /// Aborted before EndTxn was sent: nothing is visible, the same rows may be sent again.
    Aborted(LogError),
    /// A newer producer with this transactional id exists: stop, write nothing.
    Fenced(LogError),
    /// No answer, or an error that does not tell. The client inside has been dropped without abort; call `init`, then read back.
    Unknown(LogError),
}

/// The transactional producer of one job or shard. One transaction at a time.
#[async_trait]
pub trait EpochWriter: Send + Debug {
    fn transactional_id(&self) -> &str;

    /// New client with the same id and `init_transactions`: ends the old transaction, fences older producers and late requests. Returns when done.
    async fn init(&mut self) -> Result<(), LogError>;

    /// Begin, send everything, commit. Returns when the outcome is known or known to be unknown. Not cancel safe: dropping it makes the outcome unknown.
    async fn commit(&mut self, batches: &[OutBatch]) -> CommitOutcome;
}

/// Idempotent, not transactional: INSERT into topic-fed tables, `topic produce`, generators.
#[async_trait]
pub trait Producer: Send + Sync + Debug {
    /// Returns when all in-sync replicas have every record, with the offset of each record. An error of kind `Unknown` means that some may be there.
    async fn produce(&self, batch: &OutBatch) -> Result<Vec<i64>, LogError>;
}

/// A topic to create.
#[derive(Debug, Clone)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: i32,
    /// -1 = broker default.
    pub replicas: i32,
    pub config: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    New,
    /// It was there; the caller verifies partitions and config.
    Existed,
}

/// What the cluster says about a topic.
#[derive(Debug, Clone)]
pub struct TopicInfo {
    pub name: String,
    /// Base64 topic id as Kafka prints it; empty if the broker has none.
    pub topic_id: String,
    pub partitions: i32,
    pub config: BTreeMap<String, String>,
}

#[async_trait]
pub trait TopicAdmin: Send + Sync + Debug {
    /// Returns when all partitions have a leader.
    async fn create(&self, spec: &TopicSpec) -> Result<Created, LogError>;
    /// `None` = no such topic.
    async fn describe(&self, topic: &str) -> Result<Option<TopicInfo>, LogError>;
    async fn list(&self) -> Result<Vec<String>, LogError>;
    async fn offsets(&self, topic: &str) -> Result<Vec<PartitionOffsets>, LogError>;
    /// Per partition the offset of the first record at or after the time, the stable end if there is none.
    async fn offsets_at(&self, topic: &str, timestamp_ms: i64) -> Result<Vec<Offset>, LogError>;
    async fn delete(&self, topic: &str) -> Result<(), LogError>;
    /// Answers within `timeout` if the cluster can be reached; the text names it (brokers, cluster id).
    async fn ping(&self, timeout: Duration) -> Result<String, LogError>;
}

/// One cluster: the door through which storage and stream reach the log.
pub trait LogSystem: Send + Sync + Debug {
    fn log(&self, partition: &TopicPartition) -> Arc<dyn LogStore>;
    /// No I/O; `init` comes first.
    fn epoch_writer(&self, transactional_id: &str) -> Box<dyn EpochWriter>;
    fn producer(&self) -> Arc<dyn Producer>;
    fn admin(&self) -> Arc<dyn TopicAdmin>;
}
