//! Ticks `barrier_interval` or on demand, sends the barrier through all regions and publishes their cuts.
//!
//! Owns: the numbering of epochs. Not here: what a job does with them. Late ticks are not made up, and a burst of demands shares one barrier.

use std::sync::atomic::{AtomicU64, Ordering};

use millstream_storage::Storage;
use millstream_types::{Epoch, EpochCuts, runtime::Clock};
use tokio::sync::{Notify, watch};

use crate::job::service::Context;

#[derive(Debug)]
pub struct Injector {
    cuts: watch::Sender<EpochCuts>,
    demand: Notify,
    last: AtomicU64,
    ticks: AtomicU64,
}

impl Default for Injector {
    fn default() -> Self {
        Self {
            cuts: watch::Sender::new(EpochCuts::default()),
            demand: Notify::new(),
            last: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
    }
}

impl Injector {
    /// A stored epoch: the next one is greater, whatever the clock says (S4).
    pub fn observe(&self, epoch: Epoch) {
        self.last.fetch_max(epoch.0, Ordering::SeqCst);
    }

    pub fn latest(&self) -> Epoch {
        self.cuts.borrow().epoch
    }

    /// How many barriers there were: what a job skipped is the difference.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::SeqCst)
    }

    pub fn subscribe(&self) -> watch::Receiver<EpochCuts> {
        self.cuts.subscribe()
    }

    /// Asks for a barrier before the next tick.
    pub fn demand(&self) {
        self.demand.notify_one();
    }

    /// One barrier, now. Returns the published cuts.
    pub async fn tick(&self, storage: &dyn Storage, clock: &dyn Clock) -> EpochCuts {
        let epoch = Epoch(self.last.load(Ordering::SeqCst)).next(clock.now_ms());
        self.last.fetch_max(epoch.0, Ordering::SeqCst);
        let cuts = storage.barrier(epoch).await;
        self.ticks.fetch_add(1, Ordering::SeqCst);
        self.cuts.send_replace(cuts.clone());
        cuts
    }

    /// The loop; ends when `stop` is cancelled.
    pub(crate) async fn run(&self, ctx: &Context) {
        let (storage, clock, config, stop) = (&ctx.storage, &ctx.clock, &ctx.config, &ctx.stopping);
        loop {
            let started = clock.now_ms();
            self.tick(storage.as_ref(), clock.as_ref()).await;
            ctx.metrics.barrier_seconds.observe(clock.now_ms().saturating_sub(started) as f64 / 1000.0);
            tokio::select! {
                () = stop.cancelled() => return,
                () = clock.sleep(config.barrier_min_gap) => {}
            }
            let rest = config.barrier_interval.saturating_sub(config.barrier_min_gap);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.demand.notified() => {}
                () = clock.sleep(rest) => {}
            }
        }
    }
}
