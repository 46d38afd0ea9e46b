//! Limits on every REST request: how many at a time, how long each, and the count and time of all.

use std::time::Instant;

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use millstream_types::ErrorKind;

use crate::{error::ApiError, state::AdminState};

pub(crate) async fn limit(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str);
    let kind = format!("{} {route}", request.method());
    let begun = Instant::now();
    let response = limited(&state, request, next).await;
    let class = match response.status().as_u16() {
        0..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    };
    state.metrics.requests.with_label_values(&[kind.as_str(), class]).inc();
    state.metrics.seconds.with_label_values(&[kind.as_str()]).observe(begun.elapsed().as_secs_f64());
    response
}

/// What tells about the node itself is answered at any time; everything else would show half of it.
fn open_early(path: &str) -> bool {
    matches!(path, "/v1/info" | "/v1/openapi.json")
}

async fn limited(state: &AdminState, request: Request, next: Next) -> Response {
    let health = state.health.body();
    if !health.ready && !open_early(request.uri().path()) {
        return ApiError::new(ErrorKind::Unavailable, "NOT_READY", health.summary).into_response();
    }
    let Ok(_permit) = state.permits.try_acquire() else {
        let limit = state.config.max_requests;
        return ApiError::new(ErrorKind::Exhausted, "TOO_MANY_REQUESTS", format!("{limit} requests are at work"))
            .into_response();
    };
    let timeout = state.config.request_timeout;
    tokio::select! {
        response = next.run(request) => response,
        () = state.deps.clock.sleep(timeout) => {
            let message = format!("no answer within {} s; what was asked for may still happen", timeout.as_secs());
            ApiError::new(ErrorKind::Unknown, "REQUEST_TIMEOUT", message).into_response()
        }
    }
}
