//! Columns that come from the record around the value: topic, offset, headers, raw key.

use millstream_types::{BadReason, MetadataField, RawBatch};

use super::utf8;
use crate::{
    builder::{ColumnBuilder, Values},
    fail::{Fail, Result},
};

/// A value that is read as it is, for BYTEA and VARCHAR.
pub(super) fn raw(builder: &mut ColumnBuilder, bytes: Option<&[u8]>) -> Result<()> {
    let Some(bytes) = bytes else {
        builder.push_null();
        return Ok(());
    };
    match &mut builder.values {
        Values::Text(b) => b.push(utf8(bytes)?.as_bytes())?,
        Values::Binary(b) => b.push(bytes)?,
        _ => return Err(Fail::new(BadReason::TypeMismatch, "a raw column is BYTEA or VARCHAR")),
    }
    builder.valid.append_non_null();
    Ok(())
}

/// Adds what a metadata column takes from record `i`.
pub(super) fn push(builder: &mut ColumnBuilder, field: &MetadataField, batch: &RawBatch, i: usize) -> Result<()> {
    let headers = batch.headers.get(i).map_or(&[][..], Vec::as_slice);
    match (field, &mut builder.values) {
        (MetadataField::Key, _) => return raw(builder, batch.keys.get(i)),
        (MetadataField::Value, _) => return raw(builder, batch.values.get(i)),
        (MetadataField::Header(name), _) => {
            // Of a repeated name the last wins.
            let header = headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref());
            return raw(builder, header);
        }
        (MetadataField::Topic, Values::Text(b)) => b.push(batch.partition.topic.as_bytes())?,
        (MetadataField::Partition, Values::I32(v)) => v.push(batch.partition.partition),
        (MetadataField::Partition, Values::I64(v)) => v.push(i64::from(batch.partition.partition)),
        (MetadataField::Offset, Values::I64(v)) => v.push(batch.offsets[i]),
        (MetadataField::Timestamp, Values::Timestamp { values, .. }) => {
            let Some(micros) = Some(batch.timestamps[i]).filter(|t| *t >= 0).and_then(|t| t.checked_mul(1_000)) else {
                builder.push_null();
                return Ok(());
            };
            values.push(micros);
        }
        (MetadataField::HeadersMap, Values::Map { ends, keys, values }) => {
            for (at, (name, value)) in headers.iter().enumerate() {
                if headers[at + 1..].iter().all(|(later, _)| later != name) {
                    raw(keys, Some(name.as_bytes()))?;
                    raw(values, value.as_deref())?;
                }
            }
            ends.push(keys.len())?;
        }
        _ => return Err(Fail::new(BadReason::TypeMismatch, "a metadata column of another type")),
    }
    builder.valid.append_non_null();
    Ok(())
}
