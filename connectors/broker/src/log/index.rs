//! The sparse indexes of a segment: offset to file position, timestamp to offset. Kept in memory, written behind by the flusher; what a crash cut off is
//! rebuilt by recovery from the data.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// An entry at most every so many bytes of data.
pub(crate) const INTERVAL_BYTES: u64 = 4096;

/// A fixed-size entry of an index file.
pub(crate) trait Entry: Copy + std::fmt::Debug {
    const BYTES: usize;
    fn write(&self, out: &mut Vec<u8>);
    fn read(b: &[u8]) -> Self;
    /// Whether `self` may stand before `next`.
    fn precedes(&self, next: &Self) -> bool;
}

/// A batch begins at `position` with this offset, relative to the base of the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u32,
    pub(crate) position: u32,
}

impl Entry for Place {
    const BYTES: usize = 8;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }
    fn read(b: &[u8]) -> Self {
        let at = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        Self { offset: at(0), position: at(4) }
    }
    fn precedes(&self, next: &Self) -> bool {
        self.offset < next.offset && self.position < next.position
    }
}

/// No record up to `offset` (relative, inclusive) is younger than `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) timestamp: i64,
    pub(crate) offset: u32,
}

impl Entry for Time {
    const BYTES: usize = 12;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }
    fn read(b: &[u8]) -> Self {
        let mut timestamp = [0; 8];
        timestamp.copy_from_slice(&b[..8]);
        Self { timestamp: i64::from_be_bytes(timestamp), offset: u32::from_be_bytes([b[8], b[9], b[10], b[11]]) }
    }
    fn precedes(&self, next: &Self) -> bool {
        self.timestamp < next.timestamp && self.offset <= next.offset
    }
}

#[derive(Debug)]
pub(crate) struct Index<E> {
    path: PathBuf,
    pub(crate) entries: Vec<E>,
    /// How many entries the file has.
    written: usize,
}

impl<E: Entry> Index<E> {
    pub(crate) fn empty(path: PathBuf) -> Self {
        Self { path, entries: Vec::new(), written: 0 }
    }

    /// Loads the file up to the first entry that is out of order; a missing file is an empty index.
    pub(crate) fn load(path: PathBuf) -> io::Result<Self> {
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(mut f) => {
                f.read_to_end(&mut bytes)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut entries: Vec<E> = Vec::with_capacity(bytes.len() / E::BYTES);
        for b in bytes.chunks_exact(E::BYTES) {
            let entry = E::read(b);
            if entries.last().is_some_and(|last| !last.precedes(&entry)) {
                break;
            }
            entries.push(entry);
        }
        let written = entries.len();
        let mut index = Self { path, entries, written };
        if written * E::BYTES != bytes.len() {
            index.cut(written)?;
        }
        Ok(index)
    }

    pub(crate) fn push(&mut self, entry: E) {
        if self.entries.last().is_none_or(|last| last.precedes(&entry)) {
            self.entries.push(entry);
        }
    }

    /// Keeps the first `n` entries, in the file too.
    pub(crate) fn cut(&mut self, n: usize) -> io::Result<()> {
        self.entries.truncate(n);
        self.written = self.written.min(n);
        match OpenOptions::new().write(true).open(&self.path) {
            Ok(f) => f.set_len((self.written * E::BYTES) as u64),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Appends what the file lacks. Not synced: recovery does not trust it further than the data.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.written == self.entries.len() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity((self.entries.len() - self.written) * E::BYTES);
        for e in &self.entries[self.written..] {
            e.write(&mut bytes);
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        // A write that a full disk cut would shift these.
        file.set_len((self.written * E::BYTES) as u64)?;
        file.write_all(&bytes)?;
        self.written = self.entries.len();
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_index_is_cut_at_the_first_bad_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.index");
        let mut index = Index::empty(path.clone());
        for i in 1..5 {
            index.push(Place { offset: i * 10, position: i * 100 });
        }
        index.push(Place { offset: 5, position: 5 });
        index.flush().unwrap();
        assert_eq!(index.entries.len(), 4);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(&[0; 11]);
        std::fs::write(&path, bytes).unwrap();
        let again: Index<Place> = Index::load(path.clone()).unwrap();
        assert_eq!(again.entries, index.entries);
        assert_eq!(std::fs::metadata(path).unwrap().len(), 32);
    }
}
