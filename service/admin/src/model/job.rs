//! Jobs and their backfills.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Why an object is in its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

/// How far a job's committed results cover one input region: an exclusive end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PositionInfo {
    #[schema(example = "3-0")]
    pub region: String,
    pub position: i64,
}

/// The running dataflow of one view or sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobInfo {
    pub job: u64,
    /// Name of its view or sink.
    pub name: String,
    /// `view` or `sink`.
    pub kind: String,
    /// `creating`, `backfilling`, `running`, `degraded`, `paused`, `quarantined`, `stopped`.
    pub state: String,
    pub reason: Option<Reason>,
    /// Newest epoch that readers see.
    pub committed_epoch: u64,
    pub positions: Vec<PositionInfo>,
    pub restarts: u64,
    pub last_error: Option<Reason>,
    /// Rows per second of backfill scans; `null` = unlimited.
    pub rate_limit: Option<u64>,
    /// When the job first covered its whole input.
    pub finish_epoch: Option<u64>,
    pub backfills: Vec<BackfillInfo>,
    /// The newest checkpoints, newest last.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// The pass over one input region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackfillInfo {
    pub job: u64,
    pub name: String,
    pub input: u16,
    pub region: String,
    /// Counts from 1; each sweep over net changes is one more.
    pub pass: u32,
    /// `follow`, `fixed` or `live`.
    pub policy: String,
    /// `waiting`, `scanning` or `finished`.
    pub state: String,
    pub rows: u64,
    pub scanned: u64,
    /// Estimated rows of the whole pass.
    pub total: u64,
    /// 0 to 1; at most 0.999 before the end.
    pub fraction: f64,
    pub rows_per_second: f64,
    pub eta_seconds: Option<f64>,
    pub rate_limit: Option<u64>,
    /// `user`, `limit`, `budget`; empty = it runs.
    pub paused: Vec<String>,
    pub finish_epoch: Option<u64>,
}

/// One checkpoint of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointInfo {
    pub epoch: u64,
    /// `ok`, `light`, `aborted`, `unknown`, `fenced`.
    pub outcome: String,
    pub collect_ms: u64,
    pub commit_ms: u64,
    pub apply_ms: u64,
    pub view_rows: u64,
    pub state_rows: u64,
    pub derived_records: u64,
    pub bytes: u64,
}

/// Body of `PATCH /v1/backfills/{job}`; what is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackfillPatch {
    /// Rows per second; `null` takes the limit away.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    pub rate_limit: Option<Option<u64>>,
    pub paused: Option<bool>,
}

/// Tells `null` from absent.
fn present<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(d).map(Some)
}

/// Answer of `POST /v1/checkpoints` and `GET /v1/barriers/latest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EpochInfo {
    pub epoch: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_not_absent() {
        let patch = |text: &str| serde_json::from_str::<BackfillPatch>(text).unwrap();
        assert_eq!(patch(r#"{"paused":true}"#).rate_limit, None);
        assert_eq!(patch(r#"{"rate_limit":null}"#).rate_limit, Some(None));
        assert_eq!(patch(r#"{"rate_limit":7}"#).rate_limit, Some(Some(7)));
        assert!(serde_json::from_str::<BackfillPatch>(r#"{"rate":7}"#).is_err());
    }
}
