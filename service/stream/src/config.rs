//! Settings of the stream engine, as plain values; `config` fills them from section `stream.`.

use std::time::Duration;

/// Defaults are those of the design; each reason stands at its field.
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// Time between two barriers: the latency of a view.
    pub barrier_interval: Duration,
    /// Shortest time between two barriers on demand; a burst of waiters shares one.
    pub barrier_min_gap: Duration,
    /// Epochs that are collected and not committed; beyond that the job skips to the newest cuts.
    pub max_in_flight: usize,
    /// Most rows of a chunk while catching up: large enough that per-chunk cost vanishes, small enough to stay in cache.
    pub chunk_rows: usize,
    /// Least scan work of an epoch, so that no barrier interval starves a backfill.
    pub quantum_rows: u64,
    pub quantum: Duration,
    /// Rows of output and changed groups after which a backfill ends its epoch; with `epoch_bytes` the bound of a transaction.
    pub epoch_rows: u64,
    pub epoch_bytes: usize,
    /// Above it a caught-up input does not pass the gap through in one epoch but sweeps over it. As many as a scan may add to an epoch.
    pub catchup_rows: u64,
    /// Above it a first pass does not follow changes but reads one fixed sequence.
    pub follow_max_rows: u64,
    /// Positions that moved without rows are stored after this time at the latest.
    pub idle_checkpoint: Duration,
    /// A commit that takes longer makes the job `degraded output_blocked`; the call goes on.
    pub commit_timeout: Duration,
    /// How often the floor of a following job moves up to its committed position.
    pub pin_refresh: Duration,
    /// Groups and value sets that one aggregation keeps in memory.
    pub state_cache_bytes: usize,
    pub commit_backoff_min: Duration,
    pub commit_backoff_max: Duration,
    pub restart_backoff_min: Duration,
    pub restart_backoff_max: Duration,
    /// Failures without a new checkpoint after which a job is not tried again.
    pub quarantine_after: u32,
    /// Starts all jobs paused: the way out of a crash loop.
    pub start_paused: bool,
    /// An epoch that works longer logs where it is.
    pub watchdog_warn: Duration,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            barrier_interval: Duration::from_secs(1),
            barrier_min_gap: Duration::from_millis(50),
            max_in_flight: 3,
            chunk_rows: 8192,
            quantum_rows: 8192,
            quantum: Duration::from_millis(200),
            epoch_rows: 500_000,
            epoch_bytes: 64 << 20,
            catchup_rows: 500_000,
            follow_max_rows: 5_000_000,
            idle_checkpoint: Duration::from_secs(10),
            commit_timeout: Duration::from_secs(30),
            pin_refresh: Duration::from_secs(60),
            state_cache_bytes: 1 << 30,
            commit_backoff_min: Duration::from_millis(100),
            commit_backoff_max: Duration::from_secs(5),
            restart_backoff_min: Duration::from_secs(1),
            restart_backoff_max: Duration::from_secs(60),
            quarantine_after: 10,
            start_paused: false,
            watchdog_warn: Duration::from_secs(10),
        }
    }
}
