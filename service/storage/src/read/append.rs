//! Scans of append regions: files and runs follow each other in sequence, so there is nothing to merge and nothing is hidden.

use std::{collections::VecDeque, sync::Arc};

use millstream_types::{Pos, Seq};

use super::{
    block::{Block, Parts, Projection},
    scan::rows_of,
};
use crate::{
    ScanItem, ScanRequest, StorageError,
    memtable::Run,
    region::version::Version,
    sst::{SstFeed, SstReader, Window},
};

pub(super) struct AppendScan {
    projection: Arc<Projection>,
    /// Rows with `low` < (sequence, ord) <= `high` and `from` <= sequence < `to`.
    low: Option<(i64, u32)>,
    high: Option<(i64, u32)>,
    from: i64,
    to: i64,
    feed: SstFeed,
    runs: VecDeque<Arc<Run>>,
    out: Parts,
    max_rows: usize,
    scanned: u64,
    ended: bool,
}

impl AppendScan {
    pub(super) fn new(
        version: &Version,
        reader: &Arc<SstReader>,
        projection: Arc<Projection>,
        request: &ScanRequest,
    ) -> Result<Self, StorageError> {
        let place = |key: &millstream_types::Key| {
            let place = key.as_append();
            place.ok_or_else(|| StorageError::InvalidOption {
                what: format!("{key:?} is no position of an append region"),
            })
        };
        let low = match &request.after {
            Pos::NotStarted => None,
            Pos::At(key) => Some(place(key)?),
            Pos::End => Some((i64::MAX, u32::MAX)),
        };
        let high = match &request.until {
            Pos::NotStarted => Some((i64::MIN, 0)),
            Pos::At(key) => Some(place(key)?),
            Pos::End => None,
        };
        let from = request.from.unwrap_or(Seq(i64::MIN));
        let window = Window { after: request.after.clone(), until: request.until.clone(), from, to: request.to };
        let runs = version.runs.iter().filter(|r| !r.is_empty() && window.sequences(r.from, r.end)).cloned().collect();
        let feed = SstFeed::new(reader.clone(), projection.clone(), window, version.files.iter().cloned());
        Ok(Self {
            projection,
            low,
            high,
            from: from.0,
            to: request.to.0,
            feed,
            runs,
            out: Parts::default(),
            max_rows: request.max_rows,
            scanned: 0,
            ended: false,
        })
    }

    pub(super) async fn next(&mut self) -> Result<Option<ScanItem>, StorageError> {
        loop {
            if self.out.rows() > 0 && (self.ended || self.out.rows() >= self.max_rows) {
                let (chunk, last) = rows_of(&self.projection, &mut self.out, self.max_rows)?;
                return Ok(Some(ScanItem::Rows { chunk, last, scanned: std::mem::take(&mut self.scanned) }));
            }
            if self.ended {
                return Ok(None);
            }
            let block = match self.feed.next().await? {
                Some(block) => block,
                None => match self.runs.pop_front() {
                    Some(run) => Block::from_run(&self.projection, &run)?,
                    None => {
                        self.ended = true;
                        continue;
                    }
                },
            };
            self.take(Arc::new(block));
        }
    }

    fn take(&mut self, block: Arc<Block>) {
        let start =
            block.gallop(0, |row| block.seqs[row] < self.from || self.low.is_some_and(|low| block.place(row) <= low));
        let inside = |row: usize| block.seqs[row] < self.to && self.high.is_none_or(|high| block.place(row) <= high);
        let end =
            if start < block.len() && inside(block.len() - 1) { block.len() } else { block.gallop(start, inside) };
        self.scanned += (end - start) as u64;
        if end > start {
            self.out.push(&block, start, end - start);
        }
        self.ended |= end < block.len();
    }
}
