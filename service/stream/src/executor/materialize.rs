//! The result of an epoch: rows as the view stores them, net per key, all columns, hidden ones included.
//!
//! Old rows of pairs are not written: the new row replaces them by key. Rows without a key are appended. A key can come twice in an epoch only if two
//! regions of the input hold it; then an insert wins over a delete, and the later insert over the earlier. Not here: where rows go (`checkpoint`).

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use millstream_types::{Chunk, KeyCodec, Op};
use rustc_hash::FxHashMap;

use crate::{StreamError, metrics::JobMetrics};

#[derive(Debug)]
pub(crate) struct Materialize {
    schema: SchemaRef,
    /// Places of the key; empty = append.
    key: Vec<usize>,
    codec: KeyCodec,
    /// Whether a key may come twice in an epoch.
    may_repeat: bool,
    chunks: Vec<Chunk>,
    metrics: JobMetrics,
}

impl Materialize {
    /// `schema` is that of the view's region, or of the last node for a sink without view.
    pub(crate) fn new(
        schema: SchemaRef,
        key: Vec<usize>,
        may_repeat: bool,
        metrics: JobMetrics,
    ) -> Result<Self, StreamError> {
        let codec = KeyCodec::new(key.iter().map(|k| schema.field(*k).data_type().clone()))?;
        Ok(Self { schema, key, codec, may_repeat, chunks: Vec::new(), metrics })
    }

    pub(crate) fn chunk(&mut self, chunk: Chunk) -> Result<(), StreamError> {
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.len()));
        let rows =
            RecordBatch::try_new_with_options(Arc::clone(&self.schema), chunk.rows.columns().to_vec(), &options)?;
        let written = |op: &Op| if self.key.is_empty() { op.is_insert() } else { *op != Op::UpdateDelete };
        let chunk = Chunk::new(rows, chunk.ops);
        if chunk.ops.iter().all(written) {
            self.chunks.push(chunk);
            return Ok(());
        }
        if self.key.is_empty() {
            self.metrics.dropped_records.inc_by(chunk.ops.iter().filter(|op| !op.is_insert()).count() as u64);
        }
        let keep: BooleanArray = chunk.ops.iter().map(|op| Some(written(op))).collect();
        let chunk = chunk.filter(&keep)?;
        if !chunk.is_empty() {
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// Inserts and deletes of the epoch, at most one per key.
    pub(crate) fn barrier(&mut self) -> Result<Vec<Chunk>, StreamError> {
        let chunks = std::mem::take(&mut self.chunks);
        if !self.may_repeat || self.key.is_empty() || chunks.len() < 2 {
            return Ok(chunks);
        }
        self.net(chunks)
    }

    fn net(&self, chunks: Vec<Chunk>) -> Result<Vec<Chunk>, StreamError> {
        let mut keys = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let columns: Vec<ArrayRef> = self.key.iter().map(|k| Arc::clone(chunk.rows.column(*k))).collect();
            keys.push(self.codec.encode(&columns)?);
        }
        let rows: usize = chunks.iter().map(Chunk::len).sum();
        let mut winner: FxHashMap<&[u8], (u32, u32)> = FxHashMap::with_capacity_and_hasher(rows, Default::default());
        let mut lost: Vec<(u32, u32)> = Vec::new();
        for (c, chunk) in chunks.iter().enumerate() {
            for (r, op) in chunk.ops.iter().enumerate() {
                let this = (c as u32, r as u32);
                match winner.entry(keys[c].row(r).data()) {
                    std::collections::hash_map::Entry::Vacant(v) => {
                        v.insert(this);
                    }
                    std::collections::hash_map::Entry::Occupied(mut o) => {
                        let old = *o.get();
                        let wins = op.is_insert() || !chunks[old.0 as usize].ops[old.1 as usize].is_insert();
                        lost.push(if wins { old } else { this });
                        if wins {
                            o.insert(this);
                        }
                    }
                }
            }
        }
        drop(winner);
        if lost.is_empty() {
            return Ok(chunks);
        }
        let mut keep: Vec<Vec<bool>> = chunks.iter().map(|c| vec![true; c.len()]).collect();
        for (c, r) in lost {
            keep[c as usize][r as usize] = false;
        }
        let mut kept = Vec::with_capacity(chunks.len());
        for (chunk, keep) in chunks.into_iter().zip(keep) {
            let chunk = chunk.filter(&BooleanArray::from(keep))?;
            if !chunk.is_empty() {
                kept.push(chunk);
            }
        }
        Ok(kept)
    }
}
