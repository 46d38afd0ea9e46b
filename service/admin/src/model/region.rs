//! Regions, their files and their WAL.

use millstream_storage::{WalBinding, api::RegionStatus};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One region of a table or view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegionInfo {
    #[schema(example = "3-0")]
    pub region: String,
    pub table: String,
    /// `append` or `keyed`.
    pub kind: String,
    /// `opening`, `writable`, `fenced`, `quarantined`, `dropping`.
    pub state: String,
    pub reason: Option<String>,
    pub leader_epoch: u64,
    pub manifest_version: u64,
    /// Everything below it is readable.
    pub applied: i64,
    /// Everything below it is in files.
    pub flushed: i64,
    /// The oldest sequence that net changes may start from without a pin.
    pub history_from: i64,
    pub memtable_rows: u64,
    pub memtable_bytes: u64,
    pub files: u64,
    pub file_bytes: u64,
    pub file_rows: u64,
    pub pins: Vec<PinInfo>,
    /// Ranges that were lost to retention and accepted.
    pub gaps: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PinInfo {
    pub job: u64,
    pub input: u16,
    pub exact: Vec<i64>,
    pub floor: Option<i64>,
}

/// One SST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    pub region: String,
    pub name: String,
    pub rows: u64,
    pub deletes: u64,
    pub size_bytes: u64,
    pub from: i64,
    pub end: i64,
    /// Files of one run do not overlap in keys.
    pub run: u64,
}

/// Where a region's writes are logged and how far it is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WalInfo {
    pub region: String,
    /// `topic` or `shared`.
    pub kind: String,
    pub topic: Option<String>,
    pub partition: i32,
    pub applied: i64,
    pub flushed: i64,
    pub start: Option<i64>,
    pub end: Option<i64>,
    /// Offsets between applied and end; includes markers and, on a shared WAL, entries of other regions.
    pub lag: Option<i64>,
    /// Offsets that can still be lost to retention without loss for the region.
    pub retention_headroom: Option<i64>,
}

fn kind(status: &RegionStatus) -> String {
    match status.kind {
        millstream_types::RegionKind::Append => "append".to_owned(),
        millstream_types::RegionKind::Keyed => "keyed".to_owned(),
    }
}

impl From<&RegionStatus> for RegionInfo {
    fn from(s: &RegionStatus) -> Self {
        let pin = |(owner, pin): &(millstream_storage::PinOwner, millstream_storage::Pin)| PinInfo {
            job: owner.job.0,
            input: owner.input.0,
            exact: pin.exact.iter().map(|s| s.0).collect(),
            floor: pin.floor.map(|s| s.0),
        };
        RegionInfo {
            region: s.region.clone(),
            table: s.table.clone(),
            kind: kind(s),
            state: s.state.to_owned(),
            reason: s.reason.clone(),
            leader_epoch: s.leader_epoch.0,
            manifest_version: s.manifest_version,
            applied: s.applied.0,
            flushed: s.flushed.0,
            history_from: s.history_from.0,
            memtable_rows: s.memtable_rows,
            memtable_bytes: s.memtable_bytes,
            files: s.files.len() as u64,
            file_bytes: s.files.iter().map(|f| f.size_bytes).sum(),
            file_rows: s.files.iter().map(|f| f.rows).sum(),
            pins: s.pins.iter().map(pin).collect(),
            gaps: s.gaps.clone(),
        }
    }
}

impl FileInfo {
    pub fn of(status: &RegionStatus) -> Vec<FileInfo> {
        let file = |f: &millstream_storage::api::FileStatus| FileInfo {
            region: status.region.clone(),
            name: f.name.clone(),
            rows: f.rows,
            deletes: f.deletes,
            size_bytes: f.size_bytes,
            from: f.from.0,
            end: f.end.0,
            run: f.run,
        };
        status.files.iter().map(file).collect()
    }
}

impl From<&RegionStatus> for WalInfo {
    fn from(s: &RegionStatus) -> Self {
        let (kind, topic, partition) = match &s.wal {
            WalBinding::Topic { partition, .. } => ("topic", Some(partition.topic.to_string()), partition.partition),
            WalBinding::Shared { shard } => ("shared", None, shard.0 as i32),
        };
        WalInfo {
            region: s.region.clone(),
            kind: kind.to_owned(),
            topic,
            partition,
            applied: s.applied.0,
            flushed: s.flushed.0,
            start: s.wal_start.map(|s| s.0),
            end: s.wal_end.map(|s| s.0),
            lag: s.wal_end.map(|end| (end.0 - s.applied.0).max(0)),
            retention_headroom: s.wal_start.map(|start| s.flushed.0 - start.0),
        }
    }
}
