//! The contents of the memory log. Plain data under one lock; every method is one step that the broker would take.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use bytes::Bytes;

use super::{CommitFault, Gate};
use crate::{ErrorKind, LogError, Offset, OutBatch, PartitionOffsets, TopicPartition};

/// Kafka's default of `max.message.bytes`.
const MAX_MESSAGE_BYTES: usize = 1_048_588;
/// What Kafka adds to a record in a batch of one, rounded up.
const RECORD_OVERHEAD: usize = 100;

#[derive(Debug)]
pub(super) struct State {
    pub(super) topics: BTreeMap<String, Topic>,
    pub(super) producers: HashMap<String, ProducerState>,
    /// Transactions that ended with an abort.
    pub(super) aborted: HashSet<u64>,
    pub(super) commit_faults: VecDeque<CommitFault>,
    pub(super) unavailable: bool,
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) batch_records: usize,
    next_id: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            topics: BTreeMap::new(),
            producers: HashMap::new(),
            aborted: HashSet::new(),
            commit_faults: VecDeque::new(),
            unavailable: false,
            gate: None,
            batch_records: 4_096,
            next_id: 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) topic_id: String,
    pub(super) config: BTreeMap<String, String>,
    pub(super) partitions: Vec<Partition>,
}

#[derive(Debug, Default)]
pub(super) struct Partition {
    pub(super) start: i64,
    pub(super) next: i64,
    /// By offset. Trimmed and compacted ones are gone.
    pub(super) entries: VecDeque<Entry>,
    /// Open transactions with the first offset of each.
    open: BTreeMap<u64, i64>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) offset: i64,
    pub(super) txn: Option<u64>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Record(Record),
    /// Ends a transaction; takes an offset, is never handed over.
    Marker,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
    pub(super) headers: Vec<(String, Bytes)>,
}

impl Record {
    pub(super) fn stored(&self, offset: i64) -> StoredRecord {
        StoredRecord {
            offset,
            timestamp_ms: self.timestamp_ms,
            key: self.key.clone(),
            value: self.value.clone(),
            headers: self.headers.clone(),
        }
    }
}

/// A record as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Bytes)>,
}

impl StoredRecord {
    pub fn key_text(&self) -> Option<String> {
        self.key.as_ref().map(|k| String::from_utf8_lossy(k).into_owned())
    }

    pub fn value_text(&self) -> Option<String> {
        self.value.as_ref().map(|v| String::from_utf8_lossy(v).into_owned())
    }
}

#[derive(Debug, Default)]
pub(super) struct ProducerState {
    pub(super) epoch: u64,
    open: Option<OpenTxn>,
}

#[derive(Debug)]
struct OpenTxn {
    id: u64,
    partitions: BTreeSet<TopicPartition>,
}

impl Partition {
    pub(super) fn offsets(&self) -> PartitionOffsets {
        let stable = self.open.values().min().copied().unwrap_or(self.next);
        PartitionOffsets { start: Offset(self.start), stable: Offset(stable), high_watermark: Offset(self.next) }
    }

    fn push(&mut self, txn: Option<u64>, body: Body) -> i64 {
        let offset = self.next;
        self.next += 1;
        self.entries.push_back(Entry { offset, txn, body });
        offset
    }

    pub(super) fn trim(&mut self, start: i64) {
        self.start = self.start.max(start.min(self.next));
        while self.entries.front().is_some_and(|e| e.offset < self.start) {
            self.entries.pop_front();
        }
    }

    pub(super) fn lose_tail(&mut self, end: i64) {
        while self.entries.back().is_some_and(|e| e.offset >= end) {
            self.entries.pop_back();
        }
        self.next = self.next.min(end);
        self.start = self.start.min(self.next);
        self.open.retain(|_, first| *first < end);
    }

    /// Place of the first entry at or after `offset`.
    pub(super) fn place(&self, offset: i64) -> usize {
        self.entries.partition_point(|e| e.offset < offset)
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns false if the topic is there.
    pub(super) fn create(&mut self, name: &str, partitions: i32, config: BTreeMap<String, String>) -> bool {
        if self.topics.contains_key(name) {
            return false;
        }
        let topic_id = format!("memory{:016}", self.next_id());
        let partitions = (0..partitions.max(1)).map(|_| Partition::default()).collect();
        self.topics.insert(name.to_owned(), Topic { topic_id, config, partitions });
        true
    }

    pub(super) fn topic(&self, name: &str) -> Result<&Topic, LogError> {
        self.topics.get(name).ok_or_else(|| LogError::new(ErrorKind::NotFound, "no such topic").topic(name))
    }

    pub(super) fn partition(&self, tp: &TopicPartition) -> Result<&Partition, LogError> {
        let found = self.topic(&tp.topic)?.partitions.get(usize::try_from(tp.partition).unwrap_or(usize::MAX));
        found.ok_or_else(|| LogError::new(ErrorKind::NotFound, "no such partition").at(tp))
    }

    pub(super) fn partition_mut(&mut self, tp: &TopicPartition) -> Result<&mut Partition, LogError> {
        self.partition(tp)?;
        let topic = self.topics.get_mut(&*tp.topic).expect("checked in the line above");
        Ok(&mut topic.partitions[tp.partition as usize])
    }

    /// Refuses what the broker would refuse, before anything is written.
    pub(super) fn check(&self, batch: &OutBatch) -> Result<(), LogError> {
        let topic = self.topic(&batch.topic)?;
        let limit = topic.config.get("max.message.bytes").and_then(|v| v.parse().ok()).unwrap_or(MAX_MESSAGE_BYTES);
        for i in 0..batch.len() {
            let at = TopicPartition::new(Arc::clone(&batch.topic), batch.partitions[i]);
            self.partition(&at)?;
            let size =
                batch.keys.get(i).map_or(0, <[u8]>::len) + batch.values.get(i).map_or(0, <[u8]>::len) + RECORD_OVERHEAD;
            if size > limit {
                return Err(LogError::new(
                    ErrorKind::Invalid,
                    format!("record of {size} bytes above max.message.bytes {limit}"),
                )
                .at(&at));
            }
        }
        Ok(())
    }

    /// Appends all records; `check` has passed. Returns the offset of each.
    pub(super) fn append(&mut self, batch: &OutBatch, txn: Option<u64>) -> Vec<i64> {
        let mut offsets = Vec::with_capacity(batch.len());
        let mut touched = BTreeSet::new();
        for i in 0..batch.len() {
            let tp = TopicPartition::new(Arc::clone(&batch.topic), batch.partitions[i]);
            let Ok(partition) = self.partition_mut(&tp) else { continue };
            if let Some(txn) = txn {
                partition.open.entry(txn).or_insert(partition.next);
                touched.insert(tp);
            }
            offsets.push(partition.push(
                txn,
                Body::Record(Record {
                    timestamp_ms: batch.timestamp_ms,
                    key: batch.keys.get(i).map(Bytes::copy_from_slice),
                    value: batch.values.get(i).map(Bytes::copy_from_slice),
                    headers: batch.headers.clone(),
                }),
            ));
        }
        if let Some(open) =
            txn.and_then(|t| self.producers.values_mut().filter_map(|p| p.open.as_mut()).find(|o| o.id == t))
        {
            open.partitions.extend(touched);
        }
        offsets
    }

    /// New producer epoch; an open transaction of the id is aborted.
    pub(super) fn init(&mut self, transactional_id: &str) -> u64 {
        self.end(transactional_id, false);
        let producer = self.producers.entry(transactional_id.to_owned()).or_default();
        producer.epoch += 1;
        producer.epoch
    }

    /// `None` if a newer producer has taken the id.
    pub(super) fn begin(&mut self, transactional_id: &str, epoch: u64) -> Option<u64> {
        let id = self.next_id();
        let producer = self.producers.get_mut(transactional_id).filter(|p| p.epoch == epoch)?;
        producer.open = Some(OpenTxn { id, partitions: BTreeSet::new() });
        Some(id)
    }

    pub(super) fn is_open(&self, transactional_id: &str, epoch: u64, txn: u64) -> bool {
        self.producers
            .get(transactional_id)
            .is_some_and(|p| p.epoch == epoch && p.open.as_ref().is_some_and(|o| o.id == txn))
    }

    /// Writes the markers of the open transaction of the id, if there is one.
    pub(super) fn end(&mut self, transactional_id: &str, commit: bool) {
        let Some(open) = self.producers.get_mut(transactional_id).and_then(|p| p.open.take()) else { return };
        if !commit {
            self.aborted.insert(open.id);
        }
        for tp in &open.partitions {
            // A topic that was deleted in the meantime takes no marker.
            if let Ok(partition) = self.partition_mut(tp)
                && partition.open.remove(&open.id).is_some()
            {
                partition.push(Some(open.id), Body::Marker);
            }
        }
    }

    pub(super) fn compact(&mut self, tp: &TopicPartition, drop_tombstones: bool) {
        let aborted = std::mem::take(&mut self.aborted);
        if let Ok(p) = self.partition_mut(tp) {
            let stable = p.offsets().stable.0;
            let live = |e: &Entry| !e.txn.is_some_and(|t| aborted.contains(&t));
            let mut newest: HashMap<Bytes, i64> = HashMap::new();
            for e in p.entries.iter().filter(|e| e.offset < stable && live(e)) {
                if let Body::Record(Record { key: Some(key), .. }) = &e.body {
                    newest.insert(key.clone(), e.offset);
                }
            }
            p.entries.retain(|e| {
                if e.offset >= stable {
                    return true;
                }
                match &e.body {
                    Body::Record(Record { key: Some(key), value, .. }) => {
                        live(e) && newest.get(key) == Some(&e.offset) && !(drop_tombstones && value.is_none())
                    }
                    // Kafka refuses records without key on a compacted topic; the cleaner drops older ones.
                    Body::Record(_) | Body::Marker => false,
                }
            });
        }
        self.aborted = aborted;
    }
}
