//! Rows straight from regions: by a prefix of the primary key, or the first ones. Everything else is SQL's.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray},
    compute::{CastOptions, cast_with_options},
    util::display::FormatOptions,
};
use futures::StreamExt;
use millstream_storage::{KeyMatch, Region, ScanItem, ScanRequest};
use millstream_types::{Key, KeyCodec, TableSchema};
use serde_json::Value;

use crate::error::ApiError;

/// Rows whose primary key begins with the values in `key`, at most `limit`. A topic-fed table is asked in all its regions: only the producer knows its
/// partitioner.
pub(crate) async fn by_key(
    schema: &TableSchema,
    regions: &[Arc<dyn Region>],
    key: &str,
    limit: usize,
) -> Result<Vec<RecordBatch>, ApiError> {
    let prefix = encode(schema, key)?;
    let mut batches = Vec::new();
    let (mut left, mut bytes) = (limit, 0);
    for region in regions {
        let columns = Some(region.schema().visible());
        let found = region.lookup(vec![prefix.clone()], KeyMatch::Prefix, region.applied(), columns).await?.rows;
        let found = found.slice(0, found.num_rows().min(left));
        left -= found.num_rows();
        if found.num_rows() > 0 {
            bytes = fits(bytes, &found)?;
            batches.push(found);
        }
    }
    Ok(batches)
}

/// The first rows in key order of each region, at most `limit`.
pub(crate) async fn from_start(
    schema: &TableSchema,
    regions: &[Arc<dyn Region>],
    limit: usize,
) -> Result<Vec<RecordBatch>, ApiError> {
    let mut batches = Vec::new();
    let (mut left, mut bytes) = (limit, 0);
    for region in regions.iter() {
        if left == 0 {
            break;
        }
        let request = ScanRequest {
            columns: Some(schema.visible()),
            max_rows: left.min(8192),
            ..ScanRequest::snapshot(region.applied())
        };
        let mut scan = region.scan(request);
        while left > 0 {
            match scan.next().await.transpose()? {
                Some(ScanItem::Rows { chunk, .. }) => {
                    let rows = chunk.rows.slice(0, chunk.rows.num_rows().min(left));
                    left -= rows.num_rows();
                    bytes = fits(bytes, &rows)?;
                    batches.push(rows);
                }
                Some(ScanItem::Mark { .. }) => {}
                None => break,
            }
        }
    }
    Ok(batches)
}

/// Most bytes of one answer: it is held in memory, once as rows and once as text.
const MAX_BYTES: usize = 64 << 20;

/// The bytes of the rows so far, with those of `rows`.
fn fits(before: usize, rows: &RecordBatch) -> Result<usize, ApiError> {
    let mut bytes = before;
    for column in rows.columns() {
        bytes += column.to_data().get_slice_memory_size()?;
    }
    if bytes > MAX_BYTES {
        let message = format!("the rows have more than {} MiB; ask for fewer with limit, or by key", MAX_BYTES >> 20);
        return Err(ApiError::invalid("RESULT_TOO_LARGE", message));
    }
    Ok(bytes)
}

/// Values of the first key columns, from `a,b` or a JSON array.
fn values(key: &str, columns: usize) -> Result<Vec<Option<String>>, ApiError> {
    if key.starts_with('[')
        && let Ok(items) = serde_json::from_str::<Vec<Value>>(key)
    {
        let text = |v| match v {
            Value::Null => None,
            Value::String(s) => Some(s),
            other => Some(other.to_string()),
        };
        return Ok(items.into_iter().map(text).collect());
    }
    Ok(match columns {
        1 => vec![Some(key.to_owned())],
        _ => key.split(',').map(|v| Some(v.to_owned())).collect(),
    })
}

fn encode(schema: &TableSchema, key: &str) -> Result<Key, ApiError> {
    let columns = schema.user_key();
    if columns.is_empty() {
        return Err(ApiError::invalid("NO_PRIMARY_KEY", "rows of an append-only table have no key; use POST /v1/sql"));
    }
    let values = values(key, columns.len())?;
    if values.is_empty() || values.len() > columns.len() {
        let message = format!("the primary key has {} columns, {} values were given", columns.len(), values.len());
        return Err(ApiError::invalid("KEY_INVALID", message));
    }
    let strict = CastOptions { safe: false, format_options: FormatOptions::default() };
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for (value, place) in values.into_iter().zip(columns) {
        let column = &schema.columns[*place];
        let text: ArrayRef = Arc::new(StringArray::from(vec![value]));
        let array = cast_with_options(&text, &column.sql_type.arrow(), &strict).map_err(|e| {
            ApiError::invalid("KEY_INVALID", format!("column {} of type {}: {e}", column.name, column.sql_type))
        })?;
        arrays.push(array);
    }
    let codec = KeyCodec::new(arrays.iter().map(|a| a.data_type().clone()))?;
    let rows = codec.encode(&arrays)?;
    Ok(Key::from(rows.row(0).as_ref()))
}

#[cfg(test)]
mod tests {
    use millstream_types::{Column, SqlType};

    use super::*;

    fn schema() -> TableSchema {
        TableSchema {
            id: 1,
            columns: vec![
                Column::new(1, "name", SqlType::Varchar).not_null(),
                Column::new(2, "n", SqlType::BigInt).not_null(),
            ],
            primary_key: vec![1, 0],
        }
    }

    #[test]
    fn a_key_is_written_in_two_ways_and_a_prefix_is_enough() {
        let schema = schema();
        let whole = encode(&schema, "42,a").unwrap();
        assert_eq!(whole, encode(&schema, r#"[42,"a"]"#).unwrap());
        assert!(whole.as_bytes().starts_with(encode(&schema, "42").unwrap().as_bytes()));
        assert_eq!(encode(&schema, "x,a").unwrap_err().code, "KEY_INVALID");
        assert_eq!(encode(&schema, "1,a,b").unwrap_err().code, "KEY_INVALID");
    }

    #[test]
    fn commas_and_brackets_belong_to_a_key_of_one_column() {
        let one = TableSchema { primary_key: vec![0], ..schema() };
        assert_ne!(encode(&one, "a,b").unwrap(), encode(&one, "a").unwrap());
        assert_eq!(encode(&one, "[a").unwrap(), encode(&one, r#"["[a"]"#).unwrap());
    }
}
