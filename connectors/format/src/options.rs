//! `WITH` options of formats: names, values, and what an unknown one might have meant.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    error::FormatError,
    value::temporal::{self, Unit},
};

/// How the bytes of a key or a value are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON value; columns are members of an object.
    Json,
    /// The whole payload as text: exactly one column.
    String,
    /// The whole payload: exactly one BYTEA column.
    Bytes,
    /// Not read and not written. Keys only.
    None,
}

impl Format {
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::String => "string",
            Format::Bytes => "bytes",
            Format::None => "none",
        }
    }
}

/// Whether a JSON number or a JSON text is written. Both are read, whatever is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberForm {
    Number,
    Text,
}

/// How NaN and the infinities are written; they are read as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NanForm {
    Text,
    Null,
    Fail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BytesForm {
    /// Written padded in the standard alphabet; the URL alphabet and missing padding are read too.
    Base64,
    Hex,
}

/// What a JSON number in a TIME column counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    Millis,
    Micros,
}

/// Options of JSON, for reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonOptions {
    /// `json.int64 = number | string`: BIGINT as written.
    pub int64: NumberForm,
    /// `json.decimal = string | number`: DECIMAL as written; a number has no exponent.
    pub decimal: NumberForm,
    /// `json.nan = string | null | fail`.
    pub nan: NanForm,
    /// `json.bytes = base64 | hex`: BYTEA, read and written.
    pub bytes: BytesForm,
    /// `json.date = text | days`: with days, numbers are read too and written.
    pub date_days: bool,
    /// `json.time = text | millis | micros`: with a unit, numbers are read too and written.
    pub time: Option<TimeUnit>,
    /// `json.timestamp = text | seconds | millis | micros | nanos`: with a unit, numbers are read too and written.
    pub timestamp: Option<Unit>,
    /// `timezone = 'UTC' | '+02:00'`: microseconds east of UTC. Without it a TIMESTAMPTZ text needs a zone, and a TIMESTAMP text with one is taken to UTC.
    pub timezone: Option<i64>,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            int64: NumberForm::Number,
            decimal: NumberForm::Text,
            nan: NanForm::Text,
            bytes: BytesForm::Base64,
            date_days: false,
            time: None,
            timestamp: None,
            timezone: None,
        }
    }
}

impl JsonOptions {
    /// Reads `json.*` and `timezone`, for sinks. The second value names what was used; `json.*` names that do not exist are refused.
    pub fn from_options(options: &BTreeMap<String, String>) -> Result<(Self, BTreeSet<String>), FormatError> {
        let mut reader = OptionReader::new(options);
        let json = Self::read(&mut reader)?;
        reader.refuse_unknown(&["json."])?;
        Ok((json, reader.used))
    }

    pub(crate) fn read(reader: &mut OptionReader<'_>) -> Result<Self, FormatError> {
        use NumberForm::{Number, Text};
        let none = Self::default();
        Ok(Self {
            int64: reader.one_of("json.int64", none.int64, &[("number", Number), ("string", Text)])?,
            decimal: reader.one_of("json.decimal", none.decimal, &[("string", Text), ("number", Number)])?,
            nan: reader.one_of(
                "json.nan",
                none.nan,
                &[("string", NanForm::Text), ("null", NanForm::Null), ("fail", NanForm::Fail)],
            )?,
            bytes: reader.one_of(
                "json.bytes",
                none.bytes,
                &[("base64", BytesForm::Base64), ("hex", BytesForm::Hex)],
            )?,
            date_days: reader.one_of("json.date", none.date_days, &[("text", false), ("days", true)])?,
            time: reader.one_of(
                "json.time",
                none.time,
                &[("text", None), ("millis", Some(TimeUnit::Millis)), ("micros", Some(TimeUnit::Micros))],
            )?,
            timestamp: reader.one_of(
                "json.timestamp",
                none.timestamp,
                &[
                    ("text", None),
                    ("seconds", Some(Unit::Seconds)),
                    ("millis", Some(Unit::Millis)),
                    ("micros", Some(Unit::Micros)),
                    ("nanos", Some(Unit::Nanos)),
                ],
            )?,
            timezone: reader.timezone()?,
        })
    }
}

/// All names that this crate knows, for "did you mean".
const NAMES: &[&str] = &[
    "extra_fields_column",
    "json.bytes",
    "json.date",
    "json.decimal",
    "json.int64",
    "json.nan",
    "json.time",
    "json.timestamp",
    "key.fields",
    "key.format",
    "key.prefix",
    "null_value",
    "timezone",
    "value.format",
    "value.max.bytes",
];

/// Takes options one by one and remembers which.
#[derive(Debug)]
pub(crate) struct OptionReader<'a> {
    options: &'a BTreeMap<String, String>,
    pub(crate) used: BTreeSet<String>,
}

impl<'a> OptionReader<'a> {
    pub(crate) fn new(options: &'a BTreeMap<String, String>) -> Self {
        Self { options, used: BTreeSet::new() }
    }

    pub(crate) fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.options.get(name)?;
        self.used.insert(name.to_owned());
        Some(value)
    }

    pub(crate) fn one_of<T: Copy>(&mut self, name: &str, default: T, values: &[(&str, T)]) -> Result<T, FormatError> {
        let Some(value) = self.text(name) else { return Ok(default) };
        let found = values.iter().find(|(text, _)| text.eq_ignore_ascii_case(value));
        found.map(|(_, v)| *v).ok_or_else(|| {
            let expected = values.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", ");
            bad(name, value, &expected)
        })
    }

    pub(crate) fn positive(&mut self, name: &str, default: usize) -> Result<usize, FormatError> {
        let Some(value) = self.text(name) else { return Ok(default) };
        value.parse().ok().filter(|v| *v > 0).ok_or_else(|| bad(name, value, "a positive number of bytes"))
    }

    fn timezone(&mut self) -> Result<Option<i64>, FormatError> {
        let Some(value) = self.text("timezone") else { return Ok(None) };
        if value.eq_ignore_ascii_case("utc") {
            return Ok(Some(0));
        }
        let zone = temporal::zone(value.as_bytes());
        zone.map(Some).ok_or_else(|| bad("timezone", value, "UTC or an offset such as +02:00"))
    }

    /// Fails at the first option below one of `prefixes` that nobody has taken.
    pub(crate) fn refuse_unknown(&self, prefixes: &[&str]) -> Result<(), FormatError> {
        let unknown = |name: &&String| prefixes.iter().any(|p| name.starts_with(p)) && !self.used.contains(*name);
        match self.options.keys().find(unknown) {
            Some(name) => Err(FormatError::UnknownOption { name: name.clone(), nearest: nearest(name) }),
            None => Ok(()),
        }
    }
}

pub(crate) fn bad(name: &str, value: &str, expected: &str) -> FormatError {
    FormatError::BadOption { name: name.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

fn nearest(name: &str) -> Option<&'static str> {
    let distance = |known: &&'static str| strsim::damerau_levenshtein(name, known);
    let best = NAMES.iter().copied().min_by_key(distance)?;
    (distance(&best) <= name.len() / 3 + 1).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn options_are_read_and_others_left_to_their_owner() {
        let options =
            map(&[("json.int64", "string"), ("json.timestamp", "millis"), ("timezone", "+02:00"), ("topic", "x")]);
        let (json, used) = JsonOptions::from_options(&options).unwrap();
        assert_eq!((json.int64, json.timestamp), (NumberForm::Text, Some(Unit::Millis)));
        assert_eq!(json.timezone, Some(7_200_000_000));
        assert_eq!(used.len(), 3);
    }

    #[test]
    fn a_wrong_name_or_value_says_what_is_right() {
        let error = JsonOptions::from_options(&map(&[("json.decimals", "string")])).unwrap_err();
        assert_eq!(error.to_string(), "unknown option 'json.decimals', did you mean 'json.decimal'?");
        let error = JsonOptions::from_options(&map(&[("json.nan", "zero")])).unwrap_err();
        assert_eq!(error.to_string(), "option 'json.nan' = 'zero': expected string, null, fail");
        assert!(JsonOptions::from_options(&map(&[("timezone", "Europe/Berlin")])).is_err());
    }
}
