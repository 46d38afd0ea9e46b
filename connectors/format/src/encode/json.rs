//! Rows as JSON objects. Names are escaped once, values go straight into the arena; on flat types nothing is allocated per row.

use std::io::Write;

use arrow::{
    array::{
        Array, AsArray, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array, ListArray, MapArray,
        PrimitiveArray, RecordBatch, StringArray, StructArray,
    },
    datatypes::{
        DataType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
        Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use base64::{Engine, engine::general_purpose::STANDARD};
use millstream_types::{BinaryArena, BoxError, Column, Encoder, SqlType};

use super::check;
use crate::{
    error::FormatError,
    options::{BytesForm, JsonOptions, NanForm, NumberForm, TimeUnit},
    value::{interval, number, temporal},
};

/// Objects with one member per column, in order; NULL is written as `null`.
#[derive(Debug)]
pub struct JsonEncoder {
    columns: Vec<JsonColumn>,
    options: JsonOptions,
}

#[derive(Debug)]
struct JsonColumn {
    name: String,
    arrow: DataType,
    shape: Shape,
    /// `{"name":` or `,"name":`.
    lead: Vec<u8>,
}

/// What Arrow types do not tell: a text may be JSON.
#[derive(Debug)]
pub(super) enum Shape {
    Scalar,
    Json,
    Array(Box<Shape>),
    Struct(Vec<(Vec<u8>, Shape)>),
    Map { text_keys: bool, key: Box<Shape>, value: Box<Shape> },
}

impl Shape {
    pub(super) fn of(sql_type: &SqlType) -> Self {
        match sql_type {
            SqlType::Jsonb => Shape::Json,
            SqlType::Array(t) => Shape::Array(Box::new(Shape::of(t))),
            SqlType::Struct(fields) => {
                let lead = |i: usize, name: &str| lead(if i == 0 { b'{' } else { b',' }, name);
                Shape::Struct(fields.iter().enumerate().map(|(i, (n, t))| (lead(i, n), Shape::of(t))).collect())
            }
            SqlType::Map(k, v) => Shape::Map {
                text_keys: matches!(**k, SqlType::Varchar),
                key: Box::new(Shape::of(k)),
                value: Box::new(Shape::of(v)),
            },
            _ => Shape::Scalar,
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        matches!(self, Shape::Scalar)
    }
}

fn lead(before: u8, name: &str) -> Vec<u8> {
    let mut lead = vec![before];
    write_text(name, &mut lead);
    lead.push(b':');
    lead
}

impl JsonEncoder {
    pub fn new(columns: &[Column], options: JsonOptions) -> Self {
        let column = |(i, c): (usize, &Column)| JsonColumn {
            name: c.name.clone(),
            arrow: c.sql_type.arrow(),
            shape: Shape::of(&c.sql_type),
            lead: lead(if i == 0 { b'{' } else { b',' }, &c.name),
        };
        Self { columns: columns.iter().enumerate().map(column).collect(), options }
    }
}

impl Encoder for JsonEncoder {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError> {
        check(rows, self.columns.iter().map(|c| &c.arrow))?;
        let items = self.columns.iter().zip(rows.columns()).map(|(c, array)| Item::of(array.as_ref(), &c.shape));
        let items = items.collect::<Result<Vec<_>, _>>()?;
        for row in 0..rows.num_rows() {
            let buffer = out.open();
            for (column, item) in self.columns.iter().zip(&items) {
                buffer.extend_from_slice(&column.lead);
                if let Err(what) = item.write(row, &self.options, buffer) {
                    out.abandon();
                    return Err(FormatError::Encode { column: column.name.clone(), row, what }.into());
                }
            }
            buffer.extend_from_slice(if self.columns.is_empty() { b"{}" } else { b"}" });
            out.finish();
        }
        Ok(())
    }
}

/// An array with its type known.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Bool(&'a BooleanArray),
    I16(&'a PrimitiveArray<Int16Type>),
    I32(&'a PrimitiveArray<Int32Type>),
    I64(&'a PrimitiveArray<Int64Type>),
    F32(&'a PrimitiveArray<Float32Type>),
    F64(&'a PrimitiveArray<Float64Type>),
    Decimal128(&'a Decimal128Array),
    Decimal256(&'a Decimal256Array),
    Text(&'a StringArray),
    Json(&'a StringArray),
    Binary(&'a BinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>, bool),
    Interval(&'a PrimitiveArray<IntervalMonthDayNanoType>),
    List(&'a ListArray, Box<Item<'a>>),
    Struct(&'a StructArray, Vec<(&'a [u8], Item<'a>)>),
    Map { array: &'a MapArray, text_keys: bool, key: Box<Item<'a>>, value: Box<Item<'a>> },
}

impl<'a> Item<'a> {
    pub(super) fn of(array: &'a dyn Array, shape: &'a Shape) -> Result<Self, FormatError> {
        Ok(match (array.data_type(), shape) {
            (DataType::Boolean, _) => Item::Bool(array.as_boolean()),
            (DataType::Int16, _) => Item::I16(array.as_primitive()),
            (DataType::Int32, _) => Item::I32(array.as_primitive()),
            (DataType::Int64, _) => Item::I64(array.as_primitive()),
            (DataType::Float32, _) => Item::F32(array.as_primitive()),
            (DataType::Float64, _) => Item::F64(array.as_primitive()),
            (DataType::Decimal128(..), _) => Item::Decimal128(array.as_primitive()),
            (DataType::Decimal256(..), _) => Item::Decimal256(array.as_primitive()),
            (DataType::Utf8, Shape::Json) => Item::Json(array.as_string()),
            (DataType::Utf8, _) => Item::Text(array.as_string()),
            (DataType::Binary, _) => Item::Binary(array.as_binary()),
            (DataType::Date32, _) => Item::Date(array.as_primitive()),
            (DataType::Time64(arrow::datatypes::TimeUnit::Microsecond), _) => Item::Time(array.as_primitive()),
            (DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, zone), _) => {
                Item::Timestamp(array.as_primitive(), zone.is_some())
            }
            (DataType::Interval(arrow::datatypes::IntervalUnit::MonthDayNano), _) => {
                Item::Interval(array.as_primitive())
            }
            (DataType::List(_), Shape::Array(item)) => {
                let list: &ListArray = array.as_list();
                Item::List(list, Box::new(Item::of(list.values().as_ref(), item)?))
            }
            (DataType::Struct(_), Shape::Struct(fields)) => {
                let array = array.as_struct();
                let members = fields
                    .iter()
                    .zip(array.columns())
                    .map(|((lead, shape), c)| Ok((lead.as_slice(), Item::of(c.as_ref(), shape)?)));
                Item::Struct(array, members.collect::<Result<_, FormatError>>()?)
            }
            (DataType::Map(..), Shape::Map { text_keys, key, value }) => {
                let array = array.as_map();
                Item::Map {
                    array,
                    text_keys: *text_keys,
                    key: Box::new(Item::of(array.keys().as_ref(), key)?),
                    value: Box::new(Item::of(array.values().as_ref(), value)?),
                }
            }
            (other, _) => return Err(FormatError::OtherColumns(format!("no text form for {other}"))),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Item::Bool(a) => a.is_null(row),
            Item::I16(a) => a.is_null(row),
            Item::I32(a) => a.is_null(row),
            Item::I64(a) => a.is_null(row),
            Item::F32(a) => a.is_null(row),
            Item::F64(a) => a.is_null(row),
            Item::Decimal128(a) => a.is_null(row),
            Item::Decimal256(a) => a.is_null(row),
            Item::Text(a) | Item::Json(a) => a.is_null(row),
            Item::Binary(a) => a.is_null(row),
            Item::Date(a) => a.is_null(row),
            Item::Time(a) => a.is_null(row),
            Item::Timestamp(a, _) => a.is_null(row),
            Item::Interval(a) => a.is_null(row),
            Item::List(a, _) => a.is_null(row),
            Item::Struct(a, _) => a.is_null(row),
            Item::Map { array, .. } => array.is_null(row),
        }
    }

    /// Writes one value. On an error the caller takes back what was written; the text says what is wrong with the value.
    pub(super) fn write(&self, row: usize, options: &JsonOptions, out: &mut Vec<u8>) -> Result<(), String> {
        if self.is_null(row) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match self {
            Item::Bool(a) => out.extend_from_slice(if a.value(row) { b"true" } else { b"false" }),
            Item::I16(a) => write_integer(i64::from(a.value(row)), out),
            Item::I32(a) => write_integer(i64::from(a.value(row)), out),
            Item::I64(a) => quoted(options.int64, out, |out| write_integer(a.value(row), out)),
            Item::F32(a) => {
                let v = a.value(row);
                write_float(f64::from(v), format_args!("{v:?}"), options.nan, out)?;
            }
            Item::F64(a) => {
                let v = a.value(row);
                write_float(v, format_args!("{v:?}"), options.nan, out)?;
            }
            Item::Decimal128(a) => {
                let (mut digits, v) = (Digits::default(), a.value(row));
                quoted(options.decimal, out, |out| number::write_decimal(digits.of(v), a.scale(), out));
            }
            Item::Decimal256(a) => {
                let (mut digits, v) = (Digits::default(), a.value(row));
                quoted(options.decimal, out, |out| number::write_decimal(digits.of(v), a.scale(), out));
            }
            Item::Text(a) => write_text(a.value(row), out),
            Item::Json(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Item::Binary(a) => write_bytes(a.value(row), options.bytes, out),
            Item::Date(a) if options.date_days => write_integer(i64::from(a.value(row)), out),
            Item::Date(a) => {
                let days = i64::from(a.value(row));
                text_or(
                    out,
                    |out| temporal::write_date(days, out),
                    || format!("day {days} is outside of years 0001 to 9999"),
                )?;
            }
            Item::Time(a) => write_time(a.value(row), options.time, out),
            Item::Timestamp(a, zoned) => write_timestamp(a.value(row), *zoned, options, out)?,
            Item::Interval(a) => {
                out.push(b'"');
                interval::write_interval(a.value(row), out);
                out.push(b'"');
            }
            Item::List(a, item) => {
                let (start, end) = (a.value_offsets()[row] as usize, a.value_offsets()[row + 1] as usize);
                sequence(b"[]", start..end, out, |i, out| item.write(i, options, out))?;
            }
            Item::Struct(_, members) => {
                for (lead, member) in members {
                    out.extend_from_slice(lead);
                    member.write(row, options, out)?;
                }
                out.extend_from_slice(if members.is_empty() { b"{}" } else { b"}" });
            }
            Item::Map { array, text_keys, key, value } => {
                let (start, end) = (array.value_offsets()[row] as usize, array.value_offsets()[row + 1] as usize);
                let (around, lead, joint, tail): (&[u8; 2], &[u8], &[u8], &[u8]) =
                    if *text_keys { (b"{}", b"", b":", b"") } else { (b"[]", b"{\"key\":", b",\"value\":", b"}") };
                sequence(around, start..end, out, |i, out| {
                    out.extend_from_slice(lead);
                    key.write(i, options, out)?;
                    out.extend_from_slice(joint);
                    value.write(i, options, out)?;
                    out.extend_from_slice(tail);
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn sequence(
    around: &[u8; 2],
    range: std::ops::Range<usize>,
    out: &mut Vec<u8>,
    mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<(), String>,
) -> Result<(), String> {
    out.push(around[0]);
    let first = range.start;
    for i in range {
        if i > first {
            out.push(b',');
        }
        write(i, out)?;
    }
    out.push(around[1]);
    Ok(())
}

fn quoted(form: NumberForm, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if form == NumberForm::Number {
        return write(out);
    }
    out.push(b'"');
    write(out);
    out.push(b'"');
}

fn text_or(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> bool,
    wrong: impl FnOnce() -> String,
) -> Result<(), String> {
    out.push(b'"');
    if !write(out) {
        return Err(wrong());
    }
    out.push(b'"');
    Ok(())
}

/// Room for the digits of a 256-bit number, so that none is allocated.
struct Digits {
    bytes: [u8; 80],
}

impl Default for Digits {
    fn default() -> Self {
        Self { bytes: [0; 80] }
    }
}

impl Digits {
    fn of(&mut self, v: impl std::fmt::Display) -> &str {
        let room = self.bytes.len();
        let mut rest = &mut self.bytes[..];
        write!(rest, "{v}").expect("256 bits have at most 78 digits and a sign");
        let used = room - rest.len();
        std::str::from_utf8(&self.bytes[..used]).expect("digits are ASCII")
    }
}

fn write_integer(v: i64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    let mut rest = v.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if v < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Shortest digits that read back as the same number.
fn write_float(v: f64, text: std::fmt::Arguments<'_>, nan: NanForm, out: &mut Vec<u8>) -> Result<(), String> {
    if v.is_finite() {
        out.write_fmt(text).expect("a vector takes every byte");
        return Ok(());
    }
    let name = if v.is_nan() {
        "NaN"
    } else if v > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    match nan {
        NanForm::Text => write_text(name, out),
        NanForm::Null => out.extend_from_slice(b"null"),
        NanForm::Fail => return Err(format!("{name} has no JSON number and json.nan is fail")),
    }
    Ok(())
}

fn write_bytes(bytes: &[u8], form: BytesForm, out: &mut Vec<u8>) {
    out.push(b'"');
    match form {
        BytesForm::Base64 => {
            let start = out.len();
            out.resize(start + bytes.len().div_ceil(3) * 4, 0);
            STANDARD.encode_slice(bytes, &mut out[start..]).expect("four characters for every three bytes are there");
        }
        BytesForm::Hex => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            out.extend(bytes.iter().flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]));
        }
    }
    out.push(b'"');
}

fn write_time(micros: i64, unit: Option<TimeUnit>, out: &mut Vec<u8>) {
    match unit {
        Some(TimeUnit::Micros) => write_integer(micros, out),
        Some(TimeUnit::Millis) => write_integer(micros.div_euclid(1_000), out),
        None => {
            out.push(b'"');
            temporal::write_time(micros, out);
            out.push(b'"');
        }
    }
}

fn write_timestamp(micros: i64, zoned: bool, options: &JsonOptions, out: &mut Vec<u8>) -> Result<(), String> {
    let wrong = || format!("microsecond {micros} is outside of years 0001 to 9999");
    let number = match options.timestamp {
        None => return text_or(out, |out| temporal::write_timestamp(micros, zoned, out), wrong),
        Some(temporal::Unit::Seconds) => micros.div_euclid(1_000_000),
        Some(temporal::Unit::Millis) => micros.div_euclid(1_000),
        Some(temporal::Unit::Micros) => micros,
        Some(temporal::Unit::Nanos) => micros.checked_mul(1_000).ok_or_else(wrong)?,
    };
    write_integer(number, out);
    Ok(())
}

/// A JSON string. Only what must be escaped is.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut done = 0;
    for (i, b) in bytes.iter().enumerate() {
        let escape: &[u8] = match b {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x0c => b"\\f",
            0..=0x1f => b"\\u00",
            _ => continue,
        };
        out.extend_from_slice(&bytes[done..i]);
        out.extend_from_slice(escape);
        if escape.len() == 4 {
            out.extend_from_slice(&[b'0' + (b >> 4), b"0123456789abcdef"[usize::from(b & 15)]]);
        }
        done = i + 1;
    }
    out.extend_from_slice(&bytes[done..]);
    out.push(b'"');
}
