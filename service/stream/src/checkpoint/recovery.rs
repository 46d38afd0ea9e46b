//! What a start reads back: fence older producers, replay to the captured end, read the progress rows.
//!
//! Also the way out of an unknown commit: after the same steps the job's row tells whether the epoch exists. Nothing comes from group offsets or from
//! the memory of an earlier run (K2). Every retry here waits with a growing back-off and shows its cause in the job's status.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use millstream_storage::{Region, ScanItem, ScanRequest};
use millstream_types::{Classified, EpochWriter, ErrorKind, RegionId, Retry, error::chain};

use super::progress_row::{Progress, decode};
use crate::{
    JobState, Reason, StreamError,
    job::{service::Context, shared::JobShared},
    plan::JobPlan,
};

const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Opens what is not open. Returns the regions of `specs` in order.
pub(crate) async fn own_regions(ctx: &Context, plan: &JobPlan) -> Result<Vec<Arc<dyn Region>>, StreamError> {
    let mut regions = Vec::new();
    for spec in plan.own_regions() {
        let region = match ctx.storage.region(spec.id) {
            Some(r) => r,
            None => ctx.storage.open_region(&spec).await?,
        };
        regions.push(region);
    }
    Ok(regions)
}

/// `init` until it succeeds: ends the old transaction, fences older producers and late requests. Only being fenced is final.
pub(crate) async fn init(ctx: &Context, shared: &JobShared, writer: &mut dyn EpochWriter) -> Result<(), StreamError> {
    let mut backoff = BACKOFF_MIN;
    loop {
        match writer.init().await {
            Ok(()) => return Ok(()),
            Err(e) if e.kind == ErrorKind::Fenced => {
                let transactional_id = writer.transactional_id().to_owned();
                return Err(StreamError::Fenced { job: shared.job(), transactional_id, source: Some(e) });
            }
            Err(e) => {
                let message = chain(&e);
                tracing::warn!(job = %shared.job(), error = %message, retry_ms = backoff.as_millis() as u64, "producer could not be initialised");
                shared.set_state(JobState::Paused, Some(Reason { code: "txn_init".into(), message }));
                ctx.clock.sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// Replays the job's regions to the captured end and reads its progress.
pub(crate) async fn read_back(
    ctx: &Context,
    shared: &JobShared,
    plan: &JobPlan,
    progress: &dyn Region,
) -> Result<Progress, StreamError> {
    let ids: Vec<RegionId> = plan.own_regions().iter().map(|s| s.id).collect();
    let mut backoff = BACKOFF_MIN;
    loop {
        match ctx.storage.replay_shard(plan.shard, plan.job, &ids).await {
            Ok(()) => break,
            Err(e) if e.retry() == Retry::Safe && e.kind() != ErrorKind::Fenced => {
                let message = chain(&e);
                tracing::warn!(job = %plan.job, error = %message, retry_ms = backoff.as_millis() as u64, "replay failed");
                shared.set_state(JobState::Paused, Some(Reason { code: "replay".into(), message }));
                ctx.clock.sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
            Err(e) => return Err(e.into()),
        }
    }
    read_progress(progress).await
}

/// The progress rows as they are applied now.
pub(crate) async fn read_progress(region: &dyn Region) -> Result<Progress, StreamError> {
    let mut progress = Progress::default();
    let mut rows = region.scan(ScanRequest::snapshot(region.applied()));
    while let Some(item) = rows.next().await {
        if let ScanItem::Rows { chunk, .. } = item? {
            decode(&chunk.rows, &mut progress)?;
        }
    }
    Ok(progress)
}
