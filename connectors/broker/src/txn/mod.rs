//! The transaction coordinator: all transactional ids, journaled. Decisions are made in `state.rs`; here they are written down, and prepared transactions are
//! brought to their end by markers in every partition. Lock order: a partition's or the groups' lock may be held when `live` is taken, never the other way.

pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use self::state::{End, Expected, Init, Transaction};
use crate::{
    clock::Clock,
    config::Fsync,
    faults::{DiskFull, Faults},
    group::Groups,
    journal::{Journal, Ticket},
    log::batch::Marker,
    node,
    topics::Topics,
};

/// The new state of one id. Ids stay for ever, as in Kafka within `transactional.id.expiration.ms`.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    id: String,
    transaction: Transaction,
}

/// How long a request waits for the markers of the transaction before, before the client is told to come again.
const MARKER_PATIENCE: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Live {
    by_id: BTreeMap<String, Transaction>,
    by_producer: HashMap<i64, String>,
    /// Prepared ones whose markers are being written by a task.
    finishing: HashSet<String>,
}

impl Live {
    fn put(&mut self, id: &str, tx: Transaction) {
        if let Some(old) = self.by_id.get(id).filter(|old| old.producer_id != tx.producer_id) {
            self.by_producer.remove(&old.producer_id);
        }
        self.by_producer.insert(tx.producer_id, id.to_owned());
        self.by_id.insert(id.to_owned(), tx);
    }
}

#[derive(Debug)]
pub(crate) struct Transactions {
    journal: Journal,
    live: Mutex<Live>,
    topics: Arc<Topics>,
    groups: Arc<Groups>,
    faults: Faults,
    clock: Clock,
    /// A transaction has completed.
    completed: Notify,
    max_timeout_ms: i64,
    /// Records are synced before they are answered, so markers are before the journal says that they are there.
    sync_markers: bool,
}

/// The journal cannot be written: the client retries.
fn storage(e: &io::Error) -> ResponseError {
    tracing::error!(error = %e, "the transaction journal cannot be written");
    ResponseError::CoordinatorNotAvailable
}

impl Transactions {
    pub(crate) fn open(
        data: &Path,
        fsync: Fsync,
        max_timeout: Duration,
        (topics, groups, faults, clock): (Arc<Topics>, Arc<Groups>, Faults, Clock),
        full: DiskFull,
    ) -> io::Result<Self> {
        let (journal, entries) = Journal::open::<Entry>(data, "transactions", fsync != Fsync::Never, full)?;
        let mut live = Live::default();
        for e in entries {
            live.put(&e.id, e.transaction);
        }
        let max_timeout_ms = max_timeout.as_millis() as i64;
        let live = Mutex::new(live);
        let (completed, sync_markers) = (Notify::new(), fsync == Fsync::Always);
        Ok(Self { journal, live, topics, groups, faults, clock, completed, max_timeout_ms, sync_markers })
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // Entries are put whole, so a panic elsewhere left a state that was journaled.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, live: &mut Live, id: &str, tx: Transaction) -> Result<Ticket, ResponseError> {
        let entry = Entry { id: id.to_owned(), transaction: tx };
        let ticket = self.journal.append(std::slice::from_ref(&entry)).map_err(|e| storage(&e))?;
        live.put(id, entry.transaction);
        Ok(ticket)
    }

    async fn durable(&self, ticket: Ticket) -> Result<(), ResponseError> {
        self.journal.durable(ticket).await.map_err(|e| storage(&e))
    }

    /// Everything so far is on the disk: for answers that tell of what was done before.
    async fn all_durable(&self) -> Result<(), ResponseError> {
        self.durable(self.journal.newest()).await
    }

    /// `InitProducerId` for a transactional id: id and epoch to use.
    pub(crate) async fn init(
        self: &Arc<Self>,
        id: &str,
        expected: Option<Expected>,
        timeout_ms: i64,
    ) -> Result<Expected, ResponseError> {
        if timeout_ms <= 0 || timeout_ms > self.max_timeout_ms {
            return Err(ResponseError::InvalidTransactionTimeout);
        }
        // The second look comes after an abort, the third if another caller was faster.
        for _ in 0..3 {
            let fresh = self.topics.new_producer_id().await.map_err(|e| storage(&e))?;
            let next = {
                let mut live = self.live();
                let step = state::init(live.by_id.get(id), expected, timeout_ms, fresh, self.clock.now_ms())?;
                match step {
                    Init::Ready(tx) => {
                        let got = Expected { producer_id: tx.producer_id, epoch: tx.epoch };
                        Some((self.write(&mut live, id, tx)?, Some(got)))
                    }
                    Init::Abort(tx) => Some((self.write(&mut live, id, tx)?, None)),
                    Init::Again => {
                        let tx = live.by_id.get(id).ok_or(ResponseError::InvalidProducerIdMapping)?;
                        let got = Expected { producer_id: tx.producer_id, epoch: tx.epoch };
                        Some((self.journal.newest(), Some(got)))
                    }
                    Init::Wait => None,
                }
            };
            match next {
                Some((ticket, Some(got))) => {
                    self.durable(ticket).await?;
                    return Ok(got);
                }
                Some((ticket, None)) => {
                    self.durable(ticket).await?;
                    self.finish(id).await;
                }
                None => {}
            }
            self.settled(id).await?;
        }
        Err(ResponseError::ConcurrentTransactions)
    }

    /// Waits a little until the id has no prepared transaction.
    async fn settled(self: &Arc<Self>, id: &str) -> Result<(), ResponseError> {
        let wait = async {
            loop {
                let completed = self.completed.notified();
                tokio::pin!(completed);
                // Registers before the look, so that no completion is missed.
                completed.as_mut().enable();
                let prepared = self.live().by_id.get(id).is_some_and(|t| t.status.prepared().is_some());
                if !prepared {
                    return;
                }
                completed.await;
            }
        };
        tokio::time::timeout(MARKER_PATIENCE, wait).await.map_err(|_| ResponseError::ConcurrentTransactions)
    }

    /// Adds partitions or a group to the open transaction, or begins one.
    pub(crate) async fn add(
        self: &Arc<Self>,
        id: &str,
        who: Expected,
        partitions: &[(&str, i32)],
        group: Option<&str>,
    ) -> Result<(), ResponseError> {
        self.settled(id).await?;
        {
            let mut live = self.live();
            if let Some(tx) = state::add(live.by_id.get(id), who, partitions, group, self.clock.now_ms())? {
                self.write(&mut live, id, tx)?;
            }
        }
        self.all_durable().await
    }

    /// Decides the end of a transaction; the markers follow on their own.
    pub(crate) async fn end(self: &Arc<Self>, id: &str, who: Expected, marker: Marker) -> Result<(), ResponseError> {
        if self.faults.is_hung(id) {
            return Err(ResponseError::CoordinatorNotAvailable);
        }
        let ticket = {
            let mut live = self.live();
            match state::end(live.by_id.get(id), who, marker, self.clock.now_ms())? {
                End::Prepare(tx) => Some(self.write(&mut live, id, tx)?),
                End::Done => None,
            }
        };
        let Some(ticket) = ticket else { return self.all_durable().await };
        self.durable(ticket).await?;
        let (this, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move { this.finish(&id).await });
        Ok(())
    }

    /// Is the partition part of this producer's open transaction?
    pub(crate) fn has_partition(&self, who: Expected, topic: &str, partition: i32) -> bool {
        self.of_producer(who.producer_id, |t| {
            t.status == state::Status::Ongoing
                && t.epoch == who.epoch
                && t.partitions.get(topic).is_some_and(|p| p.contains(&partition))
        })
    }

    /// May this producer commit offsets of `group` in its open transaction?
    pub(crate) fn check_group(&self, id: &str, who: Expected, group: &str) -> Result<(), ResponseError> {
        let live = self.live();
        let tx = live.by_id.get(id).filter(|t| t.producer_id == who.producer_id);
        let tx = tx.ok_or(ResponseError::InvalidProducerIdMapping)?;
        if tx.epoch != who.epoch {
            return Err(ResponseError::InvalidProducerEpoch);
        }
        if tx.status != state::Status::Ongoing || !tx.groups.contains(group) {
            return Err(ResponseError::InvalidTxnState);
        }
        Ok(())
    }

    /// Writes the markers of a prepared transaction and completes it. What fails is tried again by the next `tick`.
    async fn finish(&self, id: &str) {
        let Some((tx, marker)) = ({
            let mut live = self.live();
            let tx = live.by_id.get(id).cloned();
            let prepared = tx.and_then(|tx| tx.status.prepared().map(|m| (tx, m)));
            prepared.filter(|_| !self.faults.markers_held(id) && live.finishing.insert(id.to_owned()))
        }) else {
            return;
        };
        let done = self.complete(id, &tx, marker).await;
        self.live().finishing.remove(id);
        match done {
            Ok(()) => self.completed.notify_waiters(),
            Err(e) => tracing::error!(id, error = %e, "a transaction cannot be ended yet"),
        }
    }

    async fn complete(&self, id: &str, tx: &Transaction, marker: Marker) -> io::Result<()> {
        let (files, offsets) = self.write_markers(tx, marker)?;
        if !files.is_empty() {
            node::blocking(move || files.iter().try_for_each(|f| f.sync_data())).await?;
        }
        self.groups.durable(offsets).await.map_err(|e| io::Error::other(e.to_string()))?;
        let mut live = self.live();
        let entry = Entry { id: id.to_owned(), transaction: state::complete(tx, self.clock.now_ms()) };
        self.journal.append(std::slice::from_ref(&entry))?;
        live.put(id, entry.transaction);
        Ok(())
    }

    /// What has to be on the disk before the transaction is complete.
    fn write_markers(&self, tx: &Transaction, marker: Marker) -> io::Result<(Vec<Arc<File>>, Ticket)> {
        let mut files = Vec::new();
        for (topic, partitions) in &tx.partitions {
            for index in partitions {
                // The topic may be gone by now.
                let Some(partition) = self.topics.partition(topic, *index) else { continue };
                {
                    let mut log = partition.log();
                    if !partition.is_closed() {
                        let now = self.clock.now_ms();
                        log.append_marker(marker, tx.producer_id, tx.epoch, now).map_err(io::Error::other)?;
                        if self.sync_markers {
                            files.extend(log.take_dirty());
                        }
                    }
                }
                partition.wake();
            }
        }
        Ok((files, self.groups.end_transaction(tx.producer_id, &tx.groups, marker)?))
    }

    /// Aborts what is past its timeout, ends what a crash or an error left prepared, tidies the journal.
    pub(crate) async fn tick(self: &Arc<Self>) {
        let now_ms = self.clock.now_ms();
        let expired: Vec<String> = {
            let live = self.live();
            let late = live.by_id.iter().filter(|(id, t)| state::is_expired(t, now_ms) && !self.faults.is_hung(id));
            late.map(|(id, _)| id.clone()).collect()
        };
        for id in expired {
            if let Err(e) = self.expire(&id, now_ms).await {
                tracing::warn!(id, error = %e, "a transaction past its timeout cannot be aborted yet");
            }
        }
        let prepared: Vec<String> = {
            let live = self.live();
            live.by_id.iter().filter(|(_, t)| t.status.prepared().is_some()).map(|(id, _)| id.clone()).collect()
        };
        for id in prepared {
            self.finish(&id).await;
        }
        let live = self.live();
        if self.journal.wants_snapshot() {
            let state = live.by_id.iter().map(|(id, t)| Entry { id: id.clone(), transaction: t.clone() });
            if let Err(e) = self.journal.snapshot(state) {
                tracing::warn!(error = %e, "the transaction journal cannot be rewritten");
            }
        }
    }

    /// Aborts an open transaction and locks its producer out.
    pub(crate) async fn expire(self: &Arc<Self>, id: &str, now_ms: i64) -> Result<(), ResponseError> {
        let ticket = {
            let mut live = self.live();
            let Some(tx) = live.by_id.get(id).filter(|t| t.status == state::Status::Ongoing) else { return Ok(()) };
            let fenced = state::fence(tx, now_ms);
            tracing::info!(
                id,
                producer_id = tx.producer_id,
                epoch = tx.epoch,
                "transaction past its timeout is aborted"
            );
            self.write(&mut live, id, fenced)?
        };
        self.durable(ticket).await?;
        self.finish(id).await;
        Ok(())
    }

    /// At start: ends transactions that logs or groups know as open and the journal does not. Only a power loss makes them, by taking the newest bytes of
    /// a file. What has ended by the journal ends that way: its marker is gone. Of others the journal lost the beginning, and nobody was told more.
    pub(crate) fn end_strays(&self) -> io::Result<()> {
        for topic in self.topics.all() {
            for partition in &topic.partitions {
                let mut log = partition.log();
                let open = log.producers().filter(|(_, s)| s.open_since.is_some()).map(|(id, s)| (id, s.epoch));
                for (producer_id, epoch) in open.collect::<Vec<_>>() {
                    let known = |t: &Transaction| {
                        t.is_active()
                            && t.partitions.get(topic.name.as_str()).is_some_and(|p| p.contains(&partition.index))
                    };
                    if !self.of_producer(producer_id, known) {
                        let committed = |t: &Transaction| t.epoch == epoch && t.status == state::Status::CompleteCommit;
                        let marker =
                            if self.of_producer(producer_id, committed) { Marker::Commit } else { Marker::Abort };
                        tracing::warn!(topic = %topic.name, partition = partition.index, producer_id, ?marker, "ending a transaction without an end");
                        let now = self.clock.now_ms();
                        log.append_marker(marker, producer_id, epoch, now).map_err(io::Error::other)?;
                    }
                }
            }
        }
        for (group, producer_id) in self.groups.open_producers() {
            if !self.of_producer(producer_id, |t| t.is_active() && t.groups.contains(&group)) {
                self.groups.end_transaction(producer_id, &BTreeSet::from([group]), Marker::Abort)?;
            }
        }
        Ok(())
    }

    fn of_producer(&self, producer_id: i64, is: impl FnOnce(&Transaction) -> bool) -> bool {
        let live = self.live();
        live.by_producer.get(&producer_id).and_then(|id| live.by_id.get(id)).is_some_and(is)
    }

    #[cfg(test)]
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// A copy of one id's state.
    pub(crate) fn get(&self, id: &str) -> Option<Transaction> {
        self.live().by_id.get(id).cloned()
    }

    /// All ids.
    pub(crate) fn all(&self) -> Vec<(String, Transaction)> {
        self.live().by_id.iter().map(|(id, t)| (id.clone(), t.clone())).collect()
    }
}
