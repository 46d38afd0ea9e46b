//! Tables, batches and rows as text.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{DataType, TimestampMicrosecondType},
    util::display::{ArrayFormatter, FormatOptions},
};
use bytes::Bytes;
use millstream_format::TableFormat;
use millstream_types::{BadReason, Column, Decoded, DecoderFactory, Offset, RawBatch, TableSchema, TopicPartition};

/// `id bigint pk, v varchar not null`.
pub(crate) fn table(text: &str) -> TableSchema {
    let mut columns = Vec::new();
    let mut primary_key = Vec::new();
    for (i, part) in split(text).enumerate() {
        let part = part.trim();
        let (part, key) = part.strip_suffix(" pk").map_or((part, false), |p| (p, true));
        let (part, not_null) = part.strip_suffix(" not null").map_or((part, false), |p| (p, true));
        let (name, sql_type) = part.split_once(' ').unwrap();
        let mut column = Column::new(i as u32 + 1, name, sql_type.parse().unwrap());
        column.nullable = !key && !not_null;
        if key {
            primary_key.push(i);
        }
        columns.push(column);
    }
    TableSchema { id: 1, columns, primary_key }
}

fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

pub(crate) fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(crate) fn format(schema: TableSchema, pairs: &[(&str, &str)]) -> TableFormat {
    TableFormat::from_options(Arc::new(schema), &options(pairs)).unwrap()
}

pub(crate) type Record<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Records at offsets 100, 102, 104, ..
pub(crate) fn batch(records: &[Record<'_>]) -> RawBatch {
    let mut batch = RawBatch::new(TopicPartition::new("topic", 3), Offset(100 + 2 * records.len() as i64));
    for (i, (key, value)) in records.iter().enumerate() {
        batch.offsets.push(100 + 2 * i as i64);
        batch.timestamps.push(1_700_000_000_000 + i as i64);
        batch.keys.push(*key);
        batch.values.push(*value);
    }
    batch
}

pub(crate) fn decode(format: &TableFormat, batch: &RawBatch) -> Decoded {
    let decoded = format.decoder().decode(batch);
    check(&decoded, batch);
    decoded
}

/// What holds for every batch.
pub(crate) fn check(d: &Decoded, batch: &RawBatch) {
    assert_eq!(
        d.rows.num_rows() + d.ignored as usize + d.bad.len(),
        batch.len(),
        "every record is a row, ignored or bad"
    );
    assert_eq!((d.ops.len(), d.offsets.len()), (d.rows.num_rows(), d.rows.num_rows()));
    assert!(d.offsets.is_sorted() && d.next == batch.next);
    assert!(d.bad.iter().all(|b| b.message.len() <= 1_024 && batch.offsets.contains(&b.offset)));
}

/// Values of keyless records.
pub(crate) fn values(format: &TableFormat, values: &[&str]) -> Decoded {
    let records: Vec<Record<'_>> = values.iter().map(|v| (None, Some(v.as_bytes()))).collect();
    decode(format, &batch(&records))
}

/// Keys and values; `~` is null.
pub(crate) fn pairs(format: &TableFormat, pairs: &[(&str, &str)]) -> Decoded {
    fn bytes(s: &str) -> Option<&[u8]> {
        (s != "~").then_some(s.as_bytes())
    }
    let records: Vec<Record<'_>> = pairs.iter().map(|(k, v)| (bytes(k), bytes(v))).collect();
    decode(format, &batch(&records))
}

/// `+ 1,a | - 2,NULL`
pub(crate) fn rows(d: &Decoded) -> String {
    let line = |i: usize| format!("{} {}", d.ops[i].symbol(), row(&d.rows, i));
    (0..d.rows.num_rows()).map(line).collect::<Vec<_>>().join(" | ")
}

pub(crate) fn row(rows: &RecordBatch, i: usize) -> String {
    let options = FormatOptions::default().with_null("NULL");
    let value = |c: &ArrayRef| ArrayFormatter::try_new(&printable(c), &options).unwrap().value(i).to_string();
    rows.columns().iter().map(value).collect::<Vec<_>>().join(",")
}

/// Arrow knows zones by name only with a feature that is off here.
fn printable(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Timestamp(_, Some(_)) => {
            Arc::new(column.as_primitive::<TimestampMicrosecondType>().clone().with_timezone("+00:00"))
        }
        _ => Arc::clone(column),
    }
}

/// `offset reason column`
pub(crate) fn bad(d: &Decoded) -> Vec<(i64, BadReason, &str)> {
    d.bad.iter().map(|b| (b.offset, b.reason, b.column.as_str())).collect()
}

pub(crate) fn header(name: &str, value: Option<&'static [u8]>) -> (String, Option<Bytes>) {
    (name.to_owned(), value.map(Bytes::from_static))
}
