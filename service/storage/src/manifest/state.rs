//! The state of a region: a pure fold over its manifest versions.

use std::{collections::BTreeMap, sync::Arc};

use millstream_types::{LeaderEpoch, RegionId, Seq, TableSchema};
use serde::{Deserialize, Serialize};

use super::{FileEntry, Gap};
use crate::WalBinding;

/// A file that no newest version names, still in the bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removed {
    pub name: String,
    pub origin: RegionId,
    /// When it was removed, Unix ms.
    pub at_ms: u64,
}

/// Everything that the versions up to `version` say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub region: RegionId,
    pub version: u64,
    pub leader_epoch: LeaderEpoch,
    /// Schemas by id; the highest is in force.
    pub schemas: BTreeMap<u32, Arc<TableSchema>>,
    pub wal: WalBinding,
    pub start: Seq,
    pub flushed: Seq,
    pub history_from: Seq,
    /// By run, then key.
    pub files: Arc<[Arc<FileEntry>]>,
    pub removed: Vec<Removed>,
    pub gaps: Vec<Gap>,
    /// (Unix ms, applied), rising.
    pub timeline: Vec<(u64, Seq)>,
}

impl State {
    /// The schema in force.
    pub fn schema(&self) -> &Arc<TableSchema> {
        self.schemas.values().next_back().expect("create gives the first schema")
    }
}
