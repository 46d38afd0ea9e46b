//! Record formats as options name them: the seam to `connectors/format`, with refusals that name the option.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use millstream_format::{Format, FormatError, JsonOptions, TableEncoders, TableFormat, encoder};
use millstream_types::{Column, Encoder, TableSchema};

use crate::error::nearest;

pub(crate) type Options = BTreeMap<String, String>;

/// A refused option or an impossible format; `option` is the one to point at, if it is one.
#[derive(Debug)]
pub(crate) struct FormatRefusal {
    pub(crate) option: Option<String>,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Options of a topic-fed table's format, for the nearest name.
const TABLE_OPTIONS: &[&str] = &[
    "value.format",
    "key.format",
    "key.fields",
    "key.prefix",
    "value.max.bytes",
    "json.int64",
    "json.decimal",
    "json.nan",
    "json.bytes",
    "json.date",
    "json.time",
    "json.timestamp",
    "timezone",
    "null_value",
    "extra_fields_column",
    "match_case",
];

impl From<FormatError> for FormatRefusal {
    fn from(e: FormatError) -> Self {
        let option = match &e {
            FormatError::UnknownOption { name, .. } | FormatError::BadOption { name, .. } => Some(name.clone()),
            FormatError::KeyFieldsMissing(_) => Some("key.format".to_owned()),
            _ => None,
        };
        FormatRefusal { option, message: e.to_string(), hint: None }
    }
}

/// The format of a topic-fed table; an option that nobody reads is refused.
pub(crate) fn table_format(schema: &TableSchema, options: &Options) -> Result<TableFormat, FormatRefusal> {
    let format = TableFormat::from_options(Arc::new(schema.clone()), options)?;
    refuse_left(options, format.consumed_options(), &[])?;
    Ok(format)
}

/// Encoders that write what the table reads, for INSERT into its topic.
pub(crate) fn table_encoders(schema: &TableSchema, options: &Options) -> Result<TableEncoders, FormatRefusal> {
    Ok(table_format(schema, options)?.encoders()?)
}

#[derive(Debug, Clone)]
pub(crate) struct Encoders {
    pub(crate) key: Option<Arc<dyn Encoder>>,
    pub(crate) value: Arc<dyn Encoder>,
}

/// Encoders of the key (`None` without key columns) and the value of a derived topic.
pub(crate) fn encoders(key: &[Column], value: &[Column], options: &Options) -> Result<Encoders, FormatRefusal> {
    let (json, consumed) = JsonOptions::from_options(options)?;
    refuse_left(options, &consumed, &["value.format", "key.format"])?;
    let value_format = named(options, "value.format")?;
    let key_format = named(options, "key.format")?;
    let key = if key.is_empty() { None } else { Some(encoder(key_format, key, &json)?) };
    Ok(Encoders { key, value: encoder(value_format, value, &json)? })
}

fn named(options: &Options, option: &str) -> Result<Format, FormatRefusal> {
    let formats = [("json", Format::Json), ("string", Format::String), ("bytes", Format::Bytes)];
    let Some(word) = options.get(option) else { return Ok(Format::Json) };
    if let Some((_, format)) = formats.iter().find(|(w, _)| w == word) {
        return Ok(*format);
    }
    let later = ["avro", "protobuf", "json_schema", "debezium_json", "debezium_avro", "csv"];
    Err(FormatRefusal {
        option: Some(option.to_owned()),
        message: if later.contains(&word.as_str()) {
            format!("{option} = '{word}' is not supported yet")
        } else {
            format!("unknown format {word}")
        },
        hint: nearest(word, formats.map(|(w, _)| w)).or(Some("formats are json, string and bytes".to_owned())),
    })
}

fn refuse_left(options: &Options, consumed: &BTreeSet<String>, own: &[&str]) -> Result<(), FormatRefusal> {
    match options.keys().find(|k| !consumed.contains(*k) && !own.contains(&k.as_str())) {
        None => Ok(()),
        Some(k) => {
            let hint = nearest(k, TABLE_OPTIONS.iter().copied());
            Err(FormatRefusal { option: Some(k.clone()), message: format!("unknown option {k}"), hint })
        }
    }
}
