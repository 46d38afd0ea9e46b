//! The aborted transactions that end in a segment: what a `read_committed` fetch tells the client to skip. One entry for each abort marker. What the file lacks
//! (full disk, power loss) or has wrong is made again from the markers at the next start: a producer snapshot says what the file has to hold.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

const BYTES: usize = 24;

/// A transaction of `producer_id` from `first` to its marker at `last`, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Aborted {
    pub(crate) producer_id: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Aborted {
    fn bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (place, n) in bytes.chunks_exact_mut(8).zip([self.producer_id, self.first, self.last]) {
            place.copy_from_slice(&n.to_be_bytes());
        }
        bytes
    }
}

#[derive(Debug)]
pub(crate) struct TxnIndex {
    path: PathBuf,
    pub(crate) entries: Vec<Aborted>,
    /// How many entries the file has.
    written: usize,
}

impl TxnIndex {
    pub(crate) fn empty(path: PathBuf) -> Self {
        Self { path, entries: Vec::new(), written: 0 }
    }

    /// Whole entries in the order of their markers; a torn tail is ignored, because recovery reads those markers again.
    pub(crate) fn load(path: PathBuf) -> io::Result<Self> {
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(mut f) => {
                f.read_to_end(&mut bytes)?;
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        let mut entries: Vec<Aborted> = Vec::new();
        for b in bytes.chunks_exact(BYTES) {
            let at = |i: usize| {
                let mut n = [0; 8];
                n.copy_from_slice(&b[i * 8..i * 8 + 8]);
                i64::from_be_bytes(n)
            };
            let entry = Aborted { producer_id: at(0), first: at(1), last: at(2) };
            if entry.first > entry.last || entries.last().is_some_and(|e| e.last >= entry.last) {
                break;
            }
            entries.push(entry);
        }
        let written = entries.len();
        Ok(Self { path, entries, written })
    }

    /// Known from now on; `flush` brings it to the file.
    pub(crate) fn push(&mut self, entry: Aborted) {
        self.entries.push(entry);
    }

    /// Writes what the file lacks.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.written == self.entries.len() {
            return Ok(());
        }
        let bytes: Vec<u8> = self.entries[self.written..].iter().flat_map(|e| e.bytes()).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        // A torn entry before would shift these.
        file.set_len((self.written * BYTES) as u64)?;
        file.write_all(&bytes)?;
        self.written = self.entries.len();
        Ok(())
    }

    /// Number and checksum of the entries whose markers lie before `next`.
    pub(crate) fn digest(&self, next: i64) -> (usize, u32) {
        let before = &self.entries[..self.entries.partition_point(|e| e.last < next)];
        (before.len(), before.iter().fold(0, |crc, e| crc32c::crc32c_append(crc, &e.bytes())))
    }

    /// Forgets transactions whose marker is at `next` or later.
    pub(crate) fn cut(&mut self, next: i64) -> io::Result<()> {
        let keep = self.entries.partition_point(|e| e.last < next);
        self.entries.truncate(keep);
        self.written = self.written.min(keep);
        match OpenOptions::new().write(true).open(&self.path) {
            Ok(f) => f.set_len((self.written * BYTES) as u64),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
