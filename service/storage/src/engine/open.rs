//! Opening many regions: each is claimed on its own, each shard is replayed once for all of them, and a failure stays with its region.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::join_all, stream};
use millstream_types::{RegionId, Seq, ShardId, error::chain};

use super::{Inner, lock};
use crate::{
    RegionSpec, StorageError, WalBinding,
    listener::Point,
    region::{
        RegionShared,
        handle::RegionHandle,
        opener,
        state::{Event, RegionState},
    },
    request::Notice,
    wal::{
        replay::{Replayed, Take, Target, replay},
        shard::Shard,
    },
};

pub(super) type Opened = Vec<(RegionId, Result<Arc<RegionHandle>, StorageError>)>;

pub(super) async fn open_regions(inner: Arc<Inner>, specs: Vec<RegionSpec>) -> Opened {
    let inner = &inner;
    let mut by_id: BTreeMap<RegionId, RegionSpec> = specs.into_iter().map(|s| (s.id, s)).collect();
    // In order of ids, so that two calls with overlapping regions cannot wait for each other.
    let mut guards = Vec::with_capacity(by_id.len());
    for id in by_id.keys() {
        guards.push(inner.open_lock(*id).lock_owned().await);
    }
    let mut opened: Opened = Vec::with_capacity(by_id.len());
    by_id.retain(|id, _| match inner.region(*id).filter(|r| r.shared.state() == RegionState::Writable) {
        Some(handle) => {
            opened.push((*id, Ok(handle)));
            false
        }
        None => true,
    });
    let (topics, shared): (Vec<_>, Vec<_>) =
        by_id.into_values().partition(|s| matches!(s.wal, WalBinding::Topic { .. }));
    let mut shards: BTreeMap<ShardId, Vec<RegionSpec>> = BTreeMap::new();
    for spec in shared {
        if let WalBinding::Shared { shard } = spec.wal {
            shards.entry(shard).or_default().push(spec);
        }
    }
    let topics: Vec<_> = topics.into_iter().map(|spec| open_topic(inner.clone(), spec).boxed()).collect();
    let topics = stream::iter(topics).buffer_unordered(inner.ctx.config.open_parallelism).collect::<Opened>();
    let shards = join_all(shards.into_iter().map(|(shard, specs)| open_shard(inner, shard, specs)));
    let (topics, shards) = futures::join!(topics, shards);
    for (id, result) in topics.into_iter().chain(shards.into_iter().flatten()) {
        opened.push((id, result));
    }
    opened.sort_by_key(|(id, _)| *id);
    for (id, result) in &opened {
        if let Err(e) = result {
            tracing::warn!(region = %id, error = %chain(e), "region is not open");
        }
    }
    opened
}

async fn open_topic(inner: Arc<Inner>, spec: RegionSpec) -> (RegionId, Result<Arc<RegionHandle>, StorageError>) {
    let inner = &inner;
    let id = spec.id;
    // A region that stands still (quarantined, fenced) opens anew.
    inner.remove(id, Event::Close).await;
    let opened = async {
        let shared = opener::open(&inner.ctx, &spec, inner.worker(id), &inner.book, Seq::ZERO).await?;
        let handle = register(inner, &shared, None);
        tracing::info!(region = %id, table = opener::describe(&shared), applied = shared.applied().0, "region opens");
        if opener::is_fresh(&shared) {
            let enough = inner.ctx.clock.sleep(inner.ctx.config.open_fresh_wait);
            tokio::select! {
                done = opener::wait_open(&shared) => done?,
                () = enough => {
                    shared.worker.notice(Notice::Replayed { region: shared.clone(), applied: Seq::ZERO }).await;
                    opener::wait_open(&shared).await?;
                }
            }
        } else {
            opener::wait_open(&shared).await?;
        }
        inner.ctx.at(Point::ReplayEnd, id).await;
        Ok(handle)
    };
    (id, opened.await)
}

/// Puts the region into the map: from here on others can look it up, read it and see why it does not open.
fn register(inner: &Inner, shared: &Arc<RegionShared>, shard: Option<Arc<Shard>>) -> Arc<RegionHandle> {
    let handle = Arc::new(RegionHandle { shared: shared.clone(), shard, ctx: inner.ctx.clone() });
    lock(&inner.regions).insert(shared.id, handle.clone());
    handle
}

async fn open_shard(inner: &Arc<Inner>, id: ShardId, specs: Vec<RegionSpec>) -> Opened {
    let all: Vec<RegionId> = specs.iter().map(|s| s.id).collect();
    let failed = |e: &StorageError| all.iter().map(|r| (*r, Err(opener::open_failed(*r, e)))).collect();
    let shard = match inner.ready_shard(id).await {
        Ok(shard) => shard,
        Err(e) => return failed(&e),
    };
    // From before the first manifest is read until the rows are in memtables nothing is pruned.
    let hold = shard.hold_replay();
    let opened = open_held(inner, &shard, specs).await;
    shard.release(hold);
    opened
}

async fn open_held(inner: &Arc<Inner>, shard: &Arc<Shard>, specs: Vec<RegionSpec>) -> Opened {
    let pruned = shard.pruned();
    let claims: Vec<_> = specs.into_iter().map(|spec| claim(inner.clone(), spec, pruned).boxed()).collect();
    let claimed: Vec<_> = stream::iter(claims).buffer_unordered(inner.ctx.config.open_parallelism).collect().await;
    let mut opened: Opened = Vec::new();
    let mut handles: HashMap<RegionId, Arc<RegionHandle>> = HashMap::new();
    for (id, result) in claimed {
        match result {
            Ok(shared) => {
                handles.insert(id, register(inner, &shared, Some(shard.clone())));
            }
            Err(e) => opened.push((id, Err(e))),
        }
    }
    let shareds: Vec<_> = handles.values().map(|h| h.shared.clone()).collect();
    let replayed = replay_all(inner, shard, &shareds).await;
    let mut failed: HashMap<RegionId, StorageError> = HashMap::new();
    match replayed {
        Ok(done) => {
            failed.extend(done.failed);
            for shared in shareds.iter().filter(|s| !failed.contains_key(&s.id)) {
                shared.worker.notice(Notice::Replayed { region: shared.clone(), applied: done.complete_to }).await;
            }
        }
        Err(e) => failed.extend(shareds.iter().map(|s| (s.id, opener::open_failed(s.id, &e)))),
    }
    for (id, handle) in handles {
        let result = match failed.remove(&id) {
            Some(e) => Err(e),
            None => opener::wait_open(&handle.shared).await,
        };
        if result.is_ok() {
            inner.ctx.at(Point::ReplayEnd, id).await;
            tracing::info!(region = %id, table = opener::describe(&handle.shared), applied = handle.shared.applied().0, "region is writable");
        } else if handle.shared.state() == RegionState::Opening {
            // Half replayed: the next open starts from the manifest.
            inner.remove(id, Event::Close).await;
        }
        opened.push((id, result.map(|()| handle)));
    }
    opened
}

async fn claim(
    inner: Arc<Inner>,
    spec: RegionSpec,
    pruned: Seq,
) -> (RegionId, Result<Arc<RegionShared>, StorageError>) {
    inner.remove(spec.id, Event::Close).await;
    (spec.id, opener::open(&inner.ctx, &spec, inner.worker(spec.id), &inner.book, pruned).await)
}

async fn replay_all(
    inner: &Arc<Inner>,
    shard: &Arc<Shard>,
    regions: &[Arc<RegionShared>],
) -> Result<Replayed, StorageError> {
    let Some(first) = regions.first().map(|r| r.id) else {
        return Ok(Replayed { complete_to: Seq::ZERO, failed: Vec::new() });
    };
    let targets: Vec<Target> = regions.iter().map(|r| Target { region: r.clone(), from: r.applied() }).collect();
    let lowest = targets.iter().map(|t| t.from).min().unwrap_or(Seq::ZERO);
    let (ctx, shard) = (inner.ctx.clone(), shard.clone());
    let task = inner.ctx.runner.compute("replay of a shard", async move {
        let end = shard.log.offsets().await?.high_watermark;
        ctx.at(Point::EndCaptured, first).await;
        replay(&ctx, &shard, targets, Take::All, lowest, end).await
    });
    task.await.ok().flatten().flatten().unwrap_or(Err(StorageError::Stopped { what: "storage engine" }))
}
