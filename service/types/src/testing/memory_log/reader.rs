//! Reading the memory log as a `read_committed` consumer does.

use async_trait::async_trait;

use super::{
    MemoryLog, down,
    state::{Body, State},
};
use crate::{LogError, LogEvent, LogReader, LogStore, Offset, PartitionOffsets, RawBatch, TopicPartition};

/// Bytes of one batch, as the Kafka reader has it.
const BATCH_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct MemoryStore {
    pub(super) log: MemoryLog,
    pub(super) partition: TopicPartition,
}

#[async_trait]
impl LogStore for MemoryStore {
    fn partition(&self) -> &TopicPartition {
        &self.partition
    }

    async fn read(&self, from: Offset) -> Result<Box<dyn LogReader>, LogError> {
        Ok(Box::new(MemoryReader {
            log: self.log.clone(),
            partition: self.partition.clone(),
            position: from.0,
            topic_id: None,
            told: None,
        }))
    }

    async fn offsets(&self) -> Result<PartitionOffsets, LogError> {
        let state = self.log.lock();
        if state.unavailable {
            return Err(down().at(&self.partition));
        }
        Ok(state.partition(&self.partition)?.offsets())
    }

    async fn truncate_to(&self, offset: Offset) -> Result<(), LogError> {
        self.log.change(|s| {
            if s.unavailable {
                return Err(down().at(&self.partition));
            }
            let p = s.partition_mut(&self.partition)?;
            if offset.0 > p.next {
                let what = format!("truncate to {offset} above the high watermark {}", p.next);
                return Err(LogError::new(crate::ErrorKind::Invalid, what).at(&self.partition));
            }
            p.trim(offset.0);
            Ok(())
        })
    }
}

/// What was told last, so that a state that lasts is one event and not a stream of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    End(i64),
    OutOfRange { start: i64, end: i64 },
    Unavailable,
    Final,
}

#[derive(Debug)]
struct MemoryReader {
    log: MemoryLog,
    partition: TopicPartition,
    position: i64,
    /// Of the topic at the first look: a recreated topic is another one.
    topic_id: Option<String>,
    told: Option<Told>,
}

#[async_trait]
impl LogReader for MemoryReader {
    async fn next(&mut self) -> LogEvent {
        let log = self.log.clone();
        loop {
            let changed = log.inner.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let event = self.look(&log.lock());
            if let Some(event) = event {
                return event;
            }
            changed.await;
        }
    }
}

impl MemoryReader {
    /// One fetch. `None` if there is nothing that was not told yet.
    fn look(&mut self, state: &State) -> Option<LogEvent> {
        if state.unavailable {
            return self.tell(Told::Unavailable).then(|| LogEvent::Failed(down().at(&self.partition)));
        }
        let topic = match state.topic(&self.partition.topic).and_then(|t| state.partition(&self.partition).map(|_| t)) {
            Ok(topic) => topic,
            Err(e) => return self.tell(Told::Final).then_some(LogEvent::Failed(e)),
        };
        if self.topic_id.get_or_insert_with(|| topic.topic_id.clone()) != &topic.topic_id {
            let what = "the topic was deleted and created again";
            let error = LogError::new(crate::ErrorKind::Corrupt, what).at(&self.partition);
            return self.tell(Told::Final).then_some(LogEvent::Failed(error));
        }
        let ends = state.partition(&self.partition).ok()?.offsets();
        let (start, end) = (ends.start, ends.high_watermark);
        if self.position < start.0 || self.position > end.0 {
            let wanted = Offset(self.position);
            return self.tell(Told::OutOfRange { start: start.0, end: end.0 }).then_some(LogEvent::OutOfRange {
                wanted,
                start,
                end,
            });
        }
        self.fetch(state, ends.stable.0)
    }

    fn tell(&mut self, what: Told) -> bool {
        self.told.replace(what) != Some(what)
    }

    fn fetch(&mut self, state: &State, stable: i64) -> Option<LogEvent> {
        let partition = state.partition(&self.partition).ok()?;
        let mut batch = RawBatch::new(self.partition.clone(), Offset(self.position));
        let mut position = self.position;
        let mut any_headers = false;
        for entry in partition.entries.range(partition.place(self.position)..).take_while(|e| e.offset < stable) {
            if batch.len() >= state.batch_records || (!batch.is_empty() && batch.size_bytes() >= BATCH_BYTES) {
                break;
            }
            position = Offset::after(entry.offset).0;
            let Body::Record(record) = &entry.body else { continue };
            if entry.txn.is_some_and(|t| state.aborted.contains(&t)) {
                continue;
            }
            batch.offsets.push(entry.offset);
            batch.timestamps.push(record.timestamp_ms);
            batch.keys.push(record.key.as_deref());
            batch.values.push(record.value.as_deref());
            any_headers |= !record.headers.is_empty();
            batch.headers.push(record.headers.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect());
            // The batch ends at its last record: what is filtered behind it comes as a move of the position, as with a real client.
            batch.next = Offset(position);
        }
        if !any_headers {
            batch.headers.clear();
        }
        if !batch.is_empty() {
            self.told = None;
            self.position = batch.next.0;
            return Some(LogEvent::Records(batch));
        }
        if position > self.position {
            self.told = None;
            self.position = position;
            return Some(LogEvent::Position { next: Offset(position) });
        }
        // Here the end event raises the position over a tail that was compacted away.
        self.position = self.position.max(stable);
        self.tell(Told::End(stable)).then_some(LogEvent::EndReached { end: Offset(stable) })
    }
}

/// Kept out of the trait object so that a reader can be made in a test of this module.
#[cfg(test)]
pub(super) fn reader(log: &MemoryLog, partition: &TopicPartition, from: i64) -> Box<dyn LogReader> {
    Box::new(MemoryReader {
        log: log.clone(),
        partition: partition.clone(),
        position: from,
        topic_id: None,
        told: None,
    })
}
