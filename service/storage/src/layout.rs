//! The stored form of a region's rows: table columns, then `__sequence`, then `__op` (keyed) or `__ord` (append); and the encoding of its keys.
//!
//! Owns: places of the hidden columns, key encoding of stored batches. Not here: order and merging (`memtable`, `read`), files (`sst`).

use std::sync::Arc;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef, UInt32Type},
};
use arrow_row::Rows;
use millstream_types::{Key, KeyCodec, RegionKind, TableSchema};

use crate::StorageError;

/// Hidden column: the sequence of the row.
pub const SEQUENCE: &str = "__sequence";
/// Hidden column of keyed regions: [`PUT`] or [`DELETE`].
pub const OP: &str = "__op";
/// Hidden column of append regions: place of the row within its sequence.
pub const ORD: &str = "__ord";

pub const PUT: i8 = 0;
pub const DELETE: i8 = 1;

/// Column places and key encoding of one schema version of a region. Shared by all readers and writers of the region.
#[derive(Debug)]
pub struct Layout {
    pub schema: Arc<TableSchema>,
    pub kind: RegionKind,
    /// Table columns as they move between operators.
    pub table: SchemaRef,
    /// `table` and the hidden columns.
    pub stored: SchemaRef,
    codec: KeyCodec,
}

impl Layout {
    pub fn new(schema: Arc<TableSchema>) -> Result<Arc<Layout>, StorageError> {
        let table = schema.arrow();
        let kind = schema.kind();
        let mut fields: Vec<_> = table.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new(SEQUENCE, DataType::Int64, false)));
        fields.push(Arc::new(match kind {
            RegionKind::Keyed => Field::new(OP, DataType::Int8, false),
            RegionKind::Append => Field::new(ORD, DataType::UInt32, false),
        }));
        let codec = KeyCodec::new(schema.primary_key.iter().map(|i| table.field(*i).data_type().clone()))?;
        Ok(Arc::new(Layout { kind, stored: Arc::new(Schema::new(fields)), table, codec, schema }))
    }

    pub fn is_keyed(&self) -> bool {
        self.kind == RegionKind::Keyed
    }

    /// Number of table columns; also the place of `__sequence` in a stored batch.
    pub fn width(&self) -> usize {
        self.table.fields().len()
    }

    /// Keys of a batch whose first columns are all table columns (a stored batch, or rows in motion). Append regions: empty, see [`Layout::key_at`].
    pub fn keys(&self, rows: &RecordBatch) -> Result<Keys, StorageError> {
        if !self.is_keyed() {
            return Ok(Keys { rows: None });
        }
        let columns: Vec<_> = self.schema.primary_key.iter().map(|i| rows.column(*i).clone()).collect();
        Ok(Keys { rows: Some(self.codec.encode(&columns)?) })
    }

    /// Keys from the key columns alone, in key order.
    pub fn encode_key_columns(&self, columns: &[arrow::array::ArrayRef]) -> Result<Keys, StorageError> {
        Ok(Keys { rows: Some(self.codec.encode(columns)?) })
    }

    /// The key of one row of a stored batch: encoded primary key, or sequence and ord.
    pub fn key_at(&self, stored: &RecordBatch, row: usize) -> Result<Key, StorageError> {
        if self.is_keyed() {
            return Ok(Key::from(self.keys(&stored.slice(row, 1))?.get(0)));
        }
        Ok(Key::append(
            sequences(stored, self.width())[row],
            stored.column(self.width() + 1).as_primitive::<UInt32Type>().value(row),
        ))
    }
}

/// The sequences of a batch, which stand in column `at`.
pub fn sequences(rows: &RecordBatch, at: usize) -> &[i64] {
    rows.column(at).as_primitive::<Int64Type>().values()
}

/// The ops of a keyed batch, which stand in column `at`.
pub fn ops(rows: &RecordBatch, at: usize) -> &[i8] {
    rows.column(at).as_primitive::<Int8Type>().values()
}

/// Encoded keys of a batch in one arena. Empty for append regions.
#[derive(Debug, Default)]
pub struct Keys {
    rows: Option<Rows>,
}

impl Keys {
    /// # Panics
    /// If `row` is out of range, or the region is an append region.
    pub fn get(&self, row: usize) -> &[u8] {
        self.rows.as_ref().expect("only keyed regions ask for keys").row(row).data()
    }

    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(0, Rows::num_rows)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn size_bytes(&self) -> usize {
        self.rows.as_ref().map_or(0, Rows::size)
    }
}

/// Bytes a batch holds, counting each shared buffer by the slice in use.
pub fn batch_bytes(rows: &RecordBatch) -> usize {
    rows.columns()
        .iter()
        .map(|c| c.to_data().get_slice_memory_size().unwrap_or_else(|_| c.get_array_memory_size()))
        .sum()
}

/// The first 16 bytes of a key as a number that orders like the bytes, as far as they go: most comparisons end here without touching the arena. (A shorter
/// key is filled with zeroes, so it is never above a key that it begins.)
pub(crate) fn head(key: &[u8]) -> u128 {
    match key.first_chunk::<16>() {
        Some(bytes) => u128::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 16];
            bytes[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(bytes)
        }
    }
}
