//! Rows in motion: an Arrow batch and an op per row.

use arrow::{
    array::{Array, BooleanArray, Int8Array, RecordBatch},
    compute::{filter_record_batch, take_record_batch},
    datatypes::SchemaRef,
    error::ArrowError,
};

/// What a row does to the stream. An update is a pair: the old row, at once followed by the new one (M2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum Op {
    Insert = 0,
    Delete = 1,
    UpdateDelete = 2,
    UpdateInsert = 3,
}

impl Op {
    /// Whether the row is there after the op (Insert, UpdateInsert).
    pub fn is_insert(self) -> bool {
        matches!(self, Op::Insert | Op::UpdateInsert)
    }

    pub fn symbol(self) -> &'static str {
        match self {
            Op::Insert => "+",
            Op::Delete => "-",
            Op::UpdateDelete => "U-",
            Op::UpdateInsert => "U+",
        }
    }

    pub fn from_i8(v: i8) -> Option<Op> {
        Some(match v {
            0 => Op::Insert,
            1 => Op::Delete,
            2 => Op::UpdateDelete,
            3 => Op::UpdateInsert,
            _ => return None,
        })
    }
}

/// An Arrow batch and one op per row; `rows.num_rows() == ops.len()`, at least one row (M5).
#[derive(Debug, Clone)]
pub struct Chunk {
    pub rows: RecordBatch,
    pub ops: Vec<Op>,
}

impl Chunk {
    pub fn new(rows: RecordBatch, ops: Vec<Op>) -> Self {
        debug_assert_eq!(rows.num_rows(), ops.len());
        Self { rows, ops }
    }

    pub fn inserts(rows: RecordBatch) -> Self {
        let ops = vec![Op::Insert; rows.num_rows()];
        Self { rows, ops }
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.ops.len()
    }

    /// The rows where `keep` is true, in order. Pairs are the caller's concern.
    pub fn filter(&self, keep: &BooleanArray) -> Result<Chunk, ArrowError> {
        let rows = filter_record_batch(&self.rows, keep)?;
        let ops = self
            .ops
            .iter()
            .enumerate()
            .filter(|(i, _)| keep.is_valid(*i) && keep.value(*i))
            .map(|(_, op)| *op)
            .collect();
        Ok(Chunk { rows, ops })
    }

    /// The rows at `indices`, with `ops` in their order.
    pub fn take(&self, indices: &arrow::array::UInt32Array, ops: Vec<Op>) -> Result<Chunk, ArrowError> {
        Ok(Chunk::new(take_record_batch(&self.rows, indices)?, ops))
    }

    /// Ops as an Int8 column, for WAL entries.
    pub fn ops_array(&self) -> Int8Array {
        self.ops.iter().map(|op| *op as i8).collect()
    }
}

/// Joins chunks of one schema into larger ones; never tears an update pair.
#[derive(Debug)]
pub struct ChunkBuilder {
    schema: SchemaRef,
    parts: Vec<Chunk>,
    rows: usize,
}

impl ChunkBuilder {
    pub fn new(schema: SchemaRef) -> Self {
        Self { schema, parts: Vec::new(), rows: 0 }
    }

    /// Whole chunks only: pairs stay whole because chunks are.
    pub fn push(&mut self, chunk: Chunk) {
        self.rows += chunk.len();
        if !chunk.is_empty() {
            self.parts.push(chunk);
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// All rows pushed since the last call as one chunk, or `None` if there are none.
    pub fn finish(&mut self) -> Result<Option<Chunk>, ArrowError> {
        self.rows = 0;
        let parts = std::mem::take(&mut self.parts);
        match parts.len() {
            0 => Ok(None),
            1 => Ok(parts.into_iter().next()),
            _ => {
                let rows = arrow::compute::concat_batches(&self.schema, parts.iter().map(|c| &c.rows))?;
                Ok(Some(Chunk { rows, ops: parts.into_iter().flat_map(|c| c.ops).collect() }))
            }
        }
    }
}
