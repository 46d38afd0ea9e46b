//! Verbs of operators: pause, resume, checkpoint.

use axum::{Json, extract::State, http::StatusCode};

use crate::extract::Path;
use crate::{
    error::{ApiError, ErrorBody},
    model::{job::EpochInfo, object::ObjectInfo},
    ports::ObjectKind,
    state::AdminState,
};

type Accepted = Result<(StatusCode, Json<ObjectInfo>), ApiError>;

impl AdminState {
    async fn set_paused(&self, kind: ObjectKind, name: &str, paused: bool) -> Accepted {
        let object = self.object(kind, name)?;
        let job = object.job.ok_or_else(|| ApiError::not_found("job", name))?;
        if paused {
            self.deps.jobs.pause(job).await?;
        } else {
            self.deps.jobs.resume(job).await?;
        }
        Ok((StatusCode::ACCEPTED, Json(self.describe(&object))))
    }
}

/// Barriers flow on, rows do not. Idempotent.
#[utoipa::path(put, path = "/v1/views/{view}/pause", tag = "views", params(("view" = String, Path)),
    responses((status = 202, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn pause_view(State(state): State<AdminState>, Path(name): Path<String>) -> Accepted {
    state.set_paused(ObjectKind::View, &name, true).await
}

/// Goes on with the net changes since the pause. Idempotent.
#[utoipa::path(put, path = "/v1/views/{view}/resume", tag = "views", params(("view" = String, Path)),
    responses((status = 202, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn resume_view(State(state): State<AdminState>, Path(name): Path<String>) -> Accepted {
    state.set_paused(ObjectKind::View, &name, false).await
}

/// Barriers flow on, rows do not. Idempotent.
#[utoipa::path(put, path = "/v1/sinks/{sink}/pause", tag = "sinks", params(("sink" = String, Path)),
    responses((status = 202, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn pause_sink(State(state): State<AdminState>, Path(name): Path<String>) -> Accepted {
    state.set_paused(ObjectKind::Sink, &name, true).await
}

/// Goes on with the net changes since the pause. Idempotent.
#[utoipa::path(put, path = "/v1/sinks/{sink}/resume", tag = "sinks", params(("sink" = String, Path)),
    responses((status = 202, body = ObjectInfo), (status = 404, body = ErrorBody)))]
pub(crate) async fn resume_sink(State(state): State<AdminState>, Path(name): Path<String>) -> Accepted {
    state.set_paused(ObjectKind::Sink, &name, false).await
}

/// Sends a barrier now; answers its epoch when every region has noted its cut.
#[utoipa::path(post, path = "/v1/checkpoints", tag = "service", responses((status = 202, body = EpochInfo)))]
pub(crate) async fn checkpoint(State(state): State<AdminState>) -> Result<(StatusCode, Json<EpochInfo>), ApiError> {
    let epoch = state.deps.jobs.checkpoint().await?;
    Ok((StatusCode::ACCEPTED, Json(EpochInfo { epoch: epoch.0 })))
}

/// The newest epoch.
#[utoipa::path(get, path = "/v1/barriers/latest", tag = "service", responses((status = 200, body = EpochInfo)))]
pub(crate) async fn latest_barrier(State(state): State<AdminState>) -> Json<EpochInfo> {
    Json(EpochInfo { epoch: state.deps.jobs.latest_epoch().0 })
}
