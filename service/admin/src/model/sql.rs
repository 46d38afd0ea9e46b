//! `POST /v1/sql` and everything that answers rows.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::schema::{Array, ArrayBuilder, ObjectBuilder, SchemaType},
};

#[derive(Debug, Clone, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlRequest {
    /// One or more statements.
    #[schema(example = "SELECT * FROM revenue LIMIT 10")]
    pub query: String,
    /// Values of `$1`, `$2`, ..: strings, numbers, booleans, nulls.
    #[serde(default)]
    pub params: Vec<Value>,
}

/// Body of an `application/json` answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SqlResponse {
    /// One per statement, in order.
    pub results: Vec<StatementInfo>,
}

/// What one statement gave: `columns` and `rows`, or `command`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StatementInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<ResultColumn>>,
    /// One array per row, values in the order of `columns`. Decimals, dates and times are strings; bytes are base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = cells)]
    pub rows: Option<Vec<Vec<Value>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CREATE TABLE")]
    pub command: Option<String>,
    #[serde(default)]
    pub notices: Vec<String>,
    /// The committed epoch that the rows show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// Rows of cells, each of any JSON type.
fn cells() -> Array {
    let cell = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    ArrayBuilder::new().items(ArrayBuilder::new().items(cell)).build()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResultColumn {
    pub name: String,
    #[serde(rename = "type")]
    pub sql_type: String,
}

/// Answer of `POST /v1/sql/validate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ValidateResponse {
    pub valid: bool,
    pub notices: Vec<String>,
}
