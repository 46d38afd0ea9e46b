//! Deletes what every region has in SSTs from the shared WAL.
//!
//! Owns: the book of all regions with a shared WAL (open or not), the limit, the marker put before the delete. Not here: flushing.
//!
//! Limit of a shard = min over all its regions of (no unflushed rows ? settled : sequence of the oldest), and not above the settled position of `keep_tail` ago.
//! `settled` comes first: rows that were nowhere at that moment lie at or after it, and rows that a transaction has not brought to its regions yet are
//! held. A region that is not open counts by its manifest; one that cannot be read blocks the shard. A late prune is harmless: what nobody needs stays so.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use millstream_types::{RegionId, Seq, ShardId, TableId, error::chain};

use super::shard::Shard;
use crate::{
    StorageError, WalBinding,
    context::Context,
    listener::Point,
    manifest::Store,
    object_store::paths,
    region::{RegionShared, state::RegionState},
};

/// What is known of a region that is not open.
#[derive(Debug, Clone, Copy)]
struct Closed {
    shard: Option<ShardId>,
    /// `None`: its manifest could not be read.
    flushed: Option<Seq>,
}

/// All regions of the bucket. Filled by one listing, then kept by create, close and drop.
#[derive(Debug, Default)]
pub(crate) struct RegionBook {
    closed: Mutex<HashMap<RegionId, Closed>>,
    listed: std::sync::atomic::AtomicBool,
}

impl RegionBook {
    /// A region exists with this binding; while it is open its version counts instead.
    pub(crate) fn note(&self, region: RegionId, wal: &WalBinding, flushed: Seq) {
        let shard = match wal {
            WalBinding::Shared { shard } => Some(*shard),
            WalBinding::Topic { .. } => None,
        };
        self.lock().insert(region, Closed { shard, flushed: Some(flushed) });
    }

    pub(crate) fn forget(&self, region: RegionId) {
        self.lock().remove(&region);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RegionId, Closed>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds regions that this process never opened. `false` while one of them cannot be read.
    async fn complete(&self, ctx: &Context) -> Result<bool, StorageError> {
        use std::sync::atomic::Ordering;
        if !self.listed.load(Ordering::SeqCst) {
            for name in ctx.bucket.list_children("regions").await? {
                let Some(region) = region_of_folder(&name) else { continue };
                self.lock().entry(region).or_insert(Closed { shard: None, flushed: None });
            }
            self.listed.store(true, Ordering::SeqCst);
        }
        let unread: Vec<RegionId> =
            self.lock().iter().filter(|(_, c)| c.flushed.is_none()).map(|(id, _)| *id).collect();
        let mut whole = true;
        for region in unread {
            match Store::load(&ctx.store, region).await {
                Ok(Some(store)) => self.note(region, &store.state().wal, store.state().flushed),
                Ok(None) => self.forget(region),
                Err(e) => {
                    whole = false;
                    tracing::warn!(%region, error = %chain(&e), "a manifest that cannot be read blocks pruning of the shared wal");
                }
            }
        }
        Ok(whole)
    }

    fn of_shard(&self, shard: ShardId) -> Vec<(RegionId, Option<Seq>)> {
        self.lock().iter().filter(|(_, c)| c.shard == Some(shard)).map(|(id, c)| (*id, c.flushed)).collect()
    }
}

/// Reverse of `RegionId::folder`.
pub(crate) fn region_of_folder(name: &str) -> Option<RegionId> {
    let (table, number) = name.split_once('-')?;
    Some(RegionId::new(TableId(table.parse().ok()?), number.parse().ok()?))
}

/// Settled positions of the last minutes, and what was deleted; owned by the prune task.
#[derive(Debug, Default)]
pub(crate) struct PruneState {
    settled: HashMap<ShardId, VecDeque<(u64, Seq)>>,
    truncated: HashMap<ShardId, Seq>,
    blocked_since: Option<u64>,
}

/// One pass over all shards.
pub(crate) async fn prune(
    ctx: &Context,
    book: &RegionBook,
    shards: Vec<Arc<Shard>>,
    open: &(dyn Fn(RegionId) -> Option<Arc<RegionShared>> + Send + Sync),
    state: &mut PruneState,
) {
    let now = ctx.clock.now_ms();
    let whole = match book.complete(ctx).await {
        Ok(whole) => whole,
        Err(e) => {
            tracing::warn!(error = %chain(&e), "regions cannot be listed, nothing is pruned");
            false
        }
    };
    state.blocked_since = if whole { None } else { state.blocked_since.or(Some(now)) };
    ctx.metrics
        .wal_prune_blocked_seconds
        .set(state.blocked_since.map_or(0.0, |t| now.saturating_sub(t) as f64 / 1000.0));
    if !whole {
        return;
    }
    for shard in shards {
        if shard.ready.get().is_none() {
            continue;
        }
        if let Err(e) = prune_shard(ctx, book, &shard, open, state).await {
            tracing::warn!(shard = %shard.id, error = %chain(&e), "pruning failed, the next pass tries again");
        }
    }
}

async fn prune_shard(
    ctx: &Context,
    book: &RegionBook,
    shard: &Shard,
    open: &(dyn Fn(RegionId) -> Option<Arc<RegionShared>> + Send + Sync),
    state: &mut PruneState,
) -> Result<(), StorageError> {
    let now = ctx.clock.now_ms();
    let ends = shard.log.offsets().await?;
    let settled = shard.settled(ends.stable);
    shard.saw_stable(ends.stable);
    let mut limit = kept_tail(
        state.settled.entry(shard.id).or_default(),
        now,
        settled,
        ctx.config.wal.keep_tail.as_millis() as u64,
    );
    let mut holder = None;
    for (id, closed_flushed) in book.of_shard(shard.id) {
        let needed = match open(id).map(|r| r.cell.borrow().clone()) {
            // Between flushed and the oldest row in memory there is nothing, so a region that is written rarely holds back little.
            Some(cell) if cell.state == RegionState::Writable => match cell.version.runs.iter().map(|r| r.from).min() {
                Some(oldest) => oldest,
                None => continue,
            },
            Some(cell) => cell.version.flushed,
            None => match closed_flushed {
                Some(flushed) => flushed,
                None => return Ok(()),
            },
        };
        if needed < limit {
            limit = needed;
            holder = Some(id);
        }
    }
    let kind = shard.id.to_string();
    ctx.metrics.wal_pruned_offset.with_label_values(&[&kind]).set(shard.pruned().0);
    let done = state.truncated.get(&shard.id).copied().unwrap_or(Seq::ZERO);
    if limit <= ends.start.into() || limit <= done {
        return Ok(());
    }
    let at = holder.unwrap_or(RegionId::from_u64(0));
    if limit > shard.pruned() {
        ctx.bucket
            .put(&format!("{}/{:020}.json", paths::pruned(shard.id.0), limit.0), bytes::Bytes::from_static(b"{}"))
            .await?;
        shard.set_pruned(limit);
    }
    ctx.at(Point::PrunePut, at).await;
    shard.log.truncate_to(limit.into()).await?;
    state.truncated.insert(shard.id, limit);
    ctx.at(Point::PruneDone, at).await;
    tracing::debug!(shard = %shard.id, below = limit.0, holder = ?holder, "pruned the shared wal");
    for (offset, path) in markers(ctx, shard.id).await? {
        if offset < limit {
            ctx.bucket.delete(&path).await?;
        }
    }
    Ok(())
}

/// The settled position of `keep_ms` ago, 0 while there is none that old.
fn kept_tail(history: &mut VecDeque<(u64, Seq)>, now: u64, settled: Seq, keep_ms: u64) -> Seq {
    history.push_back((now, settled));
    let mut limit = Seq::ZERO;
    while let Some((at, seq)) = history.front().copied() {
        if at + keep_ms > now {
            break;
        }
        limit = seq;
        if history.len() == 1 {
            break;
        }
        // Keep one that is old enough, so that the next pass has it too.
        if history.get(1).is_some_and(|(next, _)| next + keep_ms > now) {
            break;
        }
        history.pop_front();
    }
    limit
}

/// All prune markers of a shard with their offsets.
async fn markers(ctx: &Context, shard: ShardId) -> Result<Vec<(Seq, String)>, StorageError> {
    let found = ctx.bucket.list(&paths::pruned(shard.0)).await?;
    let offset = |path: &str| path.rsplit('/').next()?.strip_suffix(".json")?.parse::<i64>().ok().map(Seq);
    Ok(found.iter().filter_map(|o| Some((offset(o.location.as_ref())?, o.location.to_string()))).collect())
}

/// The highest marker: no region needs anything below it.
pub(crate) async fn highest_marker(ctx: &Context, shard: ShardId) -> Result<Seq, StorageError> {
    Ok(markers(ctx, shard).await?.into_iter().map(|(offset, _)| offset).max().unwrap_or(Seq::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_kept_for_its_time() {
        let mut history = VecDeque::new();
        let mut at = |now, settled, keep| kept_tail(&mut history, now, Seq(settled), keep).0;
        assert_eq!(at(0, 10, 100), 0);
        assert_eq!(at(50, 20, 100), 0);
        assert_eq!(at(100, 30, 100), 10);
        assert_eq!(at(149, 40, 100), 10);
        assert_eq!(at(150, 50, 100), 20);
        assert_eq!(at(1000, 60, 100), 50);
        assert_eq!(at(1000, 60, 0), 60);
    }

    #[test]
    fn a_folder_names_its_region() {
        let id = RegionId::new(TableId(7), 12);
        assert_eq!(region_of_folder(&id.folder()), Some(id));
        assert_eq!(region_of_folder("x"), None);
    }
}
