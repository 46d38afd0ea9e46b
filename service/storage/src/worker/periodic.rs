//! What time alone asks for: flushes by age, positions of idle topics, compaction, purge of removed files. Each step is driven again until it is done.

use std::{sync::Arc, time::Duration};

use millstream_types::{RegionId, error::chain};

use super::{OpenRegion, RegionWorkerLoop, manifest_queue::ManifestJob};
use crate::{listener::Point, object_store::paths, region::RegionShared, request::Notice};

/// A point of the timeline (time -> applied) at most this often.
const TIMELINE_STEP: Duration = Duration::from_secs(10);
/// Files deleted by one purge task.
const PURGE_BATCH: usize = 64;

impl RegionWorkerLoop {
    pub(super) fn check_periodically(&mut self) {
        let now = self.ctx.clock.now_ms();
        let interval = self.ctx.config.check_interval.as_millis() as u64;
        // A clock that stepped back only delays the check.
        if now < self.last_check_ms.saturating_add(interval) {
            return;
        }
        self.last_check_ms = now;
        let grace = self.ctx.config.pins.grace.as_millis() as u64;
        let regions: Vec<_> = self.regions.values().filter(|r| r.state.is_live()).map(|r| r.shared.clone()).collect();
        for shared in regions {
            if let Some(region) = self.regions.get_mut(&shared.id) {
                region.note_time(now, TIMELINE_STEP.as_millis() as u64, grace);
            }
            self.flush_by_age(&shared, now);
            self.compact_if_due(&shared);
            self.purge(&shared, now);
            self.pump_manifest(&shared);
        }
    }

    fn flush_by_age(&mut self, shared: &Arc<RegionShared>, now: u64) {
        let config = &self.ctx.config.flush;
        let interval = spread(shared.id, config.interval);
        let Some(region) = self.regions.get(&shared.id) else { return };
        let due = match region.oldest_row_ms {
            Some(oldest) => oldest + interval <= now,
            None => position_is_due(region, config.position_step, interval, now),
        };
        if due {
            self.freeze(shared, "periodic");
        }
    }

    /// Deletes files that left the manifest long enough ago and that no version of this process holds.
    fn purge(&mut self, shared: &Arc<RegionShared>, now: u64) {
        let grace = self.ctx.config.gc.file_grace.as_millis() as u64;
        let Some(region) = self.regions.get_mut(&shared.id).filter(|r| !r.purging) else { return };
        region.removed.retain(|_, file| file.strong_count() > 0);
        let removed = &region.removed;
        let due = region
            .manifest
            .removed
            .iter()
            .filter(|f| f.at_ms + grace <= now && f.origin == shared.id && !removed.contains_key(&f.name));
        let due: Vec<String> = due.take(PURGE_BATCH).map(|f| f.name.clone()).collect();
        if due.is_empty() {
            return;
        }
        region.purging = true;
        let (ctx, region) = (self.ctx.clone(), shared.clone());
        self.ctx.runner.io("purge", async move {
            let mut deleted = Vec::with_capacity(due.len());
            for name in due {
                ctx.at(Point::PurgeDelete, region.id).await;
                match ctx.bucket.delete(&paths::sst(region.id, &name)).await {
                    Ok(()) => deleted.push(name),
                    Err(e) => {
                        ctx.metrics.purge_total.with_label_values(&["failed"]).inc();
                        tracing::warn!(region = %region.id, name, error = %chain(&e), "a removed file could not be deleted, the next check tries again");
                    }
                }
            }
            ctx.metrics.purge_total.with_label_values(&["ok"]).inc_by(deleted.len() as u64);
            region.worker.notice(Notice::Purged { region: region.clone(), files: deleted }).await;
        });
    }

    pub(super) fn handle_purged(&mut self, shared: &Arc<RegionShared>, files: Vec<String>) {
        let Some(region) = self.current(shared) else { return };
        if files.is_empty() {
            region.purging = false;
            return;
        }
        region.queue.waiting.push_back(ManifestJob::Purged(files));
        self.pump_manifest(shared);
    }
}

/// An idle topic's position moves too, or a restart would read everything again.
fn position_is_due(region: &OpenRegion, step: i64, interval_ms: u64, now: u64) -> bool {
    let ahead = region.applied.0 - region.frozen_to.0;
    region.topic().is_some() && ahead > 0 && (ahead >= step || region.last_position_ms + interval_ms <= now)
}

/// +-20 % by region, so that regions that started together do not flush together.
fn spread(region: RegionId, interval: Duration) -> u64 {
    let hash = region.as_u64().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    interval.mul_f64(0.8 + 0.4 * (hash as f64 / u32::MAX as f64)).as_millis() as u64
}

#[cfg(test)]
mod tests {
    use millstream_types::TableId;

    use super::*;

    #[test]
    fn flush_ages_are_spread() {
        let ages: Vec<u64> = (0..100).map(|n| spread(RegionId::new(TableId(3), n), Duration::from_secs(100))).collect();
        assert!(ages.iter().all(|a| (80_000..=120_000).contains(a)), "{ages:?}");
        assert!(ages.iter().max().unwrap() - ages.iter().min().unwrap() > 20_000);
    }
}
