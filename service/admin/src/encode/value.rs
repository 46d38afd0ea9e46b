//! One column's values as JSON or plain text. The writers hold downcast arrays, so a cell costs a match and no allocation.

use std::{fmt::Write as _, sync::Arc};

use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array,
        Int64Array, ListArray, MapArray, StringArray, StructArray, TimestampMicrosecondArray,
    },
    compute::cast,
    datatypes::{DataType, TimeUnit},
    error::ArrowError,
    temporal_conversions::timestamp_us_to_datetime,
    util::display::{ArrayFormatter, FormatOptions},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use millstream_types::SqlType;

/// The column in the one Arrow type of its SQL type (queries use many more), and the name of that type. A type that SQL has no name for becomes text.
pub fn normalise(column: &ArrayRef) -> Result<(ArrayRef, String), ArrowError> {
    let (target, name) = match SqlType::from_arrow(column.data_type()) {
        Some(t) => (t.arrow(), t.to_string()),
        None => (DataType::Utf8, "VARCHAR".to_owned()),
    };
    if *column.data_type() == target {
        return Ok((Arc::clone(column), name));
    }
    Ok((cast(column, &target)?, name))
}

/// How an int64 is written. JavaScript readers lose digits beyond 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Int64 {
    #[default]
    Number,
    Text,
}

const FORMAT: FormatOptions<'static> = FormatOptions::new().with_display_error(false);

/// Writes the values of one column.
pub enum ColumnWriter<'a> {
    Boolean(&'a BooleanArray),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array, Int64),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    List(&'a ListArray, Box<ColumnWriter<'a>>),
    Struct(&'a StructArray, Vec<(&'a str, ColumnWriter<'a>)>),
    Map(&'a MapArray, Box<ColumnWriter<'a>>, Box<ColumnWriter<'a>>),
    /// UTC. By hand: the library's formatter knows time zones by name only with a table of all of them.
    TimestampTz(&'a TimestampMicrosecondArray),
    /// Decimals, dates, times, intervals: their text.
    Formatted(&'a dyn Array, ArrayFormatter<'a>),
}

impl std::fmt::Debug for ColumnWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ColumnWriter")
    }
}

impl<'a> ColumnWriter<'a> {
    /// `column` is in a type that [`normalise`] answers.
    pub fn new(column: &'a dyn Array, int64: Int64) -> Result<Self, ArrowError> {
        Ok(match column.data_type() {
            DataType::Boolean => ColumnWriter::Boolean(column.as_boolean()),
            DataType::Int16 => ColumnWriter::Int16(column.as_primitive()),
            DataType::Int32 => ColumnWriter::Int32(column.as_primitive()),
            DataType::Int64 => ColumnWriter::Int64(column.as_primitive(), int64),
            DataType::Float32 => ColumnWriter::Float32(column.as_primitive()),
            DataType::Float64 => ColumnWriter::Float64(column.as_primitive()),
            DataType::Utf8 => ColumnWriter::Text(column.as_string()),
            DataType::Binary => ColumnWriter::Bytes(column.as_binary()),
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => ColumnWriter::TimestampTz(column.as_primitive()),
            DataType::List(_) => {
                let list: &ListArray = column.as_list();
                ColumnWriter::List(list, Box::new(ColumnWriter::new(list.values(), int64)?))
            }
            DataType::Struct(_) => {
                let rows = column.as_struct();
                let names = rows.column_names();
                let fields = names.into_iter().zip(rows.columns());
                let fields = fields.map(|(name, values)| Ok((name, ColumnWriter::new(values, int64)?)));
                ColumnWriter::Struct(rows, fields.collect::<Result<_, ArrowError>>()?)
            }
            DataType::Map(..) => {
                let map = column.as_map();
                let keys = ColumnWriter::new(map.keys(), int64)?;
                ColumnWriter::Map(map, Box::new(keys), Box::new(ColumnWriter::new(map.values(), int64)?))
            }
            _ => ColumnWriter::Formatted(column, ArrayFormatter::try_new(column, &FORMAT)?),
        })
    }

    fn array(&self) -> &dyn Array {
        match self {
            ColumnWriter::Boolean(a) => *a,
            ColumnWriter::Int16(a) => *a,
            ColumnWriter::Int32(a) => *a,
            ColumnWriter::Int64(a, _) => *a,
            ColumnWriter::Float32(a) => *a,
            ColumnWriter::Float64(a) => *a,
            ColumnWriter::Text(a) => *a,
            ColumnWriter::Bytes(a) => *a,
            ColumnWriter::List(a, _) => *a,
            ColumnWriter::Struct(a, _) => *a,
            ColumnWriter::Map(a, ..) => *a,
            ColumnWriter::TimestampTz(a) => *a,
            ColumnWriter::Formatted(a, _) => *a,
        }
    }

    pub fn is_null(&self, row: usize) -> bool {
        self.array().is_null(row)
    }

    /// The value as JSON.
    pub fn json(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            out.push_str("null");
            return;
        }
        match self {
            ColumnWriter::Boolean(a) => out.push_str(if a.value(row) { "true" } else { "false" }),
            ColumnWriter::Int16(a) => push(out, a.value(row)),
            ColumnWriter::Int32(a) => push(out, a.value(row)),
            ColumnWriter::Int64(a, Int64::Number) => push(out, a.value(row)),
            ColumnWriter::Int64(a, Int64::Text) => {
                out.push('"');
                push(out, a.value(row));
                out.push('"');
            }
            ColumnWriter::Float32(a) => float(out, f64::from(a.value(row)), a.value(row)),
            ColumnWriter::Float64(a) => float(out, a.value(row), a.value(row)),
            ColumnWriter::Text(a) => quoted(out, a.value(row)),
            ColumnWriter::Bytes(a) => {
                out.push('"');
                STANDARD.encode_string(a.value(row), out);
                out.push('"');
            }
            ColumnWriter::List(a, items) => {
                let (from, to) = (a.value_offsets()[row] as usize, a.value_offsets()[row + 1] as usize);
                joined(out, '[', ']', from..to, |out, i| items.json(i, out));
            }
            ColumnWriter::Struct(_, fields) => joined(out, '{', '}', fields.iter(), |out, (name, values)| {
                quoted(out, name);
                out.push(':');
                values.json(row, out);
            }),
            ColumnWriter::Map(a, keys, values) => {
                let (from, to) = (a.value_offsets()[row] as usize, a.value_offsets()[row + 1] as usize);
                joined(out, '{', '}', from..to, |out, i| {
                    let mut key = String::new();
                    keys.text(i, &mut key);
                    quoted(out, &key);
                    out.push(':');
                    values.json(i, out);
                });
            }
            ColumnWriter::TimestampTz(a) => {
                out.push('"');
                utc(out, a.value(row));
                out.push('"');
            }
            ColumnWriter::Formatted(_, formatter) => {
                out.push('"');
                push(out, formatter.value(row));
                out.push('"');
            }
        }
    }

    /// The value as plain text, nothing for null: CSV cells, table output, map keys. Nested values are their JSON.
    pub fn text(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            return;
        }
        match self {
            ColumnWriter::Text(a) => out.push_str(a.value(row)),
            ColumnWriter::Bytes(a) => STANDARD.encode_string(a.value(row), out),
            ColumnWriter::Int64(a, _) => push(out, a.value(row)),
            ColumnWriter::Float32(a) => push(out, a.value(row)),
            ColumnWriter::Float64(a) => push(out, a.value(row)),
            ColumnWriter::TimestampTz(a) => utc(out, a.value(row)),
            ColumnWriter::Formatted(_, formatter) => push(out, formatter.value(row)),
            ColumnWriter::Boolean(_)
            | ColumnWriter::Int16(_)
            | ColumnWriter::Int32(_)
            | ColumnWriter::List(..)
            | ColumnWriter::Struct(..)
            | ColumnWriter::Map(..) => self.json(row, out),
        }
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a String takes everything");
}

/// RFC 3339; a moment outside the calendar is its number of microseconds.
fn utc(out: &mut String, us: i64) {
    match timestamp_us_to_datetime(us) {
        Some(time) => push(out, format_args!("{time:?}Z")),
        None => push(out, us),
    }
}

/// JSON has no NaN and no infinity: they become strings. `shown` has the shortest digits of the value's own width.
fn float(out: &mut String, value: f64, shown: impl std::fmt::Display) {
    if value.is_finite() {
        push(out, shown);
    } else {
        out.push('"');
        push(out, shown);
        out.push('"');
    }
}

fn joined<T>(
    out: &mut String,
    open: char,
    close: char,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    out.push(open);
    for (i, item) in items.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write(out, item);
    }
    out.push(close);
}

/// A JSON string.
pub(crate) fn quoted(out: &mut String, text: &str) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[from..at]);
        from = at + 1;
        if escape.is_empty() {
            push(out, format_args!("\\u{byte:04x}"));
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[from..]);
    out.push('"');
}
