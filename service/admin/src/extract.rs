//! Extractors whose refusal has the one error body.

use axum::{
    extract::{FromRequestParts, rejection::PathRejection},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// `axum::extract::Path`, but for what it answers when a part of the path is not what it should be.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let found: Result<axum::extract::Path<T>, PathRejection> =
            axum::extract::Path::from_request_parts(parts, state).await;
        found
            .map(|axum::extract::Path(value)| Path(value))
            .map_err(|e| ApiError::invalid("PATH_INVALID", e.body_text()))
    }
}
