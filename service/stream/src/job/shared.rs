//! What the parts of one job and its watchers share: the wish (paused, rate) and what is known (status).

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use millstream_types::{Epoch, JobId};
use prometheus::IntGaugeVec;
use tokio::sync::watch;

use super::status::{CheckpointStatus, JobState, JobStatus, Reason};
use crate::{executor::backfill::progress::RegionProgress, plan::JobPlan};

/// How many checkpoints a status remembers.
const CHECKPOINTS: usize = 32;

/// What users want of a job. It takes effect at the next epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) paused: bool,
    pub(crate) rate_limit: Option<u64>,
    /// Rises with each resume, which also ends a quarantine.
    pub(crate) resumes: u64,
}

#[derive(Debug)]
pub(crate) struct JobShared {
    pub(crate) wish: watch::Sender<Wish>,
    status: Mutex<JobStatus>,
    /// 1 for the state that the status shows.
    states: IntGaugeVec,
    /// Rises with each change of the status, for waiters.
    changed: watch::Sender<u64>,
    /// Positions as they are stored, where the next start goes on: what a stopped job's pins must keep. Light epochs are ahead of them.
    progress: Mutex<Vec<RegionProgress>>,
    /// Newest epoch whose rows are applied: state written up to it may be read back from regions.
    applied: AtomicU64,
}

impl JobShared {
    pub(crate) fn new(plan: &JobPlan, paused: bool, states: IntGaugeVec) -> Arc<Self> {
        states.with_label_values(&[&*plan.name, JobState::Creating.as_str()]).set(1);
        let rate_limit = plan.options.backfill_rate_limit;
        Arc::new(Self {
            wish: watch::Sender::new(Wish { paused, rate_limit, resumes: 0 }),
            status: Mutex::new(JobStatus {
                job: plan.job,
                name: Arc::clone(&plan.name),
                kind: plan.kind,
                state: JobState::Creating,
                reason: None,
                committed_epoch: Epoch::default(),
                positions: Vec::new(),
                restarts: 0,
                last_error: None,
                backfills: Vec::new(),
                checkpoints: Vec::new(),
                rate_limit,
                finish_epoch: None,
            }),
            states,
            changed: watch::Sender::new(0),
            progress: Mutex::default(),
            applied: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, JobStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> JobStatus {
        self.lock().clone()
    }

    pub(crate) fn job(&self) -> JobId {
        self.lock().job
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut JobStatus)) {
        let mut status = self.lock();
        let was = status.state;
        change(&mut status);
        if status.state != was {
            self.states.with_label_values(&[&*status.name, was.as_str()]).set(0);
            self.states.with_label_values(&[&*status.name, status.state.as_str()]).set(1);
        }
        drop(status);
        self.changed.send_modify(|v| *v += 1);
    }

    pub(crate) fn set_state(&self, state: JobState, reason: Option<Reason>) {
        self.update(|s| {
            s.state = state;
            s.reason = reason;
        });
    }

    pub(crate) fn keep_progress(&self, progress: Vec<RegionProgress>) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    pub(crate) fn progress(&self) -> Vec<RegionProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn add_checkpoint(&self, c: CheckpointStatus) {
        let mut s = self.lock();
        let mut all: VecDeque<_> = std::mem::take(&mut s.checkpoints).into();
        if all.len() == CHECKPOINTS {
            all.pop_front();
        }
        all.push_back(c);
        s.checkpoints = all.into();
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn applied(&self) -> Epoch {
        Epoch(self.applied.load(Ordering::Acquire))
    }

    pub(crate) fn set_applied(&self, epoch: Epoch) {
        self.applied.fetch_max(epoch.0, Ordering::Release);
    }
}
