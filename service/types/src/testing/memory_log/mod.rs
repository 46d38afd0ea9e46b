//! A cluster in memory: topics, offsets with gaps where markers are, last stable offsets, fencing, and switches for faults.
//!
//! Owns: [`MemoryLog`] and what a test can do to it. The log itself is in `state.rs`, the trait implementations in `reader.rs`, `writer.rs` and `admin.rs`.
//! Not here: brokers, replication, time. Nothing expires by itself: a test trims, compacts and ends transactions by hand.

mod admin;
mod reader;
mod state;
mod writer;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

pub use state::StoredRecord;
use state::{Body, State};

use crate::{
    EpochWriter, LogError, LogStore, LogSystem, Offset, OutBatch, PartitionOffsets, Producer, TopicAdmin,
    TopicPartition,
};

/// What the next commit does instead of a plain commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The answer is lost. With `committed` the transaction is committed, else it stays open until the next `init` of its id aborts it.
    Unknown { committed: bool },
    /// Aborted before EndTxn: the records and an abort marker take offsets, nothing is visible.
    Aborted,
}

/// One cluster in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryLog {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// Told after every change; readers wait here.
    changed: Notify,
}

impl fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryLog")
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLog {
    pub fn new() -> Self {
        Self { inner: Arc::new(Inner::default()) }
    }

    /// For `Deps`: the log as the trait object that the crates take.
    pub fn system(&self) -> Arc<dyn LogSystem> {
        Arc::new(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change and wakes all readers.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.inner.changed.notify_waiters();
        result
    }

    /// Creates a topic with default config; does nothing if it is there.
    pub fn create_topic(&self, name: &str, partitions: i32) {
        self.change(|s| s.create(name, partitions, Default::default()));
    }

    /// Deletes and creates the topic again: same name, other topic id, empty.
    pub fn recreate_topic(&self, name: &str) {
        self.change(|s| {
            if let Some(old) = s.topics.remove(name) {
                s.create(name, old.partitions.len() as i32, old.config);
            }
        });
    }

    /// Sets an option of a topic, such as `max.message.bytes`.
    pub fn set_topic_config(&self, name: &str, key: &str, value: &str) {
        self.change(|s| {
            if let Some(topic) = s.topics.get_mut(name) {
                topic.config.insert(key.to_owned(), value.to_owned());
            }
        });
    }

    /// Raises the partition count.
    pub fn grow_topic(&self, name: &str, partitions: i32) {
        self.change(|s| {
            if let Some(topic) = s.topics.get_mut(name) {
                topic.partitions.resize_with(partitions.max(topic.partitions.len() as i32) as usize, Default::default);
            }
        });
    }

    /// Appends without a transaction, as any foreign client could. Returns the offset of each record.
    ///
    /// # Panics
    /// If the topic or a partition is not there.
    pub fn append(&self, batch: &OutBatch) -> Vec<i64> {
        self.change(|s| {
            s.check(batch).expect("the test writes to a topic that it has created");
            s.append(batch, None)
        })
    }

    /// One record by text; `None` is a null key or a tombstone. Returns its offset.
    ///
    /// # Panics
    /// If the topic or the partition is not there.
    pub fn put(&self, topic: &str, partition: i32, key: Option<&str>, value: Option<&str>) -> i64 {
        let mut batch = OutBatch::new(topic, 0);
        batch.push(partition, key.map(str::as_bytes), value.map(str::as_bytes));
        self.append(&batch)[0]
    }

    /// Opens a transaction of a foreign producer with these records and leaves it open: the last stable offset stays below it.
    ///
    /// # Panics
    /// If the topic or a partition is not there.
    pub fn open_transaction(&self, transactional_id: &str, batch: &OutBatch) {
        self.change(|s| {
            s.check(batch).expect("the test writes to a topic that it has created");
            let epoch = s.init(transactional_id);
            let txn = s.begin(transactional_id, epoch).expect("init has just given this epoch");
            s.append(batch, Some(txn));
        });
    }

    /// Ends what [`MemoryLog::open_transaction`] has opened.
    pub fn end_transaction(&self, transactional_id: &str, commit: bool) {
        self.change(|s| s.end(transactional_id, commit));
    }

    /// The next commit of any writer meets `fault`. Faults queue up in order.
    pub fn fail_next_commit(&self, fault: CommitFault) {
        self.lock().commit_faults.push_back(fault);
    }

    /// Short for `fail_next_commit(CommitFault::Aborted)`.
    pub fn abort_next_commit(&self) {
        self.fail_next_commit(CommitFault::Aborted);
    }

    /// While on, every call fails with `Unavailable` and readers report it once.
    pub fn unavailable(&self, on: bool) {
        self.change(|s| s.unavailable = on);
    }

    /// From now on every commit stops when its records are in the log and EndTxn is not sent. Dropping the gate lets them go.
    pub fn hold_commits(&self) -> CommitGate {
        let gate = Arc::new(Gate::default());
        self.lock().gate = Some(Arc::clone(&gate));
        CommitGate { log: self.clone(), gate }
    }

    /// Moves the log start as retention does. Never back, never above the high watermark.
    pub fn trim(&self, partition: &TopicPartition, start: i64) {
        self.change(|s| {
            if let Ok(p) = s.partition_mut(partition) {
                p.trim(start);
            }
        });
    }

    /// Removes markers, aborted records and all but the newest record of each key below the last stable offset. Offsets stay.
    pub fn compact(&self, partition: &TopicPartition, drop_tombstones: bool) {
        self.change(|s| s.compact(partition, drop_tombstones));
    }

    /// Drops the records at or after `end`, as an unclean leader election does.
    pub fn lose_tail(&self, partition: &TopicPartition, end: i64) {
        self.change(|s| {
            if let Ok(p) = s.partition_mut(partition) {
                p.lose_tail(end);
            }
        });
    }

    /// Most records that a reader hands over at once; 4,096 unless a test wants small batches.
    pub fn set_batch_records(&self, records: usize) {
        self.lock().batch_records = records.max(1);
    }

    /// What a `read_committed` consumer would find in the partition now.
    pub fn committed(&self, partition: &TopicPartition) -> Vec<StoredRecord> {
        let state = self.lock();
        let Ok(p) = state.partition(partition) else { return Vec::new() };
        let stable = p.offsets().stable.0;
        let visible =
            p.entries.iter().filter(|e| e.offset < stable && !e.txn.is_some_and(|t| state.aborted.contains(&t)));
        visible
            .filter_map(|e| match &e.body {
                Body::Record(r) => Some(r.stored(e.offset)),
                Body::Marker => None,
            })
            .collect()
    }

    /// The ends of a partition, without going through the traits.
    pub fn ends(&self, partition: &TopicPartition) -> Option<PartitionOffsets> {
        self.lock().partition(partition).ok().map(state::Partition::offsets)
    }

    /// Names of all topics.
    pub fn topics(&self) -> Vec<String> {
        self.lock().topics.keys().cloned().collect()
    }

    /// How often `init` has been called for the id: its producer epoch.
    pub fn producer_epoch(&self, transactional_id: &str) -> u64 {
        self.lock().producers.get(transactional_id).map_or(0, |p| p.epoch)
    }
}

impl LogSystem for MemoryLog {
    fn log(&self, partition: &TopicPartition) -> Arc<dyn LogStore> {
        Arc::new(reader::MemoryStore { log: self.clone(), partition: partition.clone() })
    }

    fn epoch_writer(&self, transactional_id: &str) -> Box<dyn EpochWriter> {
        Box::new(writer::MemoryWriter::new(self.clone(), transactional_id))
    }

    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(writer::MemoryProducer(self.clone()))
    }

    fn admin(&self) -> Arc<dyn TopicAdmin> {
        Arc::new(admin::MemoryAdmin(self.clone()))
    }
}

#[derive(Debug, Default)]
struct Gate {
    open: AtomicBool,
    waiting: AtomicUsize,
    changed: Notify,
}

impl Gate {
    /// Called by a commit at its edge.
    async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.until(|| self.open.load(Ordering::SeqCst)).await;
    }

    async fn until(&self, done: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if done() {
                return;
            }
            changed.await;
        }
    }
}

/// Holds commits at their edge: sent, not ended.
#[derive(Debug)]
pub struct CommitGate {
    log: MemoryLog,
    gate: Arc<Gate>,
}

impl CommitGate {
    /// Returns when `commits` commits in all have come to the gate.
    pub async fn reached(&self, commits: usize) {
        self.gate.until(|| self.gate.waiting.load(Ordering::SeqCst) >= commits).await;
    }

    /// Lets all commits go, those to come too. Same as dropping the gate.
    pub fn release(self) {}
}

impl Drop for CommitGate {
    fn drop(&mut self) {
        let mut state = self.log.lock();
        if state.gate.as_ref().is_some_and(|g| Arc::ptr_eq(g, &self.gate)) {
            state.gate = None;
        }
        drop(state);
        self.gate.open.store(true, Ordering::SeqCst);
        self.gate.changed.notify_waiters();
    }
}

fn down() -> LogError {
    LogError::new(crate::ErrorKind::Unavailable, "the memory log is switched off")
}

/// One line per partition for messages of failed tests.
impl fmt::Display for MemoryLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, topic) in &self.lock().topics {
            for (i, p) in topic.partitions.iter().enumerate() {
                let PartitionOffsets { start: Offset(start), stable: Offset(stable), high_watermark: Offset(high) } =
                    p.offsets();
                writeln!(f, "{name}-{i}: start {start}, stable {stable}, high {high}, {} entries", p.entries.len())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
