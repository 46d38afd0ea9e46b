//! Regions come and go: install, replayed, remove, fence, quarantine.

use std::sync::Arc;

use millstream_types::{RegionId, Seq};
use tokio::sync::oneshot;

use super::{
    Answer, OpenRegion, RegionWorkerLoop,
    insert::{answer, refuse},
    manifest_queue::ManifestJob,
};
use crate::{
    StorageError,
    region::{RegionShared, state::Event},
    request::Request,
};

impl RegionWorkerLoop {
    /// A claimed region arrives; a topic starts to be read at once.
    pub(super) fn handle_install(&mut self, mut region: Box<OpenRegion>) {
        let shared = region.shared.clone();
        if region.replay_to.is_some_and(|to| region.applied >= to) {
            region.replay_to = None;
            region.event(Event::Replayed);
        }
        let now = self.ctx.clock.now_ms();
        region.note_time(now, 0, self.ctx.config.pins.grace.as_millis() as u64);
        if let Some(old) = self.regions.insert(shared.id, *region) {
            self.let_go(old, Event::Close);
        }
        self.start_tail(&shared);
    }

    pub(super) fn handle_replayed(&mut self, shared: &Arc<RegionShared>, applied: Seq) {
        let Some(region) = self.current(shared) else { return };
        region.applied = region.applied.max(applied);
        region.replay_to = None;
        region.event(Event::Replayed);
    }

    /// No flush: what is in memory is in the log.
    pub(super) fn handle_remove(&mut self, id: RegionId, event: Event, reply: oneshot::Sender<()>) {
        if let Some(region) = self.regions.remove(&id) {
            self.let_go(region, event);
        }
        self.answers.push(Answer::Removed(reply));
    }

    fn let_go(&mut self, mut region: OpenRegion, event: Event) {
        region.event(event);
        if let Some(tail) = region.tail.take() {
            tail.cancel();
        }
        self.refuse_waiting(&mut region);
        region.publish();
        self.ctx.buffer.dropped(region.mutable_bytes);
        for frozen in region.frozen.drain(..) {
            self.ctx.buffer.flushed(frozen.bytes, 0);
        }
    }

    /// A newer leader has the region: nothing is written any more, reads go on until it closes.
    pub(super) fn handle_fence(&mut self, shared: &Arc<RegionShared>) {
        if !self.is_current(shared) {
            return;
        }
        self.ctx.metrics.fenced.inc();
        self.stop(shared, Event::Fence, "a newer leader epoch exists".to_owned());
    }

    pub(super) fn handle_quarantine(
        &mut self,
        shared: &Arc<RegionShared>,
        reason: String,
        data_loss: Option<(Seq, Seq)>,
    ) {
        if !self.is_current(shared) {
            return;
        }
        tracing::error!(region = %shared.id, table = %shared.table_name, reason, "region quarantined");
        if let Some(region) = self.regions.get_mut(&shared.id) {
            region.data_loss = data_loss.or(region.data_loss);
        }
        self.stop(shared, Event::Quarantine, reason);
        self.pump_manifest(shared);
    }

    fn stop(&mut self, shared: &Arc<RegionShared>, event: Event, reason: String) {
        let Some(mut region) = self.regions.remove(&shared.id) else { return };
        region.reason.get_or_insert_with(|| reason.into());
        region.event(event);
        if let Some(tail) = region.tail.take() {
            tail.cancel();
        }
        self.refuse_waiting(&mut region);
        self.regions.insert(shared.id, region);
    }

    /// Everybody who waits for the region gets the error that its state means.
    fn refuse_waiting(&mut self, region: &mut OpenRegion) {
        for parked in std::mem::take(&mut region.parked) {
            self.ctx.buffer.unpark(parked.bytes);
            region.parked_bytes -= parked.bytes;
            match parked.request {
                Request::Insert(insert) => refuse(insert, Some(region.refusal())),
                Request::Write(write) => answer(write.reply, Err(region.refusal())),
                Request::Flush { reply, .. } => answer(reply, Err(region.refusal())),
                Request::Compact { reply, .. } => answer(reply, Err(region.refusal())),
            }
        }
        for (_, reply) in std::mem::take(&mut region.flush_waiters) {
            answer(reply, Err(region.refusal()));
        }
        let slot = &mut region.compaction;
        let mut waiters: Vec<_> = slot.current.drain(..).chain(slot.waiting.drain(..)).collect();
        for job in &mut region.queue.waiting {
            if let ManifestJob::Compact { waiters: more, .. } = job {
                waiters.append(more);
            }
        }
        for reply in waiters {
            let error: StorageError = region.refusal();
            answer(reply, Err(error));
        }
    }
}
