//! What leaves a log at its old end: whole segments by age or size, and everything below an offset that a client or a fault names.

use std::io;

use super::Log;

/// Producers that were silent for so long are forgotten, as in Kafka.
const PRODUCER_EXPIRY_MS: i64 = 86_400_000;

impl Log {
    /// Moves the log start up to `offset` and removes segments that lie below it. Returns the new log start.
    pub(crate) fn delete_below(&mut self, offset: i64, now_ms: i64) -> io::Result<i64> {
        self.start = self.start.max(offset.min(self.next));
        if self.start == self.next && self.segments.last().is_some_and(|s| s.size > 0) {
            self.roll(now_ms)?;
        }
        self.drop_dead_segments()?;
        Ok(self.start)
    }

    fn drop_dead_segments(&mut self) -> io::Result<()> {
        while self.segments.len() > 1 && self.segments[1].base <= self.start {
            self.segments.remove(0).delete()?;
        }
        self.trim_epochs();
        Ok(())
    }

    /// Epochs that ended before all that is kept say nothing.
    pub(super) fn trim_epochs(&mut self) {
        let first = self.segments[0].base.max(self.start);
        let keep = self.epochs.partition_point(|(_, at)| *at <= first).saturating_sub(1);
        self.epochs.drain(..keep);
        if let Some(oldest) = self.epochs.first_mut() {
            oldest.1 = oldest.1.max(first.min(self.next));
        }
    }

    /// Where `retention.ms` and `retention.bytes` want the log to start, if that is further on. Also forgets silent producers.
    pub(crate) fn retention_cut(&mut self, now_ms: i64) -> Option<i64> {
        self.producers.expire(now_ms - PRODUCER_EXPIRY_MS);
        if !self.settings.delete {
            return None;
        }
        // Nothing at or after the last stable offset goes: an open transaction would lose its beginning.
        let stable = self.stable();
        let mut cut = self.start;
        if self.settings.retention_ms >= 0 {
            let oldest = now_ms - self.settings.retention_ms;
            let mut ends: Vec<i64> = self.segments.iter().skip(1).map(|s| s.base).collect();
            ends.push(self.next);
            for (segment, end) in self.segments.iter().zip(ends) {
                if segment.size == 0 || segment.max_timestamp >= oldest || end > stable {
                    break;
                }
                cut = end;
            }
        }
        if let Ok(limit) = u64::try_from(self.settings.retention_bytes) {
            let mut size = self.size();
            for pair in self.segments.windows(2) {
                if size - pair[0].size < limit || pair[1].base > stable {
                    break;
                }
                size -= pair[0].size;
                cut = cut.max(pair[1].base);
            }
        }
        (cut > self.start).then_some(cut)
    }

    /// As an unclean election would: forgets everything from `offset` on.
    #[cfg(any(test, feature = "faults"))]
    pub(crate) fn truncate(&mut self, offset: i64, now_ms: i64) -> io::Result<()> {
        let offset = offset.max(self.start);
        while self.segments.len() > 1 && self.segments.last().is_some_and(|s| s.base >= offset) {
            if let Some(s) = self.segments.pop() {
                s.delete()?;
            }
        }
        let active = self.active();
        active.truncate(offset)?;
        self.next = active.recover(active.checkpoint(), None)?.0.max(self.start);
        let next = self.next;
        self.epochs.retain(|(_, at)| *at <= next);
        if self.epochs.is_empty() {
            self.epochs.push((0, self.start));
        }
        self.restore_producers(now_ms)
    }
}
