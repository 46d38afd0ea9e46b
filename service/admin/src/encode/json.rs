//! Rows as JSON: arrays inside a result, one object per line for NDJSON.

use arrow::{array::RecordBatch, datatypes::SchemaRef, error::ArrowError};

use super::{
    ColumnWriter, normalise,
    value::{Int64, quoted},
};
use crate::ports::StatementOutput;

/// `?int64=string`.
pub type Int64Form = Int64;

/// The name of each column's SQL type.
pub fn type_names(schema: &SchemaRef) -> Vec<String> {
    let name = |t| millstream_types::SqlType::from_arrow(t).map_or_else(|| "VARCHAR".to_owned(), |t| t.to_string());
    schema.fields().iter().map(|f| name(f.data_type())).collect()
}

fn each_row(
    batch: &RecordBatch,
    int64: Int64,
    mut row: impl FnMut(usize, &[ColumnWriter<'_>]),
) -> Result<(), ArrowError> {
    let columns = batch.columns().iter().map(|c| Ok(normalise(c)?.0)).collect::<Result<Vec<_>, ArrowError>>()?;
    let writers = columns.iter().map(|c| ColumnWriter::new(c, int64)).collect::<Result<Vec<_>, _>>()?;
    for i in 0..batch.num_rows() {
        row(i, &writers);
    }
    Ok(())
}

/// `[1,"a"],[2,"b"]`: the rows of one batch, without the outer brackets.
fn rows(batch: &RecordBatch, int64: Int64, out: &mut String) -> Result<(), ArrowError> {
    each_row(batch, int64, |i, writers| {
        out.push(if i == 0 { '[' } else { ',' });
        if i > 0 {
            out.push('[');
        }
        for (c, writer) in writers.iter().enumerate() {
            if c > 0 {
                out.push(',');
            }
            writer.json(i, out);
        }
        out.push(']');
    })
}

/// One object per row and line.
pub fn lines(batch: &RecordBatch, int64: Int64) -> Result<String, ArrowError> {
    let schema = batch.schema();
    let mut out = String::with_capacity(batch.num_rows() * 64);
    each_row(batch, int64, |i, writers| {
        for (c, writer) in writers.iter().enumerate() {
            out.push(if c == 0 { '{' } else { ',' });
            quoted(&mut out, schema.field(c).name());
            out.push(':');
            writer.json(i, &mut out);
        }
        out.push_str(if writers.is_empty() { "{}\n" } else { "}\n" });
    })?;
    Ok(out)
}

fn notices(out: &mut String, notices: &[String]) {
    out.push_str(",\"notices\":[");
    for (i, notice) in notices.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        quoted(out, notice);
    }
    out.push(']');
}

/// The body described by `SqlResponse`, written without an intermediate tree.
pub fn response(results: &[StatementOutput], int64: Int64) -> Result<String, ArrowError> {
    let mut out = String::from("{\"results\":[");
    for (i, result) in results.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        statement(result, int64, &mut out)?;
    }
    out.push_str("]}");
    Ok(out)
}

fn statement(result: &StatementOutput, int64: Int64, out: &mut String) -> Result<(), ArrowError> {
    match result {
        StatementOutput::Command { tag, notices: n } => {
            out.push_str("{\"command\":");
            quoted(out, tag);
            notices(out, n);
        }
        StatementOutput::Rows { schema, batches, epoch, notices: n } => {
            out.push_str("{\"columns\":[");
            for (i, (field, sql_type)) in schema.fields().iter().zip(type_names(schema)).enumerate() {
                out.push_str(if i > 0 { ",{\"name\":" } else { "{\"name\":" });
                quoted(out, field.name());
                out.push_str(",\"type\":");
                quoted(out, &sql_type);
                out.push('}');
            }
            out.push_str("],\"rows\":[");
            let mut first = true;
            for batch in batches.iter().filter(|b| b.num_rows() > 0) {
                if !std::mem::take(&mut first) {
                    out.push(',');
                }
                rows(batch, int64, out)?;
            }
            out.push(']');
            notices(out, n);
            if let Some(epoch) = epoch {
                out.push_str(&format!(",\"epoch\":{epoch}"));
            }
        }
    }
    out.push('}');
    Ok(())
}
