//! `scan`: rows as of a sequence, or the net change between two, as a stream of chunks and marks.
//!
//! Append regions need no merge: runs and files are disjoint in sequence (`append`). Keyed regions merge (`merge`); a net change of few keys looks the old
//! rows up instead (`touched`).

use std::sync::Arc;

use futures::StreamExt;
use millstream_types::{Chunk, Key, Seq};

use super::{
    append::AppendScan,
    block::{Parts, Projection, gather},
    changes::{Change, Changes, chunk_of},
    merge::{Merger, Step},
    newest::Newest,
    touched::TouchedScan,
};
use crate::{
    ScanItem, ScanRequest, ScanStream, StorageError,
    region::version::Version,
    sst::{SstFeed, SstReader, Window},
};

/// Hidden rows after which a scan tells how far it is.
pub(super) const MARK_ROWS: u64 = 65_536;
/// Up to this part (1 / n) of the rows, old rows of changed keys are looked up; above it a merge is cheaper.
const LOOKUP_PART: u64 = 20;

/// Rows or net changes of one version, in key order (append: sequence, ord). Decodes while polled: poll it on the compute runtime.
///
/// Memory: one chunk, and per sorted run one decoded batch and one fetched row group. Errors: `Corrupt` if an SST does not match its manifest entry,
/// `NotFound` if a file is gone.
pub fn scan(version: Arc<Version>, reader: Arc<SstReader>, request: ScanRequest) -> ScanStream {
    let start = futures::stream::once(async move {
        let scan = Scan::start(version, reader, request).await?;
        Ok::<_, StorageError>(futures::stream::try_unfold(scan, |mut scan| async move {
            let item = scan.next().await?;
            Ok(item.map(|item| (item, scan)))
        }))
    });
    start
        .flat_map(|started| match started {
            Ok(items) => items.boxed(),
            Err(e) => futures::stream::once(async { Err(e) }).boxed(),
        })
        .boxed()
}

enum Scan {
    Append(Box<AppendScan>),
    Merge(Box<MergeScan>),
    Touched(Box<TouchedScan>),
}

impl Scan {
    async fn start(
        version: Arc<Version>,
        reader: Arc<SstReader>,
        mut request: ScanRequest,
    ) -> Result<Self, StorageError> {
        request.max_rows = request.max_rows.max(1);
        let projection = Projection::table(&version.layout, request.columns.as_deref())?;
        if !version.layout.is_keyed() {
            return Ok(Scan::Append(Box::new(AppendScan::new(&version, &reader, projection, &request)?)));
        }
        if let Some(from) = request.from
            && few_changes(&version, &reader, from, request.to).await?
        {
            return Ok(Scan::Touched(Box::new(TouchedScan::new(version, reader, projection, request, from)?)));
        }
        let window =
            Window { after: request.after.clone(), until: request.until.clone(), from: Seq(i64::MIN), to: request.to };
        let merger = merger(&version, &reader, projection, window)?;
        Ok(Scan::Merge(Box::new(MergeScan::new(merger, &request))))
    }

    async fn next(&mut self) -> Result<Option<ScanItem>, StorageError> {
        match self {
            Scan::Append(scan) => scan.next().await,
            Scan::Merge(scan) => scan.next().await,
            Scan::Touched(scan) => scan.next().await,
        }
    }
}

/// A merge of all sources that have rows in `window`.
pub(super) fn merger(
    version: &Version,
    reader: &Arc<SstReader>,
    projection: Arc<Projection>,
    window: Window,
) -> Result<Merger, StorageError> {
    let mut merger = Merger::new(projection.clone(), window.after.clone(), window.until.clone());
    for run in version.files.chunk_by(|a, b| a.run == b.run) {
        merger.add_files(SstFeed::new(reader.clone(), projection.clone(), window.clone(), run.iter().cloned()));
    }
    for run in version.runs.iter().filter(|r| window.sequences(r.from, r.end)) {
        merger.add_run(run)?;
    }
    Ok(merger)
}

/// Whether at most one row in [`LOOKUP_PART`] can have a sequence in `[from, to)`, judged by metadata.
async fn few_changes(version: &Version, reader: &Arc<SstReader>, from: Seq, to: Seq) -> Result<bool, StorageError> {
    let touches = |start: Seq, end: Seq| end > from && start < to;
    let mut total: u64 = version.runs.iter().map(|r| r.len() as u64).sum();
    total += version.files.iter().map(|f| f.rows).sum::<u64>();
    let mut changed: u64 = 0;
    for run in version.runs.iter().filter(|r| touches(r.from, r.end)) {
        let seqs = crate::layout::sequences(&run.rows, version.layout.width());
        changed += if run.from >= from { seqs.len() } else { seqs.iter().filter(|s| **s >= from.0).count() } as u64;
    }
    for entry in version.files.iter().filter(|f| touches(f.from, f.end)) {
        if changed * LOOKUP_PART > total {
            break;
        }
        let file = reader.open(entry).await?;
        changed += file.meta.groups.iter().filter(|g| touches(g.from, g.end)).map(|g| g.rows as u64).sum::<u64>();
    }
    Ok(changed * LOOKUP_PART <= total)
}

/// Snapshot or net change of a keyed region by merge.
struct MergeScan {
    merger: Merger,
    select: Select,
    max_rows: usize,
    /// Rows looked at since the last item, and since the last that was put out.
    scanned: u64,
    hidden: u64,
    ended: bool,
}

enum Select {
    Newest(Newest, Parts),
    Changes(Changes, Vec<Change>),
}

impl MergeScan {
    fn new(merger: Merger, request: &ScanRequest) -> Self {
        let select = match request.from {
            None => Select::Newest(Newest::new(request.to.0), Parts::default()),
            Some(from) => Select::Changes(Changes::new(from.0, request.to.0), Vec::new()),
        };
        Self { merger, select, max_rows: request.max_rows, scanned: 0, hidden: 0, ended: false }
    }

    async fn next(&mut self) -> Result<Option<ScanItem>, StorageError> {
        loop {
            let all = self.ended || self.hidden >= MARK_ROWS;
            if let Some((chunk, last)) = self.emit(all)? {
                return Ok(Some(ScanItem::Rows { chunk, last, scanned: std::mem::take(&mut self.scanned) }));
            }
            if self.ended {
                return Ok(None);
            }
            if self.hidden >= MARK_ROWS
                && let Some((block, row)) = self.select.passed()
            {
                self.hidden = 0;
                return Ok(Some(ScanItem::Mark {
                    at: block.position(*row),
                    scanned: std::mem::take(&mut self.scanned),
                }));
            }
            match self.merger.step() {
                Step::Rows(part) => {
                    let before = self.select.pending();
                    match &mut self.select {
                        Select::Newest(newest, out) => newest.take(&part, out),
                        Select::Changes(changes, out) => changes.take(&part, out),
                    }
                    self.scanned += part.len as u64;
                    self.hidden = if self.select.pending() > before { 0 } else { self.hidden + part.len as u64 };
                }
                Step::Load => self.merger.load().await?,
                Step::End => {
                    self.ended = true;
                    if let Select::Changes(changes, out) = &mut self.select {
                        changes.finish(out);
                    }
                }
            }
        }
    }

    /// A chunk if there are enough rows, or any with `all`.
    fn emit(&mut self, all: bool) -> Result<Option<(Chunk, Key)>, StorageError> {
        let projection = self.merger.projection().clone();
        match &mut self.select {
            Select::Newest(_, out) => {
                if out.rows() == 0 || (out.rows() < self.max_rows && !all) {
                    return Ok(None);
                }
                rows_of(&projection, out, self.max_rows).map(Some)
            }
            Select::Changes(_, out) => {
                // An update needs two places, so n changes may need 2 n rows; waiting for `max_rows` changes is near enough.
                while !out.is_empty() && (out.len() >= self.max_rows || all) {
                    let (mut n, mut rows) = (0, 0);
                    while n < out.len() && (n == 0 || rows + out[n].rows() <= self.max_rows) {
                        rows += out[n].rows();
                        n += 1;
                    }
                    let taken: Vec<Change> = out.drain(..n).collect();
                    let (block, row) = taken[n - 1].row();
                    let last = block.position(*row);
                    if let Some(chunk) = chunk_of(&projection, &taken)? {
                        return Ok(Some((chunk, last)));
                    }
                }
                Ok(None)
            }
        }
    }
}

impl Select {
    /// What waits to be put out, growing with each find.
    fn pending(&self) -> usize {
        match self {
            Select::Newest(_, out) => out.rows(),
            Select::Changes(_, out) => out.len(),
        }
    }

    fn passed(&self) -> Option<&super::changes::RowRef> {
        match self {
            Select::Newest(newest, _) => newest.passed(),
            Select::Changes(changes, _) => changes.passed(),
        }
    }
}

/// Takes up to `max_rows` of the rows that wait, as inserts, with the key of the last one.
pub(super) fn rows_of(projection: &Projection, out: &mut Parts, max_rows: usize) -> Result<(Chunk, Key), StorageError> {
    let parts = out.take(max_rows);
    let part = parts.last().expect("the caller has rows");
    let last = part.block.position(part.start + part.len - 1);
    Ok((Chunk::inserts(gather(projection, &parts)?), last))
}
