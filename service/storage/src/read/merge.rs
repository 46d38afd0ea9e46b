//! The k-way merge under scans, flushes and compactions of keyed regions: rows of all sources in order (key, sequence descending), as ranges of blocks.
//!
//! It gallops: a range ends only where the next source begins, so merging a large run with a few new rows costs little more than reading it, and a block
//! that no other source overlaps passes whole, without its keys being encoded. Sources that are not open yet stand in the order by a lower bound of their
//! next key and are opened when that bound is the smallest.

use std::{cmp::Ordering, sync::Arc};

use arrow::array::RecordBatch;
use millstream_types::Pos;

use super::block::{Block, Part, Projection, gather};
use crate::{
    StorageError,
    layout::{Layout, head},
    memtable::Run,
    sst::SstFeed,
};

/// Most rows of one range.
const RANGE_ROWS: usize = crate::sst::BATCH_ROWS;

/// Where the next block of a source comes from.
#[derive(Debug)]
enum Feed {
    None,
    Sst(Box<SstFeed>),
}

#[derive(Debug)]
struct Source {
    /// Current block and the next row in it.
    block: Option<(Arc<Block>, usize)>,
    /// Without a block: nothing of the source lies below it.
    bound: Vec<u8>,
    feed: Feed,
}

impl Source {
    fn head(&self) -> &[u8] {
        match &self.block {
            Some((block, at)) => block.key(*at),
            None => &self.bound,
        }
    }
}

/// What the caller has to do.
#[derive(Debug)]
pub(crate) enum Step {
    Rows(Part),
    /// Call [`Merger::load`].
    Load,
    End,
}

/// Merges sources of one keyed region.
#[derive(Debug)]
pub(crate) struct Merger {
    projection: Arc<Projection>,
    after: Pos,
    until: Pos,
    /// Oldest first.
    sources: Vec<Source>,
    /// By next row ascending; sources at their end are gone.
    order: Vec<Next>,
}

/// A place in `sources`, and the beginning of its next key: most comparisons end there.
#[derive(Debug, Clone, Copy)]
struct Next {
    head: u128,
    source: usize,
}

impl Merger {
    pub(crate) fn new(projection: Arc<Projection>, after: Pos, until: Pos) -> Self {
        Self { projection, after, until, sources: Vec::new(), order: Vec::new() }
    }

    /// Adds a run that is newer than all sources before.
    pub(crate) fn add_run(&mut self, run: &Arc<Run>) -> Result<(), StorageError> {
        if run.is_empty() {
            return Ok(());
        }
        let block = Block::from_run(&self.projection, run)?;
        let at = block.gallop(0, |row| self.after.covers(block.key(row)));
        if at < block.len() {
            self.add(Source { block: Some((Arc::new(block), at)), bound: Vec::new(), feed: Feed::None });
        }
        Ok(())
    }

    /// Adds a sorted run of SSTs that is newer than all sources before.
    pub(crate) fn add_files(&mut self, feed: SstFeed) {
        if let Some(bound) = feed.bound() {
            let bound = bound.to_vec();
            self.add(Source { block: None, bound, feed: Feed::Sst(Box::new(feed)) });
        }
    }

    fn add(&mut self, source: Source) {
        let new = Next { head: head(source.head()), source: self.sources.len() };
        self.sources.push(source);
        let at = self.order.partition_point(|s| self.cmp(s, &new) == Ordering::Less);
        self.order.insert(at, new);
    }

    /// Order of two sources by their next row. One that is not open may hold any row at or above its bound, so it comes first among equals.
    fn cmp(&self, a: &Next, b: &Next) -> Ordering {
        a.head.cmp(&b.head).then_with(|| {
            let (x, y) = (&self.sources[a.source], &self.sources[b.source]);
            x.head().cmp(y.head()).then_with(|| match (&x.block, &y.block) {
                (Some((p, i)), Some((q, j))) => q.seqs[*j].cmp(&p.seqs[*i]).then(b.source.cmp(&a.source)),
                (None, Some(_)) => Ordering::Less,
                (Some(_), None) => Ordering::Greater,
                (None, None) => a.source.cmp(&b.source),
            })
        })
    }

    /// The next rows in order. No I/O.
    pub(crate) fn step(&mut self) -> Step {
        let Some(first) = self.order.first().map(|n| n.source) else { return Step::End };
        let source = &self.sources[first];
        // At an open source the smallest head is a real key; at a closed one, only a lower bound.
        if self.until != Pos::End && !self.until.covers(source.head()) {
            self.order.clear();
            return Step::End;
        }
        let Some((block, at)) = &source.block else { return Step::Load };
        let end = self.end_of_range(block, *at, first);
        let part = Part { block: block.clone(), start: *at, len: end - at };
        self.advance(first, end);
        Step::Rows(part)
    }

    /// Where the range that begins at row `at` of the first source must end.
    fn end_of_range(&self, block: &Arc<Block>, at: usize, first: usize) -> usize {
        let mut end = block.len();
        if let Some(second) = self.order.get(1) {
            let other = &self.sources[second.source];
            let limit = other.head();
            if block.last() >= limit {
                // The order says that row `at` comes first.
                end = match &other.block {
                    None => block.gallop(at + 1, |row| block.key(row) < limit),
                    Some((q, j)) => {
                        let (seq, newer) = (q.seqs[*j], first > second.source);
                        block.gallop(at + 1, |row| {
                            let key = block.key(row);
                            match head(key).cmp(&second.head).then_with(|| key.cmp(limit)) {
                                Ordering::Less => true,
                                Ordering::Equal => block.seqs[row] > seq || (block.seqs[row] == seq && newer),
                                Ordering::Greater => false,
                            }
                        })
                    }
                };
            }
        }
        if self.until != Pos::End && !self.until.covers(block.last()) {
            end = end.min(block.gallop(at + 1, |row| self.until.covers(block.key(row))));
        }
        // The limit keeps what a caller handles at a time small when a run is large.
        end.clamp(at + 1, at + RANGE_ROWS)
    }

    /// Moves the first source on and puts it where it belongs now.
    fn advance(&mut self, first: usize, end: usize) {
        let source = &mut self.sources[first];
        match &mut source.block {
            Some((block, at)) if end < block.len() => *at = end,
            block => {
                let next = match &source.feed {
                    Feed::None => None,
                    Feed::Sst(feed) => feed.bound(),
                };
                let Some(bound) = next else {
                    *block = None;
                    self.order.remove(0);
                    return;
                };
                // Within a row group only the last key is known; across groups the bound rises.
                source.bound = block.as_ref().map_or(bound, |(block, _)| bound.max(block.last())).to_vec();
                *block = None;
            }
        }
        self.sift();
    }

    fn sift(&mut self) {
        let source = self.order[0].source;
        let first = Next { head: head(self.sources[source].head()), source };
        self.order[0] = first;
        let at = self.order[1..].partition_point(|s| self.cmp(s, &first) == Ordering::Less);
        self.order[..=at].rotate_left(1);
    }

    /// Opens the next block of the first source, after [`Step::Load`].
    pub(crate) async fn load(&mut self) -> Result<(), StorageError> {
        let Some(first) = self.order.first().map(|n| n.source) else { return Ok(()) };
        let source = &mut self.sources[first];
        let Feed::Sst(feed) = &mut source.feed else { return Ok(()) };
        loop {
            let Some(block) = feed.next().await? else {
                self.order.remove(0);
                return Ok(());
            };
            let at = match self.after.covers(block.key(0)) {
                true if self.after.covers(block.last()) => continue,
                true => block.gallop(0, |row| self.after.covers(block.key(row))),
                false => 0,
            };
            source.block = Some((Arc::new(block), at));
            break;
        }
        self.sift();
        Ok(())
    }

    pub(crate) fn projection(&self) -> &Arc<Projection> {
        &self.projection
    }
}

/// Whether two rows are versions of one key.
pub(crate) fn same_key(a: &(Arc<Block>, usize), block: &Arc<Block>, row: usize) -> bool {
    // Neighbours in one plain block differ by definition.
    if block.plain && Arc::ptr_eq(&a.0, block) && a.1 != row {
        return false;
    }
    a.0.key(a.1) == block.key(row)
}

/// One run with all rows of `runs`, oldest first.
pub(crate) fn merge_in_memory(layout: &Arc<Layout>, runs: &[Arc<Run>]) -> Result<Run, StorageError> {
    let projection = Projection::stored(layout);
    let mut parts = Vec::new();
    if layout.is_keyed() {
        let mut merger = Merger::new(projection.clone(), Pos::NotStarted, Pos::End);
        for run in runs {
            merger.add_run(run)?;
        }
        while let Step::Rows(part) = merger.step() {
            parts.push(part);
        }
    } else {
        for run in runs.iter().filter(|r| !r.is_empty()) {
            let block = Arc::new(Block::from_run(&projection, run)?);
            parts.push(Part { len: block.len(), start: 0, block });
        }
    }
    let rows = match parts.is_empty() {
        true => RecordBatch::new_empty(layout.stored.clone()),
        false => gather(&projection, &parts)?,
    };
    Run::from_sorted(layout, rows, None)
}
