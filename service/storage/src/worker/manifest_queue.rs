//! One manifest put at a time per region: the store moves into the task and comes back with its notice.

use std::{collections::VecDeque, sync::Arc};

use super::{RegionWorkerLoop, region::FlushStep};
use crate::{
    StorageError,
    listener::Point,
    manifest::{Action, Edit, Gap, Store},
    region::RegionShared,
    request::{Notice, Reply},
};

/// What a put is for.
#[derive(Debug)]
pub(crate) enum ManifestJob {
    /// The edit of frozen memtable `.0`.
    Flush(u64),
    Compact {
        edit: Edit,
        waiters: Vec<Reply<()>>,
    },
    Gap {
        gap: Gap,
        go_on: bool,
    },
    Purged(Vec<String>),
    /// Checkpoint and clean-up.
    Maintain,
}

#[derive(Debug)]
pub(crate) struct ManifestQueue {
    /// `None` while a put runs.
    pub store: Option<Box<Store>>,
    pub waiting: VecDeque<ManifestJob>,
    pub attempt: u32,
    /// A put failed and waits for its back-off.
    pub backing_off: bool,
}

impl ManifestQueue {
    pub(crate) fn new(store: Store) -> Self {
        Self { store: Some(Box::new(store)), waiting: VecDeque::new(), attempt: 0, backing_off: false }
    }
}

/// Versions between two calls of `Store::maintain`.
const MAINTAIN_EVERY: u32 = 10;

impl RegionWorkerLoop {
    /// Starts the next put if none runs: a gap first, then flushes in freeze order, then the rest in order of arrival.
    pub(super) fn pump_manifest(&mut self, shared: &Arc<RegionShared>) {
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        if region.queue.backing_off || region.queue.store.is_none() || !region.may_flush() {
            return;
        }
        let gap_first = matches!(region.queue.waiting.front(), Some(ManifestJob::Gap { .. }));
        let flush = region.frozen.front_mut().filter(|f| !gap_first && matches!(f.step, FlushStep::Uploaded { .. }));
        let (job, actions) = if let Some(frozen) = flush {
            let FlushStep::Uploaded { files, history_from } = std::mem::replace(&mut frozen.step, FlushStep::Uploading)
            else {
                return;
            };
            frozen.step = FlushStep::Committing { files: files.clone(), history_from };
            let mut edit = Edit::flush(frozen.from, frozen.end, files);
            edit.history_from = history_from;
            edit.applied_at = Some((frozen.at_ms, frozen.end));
            (ManifestJob::Flush(frozen.id), vec![Action::Edit(edit)])
        } else if let Some(job) = region.queue.waiting.pop_front() {
            let actions = match &job {
                ManifestJob::Flush(_) | ManifestJob::Maintain => Vec::new(),
                ManifestJob::Compact { edit, .. } => vec![Action::Edit(edit.clone())],
                ManifestJob::Gap { gap, .. } => vec![Action::Gap(gap.clone())],
                ManifestJob::Purged(files) => vec![Action::Purged { files: files.clone() }],
            };
            (job, actions)
        } else if region.due_maintenance >= MAINTAIN_EVERY {
            region.due_maintenance = 0;
            (ManifestJob::Maintain, Vec::new())
        } else {
            return;
        };
        let Some(store) = region.queue.store.take() else { return };
        self.start_put(shared.clone(), store, job, actions);
    }

    fn start_put(&self, region: Arc<RegionShared>, mut store: Box<Store>, job: ManifestJob, actions: Vec<Action>) {
        let ctx = self.ctx.clone();
        self.ctx.runner.io("manifest put", async move {
            let result = match &job {
                ManifestJob::Maintain => store.maintain().await,
                ManifestJob::Flush(_)
                | ManifestJob::Compact { .. }
                | ManifestJob::Gap { .. }
                | ManifestJob::Purged(_) => {
                    let point = match &job {
                        ManifestJob::Compact { .. } => Point::CompactionCommit,
                        ManifestJob::Gap { .. } => Point::GapPut,
                        ManifestJob::Flush(_) | ManifestJob::Purged(_) | ManifestJob::Maintain => {
                            Point::ManifestPutSent
                        }
                    };
                    ctx.at(point, region.id).await;
                    let put = store.put(actions).await.map(|_| ());
                    if put.is_ok() {
                        ctx.at(Point::ManifestPutDone, region.id).await;
                    }
                    put
                }
            };
            region
                .worker
                .notice(Notice::ManifestDone { region: region.clone(), store: Some(store), job, result })
                .await;
        });
    }

    pub(super) fn handle_manifest_done(
        &mut self,
        shared: &Arc<RegionShared>,
        store: Option<Box<Store>>,
        job: ManifestJob,
        result: Result<(), StorageError>,
    ) {
        let label = if matches!(job, ManifestJob::Maintain) {
            if result.is_ok() { "maintained" } else { "maintain_failed" }
        } else {
            match &result {
                Ok(()) => "ok",
                Err(StorageError::Fenced { .. }) => "fenced",
                Err(_) => "failed",
            }
        };
        self.ctx.metrics.manifest_put.with_label_values(&[label]).inc();
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        let before = region.manifest.clone();
        if let Some(store) = &store
            && store.state().version != before.version
        {
            region.manifest = Arc::new(store.state().clone());
            region.due_maintenance += 1;
            region.dirty = true;
            for file in before.files.iter().filter(|f| !region.manifest.files.iter().any(|n| n.name == f.name)) {
                region.removed.insert(file.name.clone(), Arc::downgrade(file));
            }
        }
        region.queue.store = store;
        match result {
            Ok(()) => {
                region.queue.attempt = 0;
                if matches!(job, ManifestJob::Purged(_)) {
                    region.purging = false;
                }
                self.listener_reached(Point::VersionSwapped, shared);
                match job {
                    ManifestJob::Flush(id) => self.flush_committed(shared, id),
                    ManifestJob::Compact { waiters, .. } => self.compaction_committed(shared, waiters),
                    ManifestJob::Gap { gap, go_on } => self.gap_recorded(shared, gap.from, gap.to, go_on),
                    ManifestJob::Purged(_) | ManifestJob::Maintain => {}
                }
                self.pump_manifest(shared);
            }
            Err(e @ StorageError::Fenced { .. }) => {
                tracing::warn!(region = %shared.id, error = %e, "fenced by a newer leader epoch");
                self.handle_fence(shared);
            }
            Err(e @ (StorageError::Corrupt { .. } | StorageError::Broken(_) | StorageError::Internal { .. })) => {
                let reason = format!("manifest: {}", millstream_types::error::chain(&e));
                self.handle_quarantine(shared, reason, None);
            }
            Err(e) => {
                tracing::warn!(region = %shared.id, error = %millstream_types::error::chain(&e), attempt = region.queue.attempt, "manifest put failed, repeating");
                region.queue.attempt += 1;
                region.queue.backing_off = true;
                let attempt = region.queue.attempt;
                match job {
                    ManifestJob::Flush(id) => self.flush_put_failed(shared, id),
                    ManifestJob::Maintain => {}
                    job @ (ManifestJob::Compact { .. } | ManifestJob::Gap { .. } | ManifestJob::Purged(_)) => {
                        region.queue.waiting.push_front(job)
                    }
                }
                self.after_backoff(shared, attempt, |region| Notice::RetryManifest { region });
            }
        }
    }

    /// Sends a notice when the back-off of a failed step is over.
    pub(super) fn after_backoff(
        &self,
        shared: &Arc<RegionShared>,
        attempt: u32,
        notice: fn(Arc<RegionShared>) -> Notice,
    ) {
        let flush = &self.ctx.config.flush;
        let wait = crate::context::Context::backoff(flush.backoff_min, flush.backoff_max, attempt.saturating_sub(1));
        let (ctx, region) = (self.ctx.clone(), shared.clone());
        self.ctx.runner.io("back-off", async move {
            ctx.clock.sleep(wait).await;
            region.worker.notice(notice(region.clone())).await;
        });
    }

    /// The uploads are listed nowhere and stay good: the same edit is put again after the back-off.
    fn flush_put_failed(&mut self, shared: &Arc<RegionShared>, id: u64) {
        if let Some(region) = self.regions.get_mut(&shared.id)
            && let Some(frozen) = region.frozen.iter_mut().find(|f| f.id == id)
            && let FlushStep::Committing { files, history_from } =
                std::mem::replace(&mut frozen.step, FlushStep::Failed)
        {
            frozen.step = FlushStep::Uploaded { files, history_from };
        }
    }
}
