//! The blocks of one sorted run of SSTs in order, one row group open at a time; what metadata rules out is not read, down to segments.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use millstream_types::{Pos, Seq};

use super::{
    GroupMeta,
    reader::{GroupReader, SstFile, SstReader},
};
use crate::{
    StorageError,
    manifest::FileEntry,
    read::block::{Block, Projection},
};

/// What a feed leaves out. Files and groups without a row in `[from, to)` or beyond `after` and `until` are skipped.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) after: Pos,
    pub(crate) until: Pos,
    pub(crate) from: Seq,
    pub(crate) to: Seq,
}

impl Window {
    pub(crate) fn everything() -> Self {
        Self { after: Pos::NotStarted, until: Pos::End, from: Seq(i64::MIN), to: Seq::MAX }
    }

    pub(crate) fn sequences(&self, from: Seq, end: Seq) -> bool {
        end > self.from && from < self.to
    }

    fn keys(&self, first: &[u8], last: &[u8]) -> bool {
        !self.after.covers(last) && self.until.covers(first)
    }

    /// The rows of a row group that can be inside, in whole segments.
    fn rows(&self, group: &GroupMeta, segment_rows: usize) -> Range<usize> {
        if !self.sequences(group.from, group.end) || !self.keys(group.first.as_bytes(), group.last.as_bytes()) {
            return 0..0;
        }
        // All before the last segment that begins at or below `after` is at or below it, too.
        let from = group.segments.partition_point(|first| self.after.covers(first.as_bytes())).saturating_sub(1);
        let to = match &self.until {
            Pos::At(_) if !group.segments.is_empty() => {
                group.segments.partition_point(|first| self.until.covers(first.as_bytes())) * segment_rows
            }
            _ => group.rows,
        };
        from * segment_rows..to.min(group.rows)
    }

    pub(crate) fn file(&self, entry: &FileEntry) -> bool {
        self.sequences(entry.from, entry.end)
            && entry.key.as_ref().is_none_or(|(a, b)| self.keys(a.as_bytes(), b.as_bytes()))
    }
}

#[derive(Debug)]
pub(crate) struct SstFeed {
    reader: Arc<SstReader>,
    projection: Arc<Projection>,
    window: Window,
    files: VecDeque<Arc<FileEntry>>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    file: Arc<SstFile>,
    /// The next group.
    next: usize,
    group: Option<(GroupReader, bool)>,
}

impl SstFeed {
    /// `files` in order of keys (append: of sequences).
    pub(crate) fn new(
        reader: Arc<SstReader>,
        projection: Arc<Projection>,
        window: Window,
        files: impl IntoIterator<Item = Arc<FileEntry>>,
    ) -> Self {
        let files = files.into_iter().filter(|f| window.file(f)).collect();
        Self { reader, projection, window, files, open: None }
    }

    /// A key below which nothing comes any more; `None` at the end.
    pub(crate) fn bound(&self) -> Option<&[u8]> {
        if let Some(open) = &self.open {
            let group = if open.group.is_some() { open.next - 1 } else { open.next };
            if let Some(group) = open.file.meta.groups.get(group) {
                return Some(group.first.as_bytes());
            }
        }
        self.files.front().map(|f| f.key.as_ref().map_or(&[][..], |(first, _)| first.as_bytes()))
    }

    /// The next non-empty block.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, StorageError> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some((group, plain)) = &mut open.group {
                    match group.next()? {
                        Some(rows) if rows.num_rows() == 0 => continue,
                        Some(rows) => return Block::from_decoded(&self.projection, rows, *plain).map(Some),
                        None => {
                            open.group = None;
                            open.skip(&self.window);
                            if open.next == open.file.meta.groups.len() {
                                self.open = None;
                            }
                            continue;
                        }
                    }
                }
                open.skip(&self.window);
                let Some(meta) = open.file.meta.groups.get(open.next) else {
                    self.open = None;
                    continue;
                };
                let (plain, rows) = (meta.plain, open.rows(&self.window, meta));
                let group = self.reader.group(&open.file, &self.projection, open.next, rows).await?;
                open.group = Some((group, plain));
                open.next += 1;
                continue;
            }
            let Some(entry) = self.files.pop_front() else { return Ok(None) };
            let file = self.reader.open(&entry).await?;
            self.open = Some(Open { file, next: 0, group: None });
        }
    }
}

impl Open {
    fn rows(&self, window: &Window, group: &GroupMeta) -> Range<usize> {
        window.rows(group, self.file.meta.segment_rows as usize)
    }

    fn skip(&mut self, window: &Window) {
        while self.file.meta.groups.get(self.next).is_some_and(|g| self.rows(window, g).is_empty()) {
            self.next += 1;
        }
    }
}
