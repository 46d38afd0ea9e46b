//! One column as the whole payload. NULL is a null payload.

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::DataType,
};
use millstream_types::{BinaryArena, BoxError, Column, Encoder, SqlType};

use super::{
    check,
    json::{Item, Shape},
};
use crate::{error::FormatError, options::JsonOptions};

/// Text of one column: VARCHAR as it is, other types as JSON writes them, without quotes.
#[derive(Debug)]
pub struct StringEncoder {
    name: String,
    arrow: DataType,
    shape: Shape,
    options: JsonOptions,
}

impl StringEncoder {
    pub fn new(column: &Column, options: JsonOptions) -> Self {
        let (arrow, shape) = (column.sql_type.arrow(), Shape::of(&column.sql_type));
        Self { name: column.name.clone(), arrow, shape, options }
    }
}

impl Encoder for StringEncoder {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError> {
        check(rows, std::iter::once(&self.arrow))?;
        let column = rows.column(0);
        if let DataType::Utf8 = self.arrow {
            column.as_string::<i32>().iter().for_each(|v| out.push(v.map(str::as_bytes)));
            return Ok(());
        }
        let item = Item::of(column.as_ref(), &self.shape)?;
        for row in 0..rows.num_rows() {
            if column.is_null(row) {
                out.push(None);
                continue;
            }
            let buffer = out.open();
            let start = buffer.len();
            if let Err(what) = item.write(row, &self.options, buffer) {
                out.abandon();
                return Err(FormatError::Encode { column: self.name.clone(), row, what }.into());
            }
            let quoted = self.shape.is_scalar() && buffer.get(start) == Some(&b'"');
            if quoted {
                // Scalars that are quoted have nothing escaped inside.
                buffer.remove(start);
                buffer.pop();
            }
            out.finish();
        }
        Ok(())
    }
}

/// Bytes of one BYTEA column.
#[derive(Debug)]
pub struct BytesEncoder;

impl BytesEncoder {
    pub fn new(column: &Column) -> Result<Self, FormatError> {
        match column.sql_type {
            SqlType::Bytea => Ok(Self),
            ref other => {
                let what = format!("format bytes needs BYTEA, not {other}");
                Err(FormatError::Column { column: column.name.clone(), what })
            }
        }
    }
}

impl Encoder for BytesEncoder {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError> {
        check(rows, std::iter::once(&DataType::Binary))?;
        rows.column(0).as_binary::<i32>().iter().for_each(|v| out.push(v));
        Ok(())
    }
}

/// Null for every row: `key.format = 'none'`.
#[derive(Debug)]
pub(super) struct NullEncoder;

impl Encoder for NullEncoder {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError> {
        (0..rows.num_rows()).for_each(|_| out.push(None));
        Ok(())
    }
}
