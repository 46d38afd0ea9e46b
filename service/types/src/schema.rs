//! Columns, primary key and the Arrow form of a table, a view or a state table.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::SqlType;

/// Arrow and Parquet field metadata that carries the column id.
pub const FIELD_ID: &str = "PARQUET:field_id";

/// Name of the hidden column that says from which region of its input a row comes; where a key has it, it is the last column.
pub const REGION_COLUMN: &str = "__region";

/// Whether a region keeps one row per primary key, or every row in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegionKind {
    Append,
    Keyed,
}

/// What a column takes from the record instead of from its value: `METADATA FROM 'offset'`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetadataField {
    Topic,
    Partition,
    Offset,
    Timestamp,
    /// All headers as MAP(VARCHAR, BYTEA); of a repeated name the last wins.
    HeadersMap,
    /// One header, absent = NULL.
    Header(String),
    Key,
    Value,
}

/// One column. `id` never changes and is never used twice in a table, so stored files are read by id, not by name or place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    pub id: u32,
    pub name: String,
    #[serde(rename = "type")]
    pub sql_type: SqlType,
    pub nullable: bool,
    /// SQL text of a constant, used where the record lacks the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataField>,
    /// Not shown to users: a stream key or an accumulator that the engine keeps beside the visible columns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

impl Column {
    /// A plain nullable column.
    pub fn new(id: u32, name: impl Into<String>, sql_type: SqlType) -> Self {
        Self { id, name: name.into(), sql_type, nullable: true, default: None, metadata: None, hidden: false }
    }

    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }

    /// Whether it is [`REGION_COLUMN`].
    pub fn is_region(&self) -> bool {
        self.hidden && self.name == REGION_COLUMN
    }
}

/// Columns and primary key of one table, view or state table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// Rises by one with each ALTER; SSTs and WAL entries name it.
    pub id: u32,
    pub columns: Vec<Column>,
    /// Places in `columns`, in key order; empty = append-only.
    pub primary_key: Vec<usize>,
}

impl TableSchema {
    pub fn kind(&self) -> RegionKind {
        if self.primary_key.is_empty() { RegionKind::Append } else { RegionKind::Keyed }
    }

    pub fn is_key(&self, column: usize) -> bool {
        self.primary_key.contains(&column)
    }

    /// The primary key without the number of a region: what users call the key. Several rows may share it if it is shorter than the primary key.
    pub fn user_key(&self) -> &[usize] {
        match self.primary_key.split_last() {
            Some((last, rest)) if self.columns[*last].is_region() => rest,
            _ => &self.primary_key,
        }
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name == name)
    }

    /// Places of the columns that users see.
    pub fn visible(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|i| !self.columns[*i].hidden).collect()
    }

    fn field(&self, index: usize, nullable: bool) -> Field {
        let c = &self.columns[index];
        Field::new(&c.name, c.sql_type.arrow(), nullable)
            .with_metadata(HashMap::from([(FIELD_ID.to_owned(), c.id.to_string())]))
    }

    /// The Arrow schema of rows in motion and in storage: columns in order; key columns as declared, all others nullable, since a delete carries only its key.
    pub fn arrow(&self) -> SchemaRef {
        Arc::new(Schema::new(
            (0..self.columns.len())
                .map(|i| self.field(i, !self.is_key(i) || self.columns[i].nullable))
                .collect::<Vec<_>>(),
        ))
    }

    /// The Arrow schema that queries see: visible columns with their declared nullability.
    pub fn arrow_visible(&self) -> SchemaRef {
        Arc::new(Schema::new(
            self.visible().into_iter().map(|i| self.field(i, self.columns[i].nullable)).collect::<Vec<_>>(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_survives_json_and_keeps_field_ids() {
        let s = TableSchema {
            id: 3,
            columns: vec![
                Column::new(1, "id", SqlType::BigInt).not_null(),
                Column::new(7, "amount", SqlType::Decimal(12, 2)).not_null(),
            ],
            primary_key: vec![0],
        };
        let text = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<TableSchema>(&text).unwrap(), s);
        assert_eq!(s.arrow().field(1).metadata()[FIELD_ID], "7");
        assert!(s.arrow().field(1).is_nullable() && !s.arrow().field(0).is_nullable());
        assert!(!s.arrow_visible().field(1).is_nullable());
    }
}
