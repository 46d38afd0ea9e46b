//! Client writes: admitted, parked, refused, or handed to the shard's appender.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::mpsc::error::TrySendError;

use super::{RegionWorkerLoop, insert::answer, region::Parked};
use crate::{
    StorageError,
    memtable::write_buffer::Admission,
    region::{RegionShared, state::RegionState},
    request::{Request, WriteRequest},
};

impl RegionWorkerLoop {
    pub(super) fn handle_write(&mut self, write: WriteRequest) {
        let stalled = self.ctx.buffer.stalled();
        let usage = self.ctx.buffer.usage();
        let Some(region) = self.regions.get(&write.region.id).filter(|r| Arc::ptr_eq(&r.shared, &write.region)) else {
            let error = StorageError::RegionNotFound { region: write.region.id };
            return answer(write.reply, Err(error));
        };
        if !region.state.is_live() {
            let error = region.refusal();
            return answer(write.reply, Err(error));
        }
        let deadline = Some(self.ctx.clock.now_ms() + self.ctx.config.stall_wait.as_millis() as u64);
        if region.state == RegionState::Opening {
            return self.park(Request::Write(write), deadline);
        }
        let thresholds = self.ctx.buffer.thresholds();
        match thresholds.admit(
            &usage,
            stalled,
            region.memory_bytes(),
            region.parked_bytes,
            region.frozen.len(),
            write.bytes,
        ) {
            Admission::Reject => self.reject(write, "full"),
            Admission::Take if region.parked.is_empty() => {
                if let Some(back) = self.hand_to_appender(write) {
                    self.park(Request::Write(back), deadline);
                }
            }
            Admission::Take | Admission::Park => self.park(Request::Write(write), deadline),
        }
    }

    /// Gives a write to the appender; gives it back if the appender's queue is full.
    pub(super) fn hand_to_appender(&self, write: WriteRequest) -> Option<WriteRequest> {
        let handed_over = write.handed_over.clone();
        let shard = write.shard.clone();
        // Set before the send: a lost answer must never be taken for "not written".
        handed_over.store(true, Ordering::SeqCst);
        match shard.appender.try_send(write) {
            Ok(()) => None,
            Err(TrySendError::Full(back)) => {
                handed_over.store(false, Ordering::SeqCst);
                Some(back)
            }
            Err(TrySendError::Closed(back)) => {
                handed_over.store(false, Ordering::SeqCst);
                answer(back.reply, Err(StorageError::Stopped { what: "appender" }));
                None
            }
        }
    }

    pub(super) fn park_in_front(&mut self, shared: &Arc<RegionShared>, write: WriteRequest, deadline_ms: Option<u64>) {
        let bytes = write.bytes;
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        region.parked_bytes += bytes;
        region.parked.push_front(Parked { request: Request::Write(write), bytes, deadline_ms });
        self.ctx.buffer.park(bytes);
    }

    /// Refuses client writes that have waited their time; rows that are committed wait on.
    pub(super) fn expire_parked(&mut self, shared: &Arc<RegionShared>) {
        let now = self.ctx.clock.now_ms();
        let Some(region) = self.regions.get_mut(&shared.id) else { return };
        if !region.parked.iter().any(|p| p.deadline_ms.is_some_and(|d| d <= now)) {
            return;
        }
        let (late, rest): (Vec<_>, Vec<_>) =
            region.parked.drain(..).partition(|p| p.deadline_ms.is_some_and(|d| d <= now));
        region.parked = rest.into();
        for parked in late {
            self.ctx.buffer.unpark(parked.bytes);
            if let Some(region) = self.regions.get_mut(&shared.id) {
                region.parked_bytes -= parked.bytes;
            }
            if let Request::Write(write) = parked.request {
                self.reject(write, "stalled");
            }
        }
    }

    fn reject(&self, write: WriteRequest, kind: &str) {
        self.ctx.metrics.write_rejected.with_label_values(&[kind]).inc();
        let usage = self.ctx.buffer.usage();
        let limit = self.ctx.buffer.thresholds().process;
        let used = usage.used() + usage.parked;
        // The fuller, the longer: 100 ms at the limit, 10 s far above it.
        let over = used.saturating_sub(limit) as f64 / limit.max(1) as f64;
        let error = StorageError::WriteBufferFull {
            region: write.region.id,
            used_bytes: used as u64,
            limit_bytes: limit as u64,
            retry_after_ms: (100.0 + over * 20_000.0).min(10_000.0) as u64,
        };
        answer(write.reply, Err(error));
    }
}
