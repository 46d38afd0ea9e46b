//! From an error kind to an HTTP status and the one error body of all routes. Owns: the match, the body. Not here: what an error means (`types::error`).

use std::{error::Error, time::Duration};

use axum::{
    Json,
    extract::rejection::{JsonRejection, QueryRejection},
    http::{HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use millstream_types::{BoxError, Classified, ErrorKind, Retry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The same body is too large at any time: not retryable, 413.
pub(crate) const BODY_TOO_LARGE: &str = "BODY_TOO_LARGE";

/// Body of each answer that is not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Stable, for programs: `VIEW_NOT_FOUND`, `SQL_INVALID`, ...
    #[schema(example = "VIEW_NOT_FOUND")]
    pub error_code: String,
    /// For people; may change.
    pub message: String,
    /// What is known about the place: `line`, `column`, `hint`, names.
    #[schema(value_type = Object)]
    pub details: Map<String, Value>,
    /// Whether the same request may succeed later without a change.
    pub retryable: bool,
}

/// An answer that is not a success.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub kind: ErrorKind,
    /// In the text of a statement: 422 instead of 400.
    pub in_sql: bool,
    pub code: String,
    pub message: String,
    pub details: Map<String, Value>,
    pub retry_after: Option<Duration>,
    #[source]
    pub source: Option<BoxError>,
}

impl ApiError {
    pub fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            in_sql: false,
            code: code.into(),
            message: message.into(),
            details: Map::new(),
            retry_after: None,
            source: None,
        }
    }

    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message)
    }

    /// `what` is `table`, `view`, `sink`, `job`: the code is `TABLE_NOT_FOUND` and so on.
    pub fn not_found(what: &str, name: &str) -> Self {
        Self::new(
            ErrorKind::NotFound,
            format!("{}_NOT_FOUND", what.to_ascii_uppercase()),
            format!("{what} {name:?} does not exist"),
        )
        .detail(what, name)
    }

    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn sql(mut self) -> Self {
        self.in_sql = true;
        self
    }

    /// An error of another crate with its causes in the message: `STORAGE_NOT_FOUND`, `STREAM_UNAVAILABLE`, ...
    pub fn from_classified<E: Classified + Send + Sync + 'static>(area: &str, error: E) -> Self {
        let kind = error.kind();
        let code = format!("{}_{}", area.to_ascii_uppercase(), kind.as_str().to_ascii_uppercase());
        let message = millstream_types::error::chain(&error);
        Self { source: Some(Box::new(error)), ..Self::new(kind, code, message) }
    }

    pub fn internal(what: &str, error: impl Error + Send + Sync + 'static) -> Self {
        let message = format!("{what}: {error}");
        Self { source: Some(Box::new(error)), ..Self::new(ErrorKind::Internal, "INTERNAL", message) }
    }

    /// The one place where a kind becomes a status.
    pub fn status(&self) -> StatusCode {
        match self.kind {
            ErrorKind::Invalid if self.code == BODY_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::Invalid if self.in_sql => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Conflict => StatusCode::CONFLICT,
            ErrorKind::Fenced | ErrorKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Unknown => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error_code: self.code.clone(),
            message: self.message.clone(),
            details: self.details.clone(),
            retryable: self.retry() == Retry::Safe,
        }
    }
}

impl Classified for ApiError {
    fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<millstream_storage::StorageError> for ApiError {
    fn from(e: millstream_storage::StorageError) -> Self {
        ApiError::from_classified("storage", e)
    }
}

impl From<arrow::error::ArrowError> for ApiError {
    fn from(e: arrow::error::ArrowError) -> Self {
        ApiError::internal("encoding rows", e)
    }
}

impl From<JsonRejection> for ApiError {
    fn from(e: JsonRejection) -> Self {
        match e.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                ApiError::invalid(BODY_TOO_LARGE, format!("{}; send it in parts", e.body_text()))
            }
            _ => ApiError::invalid("BODY_INVALID", e.body_text()),
        }
    }
}

impl From<QueryRejection> for ApiError {
    fn from(e: QueryRejection) -> Self {
        ApiError::invalid("QUERY_STRING_INVALID", e.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(code = %self.code, error = %self.message, "request failed");
        }
        let retry_after = match self.kind {
            ErrorKind::Exhausted | ErrorKind::Unavailable => Some(self.retry_after.unwrap_or(Duration::from_secs(1))),
            _ => self.retry_after,
        };
        let mut response = (status, Json(self.body())).into_response();
        if let Some(after) = retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_status() {
        let status = |kind| ApiError::new(kind, "X", "x").status().as_u16();
        assert_eq!(
            [ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Conflict, ErrorKind::Exhausted].map(status),
            [400, 404, 409, 429]
        );
        assert_eq!(
            [ErrorKind::Fenced, ErrorKind::Unavailable, ErrorKind::Unknown, ErrorKind::Corrupt].map(status),
            [503, 503, 504, 500]
        );
        assert_eq!(ApiError::invalid("X", "x").sql().status().as_u16(), 422);
        assert_eq!(ApiError::invalid(BODY_TOO_LARGE, "x").status().as_u16(), 413);
    }

    #[test]
    fn only_what_certainly_did_not_happen_is_retryable() {
        assert!(ApiError::new(ErrorKind::Unavailable, "X", "x").body().retryable);
        assert!(!ApiError::new(ErrorKind::Unknown, "X", "x").body().retryable);
    }
}
