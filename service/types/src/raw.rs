//! Records as bytes: what a reader hands over and what a writer takes. One arena per batch, no allocation per record.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Offset, TopicPartition};

/// Byte strings, each present or null, back to back in one buffer.
#[derive(Debug, Clone, Default)]
pub struct BinaryArena {
    bytes: Vec<u8>,
    /// End of entry i in `bytes`; the top bit marks a null entry.
    ends: Vec<u64>,
}

const NULL: u64 = 1 << 63;

impl BinaryArena {
    pub fn with_capacity(entries: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(entries) }
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes held, for buffer accounting.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * 8
    }

    pub fn push(&mut self, value: Option<&[u8]>) {
        match value {
            Some(v) => {
                self.bytes.extend_from_slice(v);
                self.finish();
            }
            None => self.ends.push(self.bytes.len() as u64 | NULL),
        }
    }

    /// The buffer of the entry that is being written; [`BinaryArena::finish`] ends it. What is there before the entry must stay.
    pub fn open(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the entry written through [`BinaryArena::open`].
    pub fn finish(&mut self) {
        self.ends.push(self.bytes.len() as u64);
    }

    /// Drops what was written through [`BinaryArena::open`] since the last entry.
    pub fn abandon(&mut self) {
        self.bytes.truncate(self.ends.last().map_or(0, |e| (e & !NULL) as usize));
    }

    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = self.ends[i];
        if end & NULL != 0 {
            return None;
        }
        let start = if i == 0 { 0 } else { self.ends[i - 1] & !NULL };
        Some(&self.bytes[start as usize..end as usize])
    }

    pub fn iter(&self) -> impl Iterator<Item = Option<&[u8]>> {
        (0..self.len()).map(|i| self.get(i))
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Up to 4,096 consecutive records of one partition (or 1 MiB), as a reader found them.
#[derive(Debug, Clone)]
pub struct RawBatch {
    pub partition: TopicPartition,
    /// Kafka offset of each record, strictly increasing; gaps are allowed.
    pub offsets: Vec<i64>,
    /// Record timestamps in Unix milliseconds, -1 = none.
    pub timestamps: Vec<i64>,
    pub keys: BinaryArena,
    pub values: BinaryArena,
    /// Headers of each record, or empty if no record of the batch has any (or nobody asked for them).
    pub headers: Vec<Vec<(String, Option<Bytes>)>>,
    /// Position after the batch.
    pub next: Offset,
}

impl RawBatch {
    pub fn new(partition: TopicPartition, next: Offset) -> Self {
        Self {
            partition,
            offsets: Vec::new(),
            timestamps: Vec::new(),
            keys: BinaryArena::default(),
            values: BinaryArena::default(),
            headers: Vec::new(),
            next,
        }
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.keys.size_bytes() + self.values.size_bytes() + self.offsets.len() * 16
    }
}

/// Records for one topic, as one part of a transaction or one idempotent produce call.
#[derive(Debug, Clone)]
pub struct OutBatch {
    pub topic: Arc<str>,
    /// Unix milliseconds, the same for every record: an epoch that is sent again has the same timestamps.
    pub timestamp_ms: i64,
    /// The same for every record.
    pub headers: Vec<(String, Bytes)>,
    /// Target partition of each record.
    pub partitions: Vec<i32>,
    pub keys: BinaryArena,
    /// A null value is a tombstone.
    pub values: BinaryArena,
    /// Whether the caller needs the offset of each record back.
    pub want_offsets: bool,
}

impl OutBatch {
    pub fn new(topic: impl Into<Arc<str>>, timestamp_ms: i64) -> Self {
        Self {
            topic: topic.into(),
            timestamp_ms,
            headers: Vec::new(),
            partitions: Vec::new(),
            keys: BinaryArena::default(),
            values: BinaryArena::default(),
            want_offsets: false,
        }
    }

    pub fn push(&mut self, partition: i32, key: Option<&[u8]>, value: Option<&[u8]>) {
        self.partitions.push(partition);
        self.keys.push(key);
        self.values.push(value);
    }

    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    pub fn size_bytes(&self) -> usize {
        self.keys.size_bytes() + self.values.size_bytes() + self.partitions.len() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_keeps_nulls_and_empty_strings_apart() {
        let mut a = BinaryArena::default();
        a.push(Some(b"ab"));
        a.push(None);
        a.push(Some(b""));
        a.open().extend_from_slice(b"lost");
        a.abandon();
        a.open().extend_from_slice(b"kept");
        a.finish();
        assert_eq!(a.iter().collect::<Vec<_>>(), [Some(&b"ab"[..]), None, Some(&b""[..]), Some(&b"kept"[..])]);
    }
}
