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
    pub sequence: i64,
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
    pub committed_epoch: u64,
    pub positions: Vec<PositionInfo>,
    pub restarts: u64,
    pub last_error: Option<String>,
    pub backfills: Vec<BackfillInfo>,
    /// The last checkpoints, newest last.
    pub checkpoints: Vec<CheckpointInfo>,
}

/// The first pass over one input region.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BackfillInfo {
    pub job: u64,
    pub name: String,
    pub input: u16,
    pub region: String,
    pub pass: u32,
    pub policy: String,
    pub state: String,
    pub rows: u64,
    pub scanned: u64,
    /// Estimated rows of the whole pass.
    pub total: u64,
    /// 0 to 1.
    pub fraction: f64,
    pub rows_per_second: f64,
    pub eta_seconds: Option<f64>,
    pub rate_limit: Option<u64>,
    /// Who paused it; empty = it runs.
    pub paused: Vec<String>,
    /// Epoch in which it was done.
    pub finish_epoch: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointInfo {
    pub epoch: u64,
    /// `ok`, `light`, `aborted`, `unknown`, `fenced`.
    pub outcome: String,
    pub duration_ms: u64,
    pub rows: u64,
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
