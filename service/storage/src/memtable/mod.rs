//! Unflushed rows: a list of sorted Arrow runs.
//!
//! A run is one decoded batch sorted by (key, sequence descending), in an append region by (sequence, ord). There is no allocation per row: keys stand
//! in one arena per run, rows in Arrow buffers. Small neighbours merge inline when pushed, larger ones by [`Memtable::merge_plan`], [`merge_runs`] on the
//! compute runtime and [`Memtable::install`]. Neighbours merge only when of similar size, so a row is copied O(log n) times.

mod merge;
mod run;

use std::sync::Arc;

use millstream_types::Seq;

pub use merge::merge_runs;
pub use run::Run;

use crate::{StorageError, layout::Layout};

/// Runs up to this many rows are merged inline; a merge of that size takes well under a millisecond.
const INLINE_ROWS: usize = 8192;
/// Neighbours of similar size that start a background merge. Fewer: more copying. More: slower reads.
const PLAN_RUNS: usize = 8;

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
        if run.len() == 0 {
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

    /// The newest group of neighbours of similar size that is worth a merge on the compute runtime.
    pub fn merge_plan(&self) -> Option<Vec<Arc<Run>>> {
        let mut largest = 0;
        for (i, run) in self.runs.iter().enumerate().rev() {
            if run.len() > largest.max(INLINE_ROWS) * 4 && largest > 0 {
                let group = &self.runs[i + 1..];
                return (group.len() >= PLAN_RUNS).then(|| group.to_vec());
            }
            largest = largest.max(run.len());
        }
        (self.runs.len() >= PLAN_RUNS).then(|| self.runs.clone())
    }

    /// Replaces the runs of a plan by their merge. `false` if they are not here any more (frozen meanwhile): the merge is dropped.
    pub fn install(&mut self, inputs: &[Arc<Run>], merged: Arc<Run>) -> bool {
        let Some(at) = inputs.first().and_then(|first| self.runs.iter().position(|r| Arc::ptr_eq(r, first))) else { return false };
        let here = self.runs.len() >= at + inputs.len() && inputs.iter().zip(&self.runs[at..]).all(|(a, b)| Arc::ptr_eq(a, b));
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
