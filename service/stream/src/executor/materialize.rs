//! The result of an epoch: rows as the view stores them, all columns, hidden ones included.
//!
//! Old rows of pairs are not written: the new row replaces them by key. Rows without a key are appended. No key comes twice in an epoch: each input region
//! sends a key once, and where two regions may hold one, the region's number is part of the view's key. Not here: where rows go (`checkpoint`).

use std::sync::Arc;

use arrow::{
    array::{BooleanArray, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use millstream_types::{Chunk, Op};

use crate::{StreamError, metrics::JobMetrics};

#[derive(Debug)]
pub(crate) struct Materialize {
    schema: SchemaRef,
    /// Rows have a key; without one they are appended.
    keyed: bool,
    chunks: Vec<Chunk>,
    metrics: JobMetrics,
}

impl Materialize {
    /// `schema` is that of the view's region, or of the last node for a sink without view.
    pub(crate) fn new(schema: SchemaRef, keyed: bool, metrics: JobMetrics) -> Self {
        Self { schema, keyed, chunks: Vec::new(), metrics }
    }

    pub(crate) fn chunk(&mut self, chunk: Chunk) -> Result<(), StreamError> {
        let chunk = self.stored(chunk)?;
        let written = |op: &Op| if self.keyed { *op != Op::UpdateDelete } else { op.is_insert() };
        if chunk.ops.iter().all(written) {
            self.chunks.push(chunk);
            return Ok(());
        }
        if !self.keyed {
            self.metrics.dropped_records.inc_by(chunk.ops.iter().filter(|op| !op.is_insert()).count() as u64);
        }
        let keep: BooleanArray = chunk.ops.iter().map(|op| Some(written(op))).collect();
        let chunk = chunk.filter(&keep)?;
        if !chunk.is_empty() {
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// Rows under the names of the view's columns.
    pub(crate) fn stored(&self, chunk: Chunk) -> Result<Chunk, StreamError> {
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        let columns = chunk.rows.columns().to_vec();
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        Ok(Chunk::new(rows, chunk.ops))
    }

    /// Inserts and deletes of the epoch, at most one per key.
    pub(crate) fn barrier(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }
}
