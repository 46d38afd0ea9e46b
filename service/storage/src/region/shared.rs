//! What worker, tasks and handles share of one open region.
//!
//! Owns: the cell with the current version and state. Not here: anything mutable besides it, which is the worker's (`worker/region.rs`).

use std::sync::{
    Arc,
    atomic::{AtomicI32, AtomicI64, Ordering},
};

use millstream_types::{BadRecordSink, LeaderEpoch, RegionId, Seq, ShardId, codec::SharedDecoderFactory};
use tokio::sync::watch;

use super::{state::RegionState, version::Version};
use crate::{
    RegionSpec, StorageError, WalBinding, api::OnDataLoss, layout::Layout, manifest::State, request::WorkerSender,
};

/// What readers and waiters look at. Replaced as a whole by the worker of the region, after each batch of requests.
#[derive(Debug, Clone)]
pub struct Cell {
    pub version: Arc<Version>,
    pub state: RegionState,
    /// Why it is not writable, with the remedy.
    pub reason: Option<Arc<str>>,
    /// The newest manifest state.
    pub manifest: Arc<State>,
    pub memtable_rows: u64,
    pub memtable_bytes: u64,
    /// The lost range that quarantined it.
    pub data_loss: Option<(Seq, Seq)>,
    /// Timestamp of the oldest unflushed record, for the retention guard.
    pub oldest_record_ms: Option<i64>,
}

/// One opening of a region; a later opening has another one, so notices of old tasks are recognised.
#[derive(Debug)]
pub struct RegionShared {
    pub id: RegionId,
    pub layout: Arc<Layout>,
    pub table_name: Arc<str>,
    pub wal: WalBinding,
    pub leader_epoch: LeaderEpoch,
    pub decoder: Option<SharedDecoderFactory>,
    pub bad_records: Option<Arc<dyn BadRecordSink>>,
    pub on_data_loss: OnDataLoss,
    /// The way to its worker.
    pub(crate) worker: WorkerSender,
    /// Written by the worker of the region only.
    pub cell: watch::Sender<Cell>,
    /// Newest known ends of the WAL partition, -1 = not asked yet. Written by tail and guard, read by `status`.
    wal_start: AtomicI64,
    wal_end: AtomicI64,
    /// Partitions of its topic that no region of its table reads. Written by the guard.
    unread: AtomicI32,
}

impl RegionShared {
    pub(crate) fn new(
        spec: &RegionSpec,
        layout: Arc<Layout>,
        leader_epoch: LeaderEpoch,
        worker: WorkerSender,
        cell: Cell,
    ) -> Self {
        Self {
            id: spec.id,
            layout,
            table_name: spec.table_name.clone(),
            wal: spec.wal.clone(),
            leader_epoch,
            decoder: spec.decoder.clone(),
            bad_records: spec.bad_records.clone(),
            on_data_loss: spec.on_data_loss,
            worker,
            cell: watch::channel(cell).0,
            wal_start: AtomicI64::new(-1),
            wal_end: AtomicI64::new(-1),
            unread: AtomicI32::new(0),
        }
    }

    pub fn version(&self) -> Arc<Version> {
        self.cell.borrow().version.clone()
    }

    pub fn state(&self) -> RegionState {
        self.cell.borrow().state
    }

    pub fn applied(&self) -> Seq {
        self.cell.borrow().version.applied
    }

    pub fn shard(&self) -> Option<ShardId> {
        match self.wal {
            WalBinding::Shared { shard } => Some(shard),
            WalBinding::Topic { .. } => None,
        }
    }

    pub fn set_wal_ends(&self, start: Seq, end: Seq) {
        self.wal_start.store(start.0, Ordering::Relaxed);
        self.wal_end.store(end.0, Ordering::Relaxed);
    }

    pub fn wal_ends(&self) -> (Option<Seq>, Option<Seq>) {
        let known = |v: &AtomicI64| Some(v.load(Ordering::Relaxed)).filter(|v| *v >= 0).map(Seq);
        (known(&self.wal_start), known(&self.wal_end))
    }

    /// Tells the number of partitions that nobody reads; `true` if it is another one than before.
    pub(crate) fn set_unread(&self, partitions: i32) -> bool {
        self.unread.swap(partitions, Ordering::Relaxed) != partitions
    }

    /// What is missing in a region that works.
    pub fn incomplete(&self) -> Option<String> {
        let (unread, WalBinding::Topic { partition, .. }) = (self.unread.load(Ordering::Relaxed), &self.wal) else {
            return None;
        };
        (unread > 0).then(|| {
            format!(
                "partition_growth: topic {} has {unread} partitions more than at CREATE, which table {} does not read: drop the table and create it again",
                partition.topic, self.table_name
            )
        })
    }

    /// The error that its state means for somebody who wants to write or wait.
    pub fn refusal(&self) -> StorageError {
        let cell = self.cell.borrow();
        refusal(self.id, self.leader_epoch, &cell)
    }
}

/// See [`RegionShared::refusal`].
pub fn refusal(region: RegionId, ours: LeaderEpoch, cell: &Cell) -> StorageError {
    match cell.state {
        RegionState::Fenced => {
            let version = cell.version.manifest_version;
            StorageError::Fenced { region, version: version + 1, theirs: LeaderEpoch(ours.0 + 1), ours }
        }
        RegionState::Dropping | RegionState::Closed => StorageError::RegionNotFound { region },
        state => match cell.data_loss {
            Some((from, to)) => StorageError::DataLoss { region, from, to },
            None => {
                let reason = cell.reason.as_deref().unwrap_or("ask again later").to_owned();
                StorageError::WrongState { region, state: state.as_str(), reason }
            }
        },
    }
}
