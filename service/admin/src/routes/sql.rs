//! `/v1/sql`: any statements, answered in the format that the client accepts.

use std::sync::Arc;

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use crate::{
    encode::{
        json::Int64Form,
        respond::{Format, respond},
    },
    error::{ApiError, ErrorBody},
    literal,
    model::sql::{SqlRequest, SqlResponse, ValidateResponse},
    state::AdminState,
};

/// Options of answers with rows.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RowOptions {
    /// How 64-bit integers are written in JSON: `number` (default) or `string`, for readers that lose digits beyond 2^53.
    pub int64: Option<Int64Option>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Int64Option {
    Number,
    String,
}

impl RowOptions {
    pub(crate) fn form(self) -> Int64Form {
        match self.int64 {
            Some(Int64Option::String) => Int64Form::Text,
            Some(Int64Option::Number) | None => Int64Form::Number,
        }
    }
}

/// Runs the statements in order; the first failure ends it.
#[utoipa::path(post, path = "/v1/sql", tag = "sql", params(RowOptions), request_body = SqlRequest, responses(
    (status = 200, description = "one result per statement; also as application/x-ndjson, text/csv, application/vnd.apache.arrow.stream", body = SqlResponse),
    (status = 422, description = "an error in the text, with line and column", body = ErrorBody)))]
pub(crate) async fn execute(
    State(state): State<AdminState>,
    options: Result<Query<RowOptions>, QueryRejection>,
    headers: HeaderMap,
    request: Result<Json<SqlRequest>, JsonRejection>,
) -> Result<Response, ApiError> {
    let (Query(options), Json(request)) = (options?, request?);
    let format = Format::accepted(&headers)?;
    let text = literal::bind(&request.query, &request.params)?;
    let sql = Arc::clone(&state.deps.sql);
    let query = is_query(&text);
    let work = async move { sql.execute(&text).await };
    let results = if query { state.attached("sql", work).await? } else { state.detached("sql", work).await? };
    respond(results, format, options.form())
}

/// One SELECT and nothing else, as far as the text shows: what is not sure runs to its end.
fn is_query(text: &str) -> bool {
    let text = text.trim().trim_end_matches(';');
    let first = text.split_whitespace().next().unwrap_or_default();
    first.eq_ignore_ascii_case("SELECT") && !text.contains(';')
}

/// All checks that the statements would pass, changing nothing.
#[utoipa::path(post, path = "/v1/sql/validate", tag = "sql", request_body = SqlRequest, responses(
    (status = 200, body = ValidateResponse),
    (status = 422, description = "an error in the text, with line, column and hint", body = ErrorBody)))]
pub(crate) async fn validate(
    State(state): State<AdminState>,
    request: Result<Json<SqlRequest>, JsonRejection>,
) -> Result<Json<ValidateResponse>, ApiError> {
    let Json(request) = request?;
    let text = literal::bind(&request.query, &request.params)?;
    let notices = state.deps.sql.validate(&text).await?;
    Ok(Json(ValidateResponse { valid: true, notices }))
}
