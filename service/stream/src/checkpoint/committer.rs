//! Commits the epochs of one job, strictly in order, one transaction each.
//!
//! ```text
//! commit(e)   light (no rows, nothing to store): publish
//!             else  begin, send rows, records, progress, end of epoch, commit
//!                   Committed  apply to regions, move pins, publish
//!                   Aborted    nothing is visible: back off, the same rows again; if they are refused for what they are (record too large), stop for good
//!                   Unknown    resolve: new producer (init), replay to the captured end, the progress row decides
//!                   Fenced     stop; nothing was written
//! ```
//! The loop is a task of its own (on the compute runtime, since it encodes) behind a bounded channel: the job works on the next epochs meanwhile, and a full channel is what holds it back. The rows
//! of an epoch are kept until its outcome is known. Not here: what is in an epoch (`executor`), when a job is tried again (`job/supervision`).

use std::sync::Arc;

use millstream_storage::{Region, StorageError, wal::EpochBatch};
use millstream_types::{Chunk, CommitOutcome, Epoch, EpochWriter, ErrorKind, LogError, OutBatch, Seq, error::chain};
use tokio::sync::mpsc;

use super::{
    oversize,
    pins::PinKeeper,
    progress_row::{self, Progress},
    recovery,
};
use crate::{
    BackfillStatus, CheckpointStatus, JobState, Reason, StreamError,
    executor::{backfill::progress::RegionProgress, pipeline::EpochRows},
    job::{service::Context, shared::JobShared},
    metrics::JobMetrics,
    plan::JobPlan,
};

/// One aborted try is noise, so many in a row are shown.
const TRIES_UNTIL_DEGRADED: u32 = 3;

/// A collected epoch.
#[derive(Debug)]
pub(crate) struct EpochOutput {
    pub(crate) epoch: Epoch,
    pub(crate) rows: EpochRows,
    pub(crate) progress: Vec<RegionProgress>,
    pub(crate) cuts: Vec<Seq>,
    pub(crate) backfills: Vec<BackfillStatus>,
    /// Something in the progress must be durable now.
    pub(crate) milestone: bool,
    pub(crate) paused: bool,
    /// What is wrong with an input, if anything.
    pub(crate) degraded: Option<Reason>,
    pub(crate) collect_ms: u64,
}

pub(crate) struct Committer {
    pub(crate) ctx: Arc<Context>,
    pub(crate) plan: Arc<JobPlan>,
    pub(crate) shared: Arc<JobShared>,
    pub(crate) metrics: JobMetrics,
    pub(crate) writer: Box<dyn EpochWriter>,
    /// The regions of the job: progress, state, view, as in [`JobPlan::own_regions`].
    pub(crate) regions: Vec<Arc<dyn Region>>,
    pub(crate) pins: PinKeeper,
    pub(crate) starts: u64,
    /// Positions as they are stored, and when that was.
    pub(crate) stored: Vec<RegionProgress>,
    pub(crate) stored_ms: u64,
    /// Offset behind the last WAL record of this job: the next ones lie at or after it.
    pub(crate) wal_end: i64,
}

/// Times and sizes of one commit, for status and metrics.
#[derive(Debug, Default)]
struct Cost {
    commit_ms: u64,
    apply_ms: u64,
    bytes: u64,
    records: u64,
}

impl Committer {
    /// Ends when the channel is closed and empty, or with the error that stops the job.
    pub(crate) async fn run(mut self, mut epochs: mpsc::Receiver<EpochOutput>) -> Result<(), StreamError> {
        while let Some(mut e) = epochs.recv().await {
            self.metrics.in_flight.set(epochs.len() as i64 + 1);
            let age = self.ctx.clock.now_ms().saturating_sub(e.epoch.0);
            self.metrics.oldest_epoch_age.set(age as f64 / 1000.0);
            if self.is_light(&e) {
                self.publish(e, "light", Cost::default());
            } else {
                let cost = self.commit(&mut e).await?;
                self.stored = e.progress.clone();
                self.shared.keep_progress(e.progress.clone());
                self.stored_ms = self.ctx.clock.now_ms();
                self.pins.committed(&e.progress, &e.cuts, self.stored_ms).await;
                self.publish(e, "ok", cost);
            }
            self.metrics.in_flight.set(epochs.len() as i64);
        }
        Ok(())
    }

    /// Nothing to write, and the positions may be stored later: what was read since then led to no row, so reading it again leads to none.
    fn is_light(&self, e: &EpochOutput) -> bool {
        let moved = e.progress != self.stored;
        let due = self.ctx.clock.now_ms() >= self.stored_ms + self.ctx.config.idle_checkpoint.as_millis() as u64;
        e.rows.is_empty() && !e.milestone && !(moved && due)
    }

    async fn commit(&mut self, e: &mut EpochOutput) -> Result<Cost, StreamError> {
        let started = self.ctx.clock.now_ms();
        let mut batch = self.encode(e).inspect_err(|_| self.release())?;
        let mut batches = vec![batch.take_out_batch()];
        batches.extend(e.rows.derived.take());
        let records = batches.get(1).map_or(0, OutBatch::len) as u64;
        let bytes = batches.iter().map(|b| b.size_bytes() as u64).sum();
        self.metrics.checkpoint_bytes.inc_by(bytes);
        let mut backoff = self.ctx.config.commit_backoff_min;
        let mut tries = 0;
        loop {
            match self.send(&batches).await {
                CommitOutcome::Committed { offsets } => {
                    let committed = self.ctx.clock.now_ms();
                    let wal = offsets.first().map_or(&[][..], Vec::as_slice);
                    self.check_wal(wal)?;
                    batch.apply(self.ctx.storage.as_ref(), wal).await?;
                    let apply_ms = self.ctx.clock.now_ms().saturating_sub(committed);
                    return Ok(Cost { commit_ms: committed.saturating_sub(started), apply_ms, bytes, records });
                }
                CommitOutcome::Aborted(error) => {
                    self.note("aborted", e.epoch, &error);
                    if error.kind == ErrorKind::Invalid {
                        self.release();
                        return Err(oversize::rejected(self.plan.job, &batches, error));
                    }
                    tries += 1;
                    if tries >= TRIES_UNTIL_DEGRADED {
                        let reason = Reason { code: "output_blocked".into(), message: chain(&error) };
                        self.shared.set_state(JobState::Degraded, Some(reason));
                    }
                    self.ctx.clock.sleep(backoff).await;
                    backoff = (backoff * 2).min(self.ctx.config.commit_backoff_max);
                }
                CommitOutcome::Fenced(error) => {
                    self.note("fenced", e.epoch, &error);
                    let transactional_id = self.writer.transactional_id().to_owned();
                    return Err(StreamError::Fenced { job: self.plan.job, transactional_id, source: Some(error) });
                }
                CommitOutcome::Unknown(error) => {
                    self.note("unknown", e.epoch, &error);
                    if self.is_committed(e.epoch).await? {
                        let commit_ms = self.ctx.clock.now_ms().saturating_sub(started);
                        return Ok(Cost { commit_ms, apply_ms: 0, bytes, records });
                    }
                }
            }
        }
    }

    /// A log that was made again while the job runs gives offsets that its regions have already: its rows would count as applied.
    fn check_wal(&mut self, offsets: &[i64]) -> Result<(), StreamError> {
        if let Some(at) = offsets.iter().find(|o| **o < self.wal_end) {
            let partition = format!("{}-{}", self.ctx.wal_topic, self.plan.shard.0);
            let what = format!(
                "offset {at} was written after offset {}: the topic was deleted and created again, or is that of another cluster",
                self.wal_end - 1
            );
            return Err(StorageError::corrupt(partition, what).into());
        }
        self.wal_end = offsets.iter().max().map_or(self.wal_end, |o| o + 1);
        Ok(())
    }

    fn encode(&self, e: &EpochOutput) -> Result<EpochBatch, StreamError> {
        let plan = &self.plan;
        let topic = Arc::clone(&self.ctx.wal_topic);
        let batch = EpochBatch::new(topic, plan.shard, plan.job, e.epoch, e.epoch.0 as i64);
        let mut batch = batch.with_limits(self.ctx.config.wal);
        let region = |id| {
            self.regions
                .iter()
                .find(|r| r.id() == id)
                .ok_or(StreamError::Plan { job: plan.job, what: format!("region {id} is not one of the job's") })
        };
        for w in &e.rows.state {
            self.add(&mut batch, region(w.region)?.as_ref(), &w.chunk, "the state of")?;
        }
        if let Some(view) = &plan.output.view {
            let view = region(view.region.id)?;
            for c in &e.rows.view {
                self.add(&mut batch, view.as_ref(), c, "view")?;
            }
        }
        let progress =
            Progress { epoch: e.epoch, starts: self.starts, plan_hash: plan.plan_hash, regions: e.progress.clone() };
        let (rows, ops) = progress_row::encode(plan.input.input, &progress)?;
        batch.add(region(plan.progress.id)?.as_ref(), rows, ops)?;
        let derived = e.rows.derived.as_ref().map_or(0, OutBatch::len);
        let payload = serde_json::json!({ "epoch": e.epoch.0, "derived_records": derived });
        batch.end(payload.to_string().as_bytes());
        Ok(batch)
    }

    fn add(
        &self,
        batch: &mut EpochBatch,
        region: &dyn Region,
        chunk: &Chunk,
        what: &'static str,
    ) -> Result<(), StreamError> {
        let added = batch.add(region, chunk.rows.clone(), chunk.ops.clone());
        added.map_err(|e| match e {
            StorageError::RowTooLarge { row, bytes, limit, .. } => StreamError::RowTooLarge {
                job: self.plan.job,
                of: format!("{what} {}", self.plan.name),
                key: oversize::key_text(&region.schema(), &chunk.rows, row),
                bytes,
                limit,
            },
            other => other.into(),
        })
    }

    /// Nothing of the epoch was written and nothing more will be: the WAL need not be kept for it.
    fn release(&self) {
        for region in &self.regions {
            region.release_wal(self.plan.job, Epoch(u64::MAX), Seq::ZERO);
        }
    }

    /// One try. A call that takes long makes the job `degraded`, but goes on: it is never cut.
    async fn send(&mut self, batches: &[OutBatch]) -> CommitOutcome {
        let (clock, shared) = (Arc::clone(&self.ctx.clock), Arc::clone(&self.shared));
        let timeout = self.ctx.config.commit_timeout;
        let alarm = async move {
            clock.sleep(timeout).await;
            let message = format!("the commit of an epoch takes longer than {} ms", timeout.as_millis());
            tracing::warn!(job = %shared.job(), %message, "output blocked");
            shared.set_state(JobState::Degraded, Some(Reason { code: "output_blocked".into(), message }));
            std::future::pending::<()>().await;
        };
        let commit = self.writer.commit(batches);
        tokio::select! {
            outcome = commit => outcome,
            () = alarm => CommitOutcome::Unknown(LogError::new(ErrorKind::Internal, "the alarm never ends")),
        }
    }

    /// resolve(e): after it, the progress row says whether `epoch` exists; if it does, its rows are applied.
    async fn is_committed(&mut self, epoch: Epoch) -> Result<bool, StreamError> {
        recovery::init(&self.ctx, &self.shared, self.writer.as_mut()).await?;
        let progress = &self.regions[0];
        let found = recovery::read_back(&self.ctx, &self.shared, &self.plan, progress.as_ref()).await?.epoch;
        tracing::info!(job = %self.plan.job, %epoch, %found, "unknown commit resolved");
        if found > epoch {
            return Err(StreamError::Overtaken { job: self.plan.job, found, ours: epoch });
        }
        Ok(found == epoch)
    }

    fn note(&self, outcome: &'static str, epoch: Epoch, error: &LogError) {
        self.ctx.metrics.checkpoints.with_label_values(&[&self.metrics.name, outcome]).inc();
        let message = chain(error);
        tracing::warn!(job = %self.plan.job, %epoch, outcome, error = %message, "commit did not succeed");
        let last = Reason { code: format!("commit_{outcome}"), message };
        self.shared.update(|s| s.last_error = Some(last));
    }

    fn publish(&mut self, e: EpochOutput, outcome: &'static str, cost: Cost) {
        self.shared.set_applied(e.epoch);
        self.ctx.metrics.checkpoints.with_label_values(&[&self.metrics.name, outcome]).inc();
        if outcome == "ok" {
            let seconds = &self.ctx.metrics.checkpoint_seconds;
            for (kind, ms) in [("collect", e.collect_ms), ("commit", cost.commit_ms), ("apply", cost.apply_ms)] {
                seconds.with_label_values(&[self.metrics.name.as_str(), kind]).observe(ms as f64 / 1000.0);
            }
            self.shared.add_checkpoint(CheckpointStatus {
                epoch: e.epoch,
                outcome,
                collect_ms: e.collect_ms,
                commit_ms: cost.commit_ms,
                apply_ms: cost.apply_ms,
                view_rows: e.rows.view.iter().map(|c| c.len() as u64).sum(),
                state_rows: e.rows.state.iter().map(|w| w.chunk.len() as u64).sum(),
                derived_records: cost.records,
                bytes: cost.bytes,
            });
        }
        let finished = e.progress.iter().map(|p| p.finish_epoch).collect::<Option<Vec<_>>>();
        let finish_epoch = finished.map(|all| all.into_iter().max().unwrap_or(e.epoch));
        let (state, reason) = state_of(&e, finish_epoch.is_some());
        let was = self.shared.status();
        if was.finish_epoch.is_none() && finish_epoch.is_some() {
            tracing::info!(job = %self.plan.job, name = %self.plan.name, epoch = %e.epoch, "backfill finished");
        }
        let held = |kind| i64::from(e.backfills.iter().any(|b| b.paused.contains(&kind)));
        for kind in ["user", "limit", "budget"] {
            self.ctx.metrics.backfill_paused.with_label_values(&[self.metrics.name.as_str(), kind]).set(held(kind));
        }
        let positions = e.progress.iter().map(|p| (p.region, p.position.complete())).collect();
        self.shared.update(move |s| {
            s.committed_epoch = e.epoch;
            s.positions = positions;
            s.backfills = e.backfills;
            s.state = state;
            s.reason = reason;
            s.finish_epoch = finish_epoch;
        });
    }
}

/// The state that a published epoch shows.
fn state_of(e: &EpochOutput, finished: bool) -> (JobState, Option<Reason>) {
    if e.paused {
        return (JobState::Paused, Some(Reason { code: "user".into(), message: "paused by the user".into() }));
    }
    if let Some(reason) = &e.degraded {
        return (JobState::Degraded, Some(reason.clone()));
    }
    if !finished {
        return (JobState::Backfilling, None);
    }
    let behind = e.backfills.iter().any(|b| b.state != "finished");
    let catching_up = || Reason {
        code: "catching_up".into(),
        message: "the input has moved on, a pass over the changes is under way".into(),
    };
    (JobState::Running, behind.then(catching_up))
}
