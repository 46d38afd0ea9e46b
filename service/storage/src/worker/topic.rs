//! Topic-fed regions: starting the tail, positions out of range, lost ranges, urgent flushes.

use std::sync::Arc;

use millstream_types::Seq;

use super::{RegionWorkerLoop, manifest_queue::ManifestJob};
use crate::{api::OnDataLoss, manifest::Gap, region::RegionShared, wal::topic};

/// Jumps to a moving log start before a margin is added.
const JUMPS: u32 = 5;
/// Records skipped beyond a log start that keeps moving.
const MARGIN: i64 = 1000;

impl RegionWorkerLoop {
    /// Reads the topic from `applied` on; a tail that runs ends first.
    pub(super) fn start_tail(&mut self, shared: &Arc<RegionShared>) {
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| r.state.is_live()) else { return };
        let Some(partition) = region.topic() else { return };
        if let Some(old) = region.tail.take() {
            old.cancel();
        }
        region.tail = Some(topic::spawn(&self.ctx, shared, partition, region.applied));
    }

    /// The tail has ended at `wanted` with all its rows applied, or the guard found the log shorter than what is applied.
    pub(super) fn handle_out_of_range(&mut self, shared: &Arc<RegionShared>, wanted: Seq, start: Seq, end: Seq) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.current(shared).filter(|r| r.state.is_live() && !r.jumping) else { return };
        if end < region.applied {
            let reason = format!(
                "log_truncated: the topic ends at {end}, rows up to {} were read: drop the table and create it again, or restore the topic",
                region.applied
            );
            return self.handle_quarantine(shared, reason, None);
        }
        if start <= region.applied {
            return self.start_tail(shared);
        }
        let from = region.applied.max(wanted.min(start));
        region.jumps += 1;
        let to = if region.jumps > JUMPS { Seq((start.0 + MARGIN).min(end.0)) } else { start };
        let go_on = region.shared.on_data_loss == OnDataLoss::Continue;
        if let Some(tail) = region.tail.take() {
            tail.cancel();
        }
        let policy = if go_on { "continue" } else { "fail" };
        tracing::error!(region = %shared.id, table = %shared.table_name, from = from.0, to = to.0, policy, "retention removed records before they were read");
        let known = region.manifest.gaps.iter().any(|g| g.from == from && g.to == to && g.policy == policy);
        // What was read before the gap exists nowhere else any more.
        self.freeze(shared, "retention");
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        region.jumping = true;
        if known {
            return self.gap_recorded(shared, from, to, go_on);
        }
        self.ctx.metrics.wal_gap_records.inc_by((to.0 - from.0).max(0) as u64);
        let gap = Gap { from, to, kind: "retention".to_owned(), policy: policy.to_owned(), at_ms: now };
        region.queue.waiting.push_front(ManifestJob::Gap { gap, go_on });
        self.pump_manifest(shared);
    }

    /// The lost range is in the manifest: now the policy.
    pub(super) fn gap_recorded(&mut self, shared: &Arc<RegionShared>, from: Seq, to: Seq, go_on: bool) {
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        region.jumping = false;
        if go_on {
            region.applied = region.applied.max(to);
            region.dirty = true;
            if region.replay_to.is_some_and(|goal| region.applied >= goal) {
                region.replay_to = None;
                region.event(crate::region::state::Event::Replayed);
            }
            return self.start_tail(shared);
        }
        let reason = format!(
            "data_loss: records [{from}, {to}) were removed by retention before they were read: \
             drop table {} and create it again, with on_data_loss = 'continue' if it shall go on after a loss",
            shared.table_name
        );
        self.handle_quarantine(shared, reason, Some((from, to)));
    }

    pub(super) fn handle_flush_urgently(&mut self, shared: &Arc<RegionShared>, headroom_ms: u64) {
        if self.is_current(shared) {
            tracing::error!(region = %shared.id, table = %shared.table_name, headroom_ms, "retention will soon remove records that are not flushed, flushing now");
            self.freeze(shared, "retention");
        }
    }
}
