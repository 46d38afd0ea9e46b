//! `/livez`, `/readyz`, `/metrics`. Liveness asks only this process: trouble outside must not restart pods.

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

use crate::{
    error::ApiError,
    health::{Health, ReadyBody},
    metrics::AdminMetrics,
};

#[derive(Debug, Clone)]
pub(crate) struct ProbeState {
    pub(crate) health: Health,
    pub(crate) metrics: AdminMetrics,
}

/// Answers while the process runs.
#[utoipa::path(get, path = "/livez", tag = "probes", responses((status = 200, description = "alive", body = str)))]
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// Whether this node serves, and which of its dependencies fail.
#[utoipa::path(get, path = "/readyz", tag = "probes", responses(
    (status = 200, description = "serves; `parts` may still name failing dependencies", body = ReadyBody),
    (status = 503, description = "starting, restoring or stopping", body = ReadyBody)))]
pub(crate) async fn ready(State(state): State<ProbeState>) -> (StatusCode, Json<ReadyBody>) {
    let body = state.health.body();
    (if body.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, Json(body))
}

/// Prometheus text of all crates.
#[utoipa::path(get, path = "/metrics", tag = "probes", responses((status = 200, description = "Prometheus text", body = str)))]
pub(crate) async fn metrics(State(state): State<ProbeState>) -> Result<Response, ApiError> {
    let text = state.metrics.render().map_err(|e| ApiError::internal("metrics", e))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
