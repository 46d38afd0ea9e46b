//! Compaction: of closed segments below the last stable offset the newest record per key stays, tombstones for `delete.retention.ms` longer. Offsets do not
//! change, and a batch keeps its header (last offset, producer, sequences), so readers and producers notice nothing.

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

/// One run looks at so many keys at most; what does not fit waits for the next.
const KEY_LIMIT: usize = 2_000_000;
/// Clean and dirty part: a run is worth it when this share of the bytes is new.
const DIRTY_SHARE: f64 = 0.1;

impl Log {
    /// Compacts what is due. Returns bytes saved.
    pub(crate) fn compact(&mut self, now_ms: i64) -> io::Result<u64> {
        if !self.settings.compact {
            return Ok(0);
        }
        let stable = self.stable();
        // The active segment stays; so does any with a record of an open transaction.
        let closed = self.segments.windows(2).take_while(|w| w[1].base <= stable).count();
        let Some(end) = self.segments.get(closed).map(|s| s.base).filter(|_| closed > 0) else { return Ok(0) };
        let total: u64 = self.segments[..closed].iter().map(|s| s.size).sum();
        let dirty: u64 = self.segments[..closed].iter().filter(|s| s.base >= self.compacted_to).map(|s| s.size).sum();
        if total == 0 || (dirty as f64) < (total as f64) * DIRTY_SHARE {
            return Ok(0);
        }
        let newest = self.newest_offsets(closed)?;
        let mut saved = 0;
        for i in 0..closed {
            saved += self.rewrite(i, &newest, now_ms)?;
        }
        self.compacted_to = end;
        Ok(saved)
    }

    /// The last offset of every key in the closed segments; records of aborted transactions do not count.
    fn newest_offsets(&self, closed: usize) -> io::Result<HashMap<Bytes, i64>> {
        let mut newest: HashMap<Bytes, i64> = HashMap::new();
        for segment in &self.segments[..closed] {
            for step in segment.walk(0) {
                let (position, header) = step?;
                if header.is_control() || self.is_aborted(&header) {
                    continue;
                }
                let plain = records::uncompressed(&header, &segment.batch(position, &header)?)?;
                for record in records::records(&plain) {
                    let record = record?;
                    let Some(key) = record.key else { continue };
                    let offset = header.base_offset + i64::from(record.offset_delta);
                    if let Some(known) = newest.get_mut(key) {
                        *known = offset;
                    } else if newest.len() < KEY_LIMIT {
                        newest.insert(Bytes::copy_from_slice(key), offset);
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

    fn rewrite(&mut self, i: usize, newest: &HashMap<Bytes, i64>, now_ms: i64) -> io::Result<u64> {
        let segment = &self.segments[i];
        let tombstones_until = now_ms - self.settings.delete_retention_ms;
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
                let newest_of_key = r.key.is_none_or(|k| newest.get(k).is_none_or(|n| offset >= *n));
                newest_of_key && (r.has_value || header.max_timestamp >= tombstones_until)
            };
            if let Some(smaller) = shrink(&header, &bytes, keep)? {
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
        if saved == 0 {
            return Ok(0);
        }
        let next = self.segments[i + 1].base;
        let replaced = replace(&self.dir, &self.segments[i], &out, next, now_ms)?;
        self.segments[i] = replaced;
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
