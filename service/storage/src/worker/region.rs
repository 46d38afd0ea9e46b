//! The mutable state of one open region. Only its worker loop touches it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Weak},
};

use millstream_types::{Seq, TopicPartition};
use tokio_util::sync::CancellationToken;

use super::{compact::CompactionSlot, manifest_queue::ManifestQueue};
use crate::{
    StorageError, WalBinding,
    manifest::{FileEntry, State, Store},
    memtable::{Memtable, Run},
    region::{
        RegionShared,
        shared::{Cell, refusal},
        state::{Event, RegionState, next},
        version::Version,
    },
    request::{Reply, Request},
};

/// A sealed memtable on its way into SSTs, or only a position if it has no rows.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub id: u64,
    pub runs: Arc<[Arc<Run>]>,
    pub from: Seq,
    pub end: Seq,
    pub bytes: usize,
    pub at_ms: u64,
    pub step: FlushStep,
}

#[derive(Debug)]
pub(crate) enum FlushStep {
    Uploading,
    /// Waits for its back-off.
    Failed,
    Uploaded {
        files: Vec<FileEntry>,
        history_from: Option<Seq>,
    },
    /// Its edit is being put; the files stay good if that fails.
    Committing {
        files: Vec<FileEntry>,
        history_from: Option<Seq>,
    },
}

/// A request that waits in the region's one queue, with its bytes and the time until which a client write may wait.
#[derive(Debug)]
pub(crate) struct Parked {
    pub request: Request,
    pub bytes: usize,
    pub deadline_ms: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct OpenRegion {
    pub shared: Arc<RegionShared>,
    pub state: RegionState,
    pub reason: Option<Arc<str>>,
    pub data_loss: Option<(Seq, Seq)>,
    pub manifest: Arc<State>,
    pub queue: ManifestQueue,
    pub memtable: Memtable,
    /// Charged for `memtable`.
    pub mutable_bytes: usize,
    pub frozen: VecDeque<Frozen>,
    pub next_frozen: u64,
    pub applied: Seq,
    /// End of the newest frozen memtable: where the next one starts.
    pub frozen_to: Seq,
    /// When the oldest row of the mutable memtable came.
    pub oldest_row_ms: Option<u64>,
    /// Timestamps of the oldest record in the mutable memtable and in all frozen ones.
    pub oldest_record_ms: Option<i64>,
    pub frozen_record_ms: Option<i64>,
    pub last_position_ms: u64,
    pub parked: VecDeque<Parked>,
    pub parked_bytes: usize,
    pub flush_waiters: Vec<(Seq, Reply<Seq>)>,
    pub flush_attempt: u32,
    pub compaction: CompactionSlot,
    /// (time, applied), a point every some seconds.
    pub timeline: VecDeque<(u64, Seq)>,
    /// Files that left the manifest in this process: gone when no version holds them any more.
    pub removed: HashMap<String, Weak<FileEntry>>,
    pub purging: bool,
    /// The position at which an opening topic region is writable.
    pub replay_to: Option<Seq>,
    pub tail: Option<CancellationToken>,
    pub merging: bool,
    /// A lost range is being recorded.
    pub jumping: bool,
    /// Jumps over a moving log start.
    pub jumps: u32,
    pub dirty: bool,
    pub due_maintenance: u32,
}

impl OpenRegion {
    pub(crate) fn new(shared: Arc<RegionShared>, store: Store, replay_to: Option<Seq>, now_ms: u64) -> Self {
        let manifest = Arc::new(store.state().clone());
        let memtable = Memtable::new(shared.layout.clone());
        Self {
            state: RegionState::Opening,
            reason: None,
            data_loss: None,
            queue: ManifestQueue::new(store),
            memtable,
            mutable_bytes: 0,
            frozen: VecDeque::new(),
            next_frozen: 0,
            applied: shared.applied(),
            frozen_to: manifest.flushed,
            oldest_row_ms: None,
            oldest_record_ms: None,
            frozen_record_ms: None,
            last_position_ms: now_ms,
            parked: VecDeque::new(),
            parked_bytes: 0,
            flush_waiters: Vec::new(),
            flush_attempt: 0,
            compaction: CompactionSlot::default(),
            timeline: manifest.timeline.iter().copied().collect(),
            removed: HashMap::new(),
            purging: false,
            replay_to,
            tail: None,
            merging: false,
            jumping: false,
            jumps: 0,
            dirty: true,
            due_maintenance: 0,
            manifest,
            shared,
        }
    }

    pub(crate) fn topic(&self) -> Option<TopicPartition> {
        match &self.shared.wal {
            WalBinding::Topic { partition, .. } => Some(partition.clone()),
            WalBinding::Shared { .. } => None,
        }
    }

    /// Changes the state; an event that does not fit is logged and ignored, since the state then already says something stronger.
    pub(crate) fn event(&mut self, event: Event) -> bool {
        match next(self.shared.id, self.state, event) {
            Ok(state) => {
                if state != self.state {
                    tracing::info!(region = %self.shared.id, table = %self.shared.table_name, from = self.state.as_str(), to = state.as_str(), reason = self.reason.as_deref().unwrap_or_default(), "region changed its state");
                }
                self.state = state;
                self.dirty = true;
                true
            }
            Err(e) => {
                tracing::debug!(region = %self.shared.id, error = %e, "event ignored");
                false
            }
        }
    }

    /// Whether memtables may go to SSTs. After a lost range too: what was read before it exists nowhere else any more.
    pub(crate) fn may_flush(&self) -> bool {
        self.state.is_live() || (self.state == RegionState::Quarantined && self.data_loss.is_some())
    }

    pub(crate) fn frozen_bytes(&self) -> usize {
        self.frozen.iter().map(|f| f.bytes).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.mutable_bytes + self.frozen_bytes()
    }

    /// Sorted runs that a look-up has to ask.
    pub(crate) fn sorted_runs(&self) -> usize {
        let mut runs: Vec<u64> = self.manifest.files.iter().map(|f| f.run).collect();
        runs.dedup();
        runs.len()
    }

    pub(crate) fn cell(&self) -> Cell {
        let frozen = self.frozen.iter().flat_map(|f| f.runs.iter().cloned());
        let runs: Arc<[Arc<Run>]> = frozen.chain(self.memtable.runs().iter().cloned()).collect();
        let frozen_rows: usize = self.frozen.iter().flat_map(|f| f.runs.iter()).map(|r| r.len()).sum();
        let version = Version {
            layout: self.shared.layout.clone(),
            applied: self.applied,
            flushed: self.manifest.flushed,
            history_from: self.manifest.history_from,
            runs,
            files: self.manifest.files.clone(),
            manifest_version: self.manifest.version,
        };
        Cell {
            version: Arc::new(version),
            state: self.state,
            reason: self.reason.clone(),
            manifest: self.manifest.clone(),
            memtable_rows: (frozen_rows + self.memtable.rows()) as u64,
            memtable_bytes: self.memory_bytes() as u64,
            data_loss: self.data_loss,
            oldest_record_ms: match (self.frozen_record_ms, self.oldest_record_ms) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    /// Makes the current state visible to readers and waiters.
    pub(crate) fn publish(&mut self) {
        self.dirty = false;
        self.shared.cell.send_replace(self.cell());
    }

    /// The error its state means for a request.
    pub(crate) fn refusal(&self) -> StorageError {
        refusal(self.shared.id, self.shared.leader_epoch, &self.cell())
    }

    /// Notes a point of the timeline, at most one per `step_ms`.
    pub(crate) fn note_time(&mut self, now_ms: u64, step_ms: u64, keep_ms: u64) {
        if self.timeline.back().is_none_or(|(at, _)| at + step_ms <= now_ms) {
            self.timeline.push_back((now_ms, self.applied));
        }
        // One point older than the grace stays: it is the horizon.
        while self.timeline.get(1).is_some_and(|(at, _)| at + keep_ms <= now_ms) {
            self.timeline.pop_front();
        }
    }

    /// H: what was applied `grace_ms` ago; every version at or after it is kept.
    pub(crate) fn horizon(&self, now_ms: u64, grace_ms: u64) -> Seq {
        let old = self.timeline.iter().rev().find(|(at, _)| at + grace_ms <= now_ms);
        old.map_or(self.manifest.history_from, |(_, seq)| (*seq).max(self.manifest.history_from))
    }
}
