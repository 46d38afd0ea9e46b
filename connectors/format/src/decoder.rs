//! The records of a batch one after the other: value, key, metadata, then what is missing. A record that fails is taken back and listed.
//!
//! Values are parsed straight into the columns. A record is a row once every column has grown by one; until then it can be truncated away, so a bad
//! record costs its own time and touches no neighbour.

use std::{str, sync::Arc};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use millstream_types::{BadReason, BadRecord, Decoded, Decoder, MetadataField, Op, RawBatch, RegionKind};
use rustc_hash::FxHashMap;

use crate::{
    builder::{ColumnBuilder, Values},
    cursor::{Cursor, Kind, RawStr},
    fail::{Fail, Result},
    options::Format,
    read::ValueReader,
    table_format::{KeyMode, NullValue, Source, TableFormat},
};

/// Decoder of one region.
#[derive(Debug)]
pub struct TableDecoder {
    format: Arc<TableFormat>,
    arrow: SchemaRef,
    columns: Vec<ColumnBuilder>,
    reader: ValueReader,
    names: Names,
    /// Columns that refuse NULL.
    required: Vec<usize>,
    metadata: Vec<(usize, MetadataField)>,
    keyed: bool,
    /// Rows of the batch so far.
    rows: usize,
    scratch: String,
    /// The object of fields that are not columns.
    extra: String,
}

/// What became of a record that is not bad.
enum Outcome {
    Row(Op),
    Ignored,
}

/// Where a record failed.
type Failed = (&'static str, Fail);

trait Stage<T> {
    fn stage(self, name: &'static str) -> Result<T, Failed>;
}

impl<T> Stage<T> for Result<T> {
    #[inline]
    fn stage(self, name: &'static str) -> Result<T, Failed> {
        self.map_err(|f| (name, f))
    }
}

impl TableDecoder {
    pub fn new(format: TableFormat) -> Self {
        let schema = &format.schema;
        let names = Names::new(format.value_columns().into_iter().map(|i| (schema.columns[i].name.clone(), i)));
        let metadata = |(i, p): (usize, &crate::table_format::ColumnPlan)| match &p.source {
            Source::Metadata(field) => Some((i, field.clone())),
            _ => None,
        };
        Self {
            arrow: schema.arrow(),
            columns: schema.columns.iter().map(|c| ColumnBuilder::new(&c.sql_type)).collect(),
            reader: ValueReader::new(format.options),
            names,
            required: (0..format.columns.len()).filter(|i| format.columns[*i].required).collect(),
            metadata: format.columns.iter().enumerate().filter_map(metadata).collect(),
            keyed: schema.kind() == RegionKind::Keyed,
            rows: 0,
            scratch: String::new(),
            extra: String::new(),
            format: Arc::new(format),
        }
    }

    fn record(&mut self, batch: &RawBatch, i: usize) -> Result<Outcome, Failed> {
        let (key, value) = (batch.keys.get(i), batch.values.get(i));
        let size = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        if size > self.format.max_record_bytes {
            let what = format_args!("{size} bytes, the limit is {}", self.format.max_record_bytes);
            return Err(("value", Fail::new(BadReason::TooLarge, what)));
        }
        match value {
            None if self.keyed => {
                self.tombstone(key).stage("key")?;
                return Ok(Outcome::Row(Op::Delete));
            }
            None if self.format.null_value == NullValue::Skip => return Ok(Outcome::Ignored),
            None => {
                for i in 0..self.columns.len() {
                    if self.format.columns[i].source == Source::Value {
                        self.columns[i].push_null();
                    }
                }
            }
            Some(value) => self.value(value).stage("value")?,
        }
        self.key(key).stage("key")?;
        self.metadata(batch, i).stage("header")?;
        self.fill().stage("value")?;
        Ok(Outcome::Row(Op::Insert))
    }

    fn value(&mut self, bytes: &[u8]) -> Result<()> {
        if self.format.value_format == Format::Json {
            return self.json_value(utf8(bytes)?);
        }
        let Some((name, column)) = self.names.only() else { return Ok(()) };
        let builder = &mut self.columns[column];
        match builder.values {
            Values::Binary(_) => raw(builder, Some(bytes)),
            _ => utf8(bytes).and_then(|text| self.reader.text(text, builder)).map_err(|f| f.inside(name)),
        }
    }

    fn json_value(&mut self, text: &str) -> Result<()> {
        let mut cursor = Cursor::new(text);
        if cursor.kind()? != Kind::Object {
            let found = cursor.skip()?;
            cursor.end()?;
            return Err(Fail::mismatch("an object", found));
        }
        cursor.enter()?;
        let mut place = 0;
        while let Some(name) = cursor.member(place == 0)? {
            let column = self.names.find(place, name, &mut self.scratch);
            place += 1;
            let Some(column) = column else {
                let value = cursor.skip()?;
                if self.format.extra.is_some() {
                    self.collect(name, value);
                }
                continue;
            };
            let builder = &mut self.columns[column];
            if builder.len() > self.rows {
                // Of a repeated name the last wins.
                builder.truncate(self.rows);
            }
            if let Err(fail) = self.reader.json(&mut cursor, builder) {
                return Err(fail.inside(&self.format.schema.columns[column].name));
            }
        }
        cursor.end()
    }

    /// Adds a field that is not a column to the object of the extra column. Names and values stay as they were written.
    fn collect(&mut self, name: RawStr<'_>, value: &str) {
        self.extra.push(if self.extra.is_empty() { '{' } else { ',' });
        for part in ["\"", name.as_written(), "\":", value] {
            self.extra.push_str(part);
        }
    }

    /// Key columns of a row.
    fn key(&mut self, key: Option<&[u8]>) -> Result<()> {
        match self.format.key_mode {
            KeyMode::Ignored => Ok(()),
            KeyMode::Explicit => match key {
                Some(key) => self.explicit_key(key),
                None => self.null_key(),
            },
            KeyMode::Fallback => {
                let missing = self.format.key_columns.iter().any(|c| self.columns[*c].len() == self.rows);
                if missing && let Some(key) = key {
                    self.fallback_key(key);
                }
                Ok(())
            }
        }
    }

    /// Columns of a key that is null: NULL, unless the primary key is among them.
    fn null_key(&mut self) -> Result<()> {
        let format = Arc::clone(&self.format);
        for column in &format.key_columns {
            if format.columns[*column].key {
                let fail = Fail::new(BadReason::NullKey, "the record has no key");
                return Err(fail.inside(&format.schema.columns[*column].name));
            }
            self.columns[*column].push_null();
        }
        Ok(())
    }

    fn explicit_key(&mut self, key: &[u8]) -> Result<()> {
        let format = Arc::clone(&self.format);
        let single = match format.key_columns.as_slice() {
            [column] => Some(*column),
            _ => None,
        };
        match (format.key_format, single) {
            (Format::Bytes, Some(column)) => raw(&mut self.columns[column], Some(key)),
            (Format::String, Some(column)) => {
                let text = utf8(key)?;
                let done = self.plain(column, text);
                done.map_err(|f| f.inside(&format.schema.columns[column].name))
            }
            _ => {
                let text = utf8(key)?;
                let mut cursor = Cursor::new(text);
                match (cursor.kind()?, single) {
                    (Kind::Object, _) => self.key_object(&mut cursor)?,
                    (_, Some(column)) => self
                        .reader
                        .json(&mut cursor, &mut self.columns[column])
                        .map_err(|f| f.inside(&format.schema.columns[column].name))?,
                    (_, None) => {
                        let found = cursor.skip()?;
                        return Err(Fail::mismatch("an object with the key fields", found));
                    }
                }
                cursor.end()
            }
        }
    }

    /// A whole text as the value of a column.
    fn plain(&mut self, column: usize, text: &str) -> Result<()> {
        let builder = &mut self.columns[column];
        if let Values::Binary(_) = builder.values {
            return raw(builder, Some(text.as_bytes()));
        }
        self.reader.text(text, builder)
    }

    /// Key columns from the fields of an object; others are skipped, missing ones stay missing.
    fn key_object(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let format = Arc::clone(&self.format);
        cursor.enter()?;
        let mut first = true;
        while let Some(name) = cursor.member(first)? {
            first = false;
            let name = name.get(&mut self.scratch).ok();
            let column = name.and_then(|name| format.key_columns.iter().find(|c| format.key_field(**c) == name));
            match column {
                Some(column) => {
                    let builder = &mut self.columns[*column];
                    builder.truncate(self.rows);
                    let done = self.reader.json(cursor, builder);
                    done.map_err(|f| f.inside(&format.schema.columns[*column].name))?;
                }
                None => {
                    cursor.skip()?;
                }
            }
        }
        Ok(())
    }

    /// Tries to read the primary key columns that are missing from a key of unknown form. They all grow, or none does.
    fn fallback_key(&mut self, key: &[u8]) -> bool {
        let format = Arc::clone(&self.format);
        let missing: Vec<usize> =
            format.key_columns.iter().copied().filter(|c| self.columns[*c].len() == self.rows).collect();
        let done = match str::from_utf8(key) {
            Ok(text) if text.trim_start().starts_with('{') => self.fallback_object(text, &missing),
            Ok(text) => match format.key_columns.as_slice() {
                [column] => self.fallback_scalar(text, *column),
                _ => false,
            },
            Err(_) => match format.key_columns.as_slice() {
                [column] if matches!(self.columns[*column].values, Values::Binary(_)) => {
                    raw(&mut self.columns[*column], Some(key)).is_ok()
                }
                _ => false,
            },
        };
        if !done {
            missing.iter().for_each(|c| self.columns[*c].truncate(self.rows));
        }
        done
    }

    fn fallback_object(&mut self, text: &str, missing: &[usize]) -> bool {
        let format = Arc::clone(&self.format);
        let mut cursor = Cursor::new(text);
        if cursor.kind().is_err() || cursor.enter().is_err() {
            return false;
        }
        let mut first = true;
        loop {
            let name = match cursor.member(first) {
                Ok(Some(name)) => name,
                Ok(None) => break,
                Err(_) => return false,
            };
            first = false;
            let name = name.get(&mut self.scratch).ok();
            let column = name.and_then(|name| missing.iter().copied().find(|c| format.key_field(*c) == name));
            let read = match column {
                Some(column) => {
                    self.columns[column].truncate(self.rows);
                    self.reader.json(&mut cursor, &mut self.columns[column])
                }
                None => cursor.skip().map(|_| ()),
            };
            if read.is_err() {
                return false;
            }
        }
        cursor.end().is_ok() && missing.iter().all(|c| self.columns[*c].len() > self.rows)
    }

    fn fallback_scalar(&mut self, text: &str, column: usize) -> bool {
        let rows = self.rows;
        let builder = &mut self.columns[column];
        let mut cursor = Cursor::new(text);
        let read = self.reader.json(&mut cursor, builder).and_then(|()| cursor.end());
        if read.is_ok() && builder.valid.is_valid(rows) {
            return true;
        }
        builder.truncate(rows);
        self.plain(column, text).is_ok()
    }

    /// A delete: the primary key from the record's key, all else NULL.
    fn tombstone(&mut self, key: Option<&[u8]>) -> Result<()> {
        let format = Arc::clone(&self.format);
        let unreadable = |what: &str| Err(Fail::new(BadReason::TombstoneWithoutKey, what));
        let covered = format.schema.primary_key.iter().all(|c| format.key_columns.contains(c));
        match (format.key_mode, key) {
            (KeyMode::Ignored, _) => return unreadable("the value is null and the key is not read"),
            (KeyMode::Explicit, _) if !covered => {
                return unreadable("the value is null and the primary key is not in key.fields");
            }
            (KeyMode::Explicit, None) => self.null_key()?,
            (KeyMode::Explicit, Some(key)) => self.explicit_key(key)?,
            (KeyMode::Fallback, None) => return unreadable("key and value are null"),
            (KeyMode::Fallback, Some(key)) => {
                if !self.fallback_key(key) {
                    return unreadable(
                        "the value is null and the key is neither an object with the primary key nor its text",
                    );
                }
            }
        }
        for (i, plan) in format.columns.iter().enumerate() {
            let builder = &mut self.columns[i];
            if !plan.key {
                builder.truncate(self.rows);
                builder.push_null();
            } else if builder.len() == self.rows || !builder.valid.is_valid(self.rows) {
                return Err(
                    Fail::new(BadReason::NullKey, "the key has no value for it").inside(&format.schema.columns[i].name)
                );
            }
        }
        Ok(())
    }

    fn metadata(&mut self, batch: &RawBatch, i: usize) -> Result<()> {
        for (column, field) in &self.metadata {
            let builder = &mut self.columns[*column];
            metadata(builder, field, batch, i).map_err(|f| f.inside(&self.format.schema.columns[*column].name))?;
        }
        Ok(())
    }

    /// Defaults and NULLs for what the record lacks, and the check of what must not be NULL.
    fn fill(&mut self) -> Result<()> {
        if let Some(column) = self.format.extra {
            self.finish_extra(column)?;
        }
        for i in 0..self.columns.len() {
            if self.columns[i].len() == self.rows {
                self.fill_column(i)?;
            }
        }
        for i in &self.required {
            if !self.columns[*i].valid.is_valid(self.rows) {
                let reason = if self.format.columns[*i].key { BadReason::NullKey } else { BadReason::NotNull };
                return Err(Fail::new(reason, "the value is null").inside(&self.format.schema.columns[*i].name));
            }
        }
        Ok(())
    }

    fn finish_extra(&mut self, column: usize) -> Result<()> {
        if self.extra.is_empty() {
            return Ok(());
        }
        self.extra.push('}');
        let done = self.reader.text(&self.extra, &mut self.columns[column]);
        self.extra.clear();
        done
    }

    fn fill_column(&mut self, i: usize) -> Result<()> {
        let plan = &self.format.columns[i];
        let builder = &mut self.columns[i];
        match &plan.default {
            Some(default) => default.push(&mut self.reader, builder),
            None if !plan.required => {
                builder.push_null();
                Ok(())
            }
            None => {
                let reason = if plan.key { BadReason::NullKey } else { BadReason::MissingField };
                Err(Fail::new(reason, "the record lacks the field").inside(&self.format.schema.columns[i].name))
            }
        }
    }

    /// Takes back what a bad or ignored record has left.
    fn take_back(&mut self) {
        let rows = self.rows;
        self.columns.iter_mut().for_each(|c| c.truncate(rows));
        self.extra.clear();
    }

    fn finish(&mut self) -> RecordBatch {
        let arrays = self.columns.iter_mut().zip(self.arrow.fields()).map(|(c, f)| c.finish(f.data_type()));
        let arrays = arrays.collect::<Result<Vec<_>, _>>().expect("builders are made from the types of the schema");
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.arrow), arrays, &options)
            .expect("every column has one entry per row and no NULL where the schema forbids it")
    }
}

impl Decoder for TableDecoder {
    fn decode(&mut self, batch: &RawBatch) -> Decoded {
        let records = batch.len();
        self.rows = 0;
        self.columns.iter_mut().for_each(|c| c.reserve(records));
        let mut ops = Vec::with_capacity(records);
        let mut offsets = Vec::with_capacity(records);
        let mut bad = Vec::new();
        let mut ignored = 0;
        for i in 0..records {
            match self.record(batch, i) {
                Ok(Outcome::Row(op)) => {
                    self.rows += 1;
                    ops.push(op);
                    offsets.push(batch.offsets[i]);
                    debug_assert!(self.columns.iter().all(|c| c.len() == self.rows));
                }
                Ok(Outcome::Ignored) => {
                    self.take_back();
                    ignored += 1;
                }
                Err((stage, fail)) => {
                    self.take_back();
                    let (reason, column, message) = fail.into_parts();
                    let (offset, timestamp_ms) = (batch.offsets[i], batch.timestamps[i]);
                    bad.push(BadRecord { offset, timestamp_ms, stage, reason, column, message });
                }
            }
        }
        Decoded { rows: self.finish(), ops, offsets, bad, ignored, next: batch.next }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    str::from_utf8(bytes)
        .map_err(|e| Fail::new(BadReason::InvalidUtf8, format_args!("no UTF-8 at byte {}", e.valid_up_to())))
}

/// A value that is read as it is, for BYTEA and VARCHAR.
fn raw(builder: &mut ColumnBuilder, bytes: Option<&[u8]>) -> Result<()> {
    let Some(bytes) = bytes else {
        builder.push_null();
        return Ok(());
    };
    match &mut builder.values {
        Values::Text(b) => b.push(utf8(bytes)?.as_bytes())?,
        Values::Binary(b) => b.push(bytes)?,
        _ => return Err(Fail::new(BadReason::TypeMismatch, "a raw column is BYTEA or VARCHAR")),
    }
    builder.valid.append_non_null();
    Ok(())
}

fn metadata(builder: &mut ColumnBuilder, field: &MetadataField, batch: &RawBatch, i: usize) -> Result<()> {
    let headers = batch.headers.get(i).map_or(&[][..], Vec::as_slice);
    match (field, &mut builder.values) {
        (MetadataField::Key, _) => return raw(builder, batch.keys.get(i)),
        (MetadataField::Value, _) => return raw(builder, batch.values.get(i)),
        (MetadataField::Header(name), _) => {
            // Of a repeated name the last wins.
            let header = headers.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.as_deref());
            return raw(builder, header);
        }
        (MetadataField::Topic, Values::Text(b)) => b.push(batch.partition.topic.as_bytes())?,
        (MetadataField::Partition, Values::I32(v)) => v.push(batch.partition.partition),
        (MetadataField::Partition, Values::I64(v)) => v.push(i64::from(batch.partition.partition)),
        (MetadataField::Offset, Values::I64(v)) => v.push(batch.offsets[i]),
        (MetadataField::Timestamp, Values::Timestamp { values, .. }) => {
            let Some(micros) = Some(batch.timestamps[i]).filter(|t| *t >= 0).and_then(|t| t.checked_mul(1_000)) else {
                builder.push_null();
                return Ok(());
            };
            values.push(micros);
        }
        (MetadataField::HeadersMap, Values::Map { ends, keys, values }) => {
            for (at, (name, value)) in headers.iter().enumerate() {
                if headers[at + 1..].iter().all(|(later, _)| later != name) {
                    raw(keys, Some(name.as_bytes()))?;
                    raw(values, value.as_deref())?;
                }
            }
            ends.push(keys.len())?;
        }
        _ => return Err(Fail::new(BadReason::TypeMismatch, "a metadata column of another type")),
    }
    builder.valid.append_non_null();
    Ok(())
}

/// Column places by field name. Records of a topic mostly have their fields in one order, so the place in the last record is tried first.
#[derive(Debug)]
struct Names {
    names: Vec<(String, usize)>,
    by_name: FxHashMap<String, usize>,
    /// By place in the object: an index into `names`. Bounded by the member limit.
    order: Vec<usize>,
}

impl Names {
    fn new(names: impl Iterator<Item = (String, usize)>) -> Self {
        let names: Vec<_> = names.collect();
        let by_name = names.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)).collect();
        Self { names, by_name, order: Vec::new() }
    }

    /// The column, for formats with exactly one.
    fn only(&self) -> Option<(&str, usize)> {
        self.names.first().map(|(name, column)| (name.as_str(), *column))
    }

    #[inline]
    fn find(&mut self, place: usize, name: RawStr<'_>, scratch: &mut String) -> Option<usize> {
        // A name that is no text cannot be a column's and so cannot fail the record.
        let name = name.get(scratch).ok()?;
        if let Some((known, column)) = self.order.get(place).and_then(|i| self.names.get(*i))
            && known == name
        {
            return Some(*column);
        }
        let index = *self.by_name.get(name)?;
        if self.order.len() <= place {
            self.order.resize(place + 1, usize::MAX);
        }
        self.order[place] = index;
        Some(self.names[index].1)
    }
}
