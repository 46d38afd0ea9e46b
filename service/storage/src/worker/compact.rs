//! Compaction of a region: one at a time, picked after flushes and on the periodic check, run on the compute runtime.

use std::sync::Arc;

use millstream_types::{RegionId, Seq, error::chain};

use super::{RegionWorkerLoop, freeze::keep_rule, insert::answer, manifest_queue::ManifestJob};
use crate::{
    StorageError,
    compaction::{PickOptions, Plan, pick, pick_all, rewrite},
    context::Context,
    listener::Point,
    manifest::{Edit, FileEntry},
    region::RegionShared,
    request::{Notice, Reply},
};

/// What a region knows of its compactions.
#[derive(Debug, Default)]
pub(crate) struct CompactionSlot {
    pub running: bool,
    /// Who asked for the plan that runs now.
    pub current: Vec<Reply<()>>,
    /// Manual requests that came while a plan was running: they need another one over all files.
    pub waiting: Vec<Reply<()>>,
    pub attempt: u32,
    pub not_before_ms: u64,
}

/// Inputs of one plan at most: each is an open file with a row group in memory.
const MAX_INPUTS: usize = 16;

impl RegionWorkerLoop {
    /// Manual: all files into one sorted run.
    pub(super) fn handle_compact(&mut self, id: RegionId, reply: Reply<()>) {
        let Some(region) = self.regions.get_mut(&id) else {
            return answer(reply, Err(StorageError::RegionNotFound { region: id }));
        };
        if !region.state.is_live() {
            let error = region.refusal();
            return answer(reply, Err(error));
        }
        if region.compaction.running {
            region.compaction.waiting.push(reply);
            return;
        }
        let shared = region.shared.clone();
        match pick_all(&region.manifest.files) {
            None => answer(reply, Ok(())),
            Some(plan) => self.start_compaction(&shared, plan, vec![reply]),
        }
    }

    /// Picks and starts the next plan if none runs.
    pub(super) fn compact_if_due(&mut self, shared: &Arc<RegionShared>) {
        let now = self.ctx.clock.now_ms();
        let config = &self.ctx.config.compaction;
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| r.state.is_live() && !r.compaction.running)
        else {
            return;
        };
        if !region.compaction.waiting.is_empty() {
            let waiting = std::mem::take(&mut region.compaction.waiting);
            match pick_all(&region.manifest.files) {
                Some(plan) => return self.start_compaction(shared, plan, waiting),
                None => waiting.into_iter().for_each(|reply| answer(reply, Ok(()))),
            }
            return;
        }
        if !config.automatic || region.compaction.not_before_ms > now {
            return;
        }
        let options = PickOptions { min_runs: config.min_runs, max_runs: config.max_runs, max_inputs: MAX_INPUTS };
        if let Some(plan) = pick(&region.manifest.files, &options) {
            self.start_compaction(shared, plan, Vec::new());
        }
    }

    fn start_compaction(&mut self, shared: &Arc<RegionShared>, plan: Plan, waiters: Vec<Reply<()>>) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        region.compaction.running = true;
        region.compaction.current = waiters;
        let (keep, history_from) = keep_rule(&self.ctx, region, now, plan.bottom);
        self.listener_reached(Point::CompactionPicked, shared);
        tracing::debug!(region = %shared.id, inputs = plan.inputs.len(), bottom = plan.bottom, "compaction starts");
        let (ctx, region, inputs) = (self.ctx.clone(), shared.clone(), plan.inputs.clone());
        let task = self.ctx.runner.compute("compaction", async move {
            let result = run(&ctx, &region, &inputs, &keep).await;
            region.worker.notice(Notice::Compacted { region: region.clone(), inputs, result, history_from }).await;
        });
        let (watched, inputs) = (shared.clone(), plan.inputs);
        self.ctx.runner.io("watch of a compaction", async move {
            if matches!(task.await, Ok(None)) {
                let result = Err(StorageError::Internal { what: "compaction panicked".to_owned(), source: None });
                watched
                    .worker
                    .notice(Notice::Compacted { region: watched.clone(), inputs, result, history_from: None })
                    .await;
            }
        });
    }

    pub(super) fn handle_compacted(
        &mut self,
        shared: &Arc<RegionShared>,
        inputs: Vec<Arc<FileEntry>>,
        result: Result<Vec<FileEntry>, StorageError>,
        history_from: Option<Seq>,
    ) {
        let now = self.ctx.clock.now_ms();
        let config = self.ctx.config.compaction.clone();
        let Some(region) = self.current(shared) else { return };
        match result {
            Ok(files) => {
                region.compaction.attempt = 0;
                let mut edit = Edit::compact(inputs.iter().map(|f| f.name.clone()).collect(), files);
                edit.history_from = history_from;
                let waiters = std::mem::take(&mut region.compaction.current);
                region.queue.waiting.push_back(ManifestJob::Compact { edit, waiters });
                self.pump_manifest(shared);
            }
            Err(e) => {
                tracing::warn!(region = %shared.id, error = %chain(&e), attempt = region.compaction.attempt, "compaction failed, its inputs stay");
                region.compaction.attempt += 1;
                let wait = Context::backoff(config.backoff_min, config.backoff_max, region.compaction.attempt - 1);
                region.compaction.not_before_ms = now + wait.as_millis() as u64;
                region.compaction.running = false;
                let text = chain(&e);
                let waiters = std::mem::take(&mut region.compaction.current);
                for reply in waiters {
                    answer(
                        reply,
                        Err(StorageError::WrongState {
                            region: shared.id,
                            state: "compaction_failed",
                            reason: text.clone(),
                        }),
                    );
                }
                self.ctx.metrics.compaction_total.with_label_values(&["failed"]).inc();
            }
        }
    }

    pub(super) fn compaction_committed(&mut self, shared: &Arc<RegionShared>, waiters: Vec<Reply<()>>) {
        self.ctx.metrics.compaction_total.with_label_values(&["ok"]).inc();
        if let Some(region) = self.regions.get_mut(&shared.id) {
            region.compaction.running = false;
            region.publish();
        }
        waiters.into_iter().for_each(|reply| answer(reply, Ok(())));
        self.ctx.buffer.notify();
        self.compact_if_due(shared);
    }
}

async fn run(
    ctx: &Context,
    region: &RegionShared,
    inputs: &[Arc<FileEntry>],
    keep: &crate::compaction::KeepRule,
) -> Result<Vec<FileEntry>, StorageError> {
    let _permit =
        ctx.compaction_permits.acquire().await.map_err(|_| StorageError::Stopped { what: "storage engine" })?;
    let started = ctx.clock.now_ms();
    let options = ctx.compaction_options(region.layout.is_keyed(), region.leader_epoch);
    let files = rewrite(&ctx.bucket, &ctx.reader, &region.layout, region.id, inputs, keep, &options).await?;
    ctx.metrics.compaction_seconds.observe(ctx.clock.now_ms().saturating_sub(started) as f64 / 1000.0);
    ctx.metrics.compaction_bytes.with_label_values(&["in"]).inc_by(inputs.iter().map(|f| f.size).sum());
    ctx.metrics.compaction_bytes.with_label_values(&["out"]).inc_by(files.iter().map(|f| f.size).sum());
    Ok(files)
}
