//! Limits on every REST request: how many at a time, how long each, and the count and time of all.

use std::time::Instant;

use axum::{
    body::{Body, to_bytes},
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::LengthLimitError;
use millstream_types::ErrorKind;

use crate::{
    error::{ApiError, BODY_TOO_LARGE},
    state::AdminState,
};

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

/// The request with its body read: one that does not send what it has begun must not hold its place among the requests at work.
async fn whole(state: &AdminState, request: Request) -> Result<Request, ApiError> {
    let (parts, body) = request.into_parts();
    let most = state.config.max_body_bytes;
    let timeout = state.config.body_timeout;
    tokio::select! {
        bytes = to_bytes(body, most) => match bytes {
            Ok(bytes) => Ok(Request::from_parts(parts, Body::from(bytes))),
            Err(e) if is_too_long(&e) => {
                Err(ApiError::invalid(BODY_TOO_LARGE, format!("the body is above {most} bytes; send it in parts")))
            }
            Err(e) => Err(ApiError::invalid("BODY_INVALID", format!("the body cannot be read: {e}"))),
        },
        () = state.deps.clock.sleep(timeout) => {
            let message = format!("the body did not come within {} s; nothing was done", timeout.as_secs());
            Err(ApiError::new(ErrorKind::Unavailable, "BODY_TIMEOUT", message))
        }
    }
}

fn is_too_long(e: &axum::Error) -> bool {
    std::error::Error::source(e).is_some_and(|s| s.is::<LengthLimitError>())
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
    let request = match whole(state, request).await {
        Ok(request) => request,
        Err(e) => return e.into_response(),
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
