//! The engine's own clockwork: pruning, retention guard, pin publication, sweep. Each pass is complete in itself; an error delays it to the next.

use std::{sync::Arc, time::Duration};

use millstream_types::error::chain;
use rand::Rng;

use super::{Inner, lock};
use crate::{
    WalBinding, gc,
    region::state::RegionState,
    wal::{
        guard,
        prune::{PruneState, prune},
    },
};

/// Period of the gauges; a scrape is rarely more frequent.
const GAUGES: Duration = Duration::from_secs(5);

pub(super) fn start(inner: &Arc<Inner>) {
    let config = inner.ctx.config.clone();
    let pruning = inner.clone();
    inner.ctx.runner.io("wal prune", async move {
        let mut state = PruneState::default();
        loop {
            pruning.ctx.clock.sleep(pruning.ctx.config.wal.prune_interval).await;
            prune_once(&pruning, &mut state).await;
        }
    });
    every(inner, "retention guard", config.wal.guard_interval, |inner| async move { guard_once(&inner).await });
    every(inner, "pin publication", config.pins.publish_interval, |inner| async move {
        if let Err(e) = inner.ctx.pins.publish_moved().await {
            tracing::warn!(error = %chain(&e), "pins were not published, the older lists protect more");
        }
    });
    every(inner, "gauges", GAUGES, |inner| async move { set_gauges(&inner) });
    every(inner, "sweep", config.gc.interval, |inner| async move { sweep_once(&inner).await });
}

fn every<F>(
    inner: &Arc<Inner>,
    name: &'static str,
    interval: Duration,
    step: impl Fn(Arc<Inner>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = ()> + Send,
{
    let inner = inner.clone();
    inner.ctx.runner.clone().io(name, async move {
        // The first pass comes at a random time, so that a fleet does not ask the bucket all at once.
        let first = interval.mul_f64(rand::rng().random_range(0.2..=1.0));
        inner.ctx.clock.sleep(first).await;
        loop {
            step(inner.clone()).await;
            inner.ctx.clock.sleep(interval).await;
        }
    });
}

pub(super) async fn prune_once(inner: &Arc<Inner>, state: &mut PruneState) {
    let shards = lock(&inner.shards).values().cloned().collect();
    let open = |id| inner.region(id).map(|r| r.shared.clone());
    prune(&inner.ctx, &inner.book, shards, &open, state).await;
}

pub(super) async fn guard_once(inner: &Arc<Inner>) {
    let all = lock(&inner.regions).values().map(|r| r.shared.clone()).collect::<Vec<_>>();
    let topics = all.into_iter().filter(|r| matches!(r.wal, WalBinding::Topic { .. })).collect();
    guard::look(&inner.ctx, topics).await;
}

pub(super) async fn sweep_once(inner: &Arc<Inner>) {
    let open = lock(&inner.regions).values().map(|r| r.shared.clone()).collect::<Vec<_>>();
    gc::sweep(&inner.ctx, &open).await;
}

/// Gauges are set from what is there, never counted up and down by hand.
fn set_gauges(inner: &Inner) {
    let (metrics, buffer) = (&inner.ctx.metrics, &inner.ctx.buffer);
    let usage = buffer.usage();
    for (kind, bytes) in [("mutable", usage.mutable), ("frozen", usage.frozen), ("held", usage.held)] {
        metrics.memtable_bytes.with_label_values(&[kind]).set(bytes as i64);
    }
    let (parked, frozen) = buffer.queues();
    metrics.stalled_bytes.set(usage.parked as i64);
    metrics.stalled_requests.set(parked as i64);
    metrics.flush_queue.set(frozen as i64);
    metrics.pin_count.set(inner.ctx.pins.count() as i64);
    let cells: Vec<_> = lock(&inner.regions).values().map(|r| r.shared.cell.borrow().clone()).collect();
    for state in RegionState::ALL {
        let count = cells.iter().filter(|c| c.state == state).count();
        metrics.region_count.with_label_values(&[state.as_str()]).set(count as i64);
    }
    let files = || cells.iter().flat_map(|c| c.version.files.iter());
    metrics.sst_files.set(files().count() as i64);
    metrics.sst_bytes.set(files().map(|f| f.size as i64).sum());
    let runs = cells.iter().map(|c| {
        let mut runs: Vec<u64> = c.version.files.iter().map(|f| f.run).collect();
        runs.dedup();
        runs.len() as i64
    });
    metrics.sorted_runs_max.set(runs.max().unwrap_or(0));
}
