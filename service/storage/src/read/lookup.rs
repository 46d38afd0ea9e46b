//! `lookup`: live rows by sorted key prefixes.
//!
//! Sources are asked from new to old. A whole key is done at its first hit, since sources are disjoint in sequence. A hit that is longer than what was
//! asked says that this was a prefix: all sources are asked, and the newest version of each key wins in the end. In SSTs the keys of the footer lead to
//! segments of rows. Where a key filter says that a whole key is there, its segment is decoded with all wanted columns; elsewhere with key and hidden columns
//! alone, and the others in the end, of the segments in which something live was found. Both are kept for the next look-up.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use millstream_types::{Key, Pos, Seq};
use rustc_hash::FxHashMap;

use super::block::{Block, Part, Projection, gather};
use crate::{
    KeyMatch, LookupRows, StorageError,
    manifest::FileEntry,
    region::version::Version,
    sst::{GroupMeta, SstFile, SstReader, Window},
};

/// Row groups of one sorted run that are fetched at a time.
const READS: usize = 16;

/// Rows as of `at` with one of `keys` (ascending, distinct), in key order. Empty for append regions, whose rows have no key.
pub async fn lookup(
    version: Arc<Version>,
    reader: Arc<SstReader>,
    keys: Vec<Key>,
    by: KeyMatch,
    at: Seq,
    columns: Option<Vec<usize>>,
) -> Result<LookupRows, StorageError> {
    let projection = Projection::table(&version.layout, columns.as_deref())?;
    let keys: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
    find(&version, &reader, &keys, by, at, &projection).await
}

/// A version of a key.
struct Hit {
    which: u32,
    block: Arc<Block>,
    row: usize,
    /// In an SST of which only the keys were decoded: the place in `Search::reads`, and of the row in its row group.
    stored: Option<(usize, u32)>,
}

/// What is still looked for.
struct Search<'a> {
    prefixes: &'a [&'a [u8]],
    by: KeyMatch,
    done: Vec<bool>,
    at: i64,
    hits: Vec<Hit>,
    /// Some prefix starts with another one.
    nested: bool,
    /// Row groups that were looked into.
    reads: Vec<(Arc<SstFile>, usize)>,
}

/// See [`lookup`].
pub(super) async fn find(
    version: &Version,
    reader: &Arc<SstReader>,
    prefixes: &[&[u8]],
    by: KeyMatch,
    at: Seq,
    projection: &Arc<Projection>,
) -> Result<LookupRows, StorageError> {
    let nested = prefixes.windows(2).any(|w| w[1].starts_with(w[0]));
    let mut search = Search {
        prefixes,
        by,
        done: vec![false; prefixes.len()],
        at: at.0,
        hits: Vec::new(),
        nested,
        reads: Vec::new(),
    };
    if version.layout.is_keyed() {
        let window = Window { after: Pos::NotStarted, until: Pos::End, from: Seq(i64::MIN), to: at };
        for run in version.runs.iter().rev().filter(|r| !r.is_empty() && window.sequences(r.from, r.end)) {
            search.block(&Arc::new(Block::from_run(projection, run)?), 0..prefixes.len(), None);
        }
        let keys = Projection::table(&version.layout, Some(&[]))?;
        let runs: Vec<&[Arc<FileEntry>]> = version.files.chunk_by(|a, b| a.run == b.run).collect();
        for run in runs.iter().rev().filter(|run| run.iter().any(|f| window.file(f))) {
            if search.done.iter().all(|d| *d) {
                break;
            }
            search.files(reader, (&keys, projection), run, &window).await?;
        }
    }
    search.finish(reader, projection).await
}

/// Whether keys in `[first, last]` can start with `prefix`.
fn may_hold(prefix: &[u8], first: &[u8], last: &[u8]) -> bool {
    prefix <= last && (first <= prefix || first.starts_with(prefix))
}

/// The segments of a row group that can hold these prefixes (ascending).
fn segments<'a>(group: &GroupMeta, prefixes: impl Iterator<Item = &'a [u8]>) -> Vec<u32> {
    let mut segments: Vec<u32> = Vec::new();
    for prefix in prefixes {
        // The key may begin in the segment before the first one that starts at or above it.
        let from = group.segments.partition_point(|first| first.as_bytes() < prefix).saturating_sub(1);
        let to =
            group.segments.partition_point(|first| first.as_bytes() <= prefix || first.as_bytes().starts_with(prefix));
        let next = segments.last().map_or(0, |s| s + 1);
        segments.extend((from as u32).max(next)..to as u32);
    }
    segments
}

impl Search<'_> {
    /// Looks for the asked prefixes in `which` in one block.
    fn block(&mut self, block: &Arc<Block>, which: std::ops::Range<usize>, stored: Option<(usize, u32)>) {
        let mut at = 0;
        for i in which {
            if self.done[i] {
                continue;
            }
            let prefix = self.prefixes[i];
            at = block.gallop(at, |row| block.key(row) < prefix);
            let mut row = at;
            // Rows of one key come newest first: the first visible one is the version.
            while row < block.len() && block.key(row).starts_with(prefix) {
                let whole = block.key(row).len() == prefix.len();
                if block.seqs[row] < self.at {
                    let stored = stored.map(|(read, first)| (read, first + row as u32));
                    self.hits.push(Hit { which: i as u32, block: block.clone(), row, stored });
                    self.done[i] = whole;
                    if whole {
                        break;
                    }
                    let key = block.key(row);
                    row = block.gallop(row + 1, |r| block.key(r) == key);
                } else {
                    row += 1;
                }
            }
            if at == block.len() {
                break;
            }
        }
    }

    /// Looks in one sorted run of SSTs, with the first projection where finding is uncertain and the second where it is not.
    async fn files(
        &mut self,
        reader: &Arc<SstReader>,
        (keys, wanted): (&Arc<Projection>, &Arc<Projection>),
        files: &[Arc<FileEntry>],
        window: &Window,
    ) -> Result<(), StorageError> {
        let (prefixes, by) = (self.prefixes, self.by);
        let mut reads: Vec<(Arc<SstFile>, usize, Vec<u32>)> = Vec::new();
        for entry in files.iter().filter(|f| window.file(f)) {
            let Some((first, last)) = &entry.key else { continue };
            if !self.wanted(first.as_bytes(), last.as_bytes()) {
                continue;
            }
            let file = reader.open(entry).await?;
            for (group, places) in self.candidates(&file, window) {
                reads.push((file.clone(), group, places));
            }
        }
        let fetched = futures::stream::iter(reads.into_iter().map(|(file, group, mut places)| {
            let reader = reader.clone();
            async move {
                let mut projection = keys;
                if by == KeyMatch::Whole
                    && let Some(filter) = reader.filter(&file, group).await?
                {
                    places.retain(|i| filter.may_hold(prefixes[*i as usize]));
                    projection = wanted;
                }
                let segments = segments(&file.meta.groups[group], places.iter().map(|i| prefixes[*i as usize]));
                let batches = reader.segments(&file, projection, group, &segments).await?;
                Ok::<_, StorageError>((file, group, projection, segments, batches))
            }
        }));
        let mut fetched = fetched.buffered(READS);
        while let Some((file, group, projection, segments, batches)) = fetched.try_next().await? {
            let (plain, read) = (file.meta.groups[group].plain, self.reads.len());
            for (segment, rows) in segments.into_iter().zip(batches) {
                let block = Arc::new(Block::from_decoded(projection, rows, plain)?);
                let range = self.range(block.key(0), block.last());
                let stored = Arc::ptr_eq(projection, keys).then_some((read, segment * file.meta.segment_rows));
                self.block(&block, range, stored);
            }
            self.reads.push((file, group));
        }
        Ok(())
    }

    /// Prefixes that can have keys in `[first, last]`, and perhaps some before.
    fn range(&self, first: &[u8], last: &[u8]) -> std::ops::Range<usize> {
        let to = self.prefixes.partition_point(|p| *p <= last);
        let from =
            if self.nested { 0 } else { self.prefixes[..to].partition_point(|p| *p < first && !first.starts_with(p)) };
        from..to
    }

    /// Whether some prefix that is not done can have keys in `[first, last]`.
    fn wanted(&self, first: &[u8], last: &[u8]) -> bool {
        self.range(first, last).any(|i| !self.done[i] && may_hold(self.prefixes[i], first, last))
    }

    /// The row groups of a file that can hold what is looked for by their key ranges, and which of the prefixes.
    fn candidates(&self, file: &SstFile, window: &Window) -> BTreeMap<usize, Vec<u32>> {
        let groups = &file.meta.groups;
        let mut found: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (place, prefix) in self.prefixes.iter().enumerate().filter(|(i, _)| !self.done[*i]) {
            let start = groups.partition_point(|g| g.last.as_bytes() < *prefix);
            for (i, group) in groups.iter().enumerate().skip(start) {
                if !may_hold(prefix, group.first.as_bytes(), group.last.as_bytes()) {
                    break;
                }
                if window.sequences(group.from, group.end) {
                    found.entry(i).or_default().push(place as u32);
                }
            }
        }
        found
    }

    /// The newest live version of each key found.
    async fn finish(
        mut self,
        reader: &Arc<SstReader>,
        projection: &Arc<Projection>,
    ) -> Result<LookupRows, StorageError> {
        // Stable: of one key the hit of the newer source stays first.
        self.hits.sort_by(|a, b| a.which.cmp(&b.which).then_with(|| a.block.key(a.row).cmp(b.block.key(b.row))));
        self.hits.dedup_by(|b, a| a.which == b.which && a.block.key(a.row) == b.block.key(b.row));
        self.hits.retain(|hit| !hit.block.is_delete(hit.row));
        let which: Vec<u32> = self.hits.iter().map(|h| h.which).collect();
        let stored = self.stored_rows(reader, projection).await?;
        let parts: Vec<Part> = self
            .hits
            .iter()
            .map(|hit| match hit.stored {
                None => Part { block: hit.block.clone(), start: hit.row, len: 1 },
                Some((read, row)) => {
                    let size = self.reads[read].0.meta.segment_rows;
                    let block = stored[&(read, row / size)].clone();
                    Part { block, start: (row % size) as usize, len: 1 }
                }
            })
            .collect();
        let rows = match parts.is_empty() {
            true => RecordBatch::new_empty(projection.output.clone()),
            false => gather(projection, &parts)?,
        };
        Ok(LookupRows { rows, which })
    }

    /// The segments of SSTs with rows that were found, by place in `reads` and number.
    async fn stored_rows(
        &self,
        reader: &Arc<SstReader>,
        projection: &Arc<Projection>,
    ) -> Result<FxHashMap<(usize, u32), Arc<Block>>, StorageError> {
        let mut wanted: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (read, row) in self.hits.iter().filter_map(|h| h.stored) {
            wanted.entry(read).or_default().push(row / self.reads[read].0.meta.segment_rows);
        }
        let reads: Vec<_> =
            wanted.into_iter().map(|(read, segments)| (read, self.reads[read].clone(), segments)).collect();
        let fetched = futures::stream::iter(reads.into_iter().map(|(read, (file, group), mut segments)| {
            let (reader, projection) = (reader.clone(), projection.clone());
            async move {
                segments.sort_unstable();
                segments.dedup();
                let batches = reader.segments(&file, &projection, group, &segments).await?;
                let plain = file.meta.groups[group].plain;
                let block = |batch| Block::from_decoded(&projection, batch, plain).map(Arc::new);
                let blocks = batches.into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
                Ok::<_, StorageError>((read, segments, blocks))
            }
        }));
        let mut fetched = fetched.buffer_unordered(READS);
        let mut found = FxHashMap::default();
        while let Some((read, segments, blocks)) = fetched.try_next().await? {
            found.extend(segments.into_iter().zip(blocks).map(|(segment, block)| ((read, segment), block)));
        }
        Ok(found)
    }
}
