//! Rows as CSV (RFC 4180): a header line, then rows. Null is an empty cell, an empty text is `""`.

use arrow::{array::RecordBatch, datatypes::SchemaRef, error::ArrowError};

use super::{ColumnWriter, normalise, value::Int64};

fn cell(out: &mut String, text: &str, always_quote: bool) {
    if always_quote || text.contains(['"', ',', '\n', '\r']) {
        out.push('"');
        for (i, part) in text.split('"').enumerate() {
            if i > 0 {
                out.push_str("\"\"");
            }
            out.push_str(part);
        }
        out.push('"');
    } else {
        out.push_str(text);
    }
}

pub fn header(schema: &SchemaRef) -> String {
    let mut out = String::new();
    for (i, field) in schema.fields().iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        cell(&mut out, field.name(), false);
    }
    out.push_str("\r\n");
    out
}

pub fn lines(batch: &RecordBatch) -> Result<String, ArrowError> {
    let columns = batch.columns().iter().map(|c| Ok(normalise(c)?.0)).collect::<Result<Vec<_>, ArrowError>>()?;
    let writers = columns.iter().map(|c| ColumnWriter::new(c, Int64::Number)).collect::<Result<Vec<_>, _>>()?;
    let mut out = String::with_capacity(batch.num_rows() * 32);
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (c, writer) in writers.iter().enumerate() {
            if c > 0 {
                out.push(',');
            }
            text.clear();
            writer.text(row, &mut text);
            cell(&mut out, &text, text.is_empty() && !writer.is_null(row));
        }
        out.push_str("\r\n");
    }
    Ok(out)
}
