//! Opens the log of a partition after any end of the process: checks the active segment from its last index entry, cuts an unfinished batch at the end,
//! rebuilds the producers, their open and their aborted transactions from the newest snapshot and the headers after it.

use std::{
    fs, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Log, LogSettings,
    batch::{HEADER_BYTES, Marker, marker_of},
    producers::{ProducerState, Producers},
    segment::{Segment, file_name},
    txn_index::Aborted,
};
use crate::{faults::DiskFull, journal};

/// What the topic journal knows about a partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) start: i64,
    pub(crate) epochs: Vec<(i32, i64)>,
}

/// Producers at an offset, as their snapshot file says. The aborted transactions before it are in index files that are not synced and have no checksum: the
/// snapshot counts only if they hold what they held then.
#[derive(Serialize, Deserialize)]
struct Snapshot<P> {
    producers: P,
    /// (base of a segment, number and checksum of the aborted transactions); segments without any are left out.
    aborted: Vec<(i64, usize, u32)>,
}

/// Offsets in the names of the files with this ending, rising.
fn offsets_of(dir: &Path, ending: &str) -> io::Result<Vec<i64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let base: Option<i64> = name.to_str().and_then(|n| n.strip_suffix(ending)?.strip_suffix('.')?.parse().ok());
        found.extend(base);
    }
    found.sort_unstable();
    Ok(found)
}

impl Log {
    /// Opens or creates. Idempotent; after it all that was acknowledged is readable again.
    pub(crate) fn open(
        dir: PathBuf,
        settings: Arc<LogSettings>,
        known: &Known,
        now_ms: i64,
        full: DiskFull,
    ) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let mut segments = Vec::new();
        for base in offsets_of(&dir, "log")? {
            segments.push(Segment::open(&dir, base, now_ms)?);
        }
        if segments.is_empty() {
            segments.push(Segment::create(&dir, known.start, now_ms)?);
        }
        // A crash between two files of a deletion or a roll leaves an index without data, or a full segment with an unfinished index.
        let mut next = known.start;
        let bases: Vec<i64> = segments.iter().map(|s| s.base).collect();
        let count = segments.len();
        for (i, segment) in segments.iter_mut().enumerate() {
            let from = segment.checkpoint();
            let lost;
            (next, lost) = segment.recover(from, bases.get(i + 1).copied())?;
            if lost > 0 {
                tracing::warn!(file = %segment.path.display(), bytes = lost, "cut an unfinished batch");
            }
            if i + 1 < count {
                segment.close(next)?;
            }
        }
        next = next.max(known.start);
        let start = known.start.max(segments.first().map_or(0, |s| s.base)).min(next);
        let mut epochs = known.epochs.clone();
        epochs.retain(|(_, at)| *at <= next);
        if epochs.is_empty() {
            epochs.push((0, start));
        }
        let mut log = Self {
            dir,
            segments,
            start,
            next,
            producers: Producers::default(),
            epochs,
            settings,
            compacted_to: -1,
            full,
        };
        log.trim_epochs();
        log.restore_producers(now_ms)?;
        Ok(log)
    }

    fn snapshot_path(&self, at: i64) -> PathBuf {
        self.dir.join(file_name(at, "snapshot"))
    }

    fn aborted_before(&self, next: i64) -> Vec<(i64, usize, u32)> {
        let digests = self.segments.iter().map(|s| (s.base, s.aborted.digest(next)));
        digests.filter(|(_, (count, _))| *count > 0).map(|(base, (count, crc))| (base, count, crc)).collect()
    }

    /// Writes who wrote what up to `next`; keeps the two newest. The indexes are written before.
    pub(super) fn save_producers(&self) -> io::Result<()> {
        let states: Vec<(i64, &ProducerState)> = self.producers().collect();
        let snapshot = Snapshot { producers: states, aborted: self.aborted_before(self.next) };
        let bytes = journal::frame(&serde_json::to_vec(&snapshot)?);
        let path = self.snapshot_path(self.next);
        let unfinished = path.with_extension("snapshot-new");
        fs::write(&unfinished, bytes)?;
        fs::rename(unfinished, path)?;
        let old = offsets_of(&self.dir, "snapshot")?;
        for at in old.iter().rev().skip(2) {
            fs::remove_file(self.snapshot_path(*at))?;
        }
        Ok(())
    }

    /// The newest snapshot up to `next` that can be read, and what came after it.
    pub(super) fn restore_producers(&mut self, now_ms: i64) -> io::Result<()> {
        let mut from = self.segments.first().map_or(0, |s| s.base);
        self.producers = Producers::default();
        for at in offsets_of(&self.dir, "snapshot")?.into_iter().rev() {
            let path = self.snapshot_path(at);
            if at > self.next {
                fs::remove_file(path)?;
                continue;
            }
            let bytes = fs::read(&path)?;
            let snapshot: Option<Snapshot<Vec<(i64, ProducerState)>>> =
                journal::unframe(&bytes).and_then(|(payload, _)| serde_json::from_slice(payload).ok());
            let oldest = self.segments.first().map_or(0, |s| s.base);
            // Segments below the log start may be gone since.
            let whole =
                |s: &Snapshot<_>| s.aborted.iter().filter(|(base, ..)| *base >= oldest).eq(&self.aborted_before(at));
            if let Some(snapshot) = snapshot.filter(whole) {
                self.producers = Producers::restore(snapshot.producers);
                from = at;
                break;
            }
            tracing::warn!(file = %path.display(), "skipped a producer snapshot that cannot be read, or that knows other aborted transactions than the indexes");
        }
        self.read_producers(from, now_ms)
    }

    fn read_producers(&mut self, from: i64, now_ms: i64) -> io::Result<()> {
        let mut producers = std::mem::take(&mut self.producers);
        for segment in &mut self.segments {
            segment.aborted.cut(from.max(segment.base))?;
            let Some((position, _)) = segment.find(from)? else { continue };
            let mut aborted = Vec::new();
            for step in segment.walk(position) {
                let (position, header) = step?;
                if header.base_offset < from {
                    continue;
                }
                if !header.is_control() {
                    producers.appended(&header, now_ms);
                    continue;
                }
                let mut record = [0; HEADER_BYTES + 9];
                segment.file.read_exact_at(&mut record, position)?;
                let Some(marker) = marker_of(&record) else { continue };
                let first = producers.ended(header.producer_id, header.producer_epoch, now_ms);
                if let (Some(first), Marker::Abort) = (first, marker) {
                    aborted.push(Aborted { producer_id: header.producer_id, first, last: header.base_offset });
                }
            }
            for a in aborted {
                segment.aborted.push(a);
            }
            segment.aborted.flush()?;
        }
        self.producers = producers;
        Ok(())
    }
}
