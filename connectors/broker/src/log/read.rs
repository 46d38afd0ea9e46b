//! Reading a log: which bytes of which file answer a fetch, which aborted transactions lie in them, in which batch a time is to be found. Hands out file
//! ranges; record bytes are looked at only in a batch that was handed out, without the lock of the partition.

use std::{fs::File, io, os::unix::fs::FileExt, sync::Arc};

use super::{Log, batch::BatchHeader, records};

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
            let behind = segment.offset_behind(stop)?.unwrap_or(segment_end).min(end);
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

    /// The first batch from `from` on whose highest timestamp is not below `timestamp`.
    pub(crate) fn batch_for_time(&self, timestamp: i64, from: i64) -> io::Result<Option<DatedBatch>> {
        let from = from.max(self.start);
        let ends = self.segments.iter().skip(1).map(|s| s.base).chain([i64::MAX]);
        for (segment, end) in self.segments.iter().zip(ends) {
            if segment.max_timestamp < timestamp || end <= from {
                continue;
            }
            let by_offset = if from > segment.base { segment.find(from)?.map_or(segment.size, |(p, _)| p) } else { 0 };
            for step in segment.walk(segment.before_time(timestamp)?.max(by_offset)) {
                let (position, header) = step?;
                if header.max_timestamp >= timestamp && header.last_offset() >= from {
                    return Ok(Some(DatedBatch { file: Arc::clone(&segment.file), position, header }));
                }
            }
        }
        Ok(None)
    }

    /// The highest timestamp; -1 if there is none.
    pub(crate) fn max_timestamp(&self) -> i64 {
        self.segments.iter().map(|s| s.max_timestamp).max().unwrap_or(-1)
    }
}

/// A batch that a search by time has to look into.
#[derive(Debug)]
pub(crate) struct DatedBatch {
    file: Arc<File>,
    position: u64,
    header: BatchHeader,
}

impl DatedBatch {
    /// (timestamp, offset) of the first record at or after `start` that is not older than `timestamp`.
    pub(crate) fn first_record(&self, timestamp: i64, start: i64) -> io::Result<Option<(i64, i64)>> {
        let header = &self.header;
        if header.log_append_time() {
            let at = header.max_timestamp;
            return Ok((at >= timestamp).then_some((at, header.base_offset.max(start))));
        }
        let mut bytes = vec![0; header.size()];
        self.file.read_exact_at(&mut bytes, self.position)?;
        let place = |g: records::Glimpse| {
            (header.base_timestamp.wrapping_add(g.timestamp_delta), header.base_offset + i64::from(g.offset_delta))
        };
        let fits = |g| {
            let (at, offset) = place(g);
            at >= timestamp && offset >= start
        };
        Ok(records::find(header, &bytes, fits)?.map(place))
    }

    /// Where the search goes on if no record fits.
    pub(crate) fn next(&self) -> i64 {
        self.header.last_offset() + 1
    }
}
