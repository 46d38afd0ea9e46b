//! What is told about a job: states, positions, backfills, checkpoints. Computed, never stored.

use std::sync::Arc;

use millstream_types::{Epoch, InputId, JobId, RegionId, Seq};
use serde::Serialize;

use crate::plan::JobKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its regions, its producer or its first barrier.
    Creating,
    /// Some region of its input is not finished.
    Backfilling,
    /// Everything is covered and committed.
    Running,
    /// It goes on, but its reason says what is wrong.
    Degraded,
    /// By the user, or between two tries (`restarting`).
    Paused,
    /// Not tried again: resume or drop it.
    Quarantined,
    Stopped,
}

impl JobState {
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Creating => "creating",
            JobState::Backfilling => "backfilling",
            JobState::Running => "running",
            JobState::Degraded => "degraded",
            JobState::Paused => "paused",
            JobState::Quarantined => "quarantined",
            JobState::Stopped => "stopped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct JobStatus {
    pub job: JobId,
    pub name: Arc<str>,
    pub kind: JobKind,
    pub state: JobState,
    pub reason: Option<Reason>,
    /// Newest published epoch.
    pub committed_epoch: Epoch,
    /// Per input region the committed position: everything below it is in the result, whatever its key (`Position::complete` of the backfill machine).
    pub positions: Vec<(RegionId, Seq)>,
    pub restarts: u64,
    pub last_error: Option<Reason>,
    pub backfills: Vec<BackfillStatus>,
    /// The newest checkpoints, newest last, at most 32.
    pub checkpoints: Vec<CheckpointStatus>,
    pub rate_limit: Option<u64>,
    /// When the job first covered its whole input.
    pub finish_epoch: Option<Epoch>,
}

/// One region of the input.
#[derive(Debug, Clone, Serialize)]
pub struct BackfillStatus {
    pub input: InputId,
    pub region: RegionId,
    /// Counts from 1; each sweep over net changes is one more.
    pub pass: u32,
    /// `follow`, `fixed` or `live`.
    pub policy: &'static str,
    /// `waiting`, `scanning` or `finished`.
    pub state: &'static str,
    pub above: Option<Seq>,
    pub below: Seq,
    pub rows: u64,
    pub scanned: u64,
    pub total: u64,
    /// At most 0.999 before the end.
    pub fraction: f64,
    pub rows_per_second: f64,
    pub eta_seconds: Option<f64>,
    pub rate_limit: Option<u64>,
    /// `user`, `limit`, `budget`.
    pub paused: Vec<&'static str>,
    pub finish_epoch: Option<Epoch>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CheckpointStatus {
    pub epoch: Epoch,
    /// `ok`, `light`, `aborted`, `unknown`, `fenced`.
    pub outcome: &'static str,
    pub collect_ms: u64,
    pub commit_ms: u64,
    pub apply_ms: u64,
    pub view_rows: u64,
    pub state_rows: u64,
    pub derived_records: u64,
    pub bytes: u64,
}
