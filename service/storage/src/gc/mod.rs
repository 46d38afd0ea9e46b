//! What is deleted besides removed files (`worker/periodic`): dropped regions and orphans.
//!
//! * **Drop**: a marker `dropping` is put first; after the file grace everything goes, the marker last. The sweep finishes drops of earlier processes.
//! * **Orphans**: SSTs that neither the newest manifest nor its removed list names, older than the orphan age: uploads of a crashed flush or compaction.
//!   Uploads give up long before that age, and the manifest is read again before the deletes, so none of them can be listed later.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use millstream_types::{RegionId, error::chain};

use crate::{
    StorageError,
    context::Context,
    manifest::Store,
    object_store::paths,
    region::{RegionShared, state::RegionState},
    wal::prune::region_of_folder,
};

/// Puts the marker; `false` if the region has no objects at all.
pub(crate) async fn mark_dropping(ctx: &Context, region: RegionId) -> Result<bool, StorageError> {
    if ctx.bucket.list_children(&paths::region(region)).await?.is_empty() {
        return Ok(false);
    }
    ctx.bucket.put(&paths::dropping(region), Bytes::from_static(b"{}")).await?;
    Ok(true)
}

/// Deletes everything of a dropped region, the marker last, so that a crash in between is found again.
pub(crate) async fn finish_drop(ctx: &Context, region: RegionId) -> Result<(), StorageError> {
    let marker = paths::dropping(region);
    for object in ctx.bucket.list(&paths::region(region)).await? {
        if object.location.as_ref() != marker {
            ctx.bucket.delete(object.location.as_ref()).await?;
        }
    }
    ctx.bucket.delete(&marker).await?;
    tracing::info!(%region, "objects of a dropped region are deleted");
    Ok(())
}

/// One pass over the bucket: unfinished drops, then orphans of the regions that this process leads.
pub(crate) async fn sweep(ctx: &Context, open: &[Arc<RegionShared>]) {
    if let Err(e) = finish_drops(ctx).await {
        tracing::warn!(error = %chain(&e), "sweep of dropped regions failed, the next one tries again");
    }
    for region in open.iter().filter(|r| r.state() == RegionState::Writable) {
        if let Err(e) = delete_orphans(ctx, region).await {
            tracing::warn!(region = %region.id, error = %chain(&e), "sweep of orphans failed, the next one tries again");
        }
    }
}

async fn finish_drops(ctx: &Context) -> Result<(), StorageError> {
    let now = ctx.clock.now_ms();
    for name in ctx.bucket.list_children("regions").await? {
        let Some(region) = region_of_folder(&name) else { continue };
        let Some(marker) = ctx.bucket.head(&paths::dropping(region)).await? else { continue };
        let marked = u64::try_from(marker.last_modified.timestamp_millis()).unwrap_or(0);
        if marked + ctx.config.gc.file_grace.as_millis() as u64 <= now {
            finish_drop(ctx, region).await?;
        }
    }
    Ok(())
}

async fn delete_orphans(ctx: &Context, region: &RegionShared) -> Result<(), StorageError> {
    let now = ctx.clock.now_ms();
    let age = ctx.config.gc.orphan_age.as_millis() as u64;
    let found = ctx.bucket.list(&paths::sst_folder(region.id)).await?;
    let old: Vec<_> = found
        .iter()
        .filter(|o| u64::try_from(o.last_modified.timestamp_millis()).unwrap_or(u64::MAX).saturating_add(age) <= now)
        .filter_map(|o| o.location.filename().map(str::to_owned))
        .collect();
    if old.is_empty() {
        return Ok(());
    }
    // Read after the listing: what was listed meanwhile is named here.
    let Some(store) = Store::load(&ctx.store, region.id).await? else { return Ok(()) };
    if store.state().leader_epoch != region.leader_epoch {
        return Ok(());
    }
    let state = store.state();
    let named: HashSet<&str> =
        state.files.iter().map(|f| f.name.as_str()).chain(state.removed.iter().map(|r| r.name.as_str())).collect();
    for name in old.iter().filter(|n| !named.contains(n.as_str())) {
        ctx.bucket.delete(&paths::sst(region.id, name)).await?;
        ctx.metrics.orphans_deleted.inc();
        tracing::info!(region = %region.id, name, "deleted an sst that no manifest names");
    }
    Ok(())
}
