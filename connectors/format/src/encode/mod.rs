//! Rows to record bytes: the mirror image of the decoder. What is written here is read there as the same value.

mod json;
mod payload;

use std::sync::Arc;

use arrow::{array::RecordBatch, datatypes::DataType};
use millstream_types::{Column, Encoder};

pub use json::JsonEncoder;
pub use payload::{BytesEncoder, StringEncoder};

use crate::{
    error::FormatError,
    options::{Format, JsonOptions},
};

/// An encoder of these columns, in this order. `string` and `bytes` hold exactly one; `none` writes a null for every row.
pub fn encoder(format: Format, columns: &[Column], options: &JsonOptions) -> Result<Arc<dyn Encoder>, FormatError> {
    Ok(match (format, columns) {
        (Format::Json, _) => Arc::new(JsonEncoder::new(columns, *options)),
        (Format::String, [column]) => Arc::new(StringEncoder::new(column, *options)),
        (Format::Bytes, [column]) => Arc::new(BytesEncoder::new(column)?),
        (Format::String | Format::Bytes, _) => {
            return Err(FormatError::OneColumn { format: format.as_str(), columns: columns.len() });
        }
        (Format::None, _) => Arc::new(payload::NullEncoder),
    })
}

/// Refuses rows whose columns are not those of the encoder.
fn check<'a>(rows: &RecordBatch, types: impl ExactSizeIterator<Item = &'a DataType>) -> Result<(), FormatError> {
    let (given, wanted) = (rows.num_columns(), types.len());
    if given != wanted {
        return Err(FormatError::OtherColumns(format!("{given} instead of {wanted}")));
    }
    for (field, wanted) in rows.schema_ref().fields().iter().zip(types) {
        if !same(field.data_type(), wanted) {
            let text = format!("{} is {}, expected {wanted}", field.name(), field.data_type());
            return Err(FormatError::OtherColumns(text));
        }
    }
    Ok(())
}

/// The same values, whatever nested fields are called and whether they may be null.
fn same(a: &DataType, b: &DataType) -> bool {
    a == b || a.equals_datatype(b) || (a.is_nested() && std::mem::discriminant(a) == std::mem::discriminant(b))
}
