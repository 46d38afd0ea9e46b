//! One resource a file. [`rest`] and [`probes`] are the whole list of paths.

pub(crate) mod control;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod objects;
pub(crate) mod probe;
pub(crate) mod regions;
pub(crate) mod rows;
pub(crate) mod sql;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware::from_fn_with_state,
    routing::{get, patch, post, put},
};

use crate::{error::ApiError, health::Health, limit::limit, metrics::AdminMetrics, openapi, state::AdminState};

/// The REST port.
pub fn rest(state: AdminState) -> Router {
    let body_limit = DefaultBodyLimit::max(state.config.max_body_bytes);
    Router::new()
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/info", get(info::info))
        .route("/v1/sql", post(sql::execute))
        .route("/v1/sql/validate", post(sql::validate))
        .route("/v1/tables", get(objects::tables))
        .route("/v1/tables/{table}", get(objects::table))
        .route("/v1/tables/{table}/rows", get(rows::table_rows).post(rows::insert))
        .route("/v1/tables/{table}/regions", get(regions::regions))
        .route("/v1/tables/{table}/files", get(regions::files))
        .route("/v1/tables/{table}/wal", get(regions::wal))
        .route("/v1/tables/{table}/errors", get(regions::errors))
        .route("/v1/tables/{table}/flush", post(regions::flush))
        .route("/v1/tables/{table}/compact", post(regions::compact))
        .route("/v1/views", get(objects::views))
        .route("/v1/views/{view}", get(objects::view))
        .route("/v1/views/{view}/rows", get(rows::view_rows))
        .route("/v1/views/{view}/regions", get(regions::view_regions))
        .route("/v1/views/{view}/files", get(regions::view_files))
        .route("/v1/views/{view}/flush", post(regions::view_flush))
        .route("/v1/views/{view}/pause", put(control::pause_view))
        .route("/v1/views/{view}/resume", put(control::resume_view))
        .route("/v1/sinks", get(objects::sinks))
        .route("/v1/sinks/{sink}", get(objects::sink))
        .route("/v1/sinks/{sink}/pause", put(control::pause_sink))
        .route("/v1/sinks/{sink}/resume", put(control::resume_sink))
        .route("/v1/jobs", get(jobs::jobs))
        .route("/v1/jobs/{job}", get(jobs::job))
        .route("/v1/backfills", get(jobs::backfills))
        .route("/v1/backfills/{job}", patch(jobs::patch_backfill))
        .route("/v1/checkpoints", post(control::checkpoint))
        .route("/v1/barriers/latest", get(control::latest_barrier))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(body_limit)
        .route_layer(from_fn_with_state(state.clone(), limit))
        .with_state(state)
}

/// The probe port: never with auth, never behind the limits, so that it answers when all else is busy.
pub fn probes(health: Health, metrics: AdminMetrics) -> Router {
    Router::new()
        .route("/livez", get(probe::live))
        .route("/readyz", get(probe::ready))
        .route("/metrics", get(probe::metrics))
        .fallback(no_such_path)
        .with_state(probe::ProbeState { health, metrics })
}

async fn no_such_path() -> ApiError {
    ApiError::new(millstream_types::ErrorKind::NotFound, "PATH_NOT_FOUND", "no such path; see /v1/openapi.json")
}

async fn no_such_method() -> (axum::http::StatusCode, axum::Json<crate::error::ErrorBody>) {
    let error = ApiError::invalid("METHOD_NOT_ALLOWED", "no such method on this path; see /v1/openapi.json");
    (axum::http::StatusCode::METHOD_NOT_ALLOWED, axum::Json(error.body()))
}
