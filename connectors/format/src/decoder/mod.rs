//! The records of a batch one after the other: value, key, metadata, then what is missing. A record that fails is taken back and listed.
//!
//! Values are parsed straight into the columns. A record is a row once every column has grown by one; until then it can be truncated away, so a bad
//! record costs its own time and touches no neighbour.

mod key;
mod metadata;
mod names;

use std::{collections::BTreeMap, str, sync::Arc};

use crate::{
    builder::{ColumnBuilder, Values},
    cursor::{Cursor, Kind, RawStr},
    fail::{Fail, Result},
    options::Format,
    read::ValueReader,
    table_format::{NullValue, Source, TableFormat},
};
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use millstream_types::{BadReason, BadRecord, Decoded, Decoder, MetadataField, Op, RawBatch, RegionKind};
use names::Names;

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
            Values::Binary(_) => metadata::raw(builder, Some(bytes)),
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
                let fail = fail.inside(&self.format.schema.columns[column].name);
                return self.last_of_repeated(text, fail);
            }
        }
        cursor.end()
    }

    /// A value failed that a later one of the same name may replace: reads the last of each name, or fails as before if no name is repeated.
    #[cold]
    fn last_of_repeated(&mut self, text: &str, fail: Fail) -> Result<()> {
        let mut cursor = Cursor::new(text);
        let mut last = BTreeMap::new();
        let (mut fields, mut first) = (0, true);
        self.extra.clear();
        cursor.kind()?;
        cursor.enter()?;
        while let Some(name) = cursor.member(first)? {
            first = false;
            let value = cursor.skip()?;
            if let Some(column) = self.names.get(name, &mut self.scratch) {
                fields += 1;
                last.insert(column, value);
            } else if self.format.extra.is_some() {
                self.collect(name, value);
            }
        }
        cursor.end()?;
        if fields == last.len() {
            return Err(fail);
        }
        for (column, value) in last {
            let builder = &mut self.columns[column];
            builder.truncate(self.rows);
            let read = self.reader.json(&mut cursor.over(value), builder);
            read.map_err(|f| f.inside(&self.format.schema.columns[column].name))?;
        }
        Ok(())
    }

    /// Adds a field that is not a column to the object of the extra column. Names and values stay as they were written.
    fn collect(&mut self, name: RawStr<'_>, value: &str) {
        self.extra.push(if self.extra.is_empty() { '{' } else { ',' });
        for part in ["\"", name.as_written(), "\":", value] {
            self.extra.push_str(part);
        }
    }

    fn metadata(&mut self, batch: &RawBatch, i: usize) -> Result<()> {
        for (column, field) in &self.metadata {
            let builder = &mut self.columns[*column];
            metadata::push(builder, field, batch, i)
                .map_err(|f| f.inside(&self.format.schema.columns[*column].name))?;
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
