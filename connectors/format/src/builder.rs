//! Columns under construction. A row of any type can be taken back with [`ColumnBuilder::truncate`], so a bad record leaves nothing behind.
//!
//! Values go straight into the vectors that become Arrow buffers: no allocation per record, no copy at the end.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array,
        Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray, ListArray, MapArray, NullBufferBuilder,
        PrimitiveArray, StringArray, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    },
    buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer},
    datatypes::{DataType, Field, IntervalMonthDayNano, i256},
    error::ArrowError,
};
use millstream_types::{BadReason, SqlType};

use crate::fail::{Fail, Result};

#[derive(Debug)]
pub(crate) struct ColumnBuilder {
    pub(crate) valid: NullBufferBuilder,
    pub(crate) values: Values,
}

#[derive(Debug)]
pub(crate) enum Values {
    Bool(Vec<bool>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Decimal128 { precision: u8, scale: i8, values: Vec<i128> },
    Decimal256 { precision: u8, scale: i8, values: Vec<i256> },
    Text(Bytes),
    Json(Bytes),
    Binary(Bytes),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp { zoned: bool, values: Vec<i64> },
    Interval(Vec<IntervalMonthDayNano>),
    List { ends: Ends, items: Box<ColumnBuilder> },
    Struct(Vec<(String, ColumnBuilder)>),
    Map { ends: Ends, keys: Box<ColumnBuilder>, values: Box<ColumnBuilder> },
}

/// Variable length bytes back to back.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    pub(crate) data: Vec<u8>,
    ends: Ends,
}

/// End of each entry; the start of the first is 0.
#[derive(Debug)]
pub(crate) struct Ends(Vec<i32>);

impl Default for Ends {
    fn default() -> Self {
        Ends(vec![0])
    }
}

impl Ends {
    /// Offsets of Arrow are 32 bit: a batch of one column holds less than 2 GiB.
    #[inline]
    pub(crate) fn push(&mut self, end: usize) -> Result<()> {
        let end = i32::try_from(end)
            .map_err(|_| Fail::new(BadReason::LimitExceeded, "a column of one batch exceeds 2 GiB"))?;
        self.0.push(end);
        Ok(())
    }

    #[inline]
    fn repeat(&mut self) {
        let last = self.last();
        self.0.push(last);
    }

    #[inline]
    fn last(&self) -> i32 {
        self.0[self.0.len() - 1]
    }

    /// Keeps `len` entries and returns the end of the last.
    fn truncate(&mut self, len: usize) -> usize {
        self.0.truncate(len + 1);
        self.last() as usize
    }

    fn take(&mut self) -> OffsetBuffer<i32> {
        let ends = std::mem::take(self).0;
        OffsetBuffer::new(ScalarBuffer::from(ends))
    }
}

impl Bytes {
    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.data.extend_from_slice(bytes);
        self.finish()
    }

    /// Ends the entry that was written to `data`.
    #[inline]
    pub(crate) fn finish(&mut self) -> Result<()> {
        let end = self.data.len();
        self.ends.push(end).inspect_err(|_| self.data.truncate(self.ends.last() as usize))
    }

    fn truncate(&mut self, len: usize) {
        let end = self.ends.truncate(len);
        self.data.truncate(end);
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, arrow::buffer::Buffer) {
        (self.ends.take(), std::mem::take(&mut self.data).into())
    }
}

impl ColumnBuilder {
    pub(crate) fn new(sql_type: &SqlType) -> Self {
        let boxed = |t: &SqlType| Box::new(ColumnBuilder::new(t));
        let values = match sql_type {
            SqlType::Boolean => Values::Bool(Vec::new()),
            SqlType::SmallInt => Values::I16(Vec::new()),
            SqlType::Int => Values::I32(Vec::new()),
            SqlType::BigInt => Values::I64(Vec::new()),
            SqlType::Real => Values::F32(Vec::new()),
            SqlType::Double => Values::F64(Vec::new()),
            SqlType::Decimal(p, s) if *p <= 38 => Values::Decimal128 { precision: *p, scale: *s, values: Vec::new() },
            SqlType::Decimal(p, s) => Values::Decimal256 { precision: *p, scale: *s, values: Vec::new() },
            SqlType::Varchar => Values::Text(Bytes::default()),
            SqlType::Jsonb => Values::Json(Bytes::default()),
            SqlType::Bytea => Values::Binary(Bytes::default()),
            SqlType::Date => Values::Date(Vec::new()),
            SqlType::Time => Values::Time(Vec::new()),
            SqlType::Timestamp => Values::Timestamp { zoned: false, values: Vec::new() },
            SqlType::TimestampTz => Values::Timestamp { zoned: true, values: Vec::new() },
            SqlType::Interval => Values::Interval(Vec::new()),
            SqlType::Array(t) => Values::List { ends: Ends::default(), items: boxed(t) },
            SqlType::Struct(fields) => {
                Values::Struct(fields.iter().map(|(n, t)| (n.clone(), ColumnBuilder::new(t))).collect())
            }
            SqlType::Map(k, v) => Values::Map { ends: Ends::default(), keys: boxed(k), values: boxed(v) },
        };
        Self { valid: NullBufferBuilder::new(0), values }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.valid.len()
    }

    pub(crate) fn push_null(&mut self) {
        self.valid.append_null();
        match &mut self.values {
            Values::Bool(v) => v.push(false),
            Values::I16(v) => v.push(0),
            Values::I32(v) | Values::Date(v) => v.push(0),
            Values::I64(v) | Values::Time(v) | Values::Timestamp { values: v, .. } => v.push(0),
            Values::F32(v) => v.push(0.0),
            Values::F64(v) => v.push(0.0),
            Values::Decimal128 { values, .. } => values.push(0),
            Values::Decimal256 { values, .. } => values.push(i256::ZERO),
            Values::Text(b) | Values::Json(b) | Values::Binary(b) => b.ends.repeat(),
            Values::Interval(v) => v.push(IntervalMonthDayNano::ZERO),
            Values::List { ends, .. } | Values::Map { ends, .. } => ends.repeat(),
            Values::Struct(fields) => fields.iter_mut().for_each(|(_, f)| f.push_null()),
        }
    }

    /// Keeps the first `len` rows. Also mends a row whose value failed half way: its children may be longer than the column says.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.valid.truncate(len);
        match &mut self.values {
            Values::Bool(v) => v.truncate(len),
            Values::I16(v) => v.truncate(len),
            Values::I32(v) | Values::Date(v) => v.truncate(len),
            Values::I64(v) | Values::Time(v) | Values::Timestamp { values: v, .. } => v.truncate(len),
            Values::F32(v) => v.truncate(len),
            Values::F64(v) => v.truncate(len),
            Values::Decimal128 { values, .. } => values.truncate(len),
            Values::Decimal256 { values, .. } => values.truncate(len),
            Values::Text(b) | Values::Json(b) | Values::Binary(b) => b.truncate(len),
            Values::Interval(v) => v.truncate(len),
            Values::List { ends, items } => items.truncate(ends.truncate(len)),
            Values::Map { ends, keys, values } => {
                let end = ends.truncate(len);
                keys.truncate(end);
                values.truncate(end);
            }
            Values::Struct(fields) => fields.iter_mut().for_each(|(_, f)| f.truncate(len)),
        }
    }

    /// Room for a batch, to be called before the first row.
    pub(crate) fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Bool(v) => v.reserve(rows),
            Values::I16(v) => v.reserve(rows),
            Values::I32(v) | Values::Date(v) => v.reserve(rows),
            Values::I64(v) | Values::Time(v) | Values::Timestamp { values: v, .. } => v.reserve(rows),
            Values::F32(v) => v.reserve(rows),
            Values::F64(v) => v.reserve(rows),
            Values::Decimal128 { values, .. } => values.reserve(rows),
            Values::Decimal256 { values, .. } => values.reserve(rows),
            Values::Text(b) | Values::Json(b) | Values::Binary(b) => {
                b.ends.0.reserve(rows);
                b.data.reserve(rows * 8);
            }
            Values::Interval(v) => v.reserve(rows),
            Values::List { ends, .. } | Values::Map { ends, .. } => ends.0.reserve(rows),
            Values::Struct(fields) => fields.iter_mut().for_each(|(_, f)| f.reserve(rows)),
        }
    }

    /// The rows so far as an array of `data_type`, which is the Arrow type of the SQL type; the builder is empty afterwards.
    pub(crate) fn finish(&mut self, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
        let valid = self.valid.finish();
        Ok(match &mut self.values {
            Values::Bool(v) => Arc::new(BooleanArray::new(BooleanBuffer::from(std::mem::take(v)), valid)),
            Values::I16(v) => Arc::new(Int16Array::new(take(v), valid)),
            Values::I32(v) => Arc::new(Int32Array::new(take(v), valid)),
            Values::I64(v) => Arc::new(Int64Array::new(take(v), valid)),
            Values::F32(v) => Arc::new(Float32Array::new(take(v), valid)),
            Values::F64(v) => Arc::new(Float64Array::new(take(v), valid)),
            Values::Decimal128 { precision, scale, values } => {
                Arc::new(Decimal128Array::new(take(values), valid).with_precision_and_scale(*precision, *scale)?)
            }
            Values::Decimal256 { precision, scale, values } => {
                Arc::new(Decimal256Array::new(take(values), valid).with_precision_and_scale(*precision, *scale)?)
            }
            Values::Text(b) | Values::Json(b) => {
                let (ends, data) = b.take();
                Arc::new(StringArray::try_new(ends, data, valid)?)
            }
            Values::Binary(b) => {
                let (ends, data) = b.take();
                Arc::new(BinaryArray::try_new(ends, data, valid)?)
            }
            Values::Date(v) => Arc::new(Date32Array::new(take(v), valid)),
            Values::Time(v) => Arc::new(Time64MicrosecondArray::new(take(v), valid)),
            Values::Timestamp { values, .. } => {
                let array: TimestampMicrosecondArray = PrimitiveArray::new(take(values), valid);
                Arc::new(array.with_data_type(data_type.clone()))
            }
            Values::Interval(v) => Arc::new(IntervalMonthDayNanoArray::new(take(v), valid)),
            Values::List { ends, items } => list(data_type, ends, items, valid)?,
            Values::Struct(fields) => structure(data_type, fields, valid)?,
            Values::Map { ends, keys, values } => map(data_type, ends, keys, values, valid)?,
        })
    }
}

fn take<T: arrow::datatypes::ArrowNativeType>(v: &mut Vec<T>) -> ScalarBuffer<T> {
    ScalarBuffer::from(std::mem::take(v))
}

fn other(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a builder was made for another type than {data_type}"))
}

fn list(
    data_type: &DataType,
    ends: &mut Ends,
    items: &mut ColumnBuilder,
    valid: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let DataType::List(field) = data_type else { return Err(other(data_type)) };
    let items = items.finish(field.data_type())?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), ends.take(), items, valid)?))
}

fn structure(
    data_type: &DataType,
    builders: &mut [(String, ColumnBuilder)],
    valid: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let DataType::Struct(fields) = data_type else { return Err(other(data_type)) };
    let finish = |(field, (_, builder)): (&Arc<Field>, &mut (String, ColumnBuilder))| builder.finish(field.data_type());
    let columns = fields.iter().zip(builders).map(finish).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(StructArray::try_new(fields.clone(), columns, valid)?))
}

fn map(
    data_type: &DataType,
    ends: &mut Ends,
    keys: &mut ColumnBuilder,
    values: &mut ColumnBuilder,
    valid: Option<NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let DataType::Map(field, _) = data_type else { return Err(other(data_type)) };
    let DataType::Struct(entry) = field.data_type() else { return Err(other(data_type)) };
    let columns = vec![keys.finish(entry[0].data_type())?, values.finish(entry[1].data_type())?];
    let entries = StructArray::try_new(entry.clone(), columns, None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(field), ends.take(), entries, valid, false)?))
}
