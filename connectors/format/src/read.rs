//! JSON values and plain text into columns, one row per call.
//!
//! On an error the column may be torn: a child may be longer than its parent says. The caller truncates it to the rows it had.

use std::{borrow::Cow, collections::HashMap};

use base64::{
    Engine,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use millstream_types::BadReason;

use crate::{
    builder::{Bytes, ColumnBuilder, Ends, Values},
    cursor::{Cursor, Kind},
    fail::{Fail, Result},
    options::{BytesForm, JsonOptions, TimeUnit},
    value::{interval, number, temporal},
};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const BASE64: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const BASE64_URL: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

/// Where a text came from decides what it may spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// A JSON string: booleans and finite doubles are not written so.
    Json,
    /// A key, a map key or a default: there is no other way to write a value.
    Plain,
}

/// Reads values with one set of options. Keeps a buffer for strings with escapes.
#[derive(Debug)]
pub(crate) struct ValueReader {
    options: JsonOptions,
    scratch: String,
}

impl ValueReader {
    pub(crate) fn new(options: JsonOptions) -> Self {
        Self { options, scratch: String::new() }
    }

    /// Adds the value at the cursor to `column`.
    #[inline]
    pub(crate) fn json<'a>(&mut self, cursor: &mut Cursor<'a>, column: &mut ColumnBuilder) -> Result<()> {
        let kind = cursor.kind()?;
        match (&mut column.values, kind) {
            (_, Kind::Null) => {
                cursor.word(kind)?;
                column.push_null();
                return Ok(());
            }
            (Values::I64(v), Kind::Number) => v.push(integer(cursor)?),
            (Values::Text(bytes), Kind::String) => {
                let text = cursor.string()?;
                match text.plain() {
                    Some(text) => bytes.push(text.as_bytes())?,
                    None => bytes.push(text.get(&mut self.scratch)?.as_bytes())?,
                }
            }
            (Values::Text(_), _) => return Err(mismatch(cursor, "text")),
            (Values::Json(bytes), _) => bytes.push(cursor.skip()?.as_bytes())?,
            (Values::List { .. } | Values::Struct(_) | Values::Map { .. }, _) => {
                return self.nested(cursor, kind, column);
            }
            (_, Kind::String) => {
                let text = cursor.string()?;
                // Taken out so that `self` stays free; a string without escapes never touches it.
                let mut scratch = std::mem::take(&mut self.scratch);
                let done = text
                    .get(&mut scratch)
                    .and_then(|text| scalar(&mut column.values, text, Spelling::Json, &self.options));
                self.scratch = scratch;
                done?;
            }
            (values, Kind::Number) => self.number(cursor, values)?,
            (Values::Bool(v), Kind::True | Kind::False) => {
                cursor.word(kind)?;
                v.push(kind == Kind::True);
            }
            (values, _) => return Err(mismatch(cursor, expected(values))),
        }
        column.valid.append_non_null();
        Ok(())
    }

    /// Adds a text to `column`.
    pub(crate) fn text(&mut self, text: &str, column: &mut ColumnBuilder) -> Result<()> {
        match &mut column.values {
            Values::Text(bytes) => bytes.push(text.as_bytes())?,
            Values::Json(_) | Values::List { .. } | Values::Struct(_) | Values::Map { .. } => {
                let mut cursor = Cursor::new(text);
                self.json(&mut cursor, column)?;
                return cursor.end();
            }
            values => scalar(values, text, Spelling::Plain, &self.options)?,
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn number(&self, cursor: &mut Cursor<'_>, values: &mut Values) -> Result<()> {
        let options = &self.options;
        match values {
            Values::I16(v) => v.push(narrow(integer(cursor)?, "SMALLINT")?),
            Values::I32(v) => v.push(narrow(integer(cursor)?, "INT")?),
            Values::I64(v) => v.push(integer(cursor)?),
            Values::F32(v) => v.push(number::real(cursor.number()?)?),
            Values::F64(v) => v.push(number::double(cursor.number()?)?),
            Values::Decimal128 { precision, scale, values } => {
                values.push(number::decimal128(cursor.number()?, *precision, *scale)?);
            }
            Values::Decimal256 { precision, scale, values } => {
                values.push(number::decimal256(cursor.number()?, *precision, *scale)?);
            }
            Values::Date(v) if options.date_days => {
                let text = cursor.number()?;
                v.push(temporal::date_from_days(number::integer(text)?, text)?);
            }
            Values::Time(v) => {
                let Some(unit) = options.time else { return Err(mismatch(cursor, "a time as text")) };
                let text = cursor.number()?;
                let unit_us = if unit == TimeUnit::Millis { 1_000 } else { 1 };
                v.push(temporal::time_from_units(number::integer(text)?, unit_us, text)?);
            }
            Values::Timestamp { values, .. } => {
                let Some(unit) = options.timestamp else { return Err(mismatch(cursor, "a timestamp as text")) };
                let text = cursor.number()?;
                values.push(temporal::timestamp_from_units(number::integer(text)?, unit, text)?);
            }
            other => return Err(mismatch(cursor, expected(other))),
        }
        Ok(())
    }

    fn nested<'a>(&mut self, cursor: &mut Cursor<'a>, kind: Kind, column: &mut ColumnBuilder) -> Result<()> {
        let row = column.len();
        match (&mut column.values, kind) {
            (Values::List { ends, items }, Kind::Array) => self.list(cursor, ends, items)?,
            (Values::Struct(fields), Kind::Object) => self.structure(cursor, row, fields)?,
            (Values::Map { ends, keys, values }, Kind::Object) => self.map(cursor, ends, keys, values)?,
            (Values::Map { ends, keys, values }, Kind::Array) => self.entries(cursor, ends, keys, values)?,
            (values, _) => return Err(mismatch(cursor, expected(values))),
        }
        column.valid.append_non_null();
        Ok(())
    }

    fn list<'a>(&mut self, cursor: &mut Cursor<'a>, ends: &mut Ends, items: &mut ColumnBuilder) -> Result<()> {
        cursor.enter()?;
        let mut n = 0;
        while cursor.item(n == 0)? {
            self.json(cursor, items).map_err(|f| f.inside(&format!("[{n}]")))?;
            n += 1;
        }
        ends.push(items.len())
    }

    fn structure<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        row: usize,
        fields: &mut [(String, ColumnBuilder)],
    ) -> Result<()> {
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(first)? {
            first = false;
            let field = name.get(&mut self.scratch).ok().and_then(|name| fields.iter().position(|(n, _)| n == name));
            let Some(field) = field else {
                cursor.skip()?;
                continue;
            };
            let (name, builder) = &mut fields[field];
            // Of a repeated name the last wins.
            builder.truncate(row);
            self.json(cursor, builder).map_err(|f| f.inside(name))?;
        }
        for (_, builder) in fields {
            if builder.len() == row {
                builder.push_null();
            }
        }
        Ok(())
    }

    /// `{"k": v}`. Names are collected first, so that of a repeated one the last wins.
    fn map<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        ends: &mut Ends,
        keys: &mut ColumnBuilder,
        values: &mut ColumnBuilder,
    ) -> Result<()> {
        cursor.enter()?;
        let mut entries: Vec<(Cow<'a, str>, &'a str)> = Vec::new();
        while let Some(name) = cursor.member(entries.is_empty())? {
            let name = match name.plain() {
                Some(plain) => Cow::Borrowed(plain),
                None => Cow::Owned(name.get(&mut self.scratch)?.to_owned()),
            };
            entries.push((name, cursor.skip()?));
        }
        let last: HashMap<&str, usize> = entries.iter().enumerate().map(|(i, (name, _))| (&**name, i)).collect();
        for (i, (name, value)) in entries.iter().enumerate() {
            if last.get(&**name) == Some(&i) {
                self.text(name, keys).map_err(|f| f.inside("key"))?;
                self.json(&mut cursor.over(value), values).map_err(|f| f.inside(name))?;
            }
        }
        ends.push(keys.len())
    }

    /// `[{"key": k, "value": v}]`, for keys that are no text.
    fn entries<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        ends: &mut Ends,
        keys: &mut ColumnBuilder,
        values: &mut ColumnBuilder,
    ) -> Result<()> {
        cursor.enter()?;
        let mut n = 0;
        while cursor.item(n == 0)? {
            if cursor.kind()? != Kind::Object {
                return Err(mismatch(cursor, "an object with key and value").inside(&format!("[{n}]")));
            }
            self.entry(cursor, keys, values).map_err(|f| f.inside(&format!("[{n}]")))?;
            n += 1;
        }
        ends.push(keys.len())
    }

    fn entry<'a>(
        &mut self,
        cursor: &mut Cursor<'a>,
        keys: &mut ColumnBuilder,
        values: &mut ColumnBuilder,
    ) -> Result<()> {
        let row = keys.len();
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(first)? {
            first = false;
            let (column, part) = match name.plain() {
                Some("key") => (&mut *keys, "key"),
                Some("value") => (&mut *values, "value"),
                _ => {
                    cursor.skip()?;
                    continue;
                }
            };
            column.truncate(row);
            self.json(cursor, column).map_err(|f| f.inside(part))?;
        }
        if keys.len() == row || !keys.valid.is_valid(row) {
            return Err(Fail::new(BadReason::TypeMismatch, "a map entry without key"));
        }
        if values.len() == row {
            values.push_null();
        }
        Ok(())
    }
}

#[inline]
fn integer(cursor: &mut Cursor<'_>) -> Result<i64> {
    match cursor.short_integer() {
        Some(v) => Ok(v),
        None => number::integer(cursor.number()?),
    }
}

fn narrow<T: TryFrom<i64>>(v: i64, name: &str) -> Result<T> {
    T::try_from(v).map_err(|_| Fail::range(&format!("is out of range of {name}"), &v.to_string()))
}

/// The value at the cursor is of the wrong kind, unless it is malformed.
#[cold]
fn mismatch(cursor: &mut Cursor<'_>, expected: &str) -> Fail {
    let kind = match cursor.kind() {
        Ok(kind) => kind,
        Err(f) => return f,
    };
    match cursor.skip() {
        Ok(found) if matches!(kind, Kind::Object | Kind::Array) || found.is_empty() => {
            Fail::mismatch(expected, kind.name())
        }
        Ok(found) => Fail::mismatch(expected, found),
        Err(f) => f,
    }
}

fn expected(values: &Values) -> &'static str {
    match values {
        Values::Bool(_) => "a boolean",
        Values::I16(_) | Values::I32(_) | Values::I64(_) => "an integer",
        Values::F32(_) | Values::F64(_) => "a number",
        Values::Decimal128 { .. } | Values::Decimal256 { .. } => "a decimal",
        Values::Text(_) | Values::Json(_) => "text",
        Values::Binary(_) => "bytes as text",
        Values::Date(_) => "a date as text",
        Values::Time(_) => "a time as text",
        Values::Timestamp { .. } => "a timestamp as text",
        Values::Interval(_) => "an interval as text",
        Values::List { .. } => "an array",
        Values::Struct(_) => "an object",
        Values::Map { .. } => "an object or an array of entries",
    }
}

/// A text in a column that is neither text nor nested. Adds the value, not its validity.
fn scalar(values: &mut Values, text: &str, spelling: Spelling, options: &JsonOptions) -> Result<()> {
    let plain = spelling == Spelling::Plain;
    match values {
        Values::I16(v) => v.push(narrow(number::integer(text)?, "SMALLINT")?),
        Values::I32(v) => v.push(narrow(number::integer(text)?, "INT")?),
        Values::I64(v) => v.push(number::integer(text)?),
        Values::Decimal128 { precision, scale, values } => values.push(number::decimal128(text, *precision, *scale)?),
        Values::Decimal256 { precision, scale, values } => values.push(number::decimal256(text, *precision, *scale)?),
        Values::F32(v) => v.push(match special(text) {
            Some(special) => special as f32,
            None if plain => number::real(text)?,
            None => return Err(Fail::mismatch("a number", text)),
        }),
        Values::F64(v) => v.push(match special(text) {
            Some(special) => special,
            None if plain => number::double(text)?,
            None => return Err(Fail::mismatch("a number", text)),
        }),
        Values::Bool(v) if plain && matches!(text, "true" | "false") => v.push(text == "true"),
        Values::Binary(bytes) => match options.bytes {
            BytesForm::Base64 => base64(text, bytes)?,
            BytesForm::Hex => hex(text, bytes)?,
        },
        Values::Date(v) => v.push(temporal::date(text)?),
        Values::Time(v) => v.push(temporal::time(text)?),
        Values::Timestamp { zoned: true, values } => values.push(temporal::timestamp_tz(text, options.timezone)?),
        Values::Timestamp { zoned: false, values } => {
            values.push(temporal::timestamp(text, options.timezone.unwrap_or(0))?);
        }
        Values::Interval(v) => v.push(interval::interval(text)?),
        other => return Err(Fail::mismatch(expected(other), &format!("the text {text:?}"))),
    }
    Ok(())
}

fn special(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn base64(text: &str, out: &mut Bytes) -> Result<()> {
    let engine = if text.contains(['-', '_']) { BASE64_URL } else { BASE64 };
    engine.decode_vec(text, &mut out.data).map_err(|_| Fail::mismatch("base64", text))?;
    out.finish()
}

fn hex(text: &str, out: &mut Bytes) -> Result<()> {
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    let start = out.data.len();
    for byte in bytes {
        match byte {
            Some(byte) => out.data.push(byte),
            None => {
                out.data.truncate(start);
                return Err(Fail::mismatch("hex digits", text));
            }
        }
    }
    if odd.is_empty() { out.finish() } else { Err(Fail::mismatch("an even number of hex digits", text)) }
}
