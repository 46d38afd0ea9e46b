//! Arrow types that Parquet cannot hold, and their stand-ins in files.
//!
//! Only one so far: INTERVAL (months, days, nanoseconds; 16 bytes), stored as FIXED_LEN_BYTE_ARRAY(16) with the same bytes. The change of type is a
//! relabelling of buffers, at any depth of nesting; nothing is copied.

use std::sync::Arc;

use arrow::{
    array::{ArrayData, ArrayRef, RecordBatch, make_array},
    datatypes::{DataType, FieldRef, IntervalUnit, Schema, SchemaRef},
};

use crate::StorageError;

const INTERVAL_BYTES: i32 = 16;

/// The schema that files have for a stored schema.
pub(super) fn file_schema(stored: &SchemaRef) -> SchemaRef {
    Arc::new(Schema::new(stored.fields().iter().map(file_field).collect::<Vec<_>>()))
}

fn file_field(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(file_type(field.data_type())))
}

fn file_type(t: &DataType) -> DataType {
    match t {
        DataType::Interval(IntervalUnit::MonthDayNano) => DataType::FixedSizeBinary(INTERVAL_BYTES),
        DataType::List(f) => DataType::List(file_field(f)),
        DataType::Map(f, sorted) => DataType::Map(file_field(f), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(file_field).collect()),
        other => other.clone(),
    }
}

/// Gives `column` the type `to`, which has the same buffers.
pub(super) fn relabel(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, StorageError> {
    if column.data_type() == to {
        return Ok(column.clone());
    }
    Ok(make_array(relabel_data(column.to_data(), to)?))
}

fn relabel_data(data: ArrayData, to: &DataType) -> Result<ArrayData, StorageError> {
    let kinds: Vec<DataType> = match to {
        DataType::List(f) | DataType::Map(f, _) => vec![f.data_type().clone()],
        DataType::Struct(fields) => fields.iter().map(|f| f.data_type().clone()).collect(),
        _ => Vec::new(),
    };
    let children = data
        .child_data()
        .iter()
        .zip(&kinds)
        .map(|(child, t)| relabel_data(child.clone(), t))
        .collect::<Result<Vec<_>, _>>()?;
    // File buffers are aligned to bytes only.
    Ok(data.into_builder().data_type(to.clone()).child_data(children).align_buffers(true).build()?)
}

/// The whole batch with another schema of the same shape.
pub(super) fn relabel_batch(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, StorageError> {
    let columns =
        rows.columns().iter().zip(schema.fields()).map(|(c, f)| relabel(c, f.data_type())).collect::<Result<_, _>>()?;
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
