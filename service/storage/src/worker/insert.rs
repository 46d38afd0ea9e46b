//! Committed rows enter a memtable: from a topic, a checkpoint, a replay, or the appender.

use std::sync::Arc;

use super::{Answer, OpenRegion, RegionWorkerLoop, region::Parked};
use crate::{
    StorageError,
    listener::Point,
    memtable::{Run, merge_runs},
    region::{RegionShared, state::Event},
    request::{Insert, Inserted, Notice, Request, Source},
};

impl RegionWorkerLoop {
    /// Takes the rows now, or parks them behind what waits already. Committed rows are never rejected.
    pub(super) fn handle_insert(&mut self, insert: Insert) {
        let stalled = self.ctx.buffer.stalled();
        let Some(region) = self.regions.get_mut(&insert.region.id).filter(|r| Arc::ptr_eq(&r.shared, &insert.region))
        else {
            return refuse(insert, None);
        };
        if !region.state.is_live() {
            return refuse(insert, Some(region.refusal()));
        }
        let waits =
            insert.source != Source::Append && (!region.parked.is_empty() || stalled || must_wait(region, &self.ctx));
        if waits && insert.run.is_some() {
            self.park(Request::Insert(insert), None);
        } else if waits && !region.parked.is_empty() {
            // A position must not overtake rows.
            self.park(Request::Insert(insert), None);
        } else {
            self.insert_now(insert);
        }
    }

    pub(super) fn park(&mut self, request: Request, deadline_ms: Option<u64>) {
        let (id, bytes) = match &request {
            Request::Insert(i) => (i.region.id, i.bytes()),
            Request::Write(w) => (w.region.id, w.bytes),
            Request::Flush { region, .. } | Request::Compact { region, .. } => (*region, 0),
        };
        let Some(region) = self.regions.get_mut(&id) else { return };
        region.parked_bytes += bytes;
        region.parked.push_back(Parked { request, bytes, deadline_ms });
        self.ctx.buffer.park(bytes);
        self.ctx.listener.reached(Point::WriteParked, id);
    }

    pub(super) fn insert_now(&mut self, insert: Insert) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.regions.get_mut(&insert.region.id) else { return refuse(insert, None) };
        if let Some(run) = &insert.run
            && run.end > region.applied
            && run.from < region.applied
        {
            let applied = region.applied;
            return match insert.reply {
                Some(reply) => answer(reply, Ok(Inserted::Overlaps(applied))),
                // A tail reads on from `applied`, so an overlap is one that was started before a jump.
                None => tracing::debug!(region = %region.shared.id, "rows of an earlier tail dropped"),
            };
        }
        if insert.applied > region.applied || insert.run.as_ref().is_some_and(|r| r.end > region.applied) {
            if let Some(run) = insert.run.filter(|r| !r.is_empty() && r.end > region.applied) {
                self.ctx.metrics.write_rows.with_label_values(&[&region.shared.table_name]).inc_by(run.len() as u64);
                self.ctx.metrics.write_bytes.inc_by(run.bytes as u64);
                if let Err(e) = push(region, run, &self.ctx.buffer) {
                    let reason = format!("memtable: {}", millstream_types::error::chain(&e));
                    let shared = region.shared.clone();
                    return self.handle_quarantine(&shared, reason, None);
                }
                region.oldest_row_ms = region.oldest_row_ms.or(Some(now));
                region.oldest_record_ms = region.oldest_record_ms.or(insert.oldest_record_ms);
            }
            region.applied = region.applied.max(insert.applied);
            region.dirty = true;
            region.jumps = 0;
            if region.replay_to.is_some_and(|to| region.applied >= to) {
                region.replay_to = None;
                region.event(Event::Replayed);
            }
        }
        if let Some(reply) = insert.reply {
            self.answers.push(Answer::Inserted(reply));
        }
        let shared = insert.region;
        self.listener_reached(Point::Applied, &shared);
        self.freeze_if_full(&shared);
        self.merge_if_many(&shared);
    }

    /// Joins runs of similar size on the compute runtime, so that a scan has few of them to merge.
    fn merge_if_many(&mut self, shared: &Arc<RegionShared>) {
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| !r.merging) else { return };
        let Some(inputs) = region.memtable.merge_plan() else { return };
        region.merging = true;
        let shared = shared.clone();
        self.ctx.runner.compute("memtable merge", async move {
            let result = merge_runs(&shared.layout, &inputs).map(Arc::new);
            shared.worker.notice(Notice::Merged { region: shared.clone(), inputs, result }).await;
        });
    }

    pub(super) fn handle_merged(
        &mut self,
        shared: &Arc<RegionShared>,
        inputs: &[Arc<Run>],
        result: Result<Arc<Run>, StorageError>,
    ) {
        let buffer = &self.ctx.buffer;
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| Arc::ptr_eq(&r.shared, shared)) else { return };
        region.merging = false;
        match result {
            Ok(merged) => {
                if region.memtable.install(inputs, merged) {
                    recharge(region, buffer);
                    region.dirty = true;
                }
            }
            Err(e) => {
                tracing::error!(region = %shared.id, error = %millstream_types::error::chain(&e), "merge of memtable runs failed, they stay as they are")
            }
        }
    }

    /// What waited goes on, oldest first, as far as memory allows; client writes that waited too long are refused.
    pub(super) fn resume_parked(&mut self) {
        let waiting: Vec<_> =
            self.regions.values().filter(|r| !r.parked.is_empty()).map(|r| r.shared.clone()).collect();
        for shared in waiting {
            while self.resume_one(&shared) {}
            self.expire_parked(&shared);
        }
    }

    /// Takes the oldest parked request of a region if it can go on; whether to look at the next.
    fn resume_one(&mut self, shared: &Arc<RegionShared>) -> bool {
        let stalled = self.ctx.buffer.stalled();
        let Some(region) = self.regions.get_mut(&shared.id) else { return false };
        if region.state == crate::region::state::RegionState::Opening
            && matches!(region.parked.front(), Some(Parked { request: Request::Write(_), .. }))
        {
            return false;
        }
        if stalled || must_wait(region, &self.ctx) {
            return false;
        }
        let Some(parked) = region.parked.pop_front() else { return false };
        region.parked_bytes -= parked.bytes;
        self.ctx.buffer.unpark(parked.bytes);
        match parked.request {
            Request::Insert(insert) => self.insert_now(insert),
            Request::Write(write) => {
                if let Some(back) = self.hand_to_appender(write) {
                    self.park_in_front(shared, back, parked.deadline_ms);
                    return false;
                }
            }
            Request::Flush { region, reply } => self.handle_flush(region, reply),
            Request::Compact { region, reply } => self.handle_compact(region, reply),
        }
        true
    }
}

/// Whether rows for the region wait for its own flushes or compactions.
pub(super) fn must_wait(region: &OpenRegion, ctx: &crate::context::Context) -> bool {
    ctx.buffer.thresholds().region_stalls(region.memory_bytes(), region.frozen.len())
        || (ctx.config.compaction.automatic
            && region.compaction.running
            && region.sorted_runs() >= ctx.config.compaction.stall_runs)
}

fn push(
    region: &mut OpenRegion,
    run: Arc<Run>,
    buffer: &crate::memtable::write_buffer::WriteBuffer,
) -> Result<(), StorageError> {
    region.memtable.push(run)?;
    recharge(region, buffer);
    Ok(())
}

/// Charges what the memtable holds now.
fn recharge(region: &mut OpenRegion, buffer: &crate::memtable::write_buffer::WriteBuffer) {
    let bytes = region.memtable.bytes();
    buffer.resize(region.mutable_bytes, bytes);
    region.mutable_bytes = bytes;
}

/// Answers rows that the region cannot take; a topic's rows are read again when it opens.
pub(super) fn refuse(insert: Insert, error: Option<StorageError>) {
    if let Some(reply) = insert.reply {
        answer(reply, Err(error.unwrap_or(StorageError::RegionNotFound { region: insert.region.id })));
    }
}

pub(super) fn answer<T>(reply: crate::request::Reply<T>, with: Result<T, StorageError>) {
    if reply.send(with).is_err() {
        tracing::trace!("nobody waits for an answer any more");
    }
}
