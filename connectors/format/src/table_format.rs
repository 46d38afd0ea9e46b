//! How the records of a table's topic become rows: which column comes from where, decided once at definition.
//!
//! **Keys of upsert tables.** With `key.format` and `key.fields` the named columns are read from the key and only there. Without `key.format` the
//! primary key is read from the value; a column of it that the value lacks, and all of it for a tombstone, is taken from the key if that is a JSON
//! object with fields of these names or, for a primary key of one column, a JSON scalar or plain text of its type. Where the key of the topic is
//! something else than the primary key, say so with `key.format = 'none'`: tombstones are bad records then instead of deletes by guess.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use millstream_types::{Column, Decoder, DecoderFactory, Encoder, MetadataField, RegionKind, SqlType, TableSchema};

use crate::{
    decoder::TableDecoder,
    default::Constant,
    encode,
    error::FormatError,
    options::{self, Format, JsonOptions, OptionReader},
};

/// 64 MiB: limit of one record, key and value.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// What a null value means in an append-only table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullValue {
    /// A row whose value columns are NULL.
    Row,
    /// Ignored and counted.
    Skip,
}

/// Where a column comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    Value,
    Key,
    Metadata(MetadataField),
    /// Fields that are not columns, as one JSON object.
    Extra,
    /// Kept by the engine, never in a record.
    Hidden,
}

#[derive(Debug, Clone)]
pub(crate) struct ColumnPlan {
    pub(crate) source: Source,
    pub(crate) default: Option<Constant>,
    /// NULL is refused: `null_key` for the primary key, else `not_null`.
    pub(crate) required: bool,
    pub(crate) key: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyMode {
    /// The key is not read.
    Ignored,
    /// `key.fields` are read from the key.
    Explicit,
    /// Primary key columns that the value lacks are tried in the key.
    Fallback,
}

/// The format of a table's topic. Cheap to clone enough: one clone per region.
#[derive(Debug, Clone)]
pub struct TableFormat {
    pub schema: Arc<TableSchema>,
    pub value_format: Format,
    pub key_format: Format,
    /// Columns that are read from the key, in order. For an upsert table without `key.format`: the primary key.
    pub key_fields: Vec<String>,
    /// Taken from the front of a column's name to get its field in the key.
    pub key_prefix: String,
    pub options: JsonOptions,
    pub null_value: NullValue,
    pub max_record_bytes: usize,
    consumed: BTreeSet<String>,
    pub(crate) key_mode: KeyMode,
    /// Places of `key_fields` in the schema.
    pub(crate) key_columns: Vec<usize>,
    pub(crate) columns: Vec<ColumnPlan>,
    pub(crate) extra: Option<usize>,
}

/// Encoders that write what the table reads, for INSERT into its topic. Each comes with the places of its columns in the table's schema.
#[derive(Debug, Clone)]
pub struct TableEncoders {
    /// `None`: the key is null.
    pub key: Option<(Vec<usize>, Arc<dyn Encoder>)>,
    pub value: (Vec<usize>, Arc<dyn Encoder>),
}

impl TableFormat {
    /// Reads `value.format`, `key.format`, `key.fields`, `key.prefix`, `json.*`, `timezone`, `null_value`, `extra_fields_column` and `value.max.bytes`.
    /// An unknown name below `value.`, `key.` or `json.` is refused; all others are left to the caller (see [`TableFormat::consumed_options`]).
    pub fn from_options(schema: Arc<TableSchema>, options: &BTreeMap<String, String>) -> Result<Self, FormatError> {
        let mut reader = OptionReader::new(options);
        let json = JsonOptions::read(&mut reader)?;
        let formats = [("json", Format::Json), ("string", Format::String), ("bytes", Format::Bytes)];
        let value_format = reader.one_of("value.format", Format::Json, &formats)?;
        let key_formats = [formats[0], formats[1], formats[2], ("none", Format::None)].map(|(n, f)| (n, Some(f)));
        let key_format = reader.one_of("key.format", None, &key_formats)?;
        let key_fields: Vec<String> = match reader.text("key.fields") {
            Some(list) => list.split([',', ';']).map(str::trim).filter(|f| !f.is_empty()).map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let key_prefix = reader.text("key.prefix").unwrap_or_default().to_owned();
        let null_value =
            reader.one_of("null_value", NullValue::Row, &[("row", NullValue::Row), ("skip", NullValue::Skip)])?;
        let extra = reader.text("extra_fields_column");
        let max_record_bytes = reader.positive("value.max.bytes", MAX_RECORD_BYTES)?;
        reader.refuse_unknown(&["value.", "key.", "json."])?;

        let keyed = schema.kind() == RegionKind::Keyed;
        let key_names = || schema.primary_key.iter().map(|i| schema.columns[*i].name.clone()).collect::<Vec<_>>();
        let (key_mode, key_format, key_fields) = match key_format {
            Some(Format::None) if !key_fields.is_empty() => {
                return Err(options::bad("key.fields", &key_fields.join(","), "no fields with key.format = 'none'"));
            }
            Some(Format::None) => (KeyMode::Ignored, Format::None, Vec::new()),
            Some(format) if !key_fields.is_empty() => (KeyMode::Explicit, format, key_fields),
            // The primary key is the one sensible reading.
            Some(format) if keyed => (KeyMode::Explicit, format, key_names()),
            Some(format) => return Err(FormatError::KeyFieldsMissing(format.as_str())),
            None if !key_fields.is_empty() => (KeyMode::Explicit, Format::Json, key_fields),
            None if keyed => (KeyMode::Fallback, Format::Json, key_names()),
            None => (KeyMode::Ignored, Format::None, Vec::new()),
        };
        let mut format = Self {
            value_format,
            key_format,
            key_fields,
            key_prefix,
            options: json,
            null_value,
            max_record_bytes,
            consumed: reader.used,
            key_mode,
            key_columns: Vec::new(),
            columns: Vec::new(),
            extra: None,
            schema,
        };
        format.plan(extra)?;
        Ok(format)
    }

    /// JSON values, no options: for tests and tools.
    pub fn json(schema: Arc<TableSchema>) -> Result<Self, FormatError> {
        Self::from_options(schema, &BTreeMap::new())
    }

    /// Names of the options that were read here; the caller refuses what nobody has read.
    pub fn consumed_options(&self) -> &BTreeSet<String> {
        &self.consumed
    }

    /// Whether a column needs record headers, so that a reader may leave them out otherwise.
    pub fn wants_headers(&self) -> bool {
        let headers =
            |p: &ColumnPlan| matches!(p.source, Source::Metadata(MetadataField::HeadersMap | MetadataField::Header(_)));
        self.columns.iter().any(headers)
    }

    fn plan(&mut self, extra: Option<&str>) -> Result<(), FormatError> {
        let schema = Arc::clone(&self.schema);
        let known = |name: &str| {
            let found = schema.position(name);
            found.ok_or_else(|| FormatError::Column {
                column: name.to_owned(),
                what: "not a column of the table".to_owned(),
            })
        };
        self.key_columns = self.key_fields.iter().map(|f| known(f)).collect::<Result<_, _>>()?;
        self.extra = extra.map(known).transpose()?;
        for (i, column) in schema.columns.iter().enumerate() {
            let source = self.source(i, column)?;
            let key = schema.is_key(i);
            let hidden = source == Source::Hidden;
            let default = Constant::of(column, self.options)?;
            self.columns.push(ColumnPlan { source, default, required: !hidden && (key || !column.nullable), key });
        }
        self.check_single("value", self.value_format, &self.value_columns())?;
        if self.key_mode == KeyMode::Explicit {
            self.check_single("key", self.key_format, &self.key_columns)?;
        }
        Ok(())
    }

    fn source(&self, i: usize, column: &Column) -> Result<Source, FormatError> {
        let wrong = |what: String| FormatError::Column { column: column.name.clone(), what };
        if column.hidden {
            return Ok(Source::Hidden);
        }
        if let Some(field) = &column.metadata {
            if self.key_columns.contains(&i) && self.key_mode == KeyMode::Explicit {
                return Err(wrong("a metadata column cannot be a key field".to_owned()));
            }
            let fitting = metadata_types(field);
            return if fitting.contains(&column.sql_type) {
                Ok(Source::Metadata(field.clone()))
            } else {
                let names = fitting.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
                Err(wrong(format!("METADATA FROM {field:?} is {names}, not {}", column.sql_type)))
            };
        }
        if self.extra == Some(i) {
            return match (self.value_format, &column.sql_type) {
                (Format::Json, SqlType::Jsonb) => Ok(Source::Extra),
                (Format::Json, other) => Err(wrong(format!("extra_fields_column is JSONB, not {other}"))),
                _ => Err(wrong("extra_fields_column needs value.format = 'json'".to_owned())),
            };
        }
        let from_key = self.key_mode == KeyMode::Explicit && self.key_columns.contains(&i);
        Ok(if from_key { Source::Key } else { Source::Value })
    }

    /// Places of the columns that are read from the value.
    pub(crate) fn value_columns(&self) -> Vec<usize> {
        (0..self.columns.len()).filter(|i| self.columns[*i].source == Source::Value).collect()
    }

    fn check_single(&self, what: &'static str, format: Format, columns: &[usize]) -> Result<(), FormatError> {
        if !matches!(format, Format::String | Format::Bytes) {
            return Ok(());
        }
        let [column] = columns else {
            return Err(FormatError::OneColumn { format: format.as_str(), columns: columns.len() });
        };
        let column = &self.schema.columns[*column];
        let bytes = matches!(column.sql_type, SqlType::Bytea);
        if format == Format::Bytes && !bytes {
            let what = format!("{what}.format = 'bytes' needs BYTEA, not {}", column.sql_type);
            return Err(FormatError::Column { column: column.name.clone(), what });
        }
        Ok(())
    }

    /// The name of a key column inside a JSON key.
    pub(crate) fn key_field(&self, column: usize) -> &str {
        let name = &self.schema.columns[column].name;
        name.strip_prefix(&self.key_prefix).unwrap_or(name)
    }

    /// Encoders that write what this table reads.
    pub fn encoders(&self) -> Result<TableEncoders, FormatError> {
        let columns = |places: &[usize]| places.iter().map(|i| self.schema.columns[*i].clone()).collect::<Vec<_>>();
        let value_columns = self.value_columns();
        let value = encode::encoder(self.value_format, &columns(&value_columns), &self.options)?;
        let key = match self.key_mode {
            KeyMode::Ignored => None,
            KeyMode::Explicit | KeyMode::Fallback => {
                let mut key = columns(&self.key_columns);
                for (column, place) in key.iter_mut().zip(&self.key_columns) {
                    column.name = self.key_field(*place).to_owned();
                }
                Some((self.key_columns.clone(), encode::encoder(self.key_format, &key, &self.options)?))
            }
        };
        Ok(TableEncoders { key, value: (value_columns, value) })
    }
}

impl DecoderFactory for TableFormat {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(TableDecoder::new(self.clone()))
    }
}

fn metadata_types(field: &MetadataField) -> Vec<SqlType> {
    match field {
        MetadataField::Topic => vec![SqlType::Varchar],
        MetadataField::Partition => vec![SqlType::Int, SqlType::BigInt],
        MetadataField::Offset => vec![SqlType::BigInt],
        MetadataField::Timestamp => vec![SqlType::TimestampTz, SqlType::Timestamp],
        MetadataField::HeadersMap => vec![SqlType::Map(Box::new(SqlType::Varchar), Box::new(SqlType::Bytea))],
        MetadataField::Header(_) | MetadataField::Key | MetadataField::Value => vec![SqlType::Bytea, SqlType::Varchar],
    }
}
