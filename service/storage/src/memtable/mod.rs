//! Unflushed rows: a list of sorted Arrow runs.
//!
//! A run is one decoded batch sorted by (key, sequence descending), in an append region by (sequence, ord). There is no allocation per row: keys stand
//! in one arena per run, rows in Arrow buffers. Small neighbours merge inline when pushed, larger ones by [`Memtable::merge_plan`], [`merge_runs`] on the
//! compute runtime and [`Memtable::install`]. Neighbours merge only when of similar size, so a row is copied O(log n) times.

mod merge;
mod run;
pub mod write_buffer;

use std::sync::Arc;

use millstream_types::Seq;

pub use merge::merge_runs;
pub use run::Run;

use crate::{StorageError, layout::Layout};

/// Runs up to this many rows are merged inline; a merge of that size takes well under a millisecond.
const INLINE_ROWS: usize = 8192;
/// Neighbours of similar size that start a background merge. Fewer: more copying. More: slower reads.
const PLAN_RUNS: usize = 8;
/// Runs of one group differ in size by at most this factor, or are small all.
const SIMILAR: usize = 4;

/// The mutable memtable of one region. Owned by its worker; readers get `runs()`.
#[derive(Debug)]
pub struct Memtable {
    layout: Arc<Layout>,
    runs: Vec<Arc<Run>>,
}

impl Memtable {
    pub fn new(layout: Arc<Layout>) -> Self {
        Self { layout, runs: Vec::new() }
    }

    /// Adds the newest rows. `run.from` is at or after every sequence already here.
    pub fn push(&mut self, run: Arc<Run>) -> Result<(), StorageError> {
        if run.is_empty() {
            return Ok(());
        }
        self.runs.push(run);
        while let [.., older, newer] = self.runs.as_slice() {
            // Like a binary counter: merge while the older run is not much larger.
            if older.len() + newer.len() > INLINE_ROWS || older.len() > newer.len() * 2 {
                break;
            }
            let merged = merge_runs(&self.layout, &[older.clone(), newer.clone()])?;
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(Arc::new(merged));
        }
        Ok(())
    }

    /// The newest group of neighbours of similar size that is worth a merge on the compute runtime. Ask again after [`Memtable::install`].
    pub fn merge_plan(&self) -> Option<Vec<Arc<Run>>> {
        let mut end = self.runs.len();
        let mut largest = 0;
        for (i, run) in self.runs.iter().enumerate().rev() {
            if largest > 0 && run.len() > INLINE_ROWS.max(largest) * SIMILAR {
                if end - i > PLAN_RUNS {
                    return Some(self.runs[i + 1..end].to_vec());
                }
                end = i + 1;
                largest = 0;
            }
            largest = largest.max(run.len());
        }
        (end >= PLAN_RUNS).then(|| self.runs[..end].to_vec())
    }

    /// Replaces the runs of a plan by their merge. `false` if they are not here any more (frozen meanwhile): the merge is dropped.
    pub fn install(&mut self, inputs: &[Arc<Run>], merged: Arc<Run>) -> bool {
        let Some(at) = inputs.first().and_then(|first| self.runs.iter().position(|r| Arc::ptr_eq(r, first))) else {
            return false;
        };
        let here =
            self.runs.len() >= at + inputs.len() && inputs.iter().zip(&self.runs[at..]).all(|(a, b)| Arc::ptr_eq(a, b));
        if here {
            self.runs.splice(at..at + inputs.len(), [merged]);
        }
        here
    }

    /// Oldest first.
    pub fn runs(&self) -> Arc<[Arc<Run>]> {
        self.runs.as_slice().into()
    }

    /// Freeze: takes all runs out.
    pub fn take(&mut self) -> Arc<[Arc<Run>]> {
        std::mem::take(&mut self.runs).into()
    }

    pub fn rows(&self) -> usize {
        self.runs.iter().map(|r| r.len()).sum()
    }

    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|r| r.bytes).sum()
    }

    /// Lowest sequence here.
    pub fn from(&self) -> Option<Seq> {
        self.runs.iter().map(|r| r.from).min()
    }

    /// Exclusive end of the sequences here.
    pub fn end(&self) -> Option<Seq> {
        self.runs.iter().map(|r| r.end).max()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use millstream_types::{Column, Op, SqlType, TableSchema};

    use super::*;

    fn run(layout: &Layout, seq: i64, rows: i64) -> Arc<Run> {
        let ids: ArrayRef = Arc::new((0..rows).map(|i| i * 7919 % rows).collect::<Int64Array>());
        let batch = RecordBatch::try_new(layout.table.clone(), vec![ids]).unwrap();
        let n = rows as usize;
        Arc::new(Run::build(layout, &batch, &vec![Op::Insert; n], &vec![seq; n], 0).unwrap())
    }

    fn layout(keyed: bool) -> Arc<Layout> {
        let columns = vec![Column::new(1, "id", SqlType::BigInt).not_null()];
        Layout::new(Arc::new(TableSchema { id: 1, columns, primary_key: if keyed { vec![0] } else { vec![] } }))
            .unwrap()
    }

    #[test]
    fn runs_stay_few_however_rows_arrive() {
        for (keyed, rows) in [(true, 3), (false, 3), (true, 3000), (false, 10_000)] {
            let layout = layout(keyed);
            let mut memtable = Memtable::new(layout.clone());
            let pushes = 300;
            for seq in 0..pushes {
                memtable.push(run(&layout, seq, rows)).unwrap();
                while let Some(plan) = memtable.merge_plan() {
                    let merged = Arc::new(merge_runs(&layout, &plan).unwrap());
                    assert!(memtable.install(&plan, merged.clone()));
                    assert!(!memtable.install(&plan, merged), "installed twice");
                }
                let runs = memtable.runs();
                assert!(runs.len() <= 26, "{} runs", runs.len());
                assert!(runs.windows(2).all(|w| w[0].end <= w[1].from));
            }
            assert_eq!(memtable.rows() as i64, pushes * rows);
            assert_eq!((memtable.from(), memtable.end()), (Some(Seq(0)), Some(Seq(pushes))));
            assert!(memtable.bytes() > memtable.rows() * 16);
            assert_eq!(memtable.take().iter().map(|r| r.len() as i64).sum::<i64>(), pushes * rows);
            assert!(memtable.is_empty() && memtable.merge_plan().is_none());
        }
    }

    #[test]
    fn of_one_key_and_sequence_the_last_row_wins() {
        let layout = layout(true);
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![2, 1, 2, 1, 1]));
        let batch = RecordBatch::try_new(layout.table.clone(), vec![ids]).unwrap();
        let ops = [Op::UpdateDelete, Op::Insert, Op::UpdateInsert, Op::Delete, Op::Insert];
        let run = Run::build(&layout, &batch, &ops, &[5, 5, 5, 5, 6], 0).unwrap();
        assert_eq!(crate::layout::sequences(&run.rows, 1), [6, 5, 5]);
        assert_eq!(crate::layout::ops(&run.rows, 2), [0, 1, 0]);
        assert_eq!((run.from, run.end, run.deletes, run.plain), (Seq(5), Seq(7), 1, false));
    }
}
