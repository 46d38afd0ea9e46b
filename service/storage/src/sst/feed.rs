//! The blocks of one sorted run of SSTs in order, one row group open at a time; what metadata rules out is not read.

use std::{collections::VecDeque, sync::Arc};

use millstream_types::{Pos, Seq};

use super::reader::{GroupReader, SstFile, SstReader};
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
                let plain = meta.plain;
                let group = self.reader.group(&open.file, &self.projection, open.next).await?;
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
    fn skip(&mut self, window: &Window) {
        while self
            .file
            .meta
            .groups
            .get(self.next)
            .is_some_and(|g| !window.sequences(g.from, g.end) || !window.keys(g.first.as_bytes(), g.last.as_bytes()))
        {
            self.next += 1;
        }
    }
}
