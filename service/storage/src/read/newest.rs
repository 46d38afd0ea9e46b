//! Snapshot of a keyed region: of each key the newest version below a sequence, unless it is a delete.

use std::sync::Arc;

use super::{
    block::{Block, Part, Parts},
    changes::RowRef,
    merge::same_key,
};

/// Takes merged rows in order and puts the visible ones out.
#[derive(Debug)]
pub(crate) struct Newest {
    to: i64,
    /// The last row looked at.
    last: Option<RowRef>,
    /// Whether the newest version below `to` of that row's key was found.
    found: bool,
    /// A row of the key before.
    before: Option<RowRef>,
}

impl Newest {
    pub(crate) fn new(to: i64) -> Self {
        Self { to, last: None, found: false, before: None }
    }

    /// A row of the highest key of which no row can come any more.
    pub(crate) fn passed(&self) -> Option<&RowRef> {
        if self.found { self.last.as_ref() } else { self.before.as_ref() }
    }

    pub(crate) fn take(&mut self, part: &Part, out: &mut Parts) {
        let Part { block, start, len } = part;
        self.row(block, *start, out);
        let end = start + len;
        if block.plain {
            // Each further row is the only version of its key in this block, and no other source has rows in between. The last one may have older
            // versions elsewhere, which `found` hides.
            if *len > 1 {
                self.plain_rows(block, start + 1, end, out);
            }
        } else {
            for row in start + 1..end {
                self.row(block, row, out);
            }
        }
    }

    fn plain_rows(&mut self, block: &Arc<Block>, start: usize, end: usize, out: &mut Parts) {
        if block.max_seq < self.to {
            out.push(block, start, end - start);
        } else {
            for row in (start..end).filter(|row| block.seqs[*row] < self.to) {
                out.push(block, row, 1);
            }
        }
        self.found = block.seqs[end - 1] < self.to;
        self.before = Some((block.clone(), end - 2));
        self.last = Some((block.clone(), end - 1));
    }

    fn row(&mut self, block: &Arc<Block>, row: usize, out: &mut Parts) {
        match &mut self.last {
            Some(last) if same_key(last, block, row) => *last = (block.clone(), row),
            last => {
                self.before = last.take();
                *last = Some((block.clone(), row));
                self.found = false;
            }
        }
        if !self.found && block.seqs[row] < self.to {
            self.found = true;
            if !block.is_delete(row) {
                out.push(block, row, 1);
            }
        }
    }
}

/// Takes merged rows in order and puts out, per key, the newest version below `to` if it is at or after `from`; deletes too.
#[derive(Debug)]
pub(crate) struct Touched {
    from: i64,
    newest: Newest,
}

impl Touched {
    pub(crate) fn new(from: i64, to: i64) -> Self {
        Self { from, newest: Newest::new(to) }
    }

    pub(crate) fn passed(&self) -> Option<&RowRef> {
        self.newest.passed()
    }

    pub(crate) fn take(&mut self, part: &Part, out: &mut Vec<RowRef>) {
        let Part { block, start, len } = part;
        for row in *start..start + len {
            let newest = &mut self.newest;
            match &mut newest.last {
                Some(last) if same_key(last, block, row) => *last = (block.clone(), row),
                last => {
                    newest.before = last.take();
                    *last = Some((block.clone(), row));
                    newest.found = false;
                }
            }
            if !newest.found && block.seqs[row] < newest.to {
                newest.found = true;
                if block.seqs[row] >= self.from {
                    out.push((block.clone(), row));
                }
            }
        }
    }
}
