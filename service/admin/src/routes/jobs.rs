//! Jobs and their backfills.

use axum::{
    Json,
    extract::{State, rejection::JsonRejection},
};
use millstream_types::JobId;

use crate::extract::Path;
use crate::{
    error::{ApiError, ErrorBody},
    model::job::{BackfillInfo, BackfillPatch, JobInfo},
    state::AdminState,
};

impl AdminState {
    fn job_info(&self, job: u64) -> Result<JobInfo, ApiError> {
        self.deps.jobs.job(JobId(job)).ok_or_else(|| ApiError::not_found("job", &job.to_string()))
    }
}

/// All jobs.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", responses((status = 200, body = Vec<JobInfo>)))]
pub(crate) async fn jobs(State(state): State<AdminState>) -> Json<Vec<JobInfo>> {
    Json(state.deps.jobs.jobs())
}

/// One job by its number.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = u64, Path)),
    responses((status = 200, body = JobInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn job(State(state): State<AdminState>, Path(job): Path<u64>) -> Result<Json<JobInfo>, ApiError> {
    state.job_info(job).map(Json)
}

/// The backfills of all jobs, one entry per input region.
#[utoipa::path(get, path = "/v1/backfills", tag = "jobs", responses((status = 200, body = Vec<BackfillInfo>)))]
pub(crate) async fn backfills(State(state): State<AdminState>) -> Json<Vec<BackfillInfo>> {
    Json(state.deps.jobs.jobs().into_iter().flat_map(|job| job.backfills).collect())
}

/// Changes the rate limit of a job's backfill, pauses it or lets it go on.
#[utoipa::path(patch, path = "/v1/backfills/{job}", tag = "jobs", params(("job" = u64, Path)), request_body = BackfillPatch,
    responses((status = 200, body = JobInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn patch_backfill(
    State(state): State<AdminState>,
    Path(job): Path<u64>,
    patch: Result<Json<BackfillPatch>, JsonRejection>,
) -> Result<Json<JobInfo>, ApiError> {
    let Json(patch) = patch?;
    state.job_info(job)?;
    if let Some(limit) = patch.rate_limit {
        state.deps.jobs.set_rate_limit(JobId(job), limit).await?;
    }
    match patch.paused {
        Some(true) => state.deps.jobs.pause(JobId(job)).await?,
        Some(false) => state.deps.jobs.resume(JobId(job)).await?,
        None => {}
    }
    state.job_info(job).map(Json)
}
