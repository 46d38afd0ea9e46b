//! Net change of a keyed region between two sequences, by merge: per key the newest version below each.
//!
//! Old and new row of a key are compared when a chunk is built, all at once; equal rows give nothing.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, make_comparator},
    compute::SortOptions,
};
use millstream_types::{Chunk, Op};

use super::{
    block::{Block, Part, Projection, gather},
    merge::same_key,
};
use crate::StorageError;

pub(crate) type RowRef = (Arc<Block>, usize);

/// What happened to one key.
#[derive(Debug)]
pub(crate) enum Change {
    Insert(RowRef),
    Delete(RowRef),
    Update(RowRef, RowRef),
}

impl Change {
    /// Rows it makes of a chunk.
    pub(crate) fn rows(&self) -> usize {
        if matches!(self, Change::Update(..)) { 2 } else { 1 }
    }

    /// A row with its key.
    pub(crate) fn row(&self) -> &RowRef {
        match self {
            Change::Insert(row) | Change::Delete(row) | Change::Update(row, _) => row,
        }
    }
}

/// Takes merged rows in order and puts the changes of each key out.
#[derive(Debug)]
pub(crate) struct Changes {
    from: i64,
    to: i64,
    last: Option<RowRef>,
    /// A row of the key before.
    passed: Option<RowRef>,
    /// Newest version below `to` and below `from` of the key of `last`.
    new: Option<RowRef>,
    old: Option<RowRef>,
}

impl Changes {
    pub(crate) fn new(from: i64, to: i64) -> Self {
        Self { from, to, last: None, passed: None, new: None, old: None }
    }

    /// A row of the highest key whose change is known.
    pub(crate) fn passed(&self) -> Option<&RowRef> {
        self.passed.as_ref()
    }

    pub(crate) fn take(&mut self, part: &Part, out: &mut Vec<Change>) {
        let Part { block, start, len } = part;
        let end = start + len;
        self.row(block, *start, out);
        if !block.plain || *len < 3 {
            for row in start + 1..end {
                self.row(block, row, out);
            }
            return;
        }
        // The rows between first and last are the only versions of their keys: old ones did not change, new ones were inserted.
        self.finish(out);
        if block.max_seq >= self.from {
            let born = |row: &usize| (self.from..self.to).contains(&block.seqs[*row]);
            out.extend((start + 1..end - 1).filter(born).map(|row| Change::Insert((block.clone(), row))));
        }
        self.passed = Some((block.clone(), end - 2));
        self.row(block, end - 1, out);
    }

    fn row(&mut self, block: &Arc<Block>, row: usize, out: &mut Vec<Change>) {
        if !self.last.as_ref().is_some_and(|last| same_key(last, block, row)) {
            self.finish(out);
        }
        let seq = block.seqs[row];
        if seq < self.to && self.new.is_none() {
            self.new = Some((block.clone(), row));
        }
        if seq < self.from && self.old.is_none() {
            self.old = Some((block.clone(), row));
        }
        self.last = Some((block.clone(), row));
    }

    /// All versions of the key were seen.
    pub(crate) fn finish(&mut self, out: &mut Vec<Change>) {
        if let Some(last) = self.last.take() {
            self.passed = Some(last);
        }
        let live = |row: Option<RowRef>| row.filter(|(block, at)| !block.is_delete(*at));
        let (new, old) = (self.new.take(), self.old.take());
        if new.as_ref().is_some_and(|(block, at)| block.seqs[*at] < self.from) {
            return;
        }
        match (live(old), live(new)) {
            (None, None) => {}
            (None, Some(new)) => out.push(Change::Insert(new)),
            (Some(old), None) => out.push(Change::Delete(old)),
            (Some(old), Some(new)) => out.push(Change::Update(old, new)),
        }
    }
}

/// Builds the chunk of some changes; `None` if all of them were updates to equal rows.
pub(crate) fn chunk_of(projection: &Projection, changes: &[Change]) -> Result<Option<Chunk>, StorageError> {
    let mut parts = Vec::with_capacity(changes.len());
    let mut ops = Vec::with_capacity(changes.len());
    let mut add = |(block, start): &RowRef, op| {
        parts.push(Part { block: block.clone(), start: *start, len: 1 });
        ops.push(op);
    };
    for change in changes {
        match change {
            Change::Insert(new) => add(new, Op::Insert),
            Change::Delete(old) => add(old, Op::Delete),
            Change::Update(old, new) => {
                add(old, Op::UpdateDelete);
                add(new, Op::UpdateInsert);
            }
        }
    }
    without_equal_pairs(gather(projection, &parts)?, ops)
}

/// Drops the update pairs whose two rows are equal.
pub(crate) fn without_equal_pairs(rows: RecordBatch, ops: Vec<Op>) -> Result<Option<Chunk>, StorageError> {
    if rows.num_rows() == 0 {
        return Ok(None);
    }
    let pairs: Vec<u32> = (0..ops.len() as u32).filter(|i| ops[*i as usize] == Op::UpdateDelete).collect();
    if pairs.is_empty() {
        return Ok(Some(Chunk::new(rows, ops)));
    }
    let mut equal = vec![true; pairs.len()];
    for column in rows.columns() {
        mark_different(column, &pairs, &mut equal)?;
    }
    let mut keep = vec![true; ops.len()];
    for (pair, equal) in pairs.iter().zip(equal) {
        keep[*pair as usize] = !equal;
        keep[*pair as usize + 1] = !equal;
    }
    if keep.iter().all(|k| *k) {
        return Ok(Some(Chunk::new(rows, ops)));
    }
    let chunk = Chunk::new(rows, ops).filter(&BooleanArray::from(keep))?;
    Ok((!chunk.is_empty()).then_some(chunk))
}

/// Clears `equal[i]` where rows `pairs[i]` and `pairs[i] + 1` of a column differ.
fn mark_different(column: &ArrayRef, pairs: &[u32], equal: &mut [bool]) -> Result<(), StorageError> {
    if !column.data_type().is_nested() {
        let old = arrow::compute::take(column, &UInt32Array::from(pairs.to_vec()), None)?;
        let new = arrow::compute::take(column, &pairs.iter().map(|p| p + 1).collect::<UInt32Array>(), None)?;
        let same = arrow::compute::kernels::cmp::not_distinct(&old, &new)?;
        equal.iter_mut().enumerate().for_each(|(i, e)| *e &= same.value(i));
        return Ok(());
    }
    match make_comparator(column, column, SortOptions::default()) {
        Ok(cmp) => equal.iter_mut().zip(pairs).for_each(|(e, p)| *e &= cmp(*p as usize, *p as usize + 1).is_eq()),
        // Types without an order, such as maps: compare the values themselves.
        Err(_) => {
            equal.iter_mut().zip(pairs).for_each(|(e, p)| {
                *e &= column.slice(*p as usize, 1).as_ref() == column.slice(*p as usize + 1, 1).as_ref()
            });
        }
    }
    Ok(())
}
