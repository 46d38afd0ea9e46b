//! Memtables become SSTs: freeze, upload in the background, commit in freeze order.

use std::sync::Arc;

use millstream_types::{RegionId, Seq, error::chain};

use super::{
    OpenRegion, RegionWorkerLoop,
    insert::answer,
    region::{FlushStep, Frozen},
};
use crate::{
    StorageError, WalBinding,
    compaction::KeepRule,
    context::Context,
    listener::Point,
    manifest::FileEntry,
    region::RegionShared,
    request::{Notice, Reply},
    sst::write_runs,
    wal::guard::recreated,
};

impl RegionWorkerLoop {
    /// Manual flush: answered when everything applied now is listed in the manifest.
    pub(super) fn handle_flush(&mut self, id: RegionId, reply: Reply<Seq>) {
        let Some(region) = self.regions.get_mut(&id) else {
            return answer(reply, Err(StorageError::RegionNotFound { region: id }));
        };
        if !region.state.is_live() {
            let error = region.refusal();
            return answer(reply, Err(error));
        }
        let goal = region.applied;
        if region.manifest.flushed >= goal {
            let flushed = region.manifest.flushed;
            return answer(reply, Ok(flushed));
        }
        region.flush_waiters.push((goal, reply));
        let shared = region.shared.clone();
        self.freeze(&shared, "manual");
        self.retry_failed_uploads(&shared);
    }

    /// Seals the mutable memtable at `applied` and starts its upload. Lies between two requests, and a checkpoint is one request, so it splits none.
    pub(super) fn freeze(&mut self, shared: &Arc<RegionShared>, reason: &'static str) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| r.may_flush()) else { return };
        if region.applied <= region.frozen_to {
            return;
        }
        let bytes = std::mem::take(&mut region.mutable_bytes);
        let frozen = Frozen {
            id: region.next_frozen,
            runs: region.memtable.take(),
            from: region.frozen_to,
            end: region.applied,
            bytes,
            at_ms: now,
            step: FlushStep::Uploading,
        };
        tracing::debug!(region = %shared.id, reason, from = frozen.from.0, end = frozen.end.0, bytes, "froze a memtable");
        region.next_frozen += 1;
        region.frozen_to = frozen.end;
        region.oldest_row_ms = None;
        region.frozen_record_ms = region.frozen_record_ms.or(region.oldest_record_ms.take());
        region.last_position_ms = now;
        region.dirty = true;
        self.ctx.buffer.freeze(bytes);
        let task = FlushTask::new(&self.ctx, region, &frozen, now);
        region.frozen.push_back(frozen);
        self.listener_reached(Point::Frozen, shared);
        task.start();
    }

    pub(super) fn freeze_if_full(&mut self, shared: &Arc<RegionShared>) {
        let full = self.regions.get(&shared.id).is_some_and(|r| r.mutable_bytes >= self.ctx.config.region_buffer_bytes);
        if full {
            self.freeze(shared, "region_full");
        }
    }

    /// The process is full: the biggest memtable of all workers goes first; its worker is the one that finds it to be the biggest.
    pub(super) fn flush_on_engine_full(&mut self) {
        loop {
            let biggest = self.regions.values().filter(|r| r.state.is_live()).max_by_key(|r| r.mutable_bytes);
            let bytes = biggest.map_or(0, |r| r.mutable_bytes);
            let first = self.ctx.buffer.is_biggest(self.number, bytes);
            let Some(shared) = biggest.filter(|_| first).map(|r| r.shared.clone()) else { return };
            if !self.ctx.buffer.engine_full() {
                return;
            }
            self.freeze(&shared, "engine_full");
            if self.regions.get(&shared.id).is_some_and(|r| r.mutable_bytes >= bytes) {
                return;
            }
            // Another worker may have the biggest one now.
            self.ctx.buffer.notify();
        }
    }

    pub(super) fn handle_uploaded(
        &mut self,
        shared: &Arc<RegionShared>,
        id: u64,
        result: Result<Vec<FileEntry>, StorageError>,
        history_from: Option<Seq>,
    ) {
        let Some(region) = self.current(shared) else { return };
        let Some(frozen) = region.frozen.iter_mut().find(|f| f.id == id) else { return };
        match result {
            Ok(files) => {
                let bytes: u64 = files.iter().map(|f| f.size).sum();
                frozen.step = FlushStep::Uploaded { files, history_from };
                region.flush_attempt = 0;
                self.ctx.metrics.flush_bytes.inc_by(bytes);
                self.pump_manifest(shared);
            }
            Err(e) => {
                frozen.step = FlushStep::Failed;
                region.flush_attempt += 1;
                let attempt = region.flush_attempt;
                tracing::warn!(region = %shared.id, attempt, error = %chain(&e), "flush failed, the memtable stays");
                let text = chain(&e);
                for (_, reply) in std::mem::take(&mut region.flush_waiters) {
                    answer(
                        reply,
                        Err(StorageError::WrongState {
                            region: shared.id,
                            state: "flush_failed",
                            reason: text.clone(),
                        }),
                    );
                }
                self.ctx.metrics.flush_total.with_label_values(&["failed"]).inc();
                self.ctx.buffer.notify();
                self.after_backoff(shared, attempt, |region| Notice::RetryUploads { region });
            }
        }
    }

    pub(super) fn handle_retry_uploads(&mut self, shared: &Arc<RegionShared>) {
        if self.is_current(shared) {
            self.retry_failed_uploads(shared);
        }
    }

    fn retry_failed_uploads(&mut self, shared: &Arc<RegionShared>) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| r.may_flush()) else { return };
        let mut tasks = Vec::new();
        for i in 0..region.frozen.len() {
            if matches!(region.frozen[i].step, FlushStep::Failed) {
                region.frozen[i].step = FlushStep::Uploading;
                tasks.push(FlushTask::new(&self.ctx, region, &region.frozen[i], now));
            }
        }
        tasks.into_iter().for_each(FlushTask::start);
    }

    pub(super) fn handle_retry_manifest(&mut self, shared: &Arc<RegionShared>) {
        if let Some(region) = self.current(shared) {
            region.queue.backing_off = false;
            self.pump_manifest(shared);
        }
    }

    /// The manifest lists the files of the oldest frozen memtable: its runs leave the version with the next publication.
    pub(super) fn flush_committed(&mut self, shared: &Arc<RegionShared>, id: u64) {
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        let Some(frozen) = region.frozen.pop_front_if(|f| f.id == id) else { return };
        if region.frozen.is_empty() {
            region.frozen_record_ms = None;
        }
        let flushed = region.manifest.flushed;
        let mut answered = Vec::new();
        let waiters = std::mem::take(&mut region.flush_waiters);
        for (goal, reply) in waiters {
            if goal <= flushed { answered.push(reply) } else { region.flush_waiters.push((goal, reply)) }
        }
        region.publish();
        // Readers that took a version before may still hold the runs; they are charged until those are dropped.
        let held: Vec<_> = frozen.runs.iter().map(|r| (Arc::downgrade(r), r.bytes)).collect();
        let bytes = frozen.bytes;
        drop(frozen);
        let held: Vec<_> = held.into_iter().filter(|(run, _)| run.strong_count() > 0).collect();
        self.ctx.buffer.flushed(bytes, held.iter().map(|(_, b)| b).sum());
        self.held.extend(held);
        self.ctx.metrics.flush_total.with_label_values(&["ok"]).inc();
        for reply in answered {
            answer(reply, Ok(flushed));
        }
        self.compact_if_due(shared);
    }
}

/// Everything that one upload needs.
struct FlushTask {
    ctx: Arc<Context>,
    region: Arc<RegionShared>,
    frozen: u64,
    runs: Arc<[Arc<crate::memtable::Run>]>,
    range: (Seq, Seq),
    keep: KeepRule,
    history_from: Option<Seq>,
}

impl FlushTask {
    fn new(ctx: &Arc<Context>, region: &OpenRegion, frozen: &Frozen, now_ms: u64) -> Self {
        // What is below the oldest SST may go for good: there is nothing older that a delete would have to hide.
        let bottom =
            region.manifest.files.is_empty() && region.frozen.front().is_none_or(|first| first.id == frozen.id);
        let (keep, history_from) = keep_rule(ctx, region, now_ms, bottom);
        Self {
            ctx: ctx.clone(),
            region: region.shared.clone(),
            frozen: frozen.id,
            runs: frozen.runs.clone(),
            range: (frozen.from, frozen.end),
            keep,
            history_from,
        }
    }

    fn start(self) {
        let runner = self.ctx.runner.clone();
        let watched = self.region.clone();
        let id = self.frozen;
        let task = runner.compute("flush", async move {
            let result = self.upload().await;
            let history_from = self.history_from;
            let notice = Notice::Uploaded { region: self.region.clone(), frozen: self.frozen, result, history_from };
            drop(self.runs);
            self.region.worker.notice(notice).await;
        });
        runner.io("watch of a flush", async move {
            if matches!(task.await, Ok(None)) {
                let result = Err(StorageError::Internal { what: "flush panicked".to_owned(), source: None });
                watched
                    .worker
                    .notice(Notice::Uploaded { region: watched.clone(), frozen: id, result, history_from: None })
                    .await;
            }
        });
    }

    async fn upload(&self) -> Result<Vec<FileEntry>, StorageError> {
        if self.runs.is_empty() {
            return Ok(Vec::new());
        }
        let _permit =
            self.ctx.flush_permits.acquire().await.map_err(|_| StorageError::Stopped { what: "storage engine" })?;
        self.ctx.at(Point::FlushStart, self.region.id).await;
        self.check_topic().await?;
        let started = self.ctx.clock.now_ms();
        let layout = &self.region.layout;
        let options = self.ctx.flush_options(layout.is_keyed(), self.region.leader_epoch);
        let files =
            write_runs(&self.ctx.bucket, layout, self.region.id, &self.runs, &self.keep, self.range, &options).await?;
        self.ctx.metrics.flush_seconds.observe(self.ctx.clock.now_ms().saturating_sub(started) as f64 / 1000.0);
        self.ctx.at(Point::SstUploaded, self.region.id).await;
        Ok(files)
    }

    /// Asked after the last record was read, so that no SST mixes two topics of one name. A topic that is gone takes nothing away from its rows.
    async fn check_topic(&self) -> Result<(), StorageError> {
        let WalBinding::Topic { partition, topic_id, .. } = &self.region.wal else { return Ok(()) };
        let info = self.ctx.logs.admin().describe(&partition.topic).await?;
        match info.and_then(|info| recreated(partition, topic_id, &info)) {
            None => Ok(()),
            Some(reason) => {
                let notice = Notice::Quarantine { region: self.region.clone(), reason: reason.clone() };
                self.region.worker.notice(notice).await;
                Err(StorageError::WrongState { region: self.region.id, state: "quarantined", reason })
            }
        }
    }
}

/// What flush and compaction must keep now, and the history that is whole afterwards. Append regions keep every row.
pub(super) fn keep_rule(ctx: &Context, region: &OpenRegion, now_ms: u64, bottom: bool) -> (KeepRule, Option<Seq>) {
    if !region.shared.layout.is_keyed() {
        return (KeepRule::everything(), None);
    }
    let horizon = region.horizon(now_ms, ctx.config.pins.grace.as_millis() as u64);
    let (exact, floor) = ctx.pins.of_region(region.shared.id);
    let all_from = floor.map_or(horizon, |f| f.min(horizon));
    (KeepRule { all_from, exact, bottom }, Some(horizon))
}
