//! The door to the stream engine: create, start, steer, watch and drop jobs.
//!
//! Cheap to clone. Every call names when it returns. Not here: what a job does ([`super::task`]) and when it is tried again
//! ([`super::supervision`]).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use millstream_storage::Storage;
use millstream_types::{
    Classified, Epoch, ErrorKind, JobId, LogSystem, RegionId, Seq,
    error::chain,
    runtime::{Clock, Tasks},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    shared::JobShared,
    status::{JobState, JobStatus},
    supervision,
};
use crate::{
    StreamConfig, StreamError, barrier::injector::Injector, executor::cache_budget::CacheBudget,
    metrics::StreamMetrics, plan::JobPlan,
};

/// What the engine needs from outside.
#[derive(Debug, Clone)]
pub struct StreamDeps {
    pub storage: Arc<dyn Storage>,
    pub logs: Arc<dyn LogSystem>,
    pub tasks: Tasks,
    pub clock: Arc<dyn Clock>,
    /// `<prefix>.wal`.
    pub wal_topic: Arc<str>,
    /// Transactional ids are `<prefix>.<job>`.
    pub prefix: Arc<str>,
    pub metrics: prometheus::Registry,
}

/// Everything a job task reaches for.
pub(crate) struct Context {
    pub(crate) config: StreamConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) logs: Arc<dyn LogSystem>,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wal_topic: Arc<str>,
    pub(crate) prefix: Arc<str>,
    pub(crate) metrics: Arc<StreamMetrics>,
    pub(crate) injector: Injector,
    /// Of the state caches of all jobs.
    pub(crate) cache: Arc<CacheBudget>,
    /// Shutdown: jobs finish what they have and stop.
    pub(crate) stopping: CancellationToken,
}

struct JobHandle {
    plan: Arc<JobPlan>,
    shared: Arc<JobShared>,
    /// Cancelled by drop: the job stops where it is.
    cancel: CancellationToken,
    supervisor: Mutex<Option<JoinHandle<Option<()>>>>,
}

/// Handle of the engine.
#[derive(Clone)]
pub struct StreamService {
    context: Arc<Context>,
    jobs: Arc<Mutex<BTreeMap<JobId, Arc<JobHandle>>>>,
}

impl fmt::Debug for StreamService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamService").field("jobs", &self.lock().len()).finish_non_exhaustive()
    }
}

impl StreamService {
    /// Registers the metrics; starts nothing.
    pub fn new(config: StreamConfig, deps: StreamDeps) -> Result<Self, StreamError> {
        let metrics = Arc::new(StreamMetrics::new(&deps.metrics)?);
        let StreamDeps { storage, logs, tasks, clock, wal_topic, prefix, metrics: _ } = deps;
        let injector = Injector::default();
        let stopping = CancellationToken::new();
        let cache = CacheBudget::new(config.state_cache_bytes);
        let context =
            Context { config, storage, logs, tasks, clock, wal_topic, prefix, metrics, injector, cache, stopping };
        let context = Arc::new(context);
        Ok(Self { context, jobs: Arc::default() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<JobId, Arc<JobHandle>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, job: JobId) -> Result<Arc<JobHandle>, StreamError> {
        self.lock().get(&job).cloned().ok_or(StreamError::JobNotFound { job })
    }

    /// Starts the barrier injector; it ends at shutdown.
    pub fn run_injector(&self) {
        let context = Arc::clone(&self.context);
        // The handle is not awaited: the task ends with the token, a panic is logged by `Tasks`.
        drop(self.context.tasks.io("barrier injector", async move {
            context.injector.run(&context).await;
        }));
    }

    /// Creates and opens the job's regions, then starts the job. Returns when it is supervised; its backfill runs in the background.
    pub async fn create_job(&self, plan: JobPlan) -> Result<(), StreamError> {
        if self.lock().contains_key(&plan.job) {
            return Err(StreamError::JobExists { job: plan.job });
        }
        let regions = plan.own_regions();
        for spec in &regions {
            self.context.storage.create_region(spec).await?;
        }
        for (_, opened) in self.context.storage.open_regions(regions).await {
            opened?;
        }
        self.start_job(plan, self.context.config.start_paused).await
    }

    /// Starts a job whose regions exist. Regions that are not open are opened by the job itself, again and again if need be.
    pub async fn start_job(&self, plan: JobPlan, paused: bool) -> Result<(), StreamError> {
        let job = plan.job;
        let plan = Arc::new(plan);
        let shared =
            JobShared::new(&plan, paused || self.context.config.start_paused, self.context.metrics.state.clone());
        let cancel = self.context.stopping.child_token();
        let handle = Arc::new(JobHandle {
            plan: Arc::clone(&plan),
            shared: Arc::clone(&shared),
            cancel: cancel.clone(),
            supervisor: Mutex::new(None),
        });
        {
            let mut jobs = self.lock();
            if jobs.contains_key(&job) {
                return Err(StreamError::JobExists { job });
            }
            jobs.insert(job, Arc::clone(&handle));
        }
        let task = supervision::supervise(Arc::clone(&self.context), plan, shared, cancel);
        let running = self.context.tasks.io(format!("job {job} supervisor"), task);
        *handle.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(())
    }

    /// Ends the transactions that a killed process left open, so that no replay of the WAL waits until the broker ends them. To be called before regions are
    /// opened. What fails here is told, and done again by the job itself.
    pub async fn end_open_transactions(&self, jobs: impl IntoIterator<Item = JobId>) {
        let context = &self.context;
        let each = jobs.into_iter().map(|job| async move {
            let mut writer = context.logs.epoch_writer(&super::transactional_id(&context.prefix, job));
            if let Err(e) = writer.init().await {
                tracing::warn!(%job, error = %chain(&e), "an open transaction may be left, the replay may wait for it");
            }
        });
        // Each is a client with threads of its own: a few at a time.
        futures::stream::iter(each).buffer_unordered(8).collect::<()>().await;
    }

    /// Positions freeze at the next epoch, pins stay. Returns at once.
    pub fn pause(&self, job: JobId) -> Result<(), StreamError> {
        self.find(job)?.shared.wish.send_modify(|w| w.paused = true);
        self.checkpoint();
        Ok(())
    }

    /// Goes on where it paused; a quarantined job is tried again. Who waits for it from now on does not see its quarantine any more.
    pub fn resume(&self, job: JobId) -> Result<(), StreamError> {
        let handle = self.find(job)?;
        if !handle.cancel.is_cancelled() {
            handle.shared.update(|s| {
                if matches!(s.state, JobState::Quarantined | JobState::Stopped) {
                    (s.state, s.reason) = (JobState::Creating, None);
                }
            });
        }
        handle.shared.wish.send_modify(|w| {
            w.paused = false;
            w.resumes += 1;
        });
        self.checkpoint();
        Ok(())
    }

    /// Rows per second of backfill scans; acts at the next epoch. The caller stores it.
    pub fn set_rate_limit(&self, job: JobId, limit: Option<u64>) -> Result<(), StreamError> {
        let handle = self.find(job)?;
        handle.shared.wish.send_modify(|w| w.rate_limit = limit);
        handle.shared.update(|s| s.rate_limit = limit);
        self.checkpoint();
        Ok(())
    }

    /// Stops the job in whatever state it is, then drops its pins and regions. Returns when all is gone; the derived topic stays.
    pub async fn drop_job(&self, job: JobId) -> Result<(), StreamError> {
        let handle = self.find(job)?;
        handle.cancel.cancel();
        let supervisor = handle.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = supervisor
            && task.await.is_err()
        {
            tracing::warn!(job = %job, "supervisor was cancelled from outside");
        }
        self.discard(&handle.plan).await?;
        self.lock().remove(&job);
        self.context.metrics.forget(&handle.plan.name);
        tracing::info!(job = %job, name = %handle.plan.name, "job dropped");
        Ok(())
    }

    /// Drops pins and regions of a job that is not running. Idempotent: each step may have been done before.
    pub async fn discard(&self, plan: &JobPlan) -> Result<(), StreamError> {
        self.context.storage.unpin_job(plan.job).await?;
        for spec in plan.own_regions() {
            self.context.storage.drop_region(spec.id).await?;
        }
        Ok(())
    }

    /// A barrier, then up to `grace` for the commits of what was read; then everything stops. The rest equals a crash.
    pub async fn shutdown(&self, grace: Duration) {
        self.context.injector.demand();
        self.context.stopping.cancel();
        let handles: Vec<_> = self.lock().values().cloned().collect();
        let tasks: Vec<_> =
            handles.iter().filter_map(|h| h.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take()).collect();
        let aborts: Vec<_> = tasks.iter().map(JoinHandle::abort_handle).collect();
        let all = futures::future::join_all(tasks);
        if tokio::time::timeout(grace, all).await.is_err() {
            aborts.iter().for_each(tokio::task::AbortHandle::abort);
            tracing::warn!(
                grace_ms = grace.as_millis() as u64,
                "jobs did not stop in time, they will recover at the next start"
            );
        }
    }

    pub fn jobs(&self) -> Vec<JobStatus> {
        self.lock().values().map(|h| h.shared.status()).collect()
    }

    pub fn job(&self, job: JobId) -> Option<JobStatus> {
        self.lock().get(&job).map(|h| h.shared.status())
    }

    /// One barrier, now, without the injector: a test or a tool decides when epochs end.
    pub async fn tick(&self) -> Epoch {
        self.context.injector.tick(self.context.storage.as_ref(), self.context.clock.as_ref()).await.epoch
    }

    /// Asks for a barrier before the next tick.
    pub fn checkpoint(&self) {
        self.context.injector.demand();
    }

    pub fn latest_epoch(&self) -> Epoch {
        self.context.injector.latest()
    }

    /// Returns when the job covers its whole input and that is committed; an error if it is quarantined, stopped or dropped first.
    pub async fn wait_running(&self, job: JobId) -> Result<(), StreamError> {
        let handle = self.find(job)?;
        let mut changed = handle.shared.watch();
        loop {
            let s = handle.shared.status();
            match s.state {
                JobState::Running => return Ok(()),
                JobState::Degraded if s.finish_epoch.is_some() => return Ok(()),
                JobState::Quarantined | JobState::Stopped => return Err(ended(s)),
                _ => {}
            }
            tokio::select! {
                r = changed.changed() => if r.is_err() { return Err(StreamError::JobNotFound { job }) },
                () = handle.cancel.cancelled() => return Err(StreamError::Stopped { what: "job" }),
            }
        }
    }

    /// Returns the epoch in which the published result contains everything below each given sequence of the job's input regions; an error if the job is
    /// quarantined, stopped or dropped first.
    pub async fn wait_for(
        &self,
        job: JobId,
        wanted: &[(RegionId, Seq)],
        timeout: Duration,
    ) -> Result<Epoch, StreamError> {
        let handle = self.find(job)?;
        let started = self.context.clock.now_ms();
        match tokio::time::timeout(timeout, self.reach(&handle, wanted)).await {
            Ok(r) => r,
            Err(_) => {
                let present =
                    handle.shared.status().positions.iter().map(|(r, s)| format!("{r} at {s}")).collect::<Vec<_>>();
                let what = wanted.iter().map(|(r, s)| format!("{r} at {s}")).collect::<Vec<_>>().join(", ");
                let waited_ms = self.context.clock.now_ms().saturating_sub(started);
                Err(StreamError::Timeout { job, what, waited_ms, present: format!("present: {}", present.join(", ")) })
            }
        }
    }

    async fn reach(&self, handle: &JobHandle, wanted: &[(RegionId, Seq)]) -> Result<Epoch, StreamError> {
        for (region, seq) in wanted {
            if let Some(r) = self.context.storage.region(*region)
                && let Err(e) = r.wait_applied(*seq).await
                && e.kind() != ErrorKind::Unavailable
            {
                return Err(e.into());
            }
        }
        self.checkpoint();
        let mut changed = handle.shared.watch();
        loop {
            let s = handle.shared.status();
            if matches!(s.state, JobState::Quarantined | JobState::Stopped) {
                return Err(ended(s));
            }
            let reached = wanted.iter().all(|(region, seq)| {
                s.positions.iter().any(|(r, below)| r == region && below >= seq)
                    && s.backfills.iter().all(|b| b.region != *region || b.finish_epoch.is_some())
            });
            if reached && s.backfills.iter().all(|b| b.state == "finished") {
                return Ok(s.committed_epoch);
            }
            tokio::select! {
                r = changed.changed() => if r.is_err() { return Err(StreamError::JobNotFound { job: s.job }) },
                () = handle.cancel.cancelled() => return Err(StreamError::Stopped { what: "job" }),
            }
        }
    }
}

/// A job that does not go on by itself: waiting for it would never end.
fn ended(s: JobStatus) -> StreamError {
    StreamError::WrongState {
        job: s.job,
        state: s.state.as_str(),
        reason: s.reason.map(|r| r.message).unwrap_or_default(),
    }
}
