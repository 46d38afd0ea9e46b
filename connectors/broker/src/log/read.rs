//! Reading a log: which bytes of which file answer a fetch, which aborted transactions lie in them, which offset belongs to a time. Hands out file ranges;
//! record bytes do not pass through here.

use std::{fs::File, io, sync::Arc};

use super::{Log, batch::BatchHeader, records, segment::Segment};

/// Whole batches in a file.
#[derive(Debug, Clone)]
pub(crate) struct Slice {
    pub(crate) file: Arc<File>,
    pub(crate) position: u64,
    pub(crate) length: u64,
}

/// The answer to a fetch of one partition.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    /// `None`: nothing to read there yet.
    pub(crate) slice: Option<Slice>,
    /// (producer id, first offset), by first offset; only for `read_committed`.
    pub(crate) aborted: Vec<(i64, i64)>,
}

impl Log {
    /// Whole batches from the one that holds `offset`, up to `max` bytes, or one larger batch if `one`. `None`: the offset is outside of the log.
    pub(crate) fn read(&self, offset: i64, max: u64, one: bool, committed: bool) -> io::Result<Option<Found>> {
        if offset < self.start || offset > self.next {
            return Ok(None);
        }
        let end = if committed { self.stable() } else { self.next };
        if offset >= end {
            return Ok(Some(Found::default()));
        }
        let at = self.segments.partition_point(|s| s.base <= offset).saturating_sub(1);
        for (i, segment) in self.segments.iter().enumerate().skip(at) {
            if segment.base >= end {
                break;
            }
            let Some((position, first)) = segment.find(offset)? else { continue };
            if first.base_offset >= end {
                break;
            }
            let segment_end = self.segments.get(i + 1).map_or(self.next, |s| s.base);
            let limit =
                if end < segment_end { segment.find(end)?.map_or(segment.size, |(p, _)| p) } else { segment.size };
            let stop = segment.whole_batches(position, &first, max, limit, one)?;
            if stop == position {
                break;
            }
            let slice = Slice { file: Arc::clone(&segment.file), position, length: stop - position };
            let behind = segment.offset_behind(stop).unwrap_or(segment_end).min(end);
            let aborted = if committed { self.aborted_between(offset, behind) } else { Vec::new() };
            return Ok(Some(Found { slice: Some(slice), aborted }));
        }
        Ok(Some(Found::default()))
    }

    fn aborted_between(&self, from: i64, to: i64) -> Vec<(i64, i64)> {
        // A marker lies after its records, so segments before the one with `from` cannot matter.
        let at = self.segments.partition_point(|s| s.base <= from).saturating_sub(1);
        let later = self.segments[at..].iter().flat_map(|s| &s.aborted.entries);
        let mut found: Vec<(i64, i64)> =
            later.filter(|a| a.last >= from && a.first < to).map(|a| (a.producer_id, a.first)).collect();
        found.sort_unstable_by_key(|(_, first)| *first);
        found
    }

    /// (timestamp, offset) of the first record at or after the log start that is not older than `timestamp`.
    pub(crate) fn offset_for_time(&self, timestamp: i64) -> io::Result<Option<(i64, i64)>> {
        for segment in self.segments.iter().filter(|s| s.max_timestamp >= timestamp) {
            for step in segment.walk(segment.before_time(timestamp)) {
                let (position, header) = step?;
                if header.max_timestamp < timestamp || header.last_offset() < self.start {
                    continue;
                }
                let start = self.start;
                let fits = |at: i64, offset: i64| at >= timestamp && offset >= start;
                if let Some(found) = first_record(segment, position, &header, fits)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    /// (timestamp, offset) of the first record with the highest timestamp.
    pub(crate) fn offset_of_newest(&self) -> io::Result<Option<(i64, i64)>> {
        let newest = self.segments.iter().map(|s| s.max_timestamp).max().unwrap_or(-1);
        if newest < 0 { Ok(None) } else { self.offset_for_time(newest) }
    }
}

/// The first record of a batch for which `fits(timestamp, offset)`.
fn first_record(
    segment: &Segment,
    position: u64,
    header: &BatchHeader,
    fits: impl Fn(i64, i64) -> bool,
) -> io::Result<Option<(i64, i64)>> {
    if header.log_append_time() {
        let at = header.max_timestamp;
        return Ok((header.base_offset..=header.last_offset()).find(|o| fits(at, *o)).map(|o| (at, o)));
    }
    let plain = records::uncompressed(header, &segment.batch(position, header)?)?;
    for record in records::records(&plain) {
        let record = record?;
        let at = header.base_timestamp.wrapping_add(record.timestamp_delta);
        let offset = header.base_offset + i64::from(record.offset_delta);
        if fits(at, offset) {
            return Ok(Some((at, offset)));
        }
    }
    Ok(None)
}
