//! Journals: what the broker knows besides records (topics, configs, groups, offsets, transactions) as a file of checked frames, replayed at start.
//!
//! A state is changed by applying entries, and an entry is written before it is applied, so replay is the same code path. From time to time the whole state
//! is written as a new file. Frames: length, CRC-32C, JSON. An unfinished entry at the end is cut; damage is not, it is an error that says where.
//! `durable` waits until a write is synced; many waiters share one sync.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::watch;

/// Below this a journal is not worth rewriting.
const SNAPSHOT_BYTES: u64 = 4 << 20;

/// Length, checksum, payload.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + payload.len());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// The payload at the front and what follows; `None` if the frame is cut or damaged.
pub(crate) fn unframe(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let (payload, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    (crc32c::crc32c(payload) == u32::from_be_bytes(*crc)).then_some((payload, rest))
}

/// A write to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Inner {
    file: Arc<File>,
    number: u64,
    size: u64,
    snapshot_size: u64,
    written: u64,
    /// A failed write that could not be undone; nothing more is written.
    broken: bool,
    /// Bytes that a power loss leaves.
    #[cfg(test)]
    safe: u64,
}

#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
    name: &'static str,
    sync: bool,
    inner: Mutex<Inner>,
    synced: watch::Sender<u64>,
    syncing: tokio::sync::Mutex<()>,
    full: crate::faults::DiskFull,
}

/// Whether the bytes from `at` on can only be the beginning of an entry, or the hole that a power loss left. Entries are JSON, so they have no zero byte.
fn is_unfinished(bytes: &[u8], at: usize) -> bool {
    let rest = &bytes[at..];
    let whole_behind = (1..rest.len()).any(|i| is_entry(&rest[i..]));
    // All of it is there, and yet the checksum is wrong.
    let all_there = rest.split_first_chunk::<4>().is_some_and(|(length, rest)| {
        rest.len() == 4 + u32::from_be_bytes(*length) as usize && rest.len() > 4 && !rest[4..].contains(&0)
    });
    !whole_behind && !all_there
}

/// An entry at the front. Looks at the checksum only of what may be one.
fn is_entry(bytes: &[u8]) -> bool {
    let payload = |(length, rest): (&[u8; 4], &[u8])| {
        let end = 4 + u32::from_be_bytes(*length) as usize;
        rest.get(4..end).is_some_and(|p| !p.is_empty() && !p.contains(&0))
    };
    bytes.split_first_chunk::<4>().is_some_and(payload) && unframe(bytes).is_some()
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The journals of a data folder and the files that there are of them, by rising number.
fn files_of(dir: &Path, name: &str) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let file = entry?.file_name();
        let number: Option<u64> =
            file.to_str().and_then(|f| f.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".journal")?.parse().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// An error if one of the journals is missing although the folder holds data: without it, what it told of would be taken for gone.
pub(crate) fn check_all_there(dir: &Path, names: &[&str], has_data: bool) -> io::Result<()> {
    let mut missing = None;
    let mut has_data = has_data;
    for name in names {
        match files_of(dir, name)?.last() {
            Some(number) => has_data |= fs::metadata(path(dir, name, *number))?.len() > 0,
            None => missing = missing.or(Some(path(dir, name, 1))),
        }
    }
    let Some(file) = missing.filter(|_| has_data) else { return Ok(()) };
    let file = file.display();
    Err(invalid(format!(
        "{file} is missing beside data that it has to tell about. Nothing was changed. Bring it back from a copy; or give up what it said: touch {file}"
    )))
}

fn path(dir: &Path, name: &str, number: u64) -> PathBuf {
    dir.join(format!("{name}.{number:06}.journal"))
}

impl Journal {
    /// Opens the newest file and returns its entries. `sync`: whether `durable` means synced, or only written.
    pub(crate) fn open<E: DeserializeOwned>(
        dir: &Path,
        name: &'static str,
        sync: bool,
        full: crate::faults::DiskFull,
    ) -> io::Result<(Self, Vec<E>)> {
        let numbers = files_of(dir, name)?;
        let number = numbers.last().copied().unwrap_or(1);
        let path_now = path(dir, name, number);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path_now)?;
        let bytes = fs::read(&path_now)?;
        let mut entries = Vec::new();
        let mut rest = &bytes[..];
        while let Some((payload, tail)) = unframe(rest).filter(|(payload, _)| !payload.is_empty()) {
            let at = bytes.len() - rest.len();
            entries.push(serde_json::from_slice(payload).map_err(|e| {
                invalid(format!("{}: the entry at byte {at} is of another version: {e}", path_now.display()))
            })?);
            rest = tail;
        }
        let size = (bytes.len() - rest.len()) as u64;
        if !rest.is_empty() {
            if !is_unfinished(&bytes, size as usize) {
                let file = path_now.display();
                return Err(invalid(format!(
                    "{file} is damaged at byte {size}, and this is no unfinished write. Nothing was changed. Bring the file back from a copy; or give up \
                     what it says from there on: truncate -s {size} {file}"
                )));
            }
            tracing::warn!(file = %path_now.display(), at = size, bytes = rest.len(), "cut an unfinished entry");
            file.set_len(size)?;
        }
        for old in numbers.iter().filter(|n| **n < number) {
            fs::remove_file(path(dir, name, *old))?;
        }
        let inner = Inner {
            file: Arc::new(file),
            number,
            size,
            snapshot_size: size,
            written: 0,
            broken: false,
            #[cfg(test)]
            safe: size,
        };
        let journal = Self {
            dir: dir.to_owned(),
            name,
            sync,
            inner: Mutex::new(inner),
            synced: watch::Sender::new(0),
            syncing: tokio::sync::Mutex::new(()),
            full,
        };
        Ok((journal, entries))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held left a whole frame or a broken flag.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes entries as one write; they are in the page cache when this returns. Call it before the state is changed, under the lock of the state.
    pub(crate) fn append<E: Serialize>(&self, entries: &[E]) -> io::Result<Ticket> {
        self.full.check()?;
        let mut bytes = Vec::new();
        for e in entries {
            bytes.extend_from_slice(&frame(&serde_json::to_vec(e)?));
        }
        let mut inner = self.inner();
        if inner.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        if let Err(e) = (&*inner.file).write_all(&bytes) {
            inner.broken = inner.file.set_len(inner.size).is_err();
            return Err(e);
        }
        inner.size += bytes.len() as u64;
        inner.written += 1;
        Ok(Ticket(inner.written))
    }

    /// The last write. Who answers that something was there before waits for it: the write that made it so may not be synced yet.
    pub(crate) fn newest(&self) -> Ticket {
        Ticket(self.inner().written)
    }

    /// Returns once the write is synced (or at once, if this journal does not sync).
    pub(crate) async fn durable(&self, ticket: Ticket) -> io::Result<()> {
        if !self.sync || *self.synced.borrow() >= ticket.0 {
            return Ok(());
        }
        let _one = self.syncing.lock().await;
        if *self.synced.borrow() >= ticket.0 {
            return Ok(());
        }
        let (file, written) = {
            let inner = self.inner();
            (Arc::clone(&inner.file), inner.written)
        };
        #[cfg(test)]
        let size = self.inner().size;
        tokio::task::spawn_blocking(move || file.sync_data()).await.map_err(io::Error::other)??;
        #[cfg(test)]
        {
            self.inner().safe = size;
        }
        self.synced.send_modify(|s| *s = (*s).max(written));
        Ok(())
    }

    pub(crate) fn wants_snapshot(&self) -> bool {
        let inner = self.inner();
        inner.size > SNAPSHOT_BYTES && inner.size > 2 * inner.snapshot_size
    }

    /// Begins a new file with the whole state. Call it under the lock of the state.
    pub(crate) fn snapshot<E: Serialize>(&self, state: impl Iterator<Item = E>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for e in state {
            bytes.extend_from_slice(&frame(&serde_json::to_vec(&e)?));
        }
        let mut inner = self.inner();
        let new = path(&self.dir, self.name, inner.number + 1);
        let unfinished = new.with_extension("new");
        fs::write(&unfinished, &bytes)?;
        File::open(&unfinished)?.sync_data()?;
        fs::rename(unfinished, &new)?;
        let old = path(&self.dir, self.name, inner.number);
        inner.file = Arc::new(OpenOptions::new().read(true).append(true).open(new)?);
        inner.number += 1;
        inner.size = bytes.len() as u64;
        inner.snapshot_size = inner.size;
        inner.broken = false;
        #[cfg(test)]
        {
            inner.safe = inner.size;
        }
        self.synced.send_modify(|s| *s = (*s).max(inner.written));
        fs::remove_file(old)
    }

    /// Cuts the file as a power loss would.
    #[cfg(test)]
    pub(crate) fn lose_power(&self) {
        let inner = self.inner();
        inner.file.set_len(inner.safe).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dir: &Path) -> (Journal, Vec<u32>) {
        Journal::open(dir, "t", true, crate::faults::DiskFull::default()).unwrap()
    }

    #[test]
    fn a_torn_tail_is_cut_and_a_snapshot_replaces_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let (j, entries) = open(dir.path());
        assert!(entries.is_empty());
        j.append(&[1u32, 2]).unwrap();
        let file = path(dir.path(), "t", 1);
        let mut bytes = fs::read(&file).unwrap();
        bytes.extend_from_slice(&frame(b"3")[..7]);
        fs::write(&file, bytes).unwrap();
        let (j, entries) = open(dir.path());
        assert_eq!(entries, [1, 2]);
        j.append(&[3u32]).unwrap();
        j.snapshot([6u32].into_iter()).unwrap();
        j.append(&[7u32]).unwrap();
        drop(j);
        let (_, entries) = open(dir.path());
        assert_eq!(entries, [6, 7]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
    struct Named {
        name: String,
    }

    fn named() -> Vec<Named> {
        (0..6).map(|i| Named { name: format!("entry {i}") }).collect()
    }

    fn open_named(dir: &Path) -> io::Result<Vec<Named>> {
        Journal::open(dir, "t", true, crate::faults::DiskFull::default()).map(|(_, entries)| entries)
    }

    #[test]
    fn a_file_that_ends_anywhere_loses_only_its_last_entry() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "t", 1);
        let frames: Vec<Vec<u8>> = named().iter().map(|e| frame(&serde_json::to_vec(e).unwrap())).collect();
        let bytes = frames.concat();
        for end in 0..=bytes.len() {
            for zeros in [0, 3, 5000] {
                fs::write(&file, [&bytes[..end], &vec![0; zeros]].concat()).unwrap();
                let mut whole = 0;
                let ends = frames.iter().map(|f| {
                    whole += f.len();
                    whole
                });
                let entries = ends.filter(|e| *e <= end).count();
                assert_eq!(open_named(dir.path()).unwrap(), named()[..entries], "cut at {end}, then {zeros} zeros");
            }
        }
    }

    #[test]
    fn damage_anywhere_is_an_error_that_names_the_byte_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), "t", 1);
        let frames: Vec<Vec<u8>> = named().iter().map(|e| frame(&serde_json::to_vec(e).unwrap())).collect();
        let (bytes, last) = (frames.concat(), frames.last().unwrap().len());
        let mut start = 0;
        for f in &frames {
            for at in start..start + f.len() {
                // The length of the last entry: it may as well be unfinished.
                if at >= bytes.len() - last && at < bytes.len() - last + 4 {
                    continue;
                }
                for bit in [0, 5] {
                    let mut bad = bytes.clone();
                    bad[at] ^= 1 << bit;
                    fs::write(&file, &bad).unwrap();
                    let error = open_named(dir.path()).unwrap_err().to_string();
                    assert!(error.contains(&format!("damaged at byte {start}")), "byte {at}: {error}");
                    assert!(error.contains(&file.display().to_string()));
                    assert_eq!(fs::read(&file).unwrap(), bad);
                }
            }
            start += f.len();
        }
    }

    #[test]
    fn a_journal_may_be_missing_only_in_an_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        let check = |data| check_all_there(dir.path(), &["t", "u"], data);
        check(false).unwrap();
        assert!(check(true).unwrap_err().to_string().contains("t.000001.journal is missing"));
        let (j, _) = open(dir.path());
        check(false).unwrap();
        j.append(&[1u32]).unwrap();
        assert!(check(false).unwrap_err().to_string().contains("u.000001.journal is missing"));
        fs::write(path(dir.path(), "u", 1), "").unwrap();
        check(true).unwrap();
    }

    #[tokio::test]
    async fn durable_returns_after_a_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (j, _) = open(dir.path());
        let first = j.append(&[1u32]).unwrap();
        let second = j.append(&[2u32]).unwrap();
        j.durable(second).await.unwrap();
        j.durable(first).await.unwrap();
        assert_eq!(*j.synced.borrow(), 2);
    }
}
