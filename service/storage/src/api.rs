//! What the rest of the service sees of storage: [`Storage`] (the engine) and [`Region`].
//!
//! Both are traits so that `service/stream` can be tested against an in-memory twin. Sequences are exclusive ends everywhere.

use std::{fmt::Debug, sync::Arc};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use millstream_types::{
    Epoch, EpochCuts, InputId, JobId, Key, LeaderEpoch, Op, Pos, RegionId, RegionKind, Seq, ShardId, TableSchema,
    TopicPartition, codec::BadRecordSink, codec::SharedDecoderFactory,
};
use serde::{Deserialize, Serialize};

use crate::StorageError;

/// Where a region's writes are logged, and from where it can be rebuilt. Stored in manifest version 0, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WalBinding {
    /// A topic-fed table: the user's partition is the WAL; sequence = offset. `start` is the first offset to read, resolved once at CREATE.
    Topic { partition: TopicPartition, topic_id: String, start: Seq },
    /// Views, state and tables written by INSERT: partition `shard` of `<prefix>.wal`; sequence = WAL offset of the entry.
    Shared { shard: ShardId },
}

/// What `create_region` stores and `open_region` checks.
#[derive(Debug, Clone)]
pub struct RegionSpec {
    pub id: RegionId,
    pub schema: Arc<TableSchema>,
    pub wal: WalBinding,
    /// Name of the table or view, for logs and metric labels.
    pub table_name: Arc<str>,
    /// What decodes the topic; `None` for shared-WAL regions.
    pub decoder: Option<SharedDecoderFactory>,
    /// Where rejected records are reported.
    pub bad_records: Option<Arc<dyn BadRecordSink>>,
    /// What happens when the topic's retention passed the position.
    pub on_data_loss: OnDataLoss,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDataLoss {
    /// Quarantine the region and name the lost range.
    #[default]
    Fail,
    /// Record the gap and go on at the log start.
    Continue,
}

/// The one read call.
///
/// `from: None` reads the rows as of `to`: per key the newest version with sequence < `to`, deletes hidden, all ops `Insert`.
/// `from: Some(s)` reads the *net* change from `s` to `to`: per key nothing (equal rows), `Insert`, `Delete` or one `UpdateDelete`, `UpdateInsert`
/// pair. Append regions: the rows with `from` <= sequence < `to` (`None` = from the beginning), all `Insert`.
///
/// `s` must be pinned or at or after `history_from`, else `NotFound`. Keys come in ascending encoded order; append regions in (sequence, ord) order.
#[derive(Debug, Clone)]
pub struct ScanRequest {
    pub from: Option<Seq>,
    pub to: Seq,
    /// Only keys above it.
    pub after: Pos,
    /// Only keys that it covers; `Pos::End` = all.
    pub until: Pos,
    /// Places in `TableSchema::columns`, in the order wanted; `None` = all columns.
    pub columns: Option<Vec<usize>>,
    /// Most rows of one chunk; an update pair is never torn.
    pub max_rows: usize,
}

impl ScanRequest {
    /// All rows as of `to`.
    pub fn snapshot(to: Seq) -> Self {
        Self { from: None, to, after: Pos::NotStarted, until: Pos::End, columns: None, max_rows: 8192 }
    }

    /// The net change between two sequences.
    pub fn changes(from: Seq, to: Seq) -> Self {
        Self { from: Some(from), ..Self::snapshot(to) }
    }
}

/// One item of a scan; the stream's end (`None`) means that every key up to `until` was passed.
#[derive(Debug, Clone)]
pub enum ScanItem {
    /// Rows in key order; `last` is the key of the last one. `scanned` = stored rows looked at for them, hidden ones included.
    Rows { chunk: millstream_types::Chunk, last: Key, scanned: u64 },
    /// The scan passed this key and everything hidden before it: at least per row group or 64 k hidden rows.
    Mark { at: Key, scanned: u64 },
}

pub type ScanStream = BoxStream<'static, Result<ScanItem, StorageError>>;

/// Answer of a look-up: live rows in key order, and for each row which of the asked prefixes it belongs to.
#[derive(Debug, Clone)]
pub struct LookupRows {
    pub rows: RecordBatch,
    pub which: Vec<u32>,
}

/// What the keys of a look-up are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMatch {
    /// All key columns of a row: at most one row each. Row groups that cannot hold the key are passed over by their filter.
    Whole,
    /// The first key columns: all rows whose encoded key starts with them (a whole key is a prefix of itself).
    Prefix,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    pub rows: u64,
    pub bytes: u64,
}

/// Who holds a pin. SQL snapshots use in-process guards instead (the scan holds its version).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PinOwner {
    pub job: JobId,
    pub input: InputId,
}

/// What a job may need again: the view as of each exact sequence, and every version at or after the floor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub exact: Vec<Seq>,
    pub floor: Option<Seq>,
}

/// Rows of one WAL entry of a committed checkpoint. `Op::Insert` and `Op::UpdateInsert` are puts, `Op::Delete` and `Op::UpdateDelete` deletes.
#[derive(Debug, Clone)]
pub struct AppliedEntry {
    pub seq: Seq,
    pub rows: RecordBatch,
    pub ops: Vec<Op>,
}

/// A region as REST and `SHOW REGIONS` tell it.
#[derive(Debug, Clone, Serialize)]
pub struct RegionStatus {
    pub region: String,
    pub table: String,
    pub kind: RegionKind,
    /// `opening`, `writable`, `fenced`, `quarantined`, `dropping`.
    pub state: &'static str,
    /// Why it is quarantined, or what is missing in one that is writable (partitions that were added to its topic), with the remedy.
    pub reason: Option<String>,
    pub leader_epoch: LeaderEpoch,
    pub manifest_version: u64,
    pub applied: Seq,
    pub flushed: Seq,
    pub history_from: Seq,
    pub memtable_rows: u64,
    pub memtable_bytes: u64,
    pub files: Vec<FileStatus>,
    pub wal: WalBinding,
    pub wal_start: Option<Seq>,
    pub wal_end: Option<Seq>,
    pub pins: Vec<(PinOwner, Pin)>,
    pub gaps: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FileStatus {
    pub name: String,
    pub rows: u64,
    pub deletes: u64,
    pub size_bytes: u64,
    pub from: Seq,
    pub end: Seq,
    pub run: u64,
}

/// See [`Region::lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRange {
    pub from: Seq,
    pub to: Seq,
    /// When the region went on, in Unix milliseconds; it was at `from` then.
    pub at_ms: u64,
}

/// One open region. Reads never pass through the worker loop: they take the current version once.
#[async_trait]
pub trait Region: Send + Sync + Debug {
    fn id(&self) -> RegionId;
    fn schema(&self) -> Arc<TableSchema>;
    fn kind(&self) -> RegionKind {
        self.schema().kind()
    }
    fn leader_epoch(&self) -> LeaderEpoch;
    /// Everything committed below it is readable.
    fn applied(&self) -> Seq;
    fn status(&self) -> RegionStatus;
    /// Ranges of the topic that were lost before they were read, or before they were flushed, and over which the region went on
    /// (`on_data_loss = 'continue'`). Rows of them may have been readable before a restart.
    fn lost(&self) -> Vec<LostRange> {
        Vec::new()
    }

    /// Returns when `applied() >= seq`; an error if the region closes, is quarantined or fenced first.
    async fn wait_applied(&self, seq: Seq) -> Result<(), StorageError>;

    /// Reads over the version of the time of the call; memory: one row group per open SST.
    fn scan(&self, request: ScanRequest) -> ScanStream;

    /// Rows as of `at` with one of these keys (sorted ascending, distinct).
    async fn lookup(
        &self,
        keys: Vec<Key>,
        by: KeyMatch,
        at: Seq,
        columns: Option<Vec<usize>>,
    ) -> Result<LookupRows, StorageError>;

    /// Rough size of a scan; from metadata only.
    fn estimate(&self, from: Option<Seq>, to: Seq, after: &Pos) -> Estimate;

    /// Replaces the pin of `owner`. Returns when it is durable in the bucket (or when the published list already covers it).
    async fn pin(&self, owner: PinOwner, pin: Pin) -> Result<(), StorageError>;
    async fn unpin(&self, owner: PinOwner) -> Result<(), StorageError>;

    /// Makes the rows of a committed checkpoint readable, all in one step. Idempotent: entries below `applied` are skipped. Waits at a stall, is never rejected.
    async fn apply(&self, entries: Vec<AppliedEntry>) -> Result<(), StorageError>;

    /// Holds back pruning of the WAL for a checkpoint that is being committed. `wal::EpochBatch` calls it; a twin without a WAL needs nothing.
    fn hold_wal(&self, _job: JobId, _epoch: Epoch) {}
    /// All rows of the checkpoint, whose WAL records end at `end`, are applied.
    fn release_wal(&self, _job: JobId, _epoch: Epoch, _end: Seq) {}

    /// Client rows into a shared-WAL table (INSERT, DELETE). Returns the sequence of the first and the end of the last entry when the rows are committed and readable.
    /// `Unknown` carries the write id to ask with again.
    async fn write(&self, rows: RecordBatch, ops: Vec<Op>, write_id: u128) -> Result<(Seq, Seq), StorageError>;

    /// Returns the flushed sequence when everything applied at the time of the call is in SSTs of the manifest.
    async fn flush(&self) -> Result<Seq, StorageError>;

    /// Merges all runs into one. Returns when the manifest has the result.
    async fn compact(&self) -> Result<(), StorageError>;
}

/// The engine of one process.
#[async_trait]
pub trait Storage: Send + Sync + Debug {
    /// Puts manifest version 0. Idempotent: equal is Ok, different is `Conflict`. Nothing is opened.
    async fn create_region(&self, spec: &RegionSpec) -> Result<(), StorageError>;

    /// Claims leadership (manifest, leader epoch + 1), then replays the WAL to its captured end. Returns when the region is writable. Joins an open in progress.
    /// Topic-fed: replay runs to the last stable offset captured here, then the tail goes on by itself.
    async fn open_region(&self, spec: &RegionSpec) -> Result<Arc<dyn Region>, StorageError>;

    /// Claims many and replays each shard once; a region that cannot be opened is in the answer with its error and harms no other.
    async fn open_regions(&self, specs: Vec<RegionSpec>) -> Vec<(RegionId, Result<Arc<dyn Region>, StorageError>)>;

    /// No flush; all data and pins stay.
    async fn close_region(&self, id: RegionId) -> Result<(), StorageError>;

    /// Deletes the region and its files. Idempotent; works for regions that are not open.
    async fn drop_region(&self, id: RegionId) -> Result<(), StorageError>;

    fn region(&self, id: RegionId) -> Option<Arc<dyn Region>>;

    /// All open regions, by id.
    fn regions(&self) -> Vec<Arc<dyn Region>>;

    /// Sends barrier `epoch` through every region worker and returns the cut of each open region. Never waits for I/O.
    async fn barrier(&self, epoch: Epoch) -> EpochCuts;

    /// Reads the shard's WAL partition from the lowest sequence that `job`'s regions lack to the high watermark captured now, and applies the whole epochs of that job
    /// that are not applied yet. Call after `EpochWriter::init` (start, unknown outcome): afterwards the job's progress region tells what was committed.
    async fn replay_shard(&self, shard: ShardId, job: JobId, regions: &[RegionId]) -> Result<(), StorageError>;

    /// Drops all pins of a job.
    async fn unpin_job(&self, job: JobId) -> Result<(), StorageError>;
}
