//! Opening a region up to the point where it joins its worker: marker, manifest, comparison, claim, topic identity.
//!
//! Order (R4): the claim comes first, then producers are fenced, then the end is captured, then the replay. The engine does the last three per shard.

use std::sync::Arc;

use millstream_types::{RegionKind, Seq, error::chain};

use super::{
    RegionShared,
    shared::Cell,
    state::{Event, RegionState},
    version::Version,
};
use crate::{
    RegionSpec, StorageError, WalBinding,
    context::Context,
    layout::Layout,
    listener::Point,
    manifest::{State, Store},
    object_store::paths,
    request::{Notice, WorkerSender},
    wal::{guard, prune::RegionBook},
    worker::OpenRegion,
};

/// Claims the region and hands it to its worker, in state Opening. `pruned`: nothing below it is needed from a shared WAL.
pub(crate) async fn open(
    ctx: &Context,
    spec: &RegionSpec,
    worker: &WorkerSender,
    book: &RegionBook,
    pruned: Seq,
) -> Result<Arc<RegionShared>, StorageError> {
    if ctx.bucket.head(&paths::dropping(spec.id)).await?.is_some() {
        return Err(StorageError::RegionNotFound { region: spec.id });
    }
    let mut store = Store::load(&ctx.store, spec.id).await?.ok_or(StorageError::RegionNotFound { region: spec.id })?;
    check_same(spec, store.state())?;
    let leader_epoch = store.claim().await?;
    ctx.at(Point::ClaimPut, spec.id).await;
    let state = store.state().clone();
    book.note(spec.id, &state.wal, state.flushed);
    let layout = Layout::new(state.schema().clone())?;
    let shared_wal = matches!(spec.wal, WalBinding::Shared { .. });
    let applied = if shared_wal { state.flushed.max(pruned) } else { state.flushed };
    let cell = first_cell(&layout, Arc::new(state), applied);
    let shared = Arc::new(RegionShared::new(spec, layout, leader_epoch, worker.clone(), cell));
    let topic = capture_topic(ctx, &shared).await?;
    let mut region = OpenRegion::new(shared.clone(), store, topic.as_ref().map(|t| t.end), ctx.clock.now_ms());
    if let Some(reason) = topic.and_then(|t| t.broken) {
        // Not one record of the other topic may be read.
        tracing::error!(region = %spec.id, table = %spec.table_name, reason, "region quarantined");
        region.reason = Some(reason.into());
        region.event(Event::Quarantine);
    }
    worker.notice(Notice::Install(Box::new(region))).await;
    Ok(shared)
}

/// What a region is compared by; the rest of a spec may change between starts.
pub(crate) fn check_same(spec: &RegionSpec, state: &State) -> Result<(), StorageError> {
    let differs = |what| Err(StorageError::RegionDiffers { region: spec.id, what });
    if state.wal != spec.wal {
        return differs("write-ahead log");
    }
    if **state.schema() != *spec.schema {
        return differs("schema");
    }
    Ok(())
}

fn first_cell(layout: &Arc<Layout>, manifest: Arc<State>, applied: Seq) -> Cell {
    let version = Version {
        layout: layout.clone(),
        applied,
        flushed: manifest.flushed,
        history_from: manifest.history_from,
        runs: Arc::from([]),
        files: manifest.files.clone(),
        manifest_version: manifest.version,
    };
    Cell {
        version: Arc::new(version),
        state: RegionState::Opening,
        reason: None,
        manifest,
        memtable_rows: 0,
        memtable_bytes: 0,
        data_loss: None,
        oldest_record_ms: None,
    }
}

struct Topic {
    /// The last stable offset at the claim: the region is writable when its position is there.
    end: Seq,
    broken: Option<String>,
}

/// The end to replay to, captured after the claim, and whether the topic is still the same one.
async fn capture_topic(ctx: &Context, region: &RegionShared) -> Result<Option<Topic>, StorageError> {
    let WalBinding::Topic { partition, topic_id, .. } = &region.wal else { return Ok(None) };
    let info = ctx.logs.admin().describe(&partition.topic).await?;
    let Some(info) = info else {
        let what = format!("topic {} does not exist (any more)", partition.topic);
        return Err(StorageError::OpenFailed { region: region.id, what });
    };
    let ends = ctx.logs.log(partition).offsets().await?;
    ctx.at(Point::EndCaptured, region.id).await;
    region.set_wal_ends(ends.start.into(), ends.stable.into());
    Ok(Some(Topic { end: ends.stable.into(), broken: guard::recreated(partition, topic_id, &info) }))
}

/// Returns when the region is writable, or the error that its state means.
pub(crate) async fn wait_open(shared: &RegionShared) -> Result<(), StorageError> {
    let mut cell = shared.cell.subscribe();
    let found = cell.wait_for(|c| c.state != RegionState::Opening).await;
    let writable = found.is_ok_and(|c| c.state == RegionState::Writable);
    if writable { Ok(()) } else { Err(shared.refusal()) }
}

/// Whether nothing was ever read into the region: then opening it is part of CREATE, which should not wait for a long topic.
pub(crate) fn is_fresh(shared: &RegionShared) -> bool {
    let cell = shared.cell.borrow();
    cell.manifest.flushed == cell.manifest.start && cell.manifest.files.is_empty()
}

/// For logs of the engine.
pub(crate) fn describe(shared: &RegionShared) -> String {
    let kind = match shared.layout.kind {
        RegionKind::Append => "append",
        RegionKind::Keyed => "keyed",
    };
    format!("{} ({kind}, leader epoch {})", shared.table_name, shared.leader_epoch)
}

/// Copies an error for each region of a shard that could not be replayed.
pub(crate) fn open_failed(region: millstream_types::RegionId, error: &StorageError) -> StorageError {
    StorageError::OpenFailed { region, what: chain(error) }
}
