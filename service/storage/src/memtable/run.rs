//! One sorted, immutable batch of stored rows with its encoded keys.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int8Array, Int64Array, RecordBatch, UInt32Array},
    compute::take_record_batch,
};
use millstream_types::{Op, Seq};

use crate::{
    StorageError,
    layout::{DELETE, Keys, Layout, PUT, batch_bytes, head, ops, sequences},
};

/// Sorted rows: keyed by (key ascending, sequence descending), append by (sequence, ord).
#[derive(Debug)]
pub struct Run {
    /// Stored columns.
    pub rows: RecordBatch,
    /// Encoded keys of `rows`; empty for append regions.
    pub keys: Keys,
    /// Lowest sequence.
    pub from: Seq,
    /// Exclusive end of the sequences.
    pub end: Seq,
    /// Charged to the write buffer: Arrow buffers and key bytes.
    pub bytes: usize,
    /// Stored deletes.
    pub deletes: usize,
    /// No key twice and no delete: a scan may pass rows through without looking at keys.
    pub plain: bool,
}

impl Run {
    /// Stores rows in motion. `seqs[i]` is the sequence of row i; rows of one sequence stand together in order of arrival, and of one key and one
    /// sequence the last row wins, so an update pair becomes one put. `first_ord` is the ord of the first row (append regions), for a sequence that
    /// goes on from an earlier call. Sorts: call it on the compute runtime.
    pub fn build(
        layout: &Layout,
        rows: &RecordBatch,
        ops: &[Op],
        seqs: &[i64],
        first_ord: u32,
    ) -> Result<Run, StorageError> {
        if rows.num_columns() != layout.width() || rows.num_rows() != ops.len() || ops.len() != seqs.len() {
            return Err(StorageError::Internal {
                what: format!(
                    "run of {} columns, {} rows, {} ops, {} sequences for a table of {} columns",
                    rows.num_columns(),
                    rows.num_rows(),
                    ops.len(),
                    seqs.len(),
                    layout.width()
                ),
                source: None,
            });
        }
        if layout.is_keyed() {
            Self::build_keyed(layout, rows, ops, seqs)
        } else {
            Self::build_append(layout, rows, ops, seqs, first_ord)
        }
    }

    fn build_keyed(layout: &Layout, rows: &RecordBatch, ops: &[Op], seqs: &[i64]) -> Result<Run, StorageError> {
        let keys = layout.keys(rows)?;
        let stored = store(
            layout,
            rows,
            Arc::new(ops.iter().map(|op| if op.is_insert() { PUT } else { DELETE }).collect::<Int8Array>()),
            seqs,
        )?;
        let ordered = (1..seqs.len()).all(|i| keys.get(i - 1) < keys.get(i));
        if ordered {
            return Self::from_sorted(layout, stored, Some(keys));
        }
        let mut order: Vec<(u128, u32)> = (0..seqs.len()).map(|i| (head(keys.get(i)), i as u32)).collect();
        // Later arrivals of one key and sequence come first, so that the first of them is the one to keep.
        order.sort_unstable_by(|(ha, a), (hb, b)| {
            ha.cmp(hb).then_with(|| {
                let (a, b) = (*a as usize, *b as usize);
                keys.get(a).cmp(keys.get(b)).then_with(|| seqs[b].cmp(&seqs[a])).then(b.cmp(&a))
            })
        });
        let mut kept: Vec<u32> = Vec::with_capacity(order.len());
        for (_, i) in order {
            let twice = kept.last().is_some_and(|p| {
                seqs[*p as usize] == seqs[i as usize] && keys.get(*p as usize) == keys.get(i as usize)
            });
            if !twice {
                kept.push(i);
            }
        }
        let sorted = take_record_batch(&stored, &UInt32Array::from(kept))?;
        Self::from_sorted(layout, sorted, None)
    }

    fn build_append(
        layout: &Layout,
        rows: &RecordBatch,
        ops: &[Op],
        seqs: &[i64],
        first_ord: u32,
    ) -> Result<Run, StorageError> {
        if let Some(at) = ops.iter().position(|op| !op.is_insert()) {
            return Err(StorageError::Internal {
                what: format!("a delete of sequence {} for an append region", seqs[at]),
                source: None,
            });
        }
        let mut next = first_ord;
        let ords: UInt32Array = (0..seqs.len())
            .map(|i| {
                next = if i > 0 && seqs[i] == seqs[i - 1] {
                    next + 1
                } else if i > 0 {
                    0
                } else {
                    first_ord
                };
                next
            })
            .collect();
        let stored = store(layout, rows, Arc::new(ords), seqs)?;
        if seqs.is_sorted() {
            return Self::from_sorted(layout, stored, None);
        }
        let mut order: Vec<u32> = (0..seqs.len() as u32).collect();
        order.sort_by_key(|i| seqs[*i as usize]);
        Self::from_sorted(layout, take_record_batch(&stored, &UInt32Array::from(order))?, None)
    }

    /// Rows that are in order already; `keys` if the caller has them.
    pub(crate) fn from_sorted(layout: &Layout, rows: RecordBatch, keys: Option<Keys>) -> Result<Run, StorageError> {
        let keys = match keys {
            Some(keys) => keys,
            None => layout.keys(&rows)?,
        };
        let seqs = sequences(&rows, layout.width());
        let from = seqs.iter().min().copied().unwrap_or_default();
        let end = seqs.iter().max().map_or(0, |m| m + 1);
        let deletes = if layout.is_keyed() {
            ops(&rows, layout.width() + 1).iter().filter(|op| **op == DELETE).count()
        } else {
            0
        };
        let plain = deletes == 0 && (1..keys.len()).all(|i| keys.get(i - 1) != keys.get(i));
        let bytes = batch_bytes(&rows) + keys.size_bytes();
        Ok(Run { from: Seq(from), end: Seq(end), bytes, deletes, plain, keys, rows })
    }

    pub fn len(&self) -> usize {
        self.rows.num_rows()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn store(layout: &Layout, rows: &RecordBatch, last: ArrayRef, seqs: &[i64]) -> Result<RecordBatch, StorageError> {
    let mut columns = rows.columns().to_vec();
    columns.push(Arc::new(Int64Array::from(seqs.to_vec())));
    columns.push(last);
    Ok(RecordBatch::try_new(layout.stored.clone(), columns)?)
}
