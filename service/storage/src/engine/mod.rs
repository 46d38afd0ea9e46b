//! The engine of one process: [`crate::Storage`] over workers, shards, pins and the periodic tasks.
//!
//! Owns: the map of open regions, opening and closing, barriers. Not here: what a region does with its rows (`worker`), the log (`wal`).
//!
//! Opening, in this order: claim the manifests, fence the shard's producer, capture the end, replay to it. Regions of one call share one replay per shard.

mod open;
mod periodic;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use millstream_types::{Epoch, EpochCuts, JobId, RegionId, Seq, ShardId, TopicPartition, error::chain};
use tokio::sync::{mpsc, oneshot};

use crate::{
    Region, RegionSpec, Storage, StorageError, WalBinding,
    config::StorageConfig,
    context::{Context, StorageDeps},
    gc,
    listener::Point,
    manifest::{Action, Store},
    object_store::paths,
    region::{handle::RegionHandle, opener, state::Event},
    request::{Notice, WorkerSender},
    wal::{
        appender::Appender,
        prune::{RegionBook, highest_marker},
        replay::{Take, Target, replay},
        shard::Shard,
    },
    worker,
};

/// See the module head. Dropping it stops everything where it stands, which is no worse than a crash; nothing is flushed.
pub struct Engine {
    inner: Arc<Inner>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({} regions)", lock(&self.inner.regions).len())
    }
}

/// What periodic tasks need too.
struct Inner {
    ctx: Arc<Context>,
    workers: Vec<WorkerSender>,
    /// Open regions, by id. Written by open, close and drop; read by everybody.
    regions: Mutex<BTreeMap<RegionId, Arc<RegionHandle>>>,
    /// One open or close of a region at a time; an open joins the one in progress by waiting here and then finding the region open.
    opening: Mutex<HashMap<RegionId, Arc<tokio::sync::Mutex<()>>>>,
    shards: Mutex<HashMap<ShardId, Arc<Shard>>>,
    book: RegionBook,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inner.ctx.runner.cancel();
    }
}

impl Engine {
    /// Loads pins and starts workers and periodic tasks. No region is open afterwards.
    pub async fn start(config: StorageConfig, deps: StorageDeps) -> Result<Arc<Engine>, StorageError> {
        let ctx = Context::new(config, deps)?;
        ctx.pins.load().await?;
        let workers = (0..ctx.config.workers).map(|n| worker::start(&ctx, n)).collect();
        let inner = Arc::new(Inner {
            ctx,
            workers,
            regions: Mutex::default(),
            opening: Mutex::default(),
            shards: Mutex::default(),
            book: RegionBook::default(),
        });
        periodic::start(&inner);
        Ok(Arc::new(Engine { inner }))
    }

    /// Publishes moved pins, then stops all tasks and waits for them. Memtables are not flushed: they are in the log.
    pub async fn stop(&self) {
        if let Err(e) = self.inner.ctx.pins.publish_moved().await {
            tracing::warn!(error = %chain(&e), "pins were not published at the stop, the older list protects more");
        }
        self.inner.ctx.runner.cancel();
        self.inner.ctx.runner.stopped().await;
    }

    /// Stops all tasks where they stand, as a crash would, and waits until they are gone.
    pub async fn kill(&self) {
        self.inner.ctx.runner.cancel();
        self.inner.ctx.runner.stopped().await;
    }

    /// Flushes all writable regions, for a planned stop; errors are logged, since the log has everything. Bounded by the caller's patience.
    pub async fn flush_all(&self) {
        let flushes = self.regions().into_iter().map(|region| async move {
            if let Err(e) = region.flush().await {
                tracing::warn!(region = %region.id(), error = %chain(&e), "flush before the stop failed, the log is replayed at the next start");
            }
        });
        futures::future::join_all(flushes).await;
    }

    /// Memory of memtables in bytes: used and the limit.
    pub fn write_buffer(&self) -> (usize, usize) {
        (self.inner.ctx.buffer.usage().used(), self.inner.ctx.config.write_buffer_bytes)
    }

    /// Prunes the shared WAL now; the periodic task does the same.
    pub async fn prune(&self) {
        periodic::prune_once(&self.inner, &mut crate::wal::prune::PruneState::default()).await;
    }

    /// Looks at the retention of all topics now; the periodic task does the same.
    pub async fn guard(&self) {
        periodic::guard_once(&self.inner).await;
    }

    /// Finishes drops and deletes orphans now; the periodic task does the same.
    pub async fn sweep(&self) {
        periodic::sweep_once(&self.inner).await;
    }

    /// Publishes moved pins now; the periodic task does the same.
    pub async fn publish_pins(&self) -> Result<(), StorageError> {
        self.inner.ctx.pins.publish_moved().await
    }
}

impl Inner {
    fn worker(&self, id: RegionId) -> &WorkerSender {
        let n = u64::from(id.table.0) + u64::from(id.number);
        &self.workers[(n % self.workers.len() as u64) as usize]
    }

    fn region(&self, id: RegionId) -> Option<Arc<RegionHandle>> {
        lock(&self.regions).get(&id).cloned()
    }

    fn open_lock(&self, id: RegionId) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.opening).entry(id).or_default().clone()
    }

    /// The shard as an entry of the map; of use after [`Inner::ready_shard`].
    fn shard(&self, id: ShardId) -> Arc<Shard> {
        let mut shards = lock(&self.shards);
        if let Some(shard) = shards.get(&id) {
            return shard.clone();
        }
        let ctx = &self.ctx;
        let (sender, queue) = mpsc::channel(ctx.config.wal.append_queue);
        let log = ctx.logs.log(&TopicPartition::new(ctx.wal_topic.clone(), id.0 as i32));
        let shard = Arc::new(Shard::new(id, log, sender));
        let appender = Appender::new(ctx.clone(), shard.clone(), queue);
        *shard.unstarted.try_lock().expect("nobody else has the shard yet") = Some(appender);
        shards.insert(id, shard.clone());
        shard
    }

    /// The shard with its producer fenced in, its ends known and its appender running. One caller does it, others wait; an error leaves it to the next.
    async fn ready_shard(&self, id: ShardId) -> Result<Arc<Shard>, StorageError> {
        let shard = self.shard(id);
        let init = async || {
            let mut unstarted = shard.unstarted.lock().await;
            let appender = unstarted.as_mut().ok_or(StorageError::Stopped { what: "appender" })?;
            appender.init().await?;
            let ends = shard.log.offsets().await?;
            shard.saw_stable(ends.stable);
            // Never the log start: what others deleted may be needed.
            shard.set_pruned(highest_marker(&self.ctx, id).await?);
            appender.set_low(ends.high_watermark.into());
            if let Some(appender) = unstarted.take() {
                self.ctx.runner.io(format!("appender of shard {id}"), appender.run());
            }
            Ok::<_, StorageError>(())
        };
        shard.ready.get_or_try_init(init).await?;
        Ok(shard.clone())
    }

    /// Takes a region out of the map and its worker. `false` if it was not open.
    async fn remove(&self, id: RegionId, event: Event) -> bool {
        let Some(handle) = lock(&self.regions).remove(&id) else { return false };
        let (reply, done) = oneshot::channel();
        handle.shared.worker.notice(Notice::Remove { region: id, event, reply }).await;
        if done.await.is_err() {
            tracing::debug!(region = %id, "worker stopped while a region left it");
        }
        let cell = handle.shared.cell.borrow().clone();
        self.book.note(id, &handle.shared.wal, cell.version.flushed);
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Maps of handles: each change is one call, so a panic elsewhere leaves them whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Storage for Engine {
    async fn create_region(&self, spec: &RegionSpec) -> Result<(), StorageError> {
        let ctx = &self.inner.ctx;
        if ctx.bucket.head(&paths::dropping(spec.id)).await?.is_some() {
            let reason = "it is being dropped, and region ids are never used twice".to_owned();
            return Err(StorageError::WrongState { region: spec.id, state: "dropping", reason });
        }
        if let Some(store) = Store::load(&ctx.store, spec.id).await? {
            return opener::check_same(spec, store.state());
        }
        let start = match &spec.wal {
            WalBinding::Topic { start, .. } => *start,
            // No entry of a region is older than the region.
            WalBinding::Shared { shard } => {
                let partition = TopicPartition::new(ctx.wal_topic.clone(), shard.0 as i32);
                ctx.logs.log(&partition).offsets().await?.high_watermark.into()
            }
        };
        let create = Action::Create { region: spec.id, schema: (*spec.schema).clone(), wal: spec.wal.clone(), start };
        let state = match Store::create(&ctx.store, spec.id, vec![create]).await {
            Ok(state) => state,
            // Another process was faster with another start; what counts is what is there.
            Err(e @ StorageError::RegionDiffers { .. }) => match Store::load(&ctx.store, spec.id).await? {
                Some(store) => {
                    opener::check_same(spec, store.state())?;
                    store.state().clone()
                }
                None => return Err(e),
            },
            Err(e) => return Err(e),
        };
        self.inner.book.note(spec.id, &state.wal, state.flushed);
        Ok(())
    }

    async fn open_region(&self, spec: &RegionSpec) -> Result<Arc<dyn Region>, StorageError> {
        let mut opened = self.open_regions(vec![spec.clone()]).await;
        match opened.pop() {
            Some((_, result)) => result,
            None => Err(StorageError::Stopped { what: "storage engine" }),
        }
    }

    async fn open_regions(&self, specs: Vec<RegionSpec>) -> Vec<(RegionId, Result<Arc<dyn Region>, StorageError>)> {
        let opened = open::open_regions(self.inner.clone(), specs).await;
        opened.into_iter().map(|(id, result)| (id, result.map(|region| region as Arc<dyn Region>))).collect()
    }

    async fn close_region(&self, id: RegionId) -> Result<(), StorageError> {
        let lock = self.inner.open_lock(id);
        let _guard = lock.lock().await;
        self.inner.remove(id, Event::Close).await;
        Ok(())
    }

    async fn drop_region(&self, id: RegionId) -> Result<(), StorageError> {
        let lock = self.inner.open_lock(id);
        let _guard = lock.lock().await;
        self.inner.remove(id, Event::Drop).await;
        let ctx = &self.inner.ctx;
        if !gc::mark_dropping(ctx, id).await? {
            self.inner.book.forget(id);
            return Ok(());
        }
        ctx.at(Point::DropMarked, id).await;
        self.inner.book.forget(id);
        let (inner, grace) = (self.inner.clone(), ctx.config.gc.file_grace);
        ctx.runner.io("delete of a dropped region", async move {
            inner.ctx.clock.sleep(grace).await;
            if let Err(e) = gc::finish_drop(&inner.ctx, id).await {
                tracing::warn!(region = %id, error = %chain(&e), "a dropped region could not be deleted, the sweep tries again");
            }
        });
        Ok(())
    }

    fn region(&self, id: RegionId) -> Option<Arc<dyn Region>> {
        self.inner.region(id).map(|r| r as Arc<dyn Region>)
    }

    fn regions(&self) -> Vec<Arc<dyn Region>> {
        lock(&self.inner.regions).values().cloned().map(|r| r as Arc<dyn Region>).collect()
    }

    async fn barrier(&self, epoch: Epoch) -> EpochCuts {
        let mut answers = Vec::with_capacity(self.inner.workers.len());
        for worker in &self.inner.workers {
            let (reply, answer) = oneshot::channel();
            worker.notice(Notice::Barrier { reply }).await;
            answers.push(answer);
        }
        let mut cuts: HashMap<RegionId, Seq> = HashMap::new();
        for answer in answers {
            // A worker that has stopped has no regions.
            cuts.extend(answer.await.unwrap_or_default());
        }
        EpochCuts { epoch, cuts: Arc::new(cuts) }
    }

    async fn replay_shard(&self, shard: ShardId, job: JobId, regions: &[RegionId]) -> Result<(), StorageError> {
        let shard = self.inner.ready_shard(shard).await?;
        let mut targets = Vec::with_capacity(regions.len());
        for id in regions {
            let handle = self.inner.region(*id).ok_or(StorageError::RegionNotFound { region: *id })?;
            targets.push(Target { from: handle.shared.applied(), region: handle.shared.clone() });
        }
        let hold = shard.hold_replay();
        let needless = shard.pruned();
        let lowest = targets.iter().map(|t| t.from).min().unwrap_or(Seq::MAX);
        let (ctx, replayed_shard) = (self.inner.ctx.clone(), shard.clone());
        let task = self.inner.ctx.runner.compute("replay of a job", async move {
            let end = replayed_shard.log.offsets().await?.high_watermark;
            let from = lowest.min(end.into()).max(replayed_shard.complete(job)).max(needless);
            replay(&ctx, &replayed_shard, targets, Take::Job(job), from, end).await
        });
        let done = task.await.ok().flatten().flatten().unwrap_or(Err(StorageError::Stopped { what: "storage engine" }));
        shard.release(hold);
        let done = done?;
        if let Some((_, e)) = done.failed.into_iter().next() {
            return Err(e);
        }
        shard.set_complete(job, done.complete_to);
        Ok(())
    }

    async fn unpin_job(&self, job: JobId) -> Result<(), StorageError> {
        let shards: Vec<_> = lock(&self.inner.shards).values().cloned().collect();
        shards.iter().for_each(|shard| shard.forget_job(job));
        self.inner.ctx.pins.unpin_job(job).await
    }
}
