//! Numbers of the engine, with defaults and the rules between them. Data only: components are in `engine::StorageDeps`.

use std::time::Duration;

use crate::StorageError;

const MIB: usize = 1 << 20;

/// See 02 section 19 of the design for the trade-off behind each default.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageConfig {
    /// Region worker loops. Default: half the CPUs, 1 to 16. They never compute for long, so few are enough.
    pub workers: usize,
    /// Requests that wait in one worker's mailbox; when full, callers wait. Default 256.
    pub mailbox_requests: usize,
    /// Memory of all memtables (G). Flushes start at half of it, ingestion waits at all of it. Default 256 MiB.
    pub write_buffer_bytes: usize,
    /// Memory of one region's mutable memtable at which it is flushed (B). Default 64 MiB.
    pub region_buffer_bytes: usize,
    /// Longest wait of a client write at a stall before it is refused. Default 10 s.
    pub stall_wait: Duration,
    /// Decoded rows of one topic that may wait for their region. Default 16 MiB.
    pub tail_ahead_bytes: usize,
    /// The same for all topics of the process. Default 48 MiB.
    pub tail_ahead_total_bytes: usize,
    /// Most rows of one sorted run that the tail builds while it is behind. Default 32,768.
    pub tail_run_rows: usize,
    /// How long the tail gathers records before it hands them over when it is not behind. Default 10 ms.
    pub tail_linger: Duration,
    /// Period of the checks that drive flushes by age, purge and compaction. Default 60 s.
    pub check_interval: Duration,
    /// Regions whose manifests are loaded at a time. Default 16.
    pub open_parallelism: usize,
    /// How long opening a region that was never written waits for the records already in its topic. Default 5 s.
    pub open_fresh_wait: Duration,
    pub wal: WalConfig,
    pub flush: FlushConfig,
    pub sst: SstConfig,
    pub compaction: CompactionConfig,
    pub pins: PinConfig,
    pub gc: GcConfig,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WalConfig {
    /// After it a client gets `Unknown` with its write id; the append goes on. Default 10 s.
    pub append_deadline: Duration,
    /// How long the appender gathers writes for one transaction. Default 5 ms.
    pub linger: Duration,
    /// Bytes of one group commit. Default 2 MiB.
    pub batch_bytes: usize,
    /// Larger batches are cut by rows. Default 1 MiB.
    pub entry_bytes: usize,
    /// A larger row is refused. Default 8 MiB.
    pub max_row_bytes: usize,
    /// Writes that wait for the appender of one shard. Default 256.
    pub append_queue: usize,
    /// How long a write id gets its first answer again. Default 10 min.
    pub write_id_window: Duration,
    /// Period of pruning. Default 60 s.
    pub prune_interval: Duration,
    /// The newest part of the log that is never pruned. Default 5 min.
    pub keep_tail: Duration,
    /// Period of the guard of topics. Default 10 s.
    pub guard_interval: Duration,
    /// Rows of one replay request. Default 8 MiB.
    pub replay_batch_bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FlushConfig {
    /// Flushes of the process that run at a time. Default: half the CPUs, at least 2.
    pub max_concurrent: usize,
    /// Oldest unflushed row, +-20 % by region. Default 15 min.
    pub interval: Duration,
    /// First and longest wait after a failure. Default 1 s to 60 s.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// Frozen memtables of a region at which it stalls. Default 4.
    pub max_frozen: usize,
    /// An empty memtable's position is stored after so many sequences. Default 10,000.
    pub position_step: i64,
    /// Below this headroom a topic region is flushed at once. Default 10 min.
    pub retention_flush_below: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SstConfig {
    /// Default 131,072.
    pub row_group_rows: usize,
    /// Default 128 MiB.
    pub target_keyed_bytes: usize,
    /// Default 256 MiB.
    pub target_append_bytes: usize,
    /// Default 1: a flush is in the write path.
    pub zstd_flush: i32,
    /// Default 3.
    pub zstd_compact: i32,
    /// Footers and decoded row groups kept in memory. Default 64 MiB.
    pub cache_bytes: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CompactionConfig {
    /// Off: only manual compactions run. Default on.
    pub automatic: bool,
    /// Compactions of the process that run at a time. Default: a quarter of the CPUs, at least 1.
    pub max_concurrent: usize,
    /// Default 4.
    pub min_runs: usize,
    /// Default 12.
    pub max_runs: usize,
    /// Sorted runs at which a region's ingestion waits. Default 32.
    pub stall_runs: usize,
    /// Default 1 GiB.
    pub max_input_bytes: u64,
    /// First and longest wait after a failure. Default 30 s to 10 min.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PinConfig {
    /// Every version this young is kept, pinned or not. Default 15 min.
    pub grace: Duration,
    /// Period of publishing moved pins. Default 60 s.
    pub publish_interval: Duration,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GcConfig {
    /// A file that left the manifest stays this long. Default 15 min.
    pub file_grace: Duration,
    /// Unlisted objects younger than this are never touched. Default 24 h.
    pub orphan_age: Duration,
    /// Period of the orphan sweep. Default 1 h.
    pub interval: Duration,
    /// An upload gives up after it. Default 12 h.
    pub upload_max_age: Duration,
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            workers: (cpus() / 2).clamp(1, 16),
            mailbox_requests: 256,
            write_buffer_bytes: 256 * MIB,
            region_buffer_bytes: 64 * MIB,
            stall_wait: Duration::from_secs(10),
            tail_ahead_bytes: 16 * MIB,
            tail_ahead_total_bytes: 48 * MIB,
            tail_run_rows: 32_768,
            tail_linger: Duration::from_millis(10),
            check_interval: Duration::from_secs(60),
            open_parallelism: 16,
            open_fresh_wait: Duration::from_secs(5),
            wal: WalConfig::default(),
            flush: FlushConfig::default(),
            sst: SstConfig::default(),
            compaction: CompactionConfig::default(),
            pins: PinConfig::default(),
            gc: GcConfig::default(),
        }
    }
}

impl Default for WalConfig {
    fn default() -> Self {
        Self {
            append_deadline: Duration::from_secs(10),
            linger: Duration::from_millis(5),
            batch_bytes: 2 * MIB,
            entry_bytes: MIB,
            max_row_bytes: 8 * MIB,
            append_queue: 256,
            write_id_window: Duration::from_secs(600),
            prune_interval: Duration::from_secs(60),
            keep_tail: Duration::from_secs(300),
            guard_interval: Duration::from_secs(10),
            replay_batch_bytes: 8 * MIB,
        }
    }
}

impl Default for FlushConfig {
    fn default() -> Self {
        Self {
            max_concurrent: (cpus() / 2).max(2),
            interval: Duration::from_secs(900),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            max_frozen: 4,
            position_step: 10_000,
            retention_flush_below: Duration::from_secs(600),
        }
    }
}

impl Default for SstConfig {
    fn default() -> Self {
        Self {
            row_group_rows: 131_072,
            target_keyed_bytes: 128 * MIB,
            target_append_bytes: 256 * MIB,
            zstd_flush: 1,
            zstd_compact: 3,
            cache_bytes: 64 * MIB,
        }
    }
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            automatic: true,
            max_concurrent: (cpus() / 4).max(1),
            min_runs: 4,
            max_runs: 12,
            stall_runs: 32,
            max_input_bytes: 1 << 30,
            backoff_min: Duration::from_secs(30),
            backoff_max: Duration::from_secs(600),
        }
    }
}

impl Default for PinConfig {
    fn default() -> Self {
        Self { grace: Duration::from_secs(900), publish_interval: Duration::from_secs(60) }
    }
}

impl Default for GcConfig {
    fn default() -> Self {
        Self {
            file_grace: Duration::from_secs(900),
            orphan_age: Duration::from_secs(24 * 3600),
            interval: Duration::from_secs(3600),
            upload_max_age: Duration::from_secs(12 * 3600),
        }
    }
}

impl StorageConfig {
    /// The rules over several keys; the message names the keys.
    pub fn validate(&self) -> Result<(), StorageError> {
        let rules = [
            (self.workers >= 1 && self.workers <= 16, "`storage.workers` must be 1 to 16"),
            (self.mailbox_requests >= 1, "`storage.mailbox_requests` must be at least 1"),
            (self.region_buffer_bytes >= 1, "`storage.region_buffer_bytes` must be at least 1"),
            (
                self.region_buffer_bytes.saturating_mul(2) <= self.write_buffer_bytes,
                "`storage.write_buffer_bytes` must be at least twice `storage.region_buffer_bytes`",
            ),
            (self.tail_run_rows >= 1, "`storage.tail_run_rows` must be at least 1"),
            (self.tail_ahead_bytes >= 1, "`storage.tail_ahead_bytes` must be at least 1"),
            (
                self.tail_ahead_total_bytes >= self.tail_ahead_bytes,
                "`storage.tail_ahead_total_bytes` must be at least `storage.tail_ahead_bytes`",
            ),
            (self.open_parallelism >= 1, "`storage.open_parallelism` must be at least 1"),
            (self.wal.entry_bytes >= 1024, "`storage.wal.entry_bytes` must be at least 1 KiB"),
            (
                self.wal.max_row_bytes >= self.wal.entry_bytes,
                "`storage.wal.max_row_bytes` must be at least `storage.wal.entry_bytes`",
            ),
            (self.wal.append_queue >= 1, "`storage.wal.append_queue` must be at least 1"),
            (self.flush.max_concurrent >= 1, "`storage.flush.max_concurrent` must be at least 1"),
            (self.flush.max_frozen >= 1, "`storage.flush.max_frozen` must be at least 1"),
            (self.compaction.max_concurrent >= 1, "`storage.compaction.max_concurrent` must be at least 1"),
            (
                self.compaction.stall_runs > self.compaction.max_runs,
                "`storage.compaction.stall_runs` must be above `storage.compaction.max_runs`",
            ),
            (
                self.gc.orphan_age >= self.gc.upload_max_age * 2,
                "`storage.gc.orphan_age` must be at least twice `storage.gc.upload_max_age`",
            ),
        ];
        match rules.iter().find(|(ok, _)| !ok) {
            None => Ok(()),
            Some((_, what)) => Err(StorageError::InvalidOption { what: (*what).to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_refused() {
        StorageConfig::default().validate().unwrap();
        let e = StorageConfig { region_buffer_bytes: 200 * MIB, ..StorageConfig::default() }.validate().unwrap_err();
        assert!(e.to_string().contains("`storage.write_buffer_bytes`"), "{e}");
        let gc = GcConfig { orphan_age: Duration::from_secs(1), ..GcConfig::default() };
        let e = StorageConfig { gc, ..StorageConfig::default() }.validate().unwrap_err();
        assert!(e.to_string().contains("`storage.gc.orphan_age`"), "{e}");
    }
}
