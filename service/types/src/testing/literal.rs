//! Chunks as text: `+ 1 10 | U- 2 20 | U+ 2 21`. A failed test prints the same text that a test is written in.
//!
//! Rows are split by `|`, values by spaces; a row of a chunk begins with its op. `NULL` is null; text that is empty, has spaces, `|` or a quote, or
//! reads `NULL` stands in single quotes, a quote inside is doubled. All types go through Arrow's text casts.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, StringArray},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
    util::display::{ArrayFormatter, FormatOptions},
};

use crate::{Chunk, Op};

/// A schema from text: `k int, v text?`. Types are those of [`crate::SqlType`]; all columns are nullable.
///
/// # Panics
/// If the text is no list of names and types.
pub fn schema(text: &str) -> SchemaRef {
    let field = |part: &str| {
        let (name, sql_type) = part.trim().split_once(' ').unwrap_or_else(|| panic!("no type in {part:?}"));
        let sql_type: crate::SqlType = sql_type.parse().unwrap_or_else(|e| panic!("{part:?}: {e}"));
        Field::new(name, sql_type.arrow(), true)
    };
    Arc::new(Schema::new(split_top(text).map(field).collect::<Vec<_>>()))
}

/// Splits at commas outside parentheses.
fn split_top(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

/// The chunk that the text describes.
///
/// # Panics
/// If the text does not fit the schema.
pub fn chunk(schema: &SchemaRef, text: &str) -> Chunk {
    let mut ops = Vec::new();
    let mut rows = Vec::new();
    for mut tokens in split(text) {
        let op = match tokens.remove(0).as_deref() {
            Some("+") => Op::Insert,
            Some("-") => Op::Delete,
            Some("U-") => Op::UpdateDelete,
            Some("U+") => Op::UpdateInsert,
            other => panic!("{other:?} is no op in {text:?}"),
        };
        ops.push(op);
        rows.push(tokens);
    }
    Chunk::new(batch(schema, text, &rows), ops)
}

/// Rows without ops: `1 10 | 2 NULL`. Empty text is an empty batch.
///
/// # Panics
/// If the text does not fit the schema.
pub fn rows(schema: &SchemaRef, text: &str) -> RecordBatch {
    batch(schema, text, &split(text))
}

/// Rows as text, in their order.
///
/// # Panics
/// If a column has a type that Arrow cannot print.
pub fn print_rows(rows: &RecordBatch) -> String {
    (0..rows.num_rows()).map(|i| values(rows, i)).collect::<Vec<_>>().join(" | ")
}

/// A chunk as text, in its order.
///
/// # Panics
/// If a column has a type that Arrow cannot print.
pub fn print(chunk: &Chunk) -> String {
    let row = |(i, op): (usize, &Op)| {
        let values = values(&chunk.rows, i);
        if values.is_empty() { op.symbol().to_owned() } else { format!("{} {values}", op.symbol()) }
    };
    chunk.ops.iter().enumerate().map(row).collect::<Vec<_>>().join(" | ")
}

/// Rows as text, sorted: for comparing sets.
pub fn print_sorted(rows: &RecordBatch) -> String {
    let mut lines: Vec<String> = (0..rows.num_rows()).map(|i| values(rows, i)).collect();
    lines.sort();
    lines.join(" | ")
}

fn values(rows: &RecordBatch, row: usize) -> String {
    rows.columns().iter().map(|c| value(c, row)).collect::<Vec<_>>().join(" ")
}

fn value(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    // Arrow knows zones by name only with a feature that the service does not need; `UTC` and `+00:00` are the same times.
    let offset = zone_as(column, "+00:00");
    let format = ArrayFormatter::try_new(offset.as_ref().unwrap_or(column), &FormatOptions::default())
        .unwrap_or_else(|e| panic!("cannot print a column: {e}"));
    let text = format.value(row).to_string();
    let plain = !text.is_empty() && text != "NULL" && !text.contains([' ', '|', '\'', '\n']);
    if plain { text } else { format!("'{}'", text.replace('\'', "''")) }
}

/// Rows of tokens; `None` is NULL.
fn split(text: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '|' => rows.push(std::mem::take(&mut row)),
            '\'' => {
                let mut token = String::new();
                loop {
                    match chars.next() {
                        Some('\'') if chars.next_if_eq(&'\'').is_some() => token.push('\''),
                        Some('\'') => break,
                        Some(c) => token.push(c),
                        None => panic!("quote without end in {text:?}"),
                    }
                }
                row.push(Some(token));
            }
            c => {
                let mut token = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != '|') {
                    token.push(c);
                }
                row.push((token != "NULL").then_some(token));
            }
        }
    }
    if !row.is_empty() {
        rows.push(row);
    }
    rows
}

fn batch(schema: &SchemaRef, text: &str, rows: &[Vec<Option<String>>]) -> RecordBatch {
    if let Some(odd) = rows.iter().find(|r| r.len() != schema.fields().len()) {
        panic!("{odd:?} has {} values, the schema {} columns, in {text:?}", odd.len(), schema.fields().len());
    }
    let column = |(i, field): (usize, &Arc<Field>)| {
        let texts: StringArray = rows.iter().map(|r| r[i].as_deref()).collect();
        parse(texts, field.data_type())
    };
    let columns = schema.fields().iter().enumerate().map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

/// A TIMESTAMPTZ column with its zone spelled otherwise.
fn zone_as(column: &ArrayRef, zone: &str) -> Option<ArrayRef> {
    let DataType::Timestamp(TimeUnit::Microsecond, Some(_)) = column.data_type() else { return None };
    Some(Arc::new(column.as_primitive::<TimestampMicrosecondType>().clone().with_timezone(zone)))
}

fn parse(texts: StringArray, to: &DataType) -> ArrayRef {
    match to {
        DataType::Timestamp(unit, Some(zone)) if &**zone == "UTC" => {
            let parsed = parse(texts, &DataType::Timestamp(*unit, Some("+00:00".into())));
            zone_as(&parsed, zone).unwrap_or(parsed)
        }
        DataType::Utf8 => Arc::new(texts),
        DataType::Boolean => {
            Arc::new(texts.iter().map(|t| t.map(|t| matches!(t, "true" | "t"))).collect::<BooleanArray>())
        }
        _ => {
            let options = CastOptions { safe: false, format_options: FormatOptions::default() };
            cast_with_options(&texts, to, &options).unwrap_or_else(|e| panic!("{texts:?} as {to}: {e}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_survives_its_text() {
        let s = schema("k bigint, v int, t varchar, d decimal(10,2), b boolean");
        for text in [
            "+ 1 10 a 1.50 true",
            "- 1 NULL NULL NULL NULL",
            "+ 1 10 'a b' 0.10 false | U- 2 20 '' -1.00 NULL | U+ 2 21 'it''s | NULL' 2.00 true | + 3 1 'NULL' 0.00 true",
        ] {
            assert_eq!(print(&chunk(&s, text)), text);
        }
        assert_eq!(print_rows(&rows(&schema("a int, b text"), "1 x | 2 NULL")), "1 x | 2 NULL");
        let times = "2024-01-31T10:00:00Z 2024-01-31T10:00:00.500 2024-01-31";
        let times_schema = schema("a timestamptz, b timestamp, c date");
        assert_eq!(print_rows(&rows(&times_schema, times)), times);
        assert_eq!(rows(&times_schema, times).column(0).data_type(), times_schema.field(0).data_type());
        assert_eq!(rows(&schema("a int"), "").num_rows(), 0);
    }

    #[test]
    #[should_panic(expected = "the schema 2 columns")]
    fn a_row_that_does_not_fit_says_so() {
        chunk(&schema("a int, b int"), "+ 1");
    }
}
