//! What all parts of one engine share: configuration, doors to the outside, budgets, and the tasks that end with the engine.

use std::{fmt::Debug, future::Future, sync::Arc};

use millstream_types::{
    LeaderEpoch, LogSystem, RegionId,
    runtime::{Clock, Tasks},
};
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::StorageConfig,
    listener::{Point, WorkerListener},
    manifest::StoreContext,
    memtable::write_buffer::{Thresholds, WriteBuffer},
    metrics::Metrics,
    object_store::Bucket,
    region::pins::PinBoard,
    sst::{CacheLimits, SstOptions, SstReader},
};

/// Components of the engine; numbers are in [`StorageConfig`].
#[derive(Debug, Clone)]
pub struct StorageDeps {
    pub bucket: Arc<Bucket>,
    pub logs: Arc<dyn LogSystem>,
    pub tasks: Tasks,
    pub clock: Arc<dyn Clock>,
    pub listener: Arc<dyn WorkerListener>,
    pub registry: prometheus::Registry,
    /// Topic of the shared WAL; must exist.
    pub wal_topic: Arc<str>,
    /// Prefix of transactional ids: the writer of shard n is `<prefix>.shard.<n>`.
    pub prefix: Arc<str>,
    /// Name of this process in manifests.
    pub replica: Arc<str>,
}

/// Tasks that end when the engine stops, wherever they stand: a stop is no better than a crash, so a crash is no worse than a stop.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    tasks: Tasks,
    stop: CancellationToken,
    tracker: TaskTracker,
}

impl Runner {
    fn new(tasks: Tasks) -> Self {
        Self { tasks, stop: CancellationToken::new(), tracker: TaskTracker::new() }
    }

    /// For loops and I/O.
    pub(crate) fn io<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<Option<T>>> {
        let stop = self.stop.clone();
        self.tasks.io(name, self.tracker.track_future(async move { stop.run_until_cancelled(task).await }))
    }

    /// For sorting, encoding and merging.
    pub(crate) fn compute<T: Send + 'static>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<Option<Option<T>>> {
        let stop = self.stop.clone();
        self.tasks.compute(name, self.tracker.track_future(async move { stop.run_until_cancelled(task).await }))
    }

    /// Runs CPU work on the compute runtime; `None` if it panicked or the engine stopped.
    pub(crate) async fn on_compute<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.compute(name, async move { work() }).await.ok().flatten().flatten()
    }

    pub(crate) fn cancel(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn stopped(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// See the module head. One per engine, behind an `Arc`; nothing in it is replaced after start.
#[derive(Debug)]
pub(crate) struct Context {
    pub config: StorageConfig,
    pub bucket: Arc<Bucket>,
    pub logs: Arc<dyn LogSystem>,
    pub clock: Arc<dyn Clock>,
    pub listener: Arc<dyn WorkerListener>,
    pub metrics: Metrics,
    pub runner: Runner,
    pub reader: Arc<SstReader>,
    pub buffer: WriteBuffer,
    pub pins: PinBoard,
    pub store: StoreContext,
    pub wal_topic: Arc<str>,
    pub prefix: Arc<str>,
    pub replica: Arc<str>,
    pub flush_permits: Arc<Semaphore>,
    pub compaction_permits: Arc<Semaphore>,
    /// Bytes of decoded rows that all topics together may have ahead of their regions.
    pub tail_room: Arc<Semaphore>,
}

impl Context {
    pub(crate) fn new(config: StorageConfig, deps: StorageDeps) -> Result<Arc<Self>, crate::StorageError> {
        config.validate()?;
        let thresholds = Thresholds {
            process: config.write_buffer_bytes,
            region: config.region_buffer_bytes,
            max_frozen: config.flush.max_frozen,
        };
        let quarter = config.sst.cache_bytes / 4;
        let limits = CacheLimits { footers: quarter, filters: quarter, pages: quarter * 2 };
        Ok(Arc::new(Self {
            metrics: Metrics::new(&deps.registry)?,
            runner: Runner::new(deps.tasks),
            reader: SstReader::new(deps.bucket.clone(), limits),
            buffer: WriteBuffer::new(thresholds, config.workers),
            pins: PinBoard::new(deps.bucket.clone(), deps.clock.clone(), deps.replica.clone(), deps.listener.clone()),
            store: StoreContext {
                bucket: deps.bucket.clone(),
                clock: deps.clock.clone(),
                replica: deps.replica.clone(),
            },
            flush_permits: Arc::new(Semaphore::new(config.flush.max_concurrent)),
            compaction_permits: Arc::new(Semaphore::new(config.compaction.max_concurrent)),
            tail_room: Arc::new(Semaphore::new(config.tail_ahead_total_bytes.min(Semaphore::MAX_PERMITS))),
            bucket: deps.bucket,
            logs: deps.logs,
            clock: deps.clock,
            listener: deps.listener,
            wal_topic: deps.wal_topic,
            prefix: deps.prefix,
            replica: deps.replica,
            config,
        }))
    }

    pub(crate) fn flush_options(&self, keyed: bool, leader_epoch: LeaderEpoch) -> SstOptions {
        self.sst_options(keyed, leader_epoch, self.config.sst.zstd_flush)
    }

    pub(crate) fn compaction_options(&self, keyed: bool, leader_epoch: LeaderEpoch) -> SstOptions {
        self.sst_options(keyed, leader_epoch, self.config.sst.zstd_compact)
    }

    fn sst_options(&self, keyed: bool, leader_epoch: LeaderEpoch, zstd_level: i32) -> SstOptions {
        SstOptions {
            row_group_rows: self.config.sst.row_group_rows,
            target_bytes: if keyed { self.config.sst.target_keyed_bytes } else { self.config.sst.target_append_bytes },
            zstd_level,
            writer: self.replica.to_string(),
            leader_epoch,
            now_ms: self.clock.now_ms(),
        }
    }

    pub(crate) async fn at(&self, point: Point, region: RegionId) {
        self.listener.at(point, region).await;
    }

    /// Exponential back-off with +-20 % jitter.
    pub(crate) fn backoff(min: std::time::Duration, max: std::time::Duration, attempt: u32) -> std::time::Duration {
        let full = min.saturating_mul(1 << attempt.min(16)).min(max);
        full.mul_f64(rand::Rng::random_range(&mut rand::rng(), 0.8..=1.2))
    }
}
