//! The log of one partition: batches as they were sent, in segment files.
//!
//! In the order the data meets them: `batch.rs` checks what arrives, `producers.rs` decides whether it may be appended, `segment.rs` writes it (with
//! `index.rs` and `txn_index.rs` beside it), `read.rs` finds it again, `retention.rs` and `compaction.rs` remove it, `recovery.rs` opens what a crash left.
//! `records.rs` looks inside batches for the few who must.
//!
//! Invariants: offsets rise; `start <= stable <= next`; an offset is never given twice; what was answered is in the page cache, so that killing the
//! process loses nothing. On a single node the high watermark is `next`.

pub(crate) mod batch;
mod compaction;
#[cfg(test)]
mod compaction_tests;
#[cfg(test)]
mod damage_tests;
mod index;
mod producers;
mod read;
pub(crate) mod records;
mod recovery;
mod retention;
mod segment;
#[cfg(test)]
mod tests;
mod txn_index;

use std::{fs::File, io, path::PathBuf, sync::Arc};

use bytes::Bytes;

use self::{
    batch::{BatchHeader, Marker},
    producers::{Producers, Verdict},
    segment::Segment,
    txn_index::Aborted,
};
pub(crate) use self::{producers::ProducerState, read::Slice, recovery::Known};
use crate::faults::DiskFull;

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AppendError {
    #[error("the batch is no good: {0}")]
    Bad(batch::BadBatch),
    #[error("the batch has {size} bytes, the topic allows {limit}")]
    TooLarge { size: usize, limit: usize },
    #[error("a newer epoch of the producer exists")]
    OldProducerEpoch,
    #[error("the sequence does not follow the last one")]
    SequenceGap,
    #[error("the partition is not part of the producer's transaction")]
    NotInTransaction,
    #[error("a timestamp is further from the broker's time than the topic allows")]
    Timestamp,
    #[error("the file cannot be written")]
    Io(#[from] io::Error),
}

impl PartialEq for AppendError {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Where a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) base_offset: i64,
    /// The broker's time, if the topic uses it.
    pub(crate) append_time: Option<i64>,
    /// It was there before.
    pub(crate) repeat: bool,
}

/// What of a topic's config the log obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSettings {
    pub(crate) segment_bytes: u64,
    pub(crate) segment_ms: i64,
    /// -1: for ever.
    pub(crate) retention_ms: i64,
    /// -1: any size.
    pub(crate) retention_bytes: i64,
    pub(crate) delete: bool,
    pub(crate) compact: bool,
    pub(crate) delete_retention_ms: i64,
    pub(crate) max_message_bytes: usize,
    pub(crate) append_time: bool,
    /// How far a timestamp of a client may lie in the past and in the future.
    pub(crate) timestamp_before_ms: i64,
    pub(crate) timestamp_after_ms: i64,
}

impl LogSettings {
    /// A batch's first and highest timestamp stand for all of it; -1 is none.
    fn is_near(&self, header: &BatchHeader, now_ms: i64) -> bool {
        let too_old =
            header.base_timestamp >= 0 && now_ms.saturating_sub(header.base_timestamp) > self.timestamp_before_ms;
        !too_old && header.max_timestamp.saturating_sub(now_ms) <= self.timestamp_after_ms
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    dir: PathBuf,
    /// At least one; the last takes appends.
    segments: Vec<Segment>,
    start: i64,
    next: i64,
    producers: Producers,
    /// (leader epoch, first offset), rising in both.
    epochs: Vec<(i32, i64)>,
    settings: Arc<LogSettings>,
    /// Compaction need not look again before the segments change.
    compacted_to: i64,
    full: DiskFull,
}

impl Log {
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// The high watermark.
    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    /// Last stable offset: nothing before it belongs to an open transaction.
    pub(crate) fn stable(&self) -> i64 {
        self.producers.first_open().unwrap_or(self.next)
    }

    pub(crate) fn leader_epoch(&self) -> i32 {
        self.epochs.last().map_or(0, |e| e.0)
    }

    pub(crate) fn settings(&self) -> &LogSettings {
        &self.settings
    }

    pub(crate) fn set_settings(&mut self, settings: Arc<LogSettings>) {
        self.settings = settings;
        self.compacted_to = -1;
    }

    pub(crate) fn producers(&self) -> impl Iterator<Item = (i64, &ProducerState)> {
        self.producers.states().iter().map(|(id, s)| (*id, s))
    }

    /// Bytes of all segments.
    pub(crate) fn size(&self) -> u64 {
        self.segments.iter().map(|s| s.size).sum()
    }

    /// From now on batches carry this leader epoch. Returns where it begins.
    pub(crate) fn begin_epoch(&mut self, epoch: i32) -> i64 {
        // An epoch without a record is replaced.
        self.epochs.retain(|(e, at)| *e < epoch && *at < self.next);
        self.epochs.push((epoch, self.next));
        self.next
    }

    pub(crate) fn epochs(&self) -> &[(i32, i64)] {
        &self.epochs
    }

    /// The newest epoch up to `epoch` and its exclusive end offset; `None` if nothing is known about it.
    pub(crate) fn epoch_end(&self, epoch: i32) -> Option<(i32, i64)> {
        if epoch > self.leader_epoch() {
            return None;
        }
        let after = self.epochs.partition_point(|(e, _)| *e <= epoch);
        let end = self.epochs.get(after).map_or(self.next, |(_, at)| *at);
        match after.checked_sub(1) {
            Some(i) => Some((self.epochs[i].0, end)),
            // Older than all that is kept: it ends where the oldest begins.
            None => Some((epoch, end)),
        }
    }

    /// A producer's batch; for a compacted topic call [`has_keys`] before, without the lock. `in_transaction` is asked last: is the partition part of the producer's transaction?
    pub(crate) fn append(
        &mut self,
        batch: &Bytes,
        now_ms: i64,
        in_transaction: impl FnOnce(i64, i16) -> bool,
    ) -> Result<Appended, AppendError> {
        let mut header = batch::check_arrival(batch).map_err(AppendError::Bad)?;
        let limit = self.settings.max_message_bytes;
        if batch.len() > limit {
            return Err(AppendError::TooLarge { size: batch.len(), limit });
        }
        if !self.settings.append_time && !self.settings.is_near(&header, now_ms) {
            return Err(AppendError::Timestamp);
        }
        if let Verdict::Repeat(old) = self.producers.check(&header)? {
            let append_time = self.settings.append_time.then_some(old.timestamp);
            return Ok(Appended { base_offset: old.base_offset, append_time, repeat: true });
        }
        if header.is_transactional() && !in_transaction(header.producer_id, header.producer_epoch) {
            return Err(AppendError::NotInTransaction);
        }
        let mut stamped = None;
        if self.settings.append_time {
            let copy = stamped.insert(batch::with_append_time(batch, now_ms));
            header = BatchHeader::parse(copy).map_err(AppendError::Bad)?;
        }
        let base_offset = self.next;
        header = self.write(header, stamped.as_ref().unwrap_or(batch), now_ms)?;
        self.producers.appended(&header, now_ms);
        Ok(Appended { base_offset, append_time: self.settings.append_time.then_some(now_ms), repeat: false })
    }

    /// The control batch that ends a transaction here. Fencing is the coordinator's: a marker of an older epoch is written all the same.
    pub(crate) fn append_marker(
        &mut self,
        marker: Marker,
        producer_id: i64,
        epoch: i16,
        now_ms: i64,
    ) -> Result<i64, AppendError> {
        let batch = batch::control_batch(marker, producer_id, epoch, now_ms);
        let header = BatchHeader::parse(&batch).map_err(AppendError::Bad)?;
        let last = self.write(header, &batch, now_ms)?.base_offset;
        let first = self.producers.ended(producer_id, epoch, now_ms);
        if let (Some(first), Marker::Abort) = (first, marker) {
            let aborted = &mut self.active().aborted;
            aborted.push(Aborted { producer_id, first, last });
            // The marker is in the log, and the abort is known: this is no reason to write a second marker. The file follows with the next flush.
            if let Err(e) = aborted.flush() {
                tracing::error!(file = %aborted.path().display(), error = %e, "an aborted transaction is not in its index yet");
            }
        }
        Ok(last)
    }

    fn active(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log has at least one segment")
    }

    fn write(&mut self, mut header: BatchHeader, batch: &[u8], now_ms: i64) -> io::Result<BatchHeader> {
        self.roll_if_due(batch.len() as u64, now_ms)?;
        header.base_offset = self.next;
        header.leader_epoch = self.leader_epoch();
        self.full.check()?;
        let prefix = batch::stored_prefix(&header, header.base_offset, header.leader_epoch);
        self.active().append(&header, &[&prefix, &batch[prefix.len()..]])?;
        self.next = header.last_offset() + 1;
        Ok(header)
    }

    fn roll_if_due(&mut self, size: u64, now_ms: i64) -> io::Result<()> {
        let (segment_bytes, segment_ms, next) = (self.settings.segment_bytes, self.settings.segment_ms, self.next);
        let active = self.active();
        if active.size == 0 {
            active.began_ms = now_ms;
            return Ok(());
        }
        let full = active.size + size > segment_bytes || next - active.base > i64::from(i32::MAX) / 2;
        if full || now_ms - active.began_ms >= segment_ms { self.roll(now_ms) } else { Ok(()) }
    }

    /// Closes the active segment and begins the next one.
    fn roll(&mut self, now_ms: i64) -> io::Result<()> {
        let next = self.next;
        self.active().close(next)?;
        self.save_producers()?;
        self.segments.push(Segment::create(&self.dir, next, now_ms)?);
        Ok(())
    }

    /// Files with bytes that are not synced. Sync them, then call [`Log::flush_indexes`].
    pub(crate) fn take_dirty(&mut self) -> Vec<Arc<File>> {
        let dirty = self.segments.iter_mut().filter(|s| s.dirty);
        dirty
            .map(|s| {
                s.dirty = false;
                Arc::clone(&s.file)
            })
            .collect()
    }

    pub(crate) fn flush_indexes(&mut self) -> io::Result<()> {
        self.active().flush_indexes()
    }

    /// Everything to the files, so that the next start has nothing to check.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        for file in self.take_dirty() {
            file.sync_data()?;
        }
        self.flush_indexes()?;
        self.save_producers()
    }
}

/// Whether all records of a producer's batch have a key. Bytes that are no batch have: `append` says what is wrong with them.
pub(crate) fn has_keys(batch: &[u8]) -> io::Result<bool> {
    let Ok(header) = BatchHeader::parse(batch) else { return Ok(true) };
    records::find(&header, batch, |r| !r.has_key).map(|keyless| keyless.is_none())
}
