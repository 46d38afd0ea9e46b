//! One partition of the shared WAL as this process knows it.
//!
//! Owns: what holds back pruning, which write ids were seen, up to where each job is complete, and the way to the appender. Not here: appending
//! (`appender`), reading back (`replay`), deleting (`prune`).

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use millstream_types::{Epoch, JobId, LogStore, Offset, Seq, ShardId};
use tokio::sync::{OnceCell, mpsc};

use super::appender::{AppendRequest, Appender};

/// Who has rows in the log, or may put some there, that no region has yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Job(JobId, Epoch),
    Append,
    Replay(u64),
}

#[derive(Debug)]
pub(crate) struct Shard {
    pub id: ShardId,
    pub log: Arc<dyn LogStore>,
    /// Bounded; full means that writes park in their region.
    pub appender: mpsc::Sender<AppendRequest>,
    /// The appender until the shard is ready; taken once.
    pub unstarted: tokio::sync::Mutex<Option<Appender>>,
    /// Set when the producer is fenced in and the log's ends are known. One opener fills it, others wait.
    pub ready: OnceCell<()>,
    /// Lower bound of each holder. Everybody adds and removes his own; prune reads. A std lock: never held over an await.
    holds: Mutex<BTreeMap<Holder, i64>>,
    /// Newest last stable offset that anybody has seen; only rises.
    stable: AtomicI64,
    /// Highest offset below which nothing is needed; only rises.
    pruned: AtomicI64,
    /// Write id -> answer. Appender and replay add, appender asks.
    write_ids: Mutex<WriteIds>,
    /// End of the newest checkpoint of each job that is applied in all its regions; a replay of that job starts there.
    complete: Mutex<HashMap<JobId, i64>>,
    next_replay: AtomicI64,
}

#[derive(Debug, Default)]
struct WriteIds {
    answers: HashMap<u128, (Seq, Seq)>,
    /// In order of arrival, with the time; the oldest goes when the window has passed or there are too many.
    order: VecDeque<(u64, u128)>,
}

/// Write ids remembered per shard: at 64 bytes each some megabytes.
const MAX_WRITE_IDS: usize = 100_000;

impl Shard {
    pub(crate) fn new(id: ShardId, log: Arc<dyn LogStore>, appender: mpsc::Sender<AppendRequest>) -> Self {
        Self {
            id,
            log,
            appender,
            unstarted: tokio::sync::Mutex::default(),
            ready: OnceCell::new(),
            holds: Mutex::default(),
            stable: AtomicI64::new(0),
            pruned: AtomicI64::new(0),
            write_ids: Mutex::default(),
            complete: Mutex::default(),
            next_replay: AtomicI64::new(0),
        }
    }

    pub(crate) fn saw_stable(&self, offset: Offset) {
        self.stable.fetch_max(offset.0, Ordering::SeqCst);
    }

    pub(crate) fn pruned(&self) -> Seq {
        Seq(self.pruned.load(Ordering::SeqCst))
    }

    pub(crate) fn set_pruned(&self, below: Seq) {
        self.pruned.fetch_max(below.0, Ordering::SeqCst);
    }

    /// Holds back pruning from here on; a holder that is there keeps its lower bound.
    pub(crate) fn hold(&self, holder: Holder) {
        let bound = self.stable.load(Ordering::SeqCst);
        lock(&self.holds).entry(holder).or_insert(bound);
    }

    pub(crate) fn release(&self, holder: Holder) {
        lock(&self.holds).remove(&holder);
    }

    /// A checkpoint is applied everywhere, so nothing of it and of those before it is held any more.
    pub(crate) fn release_epochs(&self, job: JobId, to: Epoch) {
        lock(&self.holds).retain(|h, _| !matches!(h, Holder::Job(j, e) if *j == job && *e <= to));
    }

    /// Everything of the job below `to` is applied; a checkpoint that is sent again lies at or after it.
    fn raise_job(&self, job: JobId, to: Seq) {
        for (holder, bound) in lock(&self.holds).iter_mut() {
            if matches!(holder, Holder::Job(j, _) if *j == job) {
                *bound = to.0.max(*bound);
            }
        }
    }

    /// `min(stable, lower bound of each holder)`; `stable` must have been asked before this call.
    pub(crate) fn settled(&self, stable: Offset) -> Seq {
        Seq(lock(&self.holds).values().copied().fold(stable.0, i64::min))
    }

    /// A hold for a replay, released by its number.
    pub(crate) fn hold_replay(&self) -> Holder {
        let holder = Holder::Replay(self.next_replay.fetch_add(1, Ordering::SeqCst) as u64);
        lock(&self.holds).insert(holder, 0);
        holder
    }

    pub(crate) fn complete(&self, job: JobId) -> Seq {
        Seq(lock(&self.complete).get(&job).copied().unwrap_or(0))
    }

    pub(crate) fn set_complete(&self, job: JobId, end: Seq) {
        self.raise_job(job, end);
        let mut complete = lock(&self.complete);
        let at = complete.entry(job).or_insert(0);
        *at = end.0.max(*at);
    }

    pub(crate) fn forget_job(&self, job: JobId) {
        lock(&self.holds).retain(|h, _| !matches!(h, Holder::Job(j, _) if *j == job));
        lock(&self.complete).remove(&job);
    }

    /// The answer that a write id got before.
    pub(crate) fn write_answer(&self, id: u128) -> Option<(Seq, Seq)> {
        lock(&self.write_ids).answers.get(&id).copied()
    }

    /// Remembers an entry of a write; entries of one write widen its range.
    pub(crate) fn remember_write(&self, id: u128, from: Seq, end: Seq, now_ms: u64, window_ms: u64) {
        let ids = &mut *lock(&self.write_ids);
        match ids.answers.get_mut(&id) {
            Some(range) => *range = (range.0.min(from), range.1.max(end)),
            None => {
                ids.answers.insert(id, (from, end));
                ids.order.push_back((now_ms, id));
            }
        }
        while let Some((at, old)) = ids.order.front().copied() {
            if ids.order.len() <= MAX_WRITE_IDS && at + window_ms > now_ms {
                break;
            }
            ids.order.pop_front();
            ids.answers.remove(&old);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic while one of these maps was held leaves it as it was: each change is one call.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
