//! Tables, views and sinks.

use std::collections::BTreeMap;

use millstream_types::TableSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::job::JobInfo;
use crate::ports::CatalogObject;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ColumnInfo {
    pub name: String,
    #[serde(rename = "type")]
    #[schema(example = "DECIMAL(12,2)")]
    pub sql_type: String,
    pub nullable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Place in the primary key, from 1; absent = not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_key: Option<usize>,
}

/// Visible columns of a schema.
pub fn columns(schema: &TableSchema) -> Vec<ColumnInfo> {
    let column = |i: usize| {
        let c = &schema.columns[i];
        ColumnInfo {
            name: c.name.clone(),
            sql_type: c.sql_type.to_string(),
            nullable: c.nullable,
            default: c.default.clone(),
            primary_key: schema.primary_key.iter().position(|k| *k == i).map(|p| p + 1),
        }
    };
    schema.visible().into_iter().map(column).collect()
}

/// A table, a view or a sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ObjectInfo {
    pub name: String,
    /// `table`, `view` or `sink`.
    pub kind: String,
    /// Of tables and views.
    pub id: Option<u32>,
    /// `append` or `keyed`; sinks have none.
    pub storage: Option<String>,
    pub columns: Vec<ColumnInfo>,
    /// The topic that feeds the table, or that the view or sink writes.
    pub topic: Option<String>,
    /// Names of the tables and views it reads.
    pub inputs: Vec<String>,
    /// The statement that made it.
    pub sql: String,
    pub options: BTreeMap<String, String>,
    pub regions: Vec<String>,
    /// Why the catalog entry could not be loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quarantined: Option<String>,
    /// Of views and sinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobInfo>,
}

impl ObjectInfo {
    pub fn new(object: &CatalogObject, job: Option<JobInfo>) -> Self {
        let kind_of = |s: &TableSchema| match s.kind() {
            millstream_types::RegionKind::Append => "append",
            millstream_types::RegionKind::Keyed => "keyed",
        };
        Self {
            name: object.name.clone(),
            kind: object.kind.as_str().to_owned(),
            id: object.table.map(|t| t.0),
            storage: object.schema.as_deref().map(|s| kind_of(s).to_owned()),
            columns: object.schema.as_deref().map(columns).unwrap_or_default(),
            topic: object.topic.clone(),
            inputs: object.inputs.clone(),
            sql: object.sql.clone(),
            options: object.options.clone(),
            regions: object.regions.iter().map(ToString::to_string).collect(),
            quarantined: object.quarantined.clone(),
            job,
        }
    }
}

/// What was rejected of a table's topic since the process started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsInfo {
    pub total: u64,
    pub by_reason: BTreeMap<String, u64>,
    /// The newest ones, newest first.
    pub records: Vec<BadRecordInfo>,
}

/// A record that no row was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BadRecordInfo {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub timestamp_ms: i64,
    /// `key` or `value`.
    pub stage: String,
    #[schema(example = "type_mismatch")]
    pub reason: String,
    /// Empty if the whole record is meant.
    pub column: String,
    pub message: String,
}

/// Answer of `POST /v1/tables/{t}/rows`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InsertedInfo {
    pub rows: u64,
}
