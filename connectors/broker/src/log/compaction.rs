//! Compaction: of closed segments below the last stable offset the newest record per key stays, tombstones for `delete.retention.ms` longer, counted from
//! the first run that met them. Offsets do not change, and a batch keeps its header (last offset, producer, sequences), so readers and producers notice
//! nothing. A run knows only so many keys; it goes as far as they reach, and the next one goes on from there.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    Log,
    batch::{self, BatchHeader, NewBatch},
    records,
    segment::{Segment, file_name},
};

/// One run knows so many keys at most.
const KEY_LIMIT: usize = 2_000_000;
/// Clean and dirty part: a run is worth it when this share of the bytes is new.
const DIRTY_SHARE: f64 = 0.1;

/// The newest offset of each key among the records from where the last run ended up to `end`.
struct Newest {
    of: HashMap<Bytes, i64>,
    end: i64,
}

impl Log {
    /// Compacts what is due. Returns bytes saved.
    pub(crate) fn compact(&mut self, now_ms: i64) -> io::Result<u64> {
        self.compact_with(KEY_LIMIT, now_ms)
    }

    pub(super) fn compact_with(&mut self, key_limit: usize, now_ms: i64) -> io::Result<u64> {
        if !self.settings.compact {
            return Ok(0);
        }
        let stable = self.stable();
        // The active segment stays; so does any with a record of an open transaction.
        let closed = self.segments.windows(2).take_while(|w| w[1].base <= stable).count();
        if closed == 0 {
            return Ok(0);
        }
        let total: u64 = self.segments[..closed].iter().map(|s| s.size).sum();
        let is_dirty = |w: &&[Segment]| w[1].base > self.compacted_to;
        let dirty: u64 = self.segments[..=closed].windows(2).filter(is_dirty).map(|w| w[0].size).sum();
        if total == 0 || (dirty as f64) < (total as f64) * DIRTY_SHARE {
            return Ok(0);
        }
        let newest = self.newest_offsets(closed, key_limit)?;
        let mut saved = 0;
        // The oldest first: a tombstone may go when the values before it have gone.
        for i in 0..closed {
            saved += self.rewrite(i, &newest, now_ms)?;
        }
        self.compacted_to = newest.end;
        Ok(saved)
    }

    /// Records of aborted transactions do not count.
    fn newest_offsets(&self, closed: usize, key_limit: usize) -> io::Result<Newest> {
        let mut newest = Newest { of: HashMap::new(), end: self.segments[closed].base };
        for pair in self.segments[..=closed].windows(2).filter(|w| w[1].base > self.compacted_to) {
            let segment = &pair[0];
            for step in segment.walk(0) {
                let (position, header) = step?;
                if header.last_offset() < self.compacted_to || header.is_control() || self.is_aborted(&header) {
                    continue;
                }
                let plain = records::uncompressed(&header, &segment.batch(position, &header)?)?;
                for record in records::records(&plain) {
                    let record = record?;
                    let Some(key) = record.key else { continue };
                    let offset = header.base_offset + i64::from(record.offset_delta);
                    if let Some(known) = newest.of.get_mut(key) {
                        *known = offset;
                    } else if newest.of.len() < key_limit {
                        newest.of.insert(Bytes::copy_from_slice(key), offset);
                    } else {
                        newest.end = header.base_offset;
                        return Ok(newest);
                    }
                }
            }
        }
        Ok(newest)
    }

    fn is_aborted(&self, header: &BatchHeader) -> bool {
        header.is_transactional()
            && self.segments.iter().flat_map(|s| &s.aborted.entries).any(|a| {
                a.producer_id == header.producer_id && a.first <= header.base_offset && header.base_offset < a.last
            })
    }

    fn rewrite(&mut self, i: usize, newest: &Newest, now_ms: i64) -> io::Result<u64> {
        let segment = &self.segments[i];
        let tombstones_go =
            segment.cleaned_ms().is_some_and(|met| now_ms.saturating_sub(met) > self.settings.delete_retention_ms);
        let mut changed = false;
        let mut out = Vec::with_capacity(segment.size as usize);
        let mut kept_producers = HashSet::new();
        for step in segment.walk(0) {
            let (position, header) = step?;
            let bytes = segment.batch(position, &header)?;
            if header.is_control() {
                out.extend_from_slice(&bytes);
                continue;
            }
            // The transaction index still names aborted batches, so they stay as they are; they go when retention takes the segment.
            if self.is_aborted(&header) {
                out.extend_from_slice(&bytes);
                continue;
            }
            let keep = |r: &records::RecordView<'_>| {
                let offset = header.base_offset + i64::from(r.offset_delta);
                let replaced = r.key.and_then(|k| newest.of.get(k)).is_some_and(|n| offset < *n);
                // Behind `end` there may be keys that this run does not know: the values before their tombstones are still there.
                let is_over = !r.has_value && offset < newest.end && tombstones_go;
                !replaced && !is_over
            };
            if let Some(smaller) = shrink(&header, &bytes, keep)? {
                changed = true;
                let empty = BatchHeader::parse(&smaller).is_ok_and(|h| h.count == 0);
                // An empty batch is kept only as the newest of its producer, for its sequence.
                if empty && !self.is_newest_of_producer(&header, &mut kept_producers) {
                    continue;
                }
                out.extend_from_slice(&smaller);
            } else {
                out.extend_from_slice(&bytes);
            }
        }
        let saved = segment.size.saturating_sub(out.len() as u64);
        let next = self.segments[i + 1].base;
        if changed {
            self.segments[i] = replace(&self.dir, &self.segments[i], &out, next, now_ms)?;
        }
        if next <= newest.end {
            self.segments[i].mark_cleaned(now_ms)?;
        }
        Ok(saved)
    }

    fn is_newest_of_producer(&self, header: &BatchHeader, kept: &mut HashSet<i64>) -> bool {
        let state = self.producers.states().get(&header.producer_id);
        let newest = state.and_then(|s| s.recent.back()).is_some_and(|r| r.base_offset == header.base_offset);
        newest && kept.insert(header.base_offset)
    }
}

/// The batch with only the records to keep, with the same codec; `None` if all stay.
fn shrink(
    header: &BatchHeader,
    bytes: &Bytes,
    keep: impl Fn(&records::RecordView<'_>) -> bool,
) -> io::Result<Option<Bytes>> {
    let plain = records::uncompressed(header, bytes)?;
    let mut kept = Vec::new();
    let mut count = 0;
    for record in records::records(&plain) {
        let record = record?;
        if keep(&record) {
            kept.extend_from_slice(record.raw);
            count += 1;
        }
    }
    if count == header.count {
        return Ok(None);
    }
    let new = NewBatch {
        base_offset: header.base_offset,
        leader_epoch: header.leader_epoch,
        attributes: if count == 0 { header.attributes & !7 } else { header.attributes },
        last_offset_delta: header.last_offset_delta,
        base_timestamp: header.base_timestamp,
        max_timestamp: header.max_timestamp,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        count,
    };
    let packed = if count == 0 { Vec::new() } else { records::compressed(header.compression(), &kept)? };
    Ok(Some(batch::build(&new, &packed)))
}

/// Puts a smaller file in the place of a segment's. A crash leaves the old or the new file; indexes are rebuilt at start if they are gone.
fn replace(dir: &Path, old: &Segment, bytes: &[u8], next: i64, now_ms: i64) -> io::Result<Segment> {
    let unfinished = dir.join(file_name(old.base, "compacting"));
    fs::write(&unfinished, bytes)?;
    fs::File::open(&unfinished)?.sync_data()?;
    for ending in ["index", "timeindex"] {
        match fs::remove_file(dir.join(file_name(old.base, ending))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    fs::rename(unfinished, &old.path)?;
    let mut segment = Segment::open(dir, old.base, now_ms)?;
    segment.recover(0, Some(next))?;
    segment.close(next)?;
    debug_assert!(!Arc::ptr_eq(&segment.file, &old.file));
    Ok(segment)
}
