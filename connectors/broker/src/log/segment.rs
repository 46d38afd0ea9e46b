//! One file of batches with its indexes: append at the end, find a batch, tell where whole batches end. Not here: offsets across segments, producers.

use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    batch::{BatchHeader, HEADER_BYTES, check_stored},
    index::{INTERVAL_BYTES, Index, Place, Time},
    txn_index::TxnIndex,
};

/// Bytes that a walk over headers reads at a time: one index interval and the batch header after it.
const WALK_BYTES: usize = INTERVAL_BYTES as usize + 256;

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) base: i64,
    pub(crate) path: PathBuf,
    /// Shared with reads that are on their way to a socket: they outlive deletion.
    pub(crate) file: Arc<File>,
    pub(crate) size: u64,
    pub(crate) max_timestamp: i64,
    /// Broker time of the first append; for `segment.ms`.
    pub(crate) began_ms: i64,
    /// Something is not synced yet.
    pub(crate) dirty: bool,
    places: Index<Place>,
    times: Index<Time>,
    pub(crate) aborted: TxnIndex,
    since_entry: u64,
    /// When compaction met it first.
    cleaned_ms: Option<i64>,
}

pub(crate) fn file_name(base: i64, ending: &str) -> String {
    format!("{base:020}.{ending}")
}

impl Segment {
    /// A new, empty file. What an earlier life left under this name is removed.
    pub(crate) fn create(dir: &Path, base: i64, now_ms: i64) -> io::Result<Self> {
        let path = dir.join(file_name(base, "log"));
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        file.set_len(0)?;
        let mut segment = Self {
            base,
            file: Arc::new(file),
            size: 0,
            max_timestamp: -1,
            began_ms: now_ms,
            dirty: false,
            places: Index::empty(path.with_extension("index")),
            times: Index::empty(path.with_extension("timeindex")),
            aborted: TxnIndex::empty(path.with_extension("txnindex")),
            since_entry: 0,
            cleaned_ms: None,
            path,
        };
        segment.forget_cleaned()?;
        segment.places.cut(0)?;
        segment.times.cut(0)?;
        segment.aborted.cut(base)?;
        Ok(segment)
    }

    /// A file of an earlier life, with the indexes as far as they agree with it.
    pub(crate) fn open(dir: &Path, base: i64, now_ms: i64) -> io::Result<Self> {
        let path = dir.join(file_name(base, "log"));
        let file = OpenOptions::new().read(true).append(true).open(&path)?;
        let size = file.metadata()?.len();
        let mut places: Index<Place> = Index::load(path.with_extension("index"))?;
        let good = places.entries.partition_point(|p| u64::from(p.position) < size);
        places.cut(good)?;
        let times: Index<Time> = Index::load(path.with_extension("timeindex"))?;
        Ok(Self {
            base,
            file: Arc::new(file),
            size,
            max_timestamp: times.entries.last().map_or(-1, |t| t.timestamp),
            began_ms: now_ms,
            dirty: false,
            places,
            times,
            aborted: TxnIndex::load(path.with_extension("txnindex"))?,
            since_entry: 0,
            cleaned_ms: load_cleaned(&path.with_extension(CLEANED))?,
            path,
        })
    }

    /// Where recovery begins to check: the last index entry.
    pub(crate) fn checkpoint(&self) -> u64 {
        self.places.entries.last().map_or(0, |p| u64::from(p.position))
    }

    /// Checks all batches from `from` on and completes the indexes. An unfinished batch at the end is cut; damage before whole batches is not, it is an
    /// error. `follows`: where the next segment begins. Returns the next offset, and how many bytes went.
    pub(crate) fn recover(&mut self, from: u64, follows: Option<i64>) -> io::Result<(i64, u64)> {
        let end = self.size;
        let mut buffer = Vec::new();
        let mut good = self.places.entries.partition_point(|p| u64::from(p.position) <= from);
        // An entry may be what is damaged: only one that a whole batch confirms is a place to begin.
        while let Some(i) = good.checked_sub(1) {
            let (position, offset) = self.place(i);
            if read_batch(&self.file, position, end, &mut buffer)?.is_some_and(|h| h.base_offset == offset) {
                break;
            }
            good = i;
        }
        self.places.cut(good)?;
        let (from, first) = good.checked_sub(1).map_or((0, self.base), |i| self.place(i));
        let known = self.times.entries.partition_point(|t| self.base + i64::from(t.offset) < first);
        self.times.cut(known)?;
        self.max_timestamp = self.times.entries.last().map_or(-1, |t| t.timestamp);
        self.size = from;
        let mut next = first;
        while self.size < end {
            let header = match read_batch(&self.file, self.size, end, &mut buffer)? {
                Some(header) if header.base_offset >= next => header,
                Some(_) => return Err(self.damage(self.size, next)),
                None => match self.damaged_batch(next, end, follows)? {
                    Some(header) => header,
                    None => break,
                },
            };
            self.note(&header, self.size);
            self.size += header.size() as u64;
            next = header.last_offset() + 1;
        }
        if self.size < end {
            self.file.set_len(self.size)?;
        }
        self.dirty = true;
        Ok((next, end - self.size))
    }

    /// What is behind `self.size` is no good batch: `None` if it is an unfinished one at the end. A damaged one whose length is known stays: who reads it
    /// sees that its checksum is wrong, and only its records are lost.
    fn damaged_batch(&self, next: i64, end: u64, follows: Option<i64>) -> io::Result<Option<BatchHeader>> {
        let at = self.size;
        let whole = next_whole(&self.file, at, end, next)?;
        let behind = match (&whole, follows) {
            (Some((position, header)), _) => (*position, header.base_offset),
            (None, Some(offset)) => (end, offset),
            (None, None) => return Ok(None),
        };
        if let Some(header) = read_header(&self.file, at, end)?
            && header.base_offset >= next
            && at + header.size() as u64 == behind.0
            && header.last_offset() < behind.1
        {
            tracing::error!(file = %self.path.display(), position = at, offset = header.base_offset, "a batch is damaged; it stays, and its readers will refuse it");
            return Ok(Some(header));
        }
        if whole.is_some() { Err(self.damage(at, next)) } else { Ok(None) }
    }

    fn damage(&self, at: u64, next: i64) -> io::Error {
        let file = self.path.display();
        let text = format!(
            "{file} is damaged at byte {at}, and whole batches follow, so this is no unfinished write. Nothing was changed. Bring the file back from a copy; or \
             give up its records from offset {next} on: truncate -s {at} {file}"
        );
        io::Error::new(io::ErrorKind::InvalidData, text)
    }

    /// Position and offset of an index entry.
    fn place(&self, i: usize) -> (u64, i64) {
        let p = self.places.entries[i];
        (u64::from(p.position), self.base + i64::from(p.offset))
    }

    /// Whether the batch that the index entry means is there. The files of the indexes have no checksum.
    fn is_true(&self, i: usize) -> io::Result<bool> {
        let (position, offset) = self.place(i);
        Ok(read_header(&self.file, position, self.size)?.is_some_and(|h| h.base_offset == offset))
    }

    /// Position of the newest true index entry before number `n`; 0 if there is none.
    fn position_before(&self, n: usize) -> io::Result<u64> {
        for i in (0..n).rev() {
            if self.is_true(i)? {
                return Ok(self.place(i).0);
            }
        }
        Ok(0)
    }

    /// Writes `parts` as one batch at the end. After an error the file has its old length again, or the error says that not even that worked.
    pub(crate) fn append(&mut self, header: &BatchHeader, parts: &[&[u8]]) -> io::Result<()> {
        if let Err(e) = write_all(&self.file, parts) {
            self.file.set_len(self.size)?;
            return Err(e);
        }
        self.note(header, self.size);
        self.size += header.size() as u64;
        self.dirty = true;
        Ok(())
    }

    fn note(&mut self, header: &BatchHeader, position: u64) {
        let size = header.size() as u64;
        if self.since_entry + size > INTERVAL_BYTES && position > 0 {
            let offset = (header.base_offset - self.base) as u32;
            self.places.push(Place { offset, position: position as u32 });
            // Tells about the batches before this one.
            self.note_time(header.base_offset - 1);
            self.since_entry = 0;
        }
        self.since_entry += size;
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
    }

    fn note_time(&mut self, last: i64) {
        if self.max_timestamp >= 0 && last >= self.base {
            self.times.push(Time { timestamp: self.max_timestamp, offset: (last - self.base) as u32 });
        }
    }

    /// No more appends: the time index tells about all of it.
    pub(crate) fn close(&mut self, next: i64) -> io::Result<()> {
        self.note_time(next - 1);
        self.flush_indexes()
    }

    pub(crate) fn flush_indexes(&mut self) -> io::Result<()> {
        self.places.flush()?;
        self.times.flush()?;
        self.aborted.flush()
    }

    /// File position of the first batch that ends at or after `offset`.
    pub(crate) fn find(&self, offset: i64) -> io::Result<Option<(u64, BatchHeader)>> {
        let relative = u32::try_from(offset - self.base).unwrap_or(0);
        let at = self.places.entries.partition_point(|p| p.offset <= relative);
        for step in self.walk(self.position_before(at)?) {
            let (position, header) = step?;
            if header.last_offset() >= offset {
                return Ok(Some((position, header)));
            }
        }
        Ok(None)
    }

    /// The end of the last whole batch within `max` bytes of `start`; at least one batch if `one`.
    pub(crate) fn whole_batches(
        &self,
        start: u64,
        first: &BatchHeader,
        max: u64,
        limit: u64,
        one: bool,
    ) -> io::Result<u64> {
        let first_end = start + first.size() as u64;
        let bound = limit.min(start.saturating_add(max));
        if first_end > bound {
            return Ok(if one && first_end <= limit { first_end } else { start });
        }
        if bound == self.size {
            return Ok(bound);
        }
        let at = self.places.entries.partition_point(|p| u64::from(p.position) <= bound);
        let mut end = self.position_before(at)?.max(first_end);
        for step in self.walk(end) {
            let (position, header) = step?;
            let next = position + header.size() as u64;
            if next > bound {
                break;
            }
            end = next;
        }
        Ok(end)
    }

    /// An offset at or after everything that lies before file position `position`.
    pub(crate) fn offset_behind(&self, position: u64) -> io::Result<Option<i64>> {
        let at = self.places.entries.partition_point(|p| u64::from(p.position) < position);
        for i in at..self.places.entries.len() {
            if self.is_true(i)? {
                return Ok(Some(self.place(i).1));
            }
        }
        Ok(None)
    }

    /// Where to start looking for a record that is not older than `timestamp`.
    pub(crate) fn before_time(&self, timestamp: i64) -> io::Result<u64> {
        let at = self.times.entries.partition_point(|t| t.timestamp < timestamp);
        let Some(older) = at.checked_sub(1).map(|i| self.times.entries[i]) else { return Ok(0) };
        let at = self.places.entries.partition_point(|p| p.offset <= older.offset);
        self.position_before(at)
    }

    /// Headers from a file position that is the start of a batch.
    pub(crate) fn walk(&self, from: u64) -> Walk<'_> {
        Walk { file: &self.file, position: from, end: self.size, buffer: Vec::new(), at: 0 }
    }

    /// The bytes of a batch.
    pub(crate) fn batch(&self, position: u64, header: &BatchHeader) -> io::Result<Bytes> {
        let mut bytes = vec![0; header.size()];
        self.file.read_exact_at(&mut bytes, position)?;
        Ok(bytes.into())
    }

    #[cfg(any(test, feature = "faults"))]
    /// Cuts the file so that `next` is the next offset; only whole batches stay.
    pub(crate) fn truncate(&mut self, next: i64) -> io::Result<()> {
        // It takes appends again.
        self.forget_cleaned()?;
        let Some((position, _)) = self.find(next)? else { return Ok(()) };
        self.file.set_len(position)?;
        self.size = position;
        let good = self.places.entries.partition_point(|p| u64::from(p.position) < position);
        self.places.cut(good)?;
        self.aborted.cut(next)?;
        self.recover(self.checkpoint(), None).map(|_| ())
    }

    pub(crate) fn cleaned_ms(&self) -> Option<i64> {
        self.cleaned_ms
    }

    /// Compaction has met all of it, now or before.
    pub(crate) fn mark_cleaned(&mut self, now_ms: i64) -> io::Result<()> {
        if self.cleaned_ms.is_none() {
            std::fs::write(self.path.with_extension(CLEANED), now_ms.to_string())?;
            self.cleaned_ms = Some(now_ms);
        }
        Ok(())
    }

    fn forget_cleaned(&mut self) -> io::Result<()> {
        self.cleaned_ms = None;
        remove(&self.path.with_extension(CLEANED))
    }

    /// Removes the files. Reads that began go on.
    pub(crate) fn delete(mut self) -> io::Result<()> {
        self.forget_cleaned()?;
        for path in [self.places.path(), self.times.path(), self.aborted.path(), self.path.as_path()] {
            remove(path)?;
        }
        Ok(())
    }
}

/// Ending of the file with the time of the first compaction.
const CLEANED: &str = "cleaned";

/// What cannot be read counts from the next compaction.
fn load_cleaned(path: &Path) -> io::Result<Option<i64>> {
    match std::fs::read(path) {
        Ok(text) => Ok(std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Iterates over headers without reading the batches.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    file: &'a File,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    /// File position of the buffer.
    at: u64,
}

impl Iterator for Walk<'_> {
    type Item = io::Result<(u64, BatchHeader)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position + HEADER_BYTES as u64 > self.end {
            return None;
        }
        let held = self.at + self.buffer.len() as u64;
        if self.buffer.is_empty() || self.position < self.at || self.position + HEADER_BYTES as u64 > held {
            self.buffer.resize(WALK_BYTES.min((self.end - self.position) as usize), 0);
            self.at = self.position;
            if let Err(e) = self.file.read_exact_at(&mut self.buffer, self.position) {
                return Some(Err(e));
            }
        }
        let header = BatchHeader::parse(&self.buffer[(self.position - self.at) as usize..]);
        let header = match header {
            Ok(h) => h,
            Err(e) => return Some(Err(io::Error::new(io::ErrorKind::InvalidData, e.to_string()))),
        };
        let position = self.position;
        self.position += header.size() as u64;
        (self.position <= self.end).then_some(Ok((position, header)))
    }
}

/// The header at a position, if there can be one.
fn read_header(file: &File, position: u64, end: u64) -> io::Result<Option<BatchHeader>> {
    if position + HEADER_BYTES as u64 > end {
        return Ok(None);
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact_at(&mut bytes, position)?;
    Ok(BatchHeader::parse(&bytes).ok())
}

/// The first whole batch behind `from` with an offset from `next` on, wherever it begins.
fn next_whole(file: &File, from: u64, end: u64, next: i64) -> io::Result<Option<(u64, BatchHeader)>> {
    const WINDOW: u64 = 1 << 20;
    let (mut window, mut whole) = (Vec::new(), Vec::new());
    let mut at = from + 1;
    while at + HEADER_BYTES as u64 <= end {
        window.resize(WINDOW.min(end - at) as usize, 0);
        file.read_exact_at(&mut window, at)?;
        let starts = window.len() - HEADER_BYTES + 1;
        for i in 0..starts {
            let possible = |h: &BatchHeader| (next..next + i64::from(i32::MAX)).contains(&h.base_offset);
            if BatchHeader::parse(&window[i..]).is_ok_and(|h| possible(&h))
                && let Some(header) = read_batch(file, at + i as u64, end, &mut whole)?
            {
                return Ok(Some((at + i as u64, header)));
            }
        }
        at += starts as u64;
    }
    Ok(None)
}

/// Reads and checks the batch at a position; `None` if it is cut or bad.
fn read_batch(file: &File, position: u64, end: u64, buffer: &mut Vec<u8>) -> io::Result<Option<BatchHeader>> {
    let header = read_header(file, position, end)?;
    let Some(header) = header.filter(|h| position + h.size() as u64 <= end) else { return Ok(None) };
    buffer.resize(header.size(), 0);
    file.read_exact_at(buffer, position)?;
    Ok(check_stored(buffer).ok())
}

fn write_all(mut file: &File, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
    let mut rest = &mut slices[..];
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut rest, n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
