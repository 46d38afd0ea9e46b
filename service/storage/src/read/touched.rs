//! Net change of few keys: the keys come from the sources that have new sequences, their old rows by look-up. Cost follows the change, not the table.

use std::sync::Arc;

use arrow::array::RecordBatch;
use millstream_types::{Chunk, Op, Seq};

use super::{
    block::{Part, Projection, batch, gather},
    changes::{RowRef, without_equal_pairs},
    lookup::find,
    merge::{Merger, Step},
    newest::Touched,
    scan::{MARK_ROWS, merger},
};
use crate::{
    KeyMatch, ScanItem, ScanRequest, StorageError,
    region::version::Version,
    sst::{SstReader, Window},
};

pub(super) struct TouchedScan {
    old: OldRows,
    merger: Merger,
    touched: Touched,
    /// Changed keys: their newest row.
    out: Vec<RowRef>,
    max_keys: usize,
    scanned: u64,
    hidden: u64,
    ended: bool,
}

impl TouchedScan {
    pub(super) fn new(
        version: Arc<Version>,
        reader: Arc<SstReader>,
        projection: Arc<Projection>,
        request: ScanRequest,
        from: Seq,
    ) -> Result<Self, StorageError> {
        let window = Window { after: request.after, until: request.until, from, to: request.to };
        let merger = merger(&version, &reader, projection.clone(), window)?;
        let touched = Touched::new(from.0, request.to.0);
        // A key gives two rows at most.
        let max_keys = (request.max_rows / 2).max(1);
        let old = OldRows { version, reader, projection, from };
        Ok(Self { old, merger, touched, out: Vec::new(), max_keys, scanned: 0, hidden: 0, ended: false })
    }

    pub(super) async fn next(&mut self) -> Result<Option<ScanItem>, StorageError> {
        loop {
            let all = self.ended || self.hidden >= MARK_ROWS;
            while !self.out.is_empty() && (all || self.out.len() >= self.max_keys) {
                let n = self.out.len().min(self.max_keys);
                let keys: Vec<RowRef> = self.out.drain(..n).collect();
                let (block, row) = &keys[n - 1];
                let last = block.position(*row);
                if let Some(chunk) = self.old.chunk(&keys).await? {
                    return Ok(Some(ScanItem::Rows { chunk, last, scanned: std::mem::take(&mut self.scanned) }));
                }
            }
            if self.ended {
                return Ok(None);
            }
            if self.hidden >= MARK_ROWS
                && let Some((block, row)) = self.touched.passed()
            {
                self.hidden = 0;
                return Ok(Some(ScanItem::Mark {
                    at: block.position(*row),
                    scanned: std::mem::take(&mut self.scanned),
                }));
            }
            match self.merger.step() {
                Step::Rows(part) => {
                    let before = self.out.len();
                    self.touched.take(&part, &mut self.out);
                    self.scanned += part.len as u64;
                    self.hidden = if self.out.len() > before { 0 } else { self.hidden + part.len as u64 };
                }
                Step::Load => self.merger.load().await?,
                Step::End => self.ended = true,
            }
        }
    }
}

/// Where the rows before the change are. Apart from the scan, since its merge cannot be shared while a look-up waits.
struct OldRows {
    version: Arc<Version>,
    reader: Arc<SstReader>,
    projection: Arc<Projection>,
    from: Seq,
}

impl OldRows {
    /// The changes of some keys; `None` if none of them differs.
    async fn chunk(&self, keys: &[RowRef]) -> Result<Option<Chunk>, StorageError> {
        let prefixes: Vec<&[u8]> = keys.iter().map(|(block, row)| block.key(*row)).collect();
        let old = find(&self.version, &self.reader, &prefixes, KeyMatch::Whole, self.from, &self.projection).await?;
        let live: Vec<bool> = keys.iter().map(|(block, row)| !block.is_delete(*row)).collect();
        let parts: Vec<Part> = keys
            .iter()
            .zip(&live)
            .filter(|(_, l)| **l)
            .map(|((block, row), _)| Part { block: block.clone(), start: *row, len: 1 })
            .collect();
        let new = match parts.is_empty() {
            true => RecordBatch::new_empty(self.projection.output.clone()),
            false => gather(&self.projection, &parts)?,
        };
        let (mut places, mut ops) = (Vec::new(), Vec::new());
        let (mut next_old, mut next_new) = (0, 0);
        for (i, live) in live.iter().enumerate() {
            let had = old.which.get(next_old) == Some(&(i as u32));
            if had {
                places.push((0, next_old));
                ops.push(if *live { Op::UpdateDelete } else { Op::Delete });
                next_old += 1;
            }
            if *live {
                places.push((1, next_new));
                ops.push(if had { Op::UpdateInsert } else { Op::Insert });
                next_new += 1;
            }
        }
        let columns = (0..self.projection.output.fields().len())
            .map(|c| arrow::compute::interleave(&[old.rows.column(c).as_ref(), new.column(c).as_ref()], &places))
            .collect::<Result<Vec<_>, _>>()?;
        without_equal_pairs(batch(&self.projection.output, columns, places.len())?, ops)
    }
}
