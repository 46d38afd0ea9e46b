//! The rules of injected faults: which requests they meet, what they do, how often they have. Everything may be listed and cleared.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kafka_protocol::messages::ApiKey;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{After, Before, DiskFull, Subject};
use crate::{clock::Clock, node::Node};

/// Which requests a fault meets; an empty filter meets all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Name of the API as in Kafka, `Produce`.
    pub api: Option<String>,
    /// Produce and Fetch only.
    pub topic: Option<String>,
    /// Produce and Fetch only.
    pub partition: Option<i32>,
    pub client_id: Option<String>,
}

impl Filter {
    pub fn api(api: &str) -> Self {
        Self { api: Some(api.to_owned()), ..Self::default() }
    }

    fn meets(&self, s: &Subject<'_>) -> bool {
        let partition =
            |t: &str, p: i32| self.topic.as_deref().is_none_or(|x| x == t) && self.partition.is_none_or(|x| x == p);
        self.api.as_deref().is_none_or(|a| a.eq_ignore_ascii_case(&format!("{:?}", s.api)))
            && self.client_id.as_deref().is_none_or(|c| c == s.client_id)
            && ((self.topic.is_none() && self.partition.is_none())
                || s.partitions.iter().any(|(t, p)| partition(t, *p)))
    }
}

/// What happens to a request that a fault meets. `times`: so often, then the fault is spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The answer comes late.
    DelayResponse { ms: u64 },
    /// It is done, and the connection closes instead of saying so.
    DropResponseAfterApply { times: u32 },
    /// It is not done, and the connection closes.
    DropRequest { times: u32 },
    /// It is not done, and this error code is answered.
    Fail { times: u32, error: i16 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    #[serde(default)]
    pub filter: Filter,
    pub action: Action,
}

/// A fault and how often it has struck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    pub id: u64,
    pub fault: Fault,
    pub hits: u64,
}

/// A partition, transaction or client that is treated specially, and how often that was noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// `frozen`, `markers_held`, `hung` or `disconnect`.
    pub kind: String,
    /// `topic-partition`, transactional id or client id.
    pub name: String,
    pub hits: u64,
}

#[derive(Debug, Default)]
struct Rules {
    next_id: u64,
    faults: BTreeMap<u64, Hits>,
    /// Partitions, and how often a request met them.
    frozen: BTreeMap<(String, i32), u64>,
    /// Transactional ids whose markers are held, and how often that was asked.
    held: BTreeMap<String, u64>,
    /// Transactional ids that never end: no end of the client, no timeout.
    hung: BTreeMap<String, u64>,
    disconnect: BTreeMap<String, u64>,
}

impl Rules {
    fn any(&self) -> bool {
        !(self.faults.is_empty()
            && self.frozen.is_empty()
            && self.held.is_empty()
            && self.hung.is_empty()
            && self.disconnect.is_empty())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Faults {
    rules: Arc<Mutex<Rules>>,
    /// Whether there is any rule; requests look at nothing else as long as there is none.
    armed: Arc<AtomicBool>,
    thaw: Arc<Notify>,
    clock: Clock,
    full: DiskFull,
}

fn hit<K: Ord>(of: &mut BTreeMap<K, u64>, key: &K) -> bool {
    of.get_mut(key).map(|n| *n += 1).is_some()
}

impl Faults {
    pub(crate) fn new(clock: Clock, full: DiskFull) -> Self {
        let (rules, armed, thaw) = (Arc::default(), Arc::default(), Arc::default());
        Self { rules, armed, thaw, clock, full }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Rules) -> T) -> T {
        let mut rules = self.rules();
        let out = change(&mut rules);
        self.armed.store(rules.any(), Ordering::Release);
        out
    }

    pub(crate) fn are_armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    pub(crate) fn before(&self, subject: &Subject<'_>) -> Before {
        self.change(|rules| {
            for h in rules.faults.values_mut().filter(|h| h.fault.filter.meets(subject)) {
                let out = match &mut h.fault.action {
                    Action::DropRequest { times } if *times > 0 => {
                        *times -= 1;
                        Before::Drop
                    }
                    Action::Fail { times, error } if *times > 0 => {
                        *times -= 1;
                        Before::Fail(*error)
                    }
                    _ => continue,
                };
                h.hits += 1;
                return out;
            }
            Before::Go
        })
    }

    pub(crate) async fn after(&self, subject: &Subject<'_>) -> After {
        let (delay, after) = self.change(|rules| {
            let mut delay = 0;
            for h in rules.faults.values_mut().filter(|h| h.fault.filter.meets(subject)) {
                match &mut h.fault.action {
                    Action::DelayResponse { ms } => delay += *ms,
                    Action::DropResponseAfterApply { times } if *times > 0 => {
                        *times -= 1;
                        h.hits += 1;
                        return (delay, After::Drop);
                    }
                    _ => continue,
                }
                h.hits += 1;
            }
            (delay, After::Send)
        });
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        after
    }

    /// Returns when the partition is not frozen.
    pub(crate) async fn thawed(&self, topic: &str, partition: i32) {
        loop {
            let thaw = self.thaw.notified();
            if !self.is_frozen(topic, partition) {
                return;
            }
            thaw.await;
        }
    }

    pub(crate) fn is_frozen(&self, topic: &str, partition: i32) -> bool {
        self.are_armed() && hit(&mut self.rules().frozen, &(topic.to_owned(), partition))
    }

    pub(crate) fn markers_held(&self, id: &str) -> bool {
        self.are_armed() && hit(&mut self.rules().held, &id.to_owned())
    }

    pub(crate) fn is_hung(&self, id: &str) -> bool {
        self.are_armed() && hit(&mut self.rules().hung, &id.to_owned())
    }

    pub(crate) fn wants_disconnect(&self, client_id: &str) -> bool {
        self.are_armed() && self.change(|rules| rules.disconnect.remove(client_id).is_some())
    }
}

/// The faults of a running broker. Clones share them.
#[derive(Debug, Clone)]
pub struct FaultHandle {
    node: Arc<Node>,
}

fn not_found(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no {what} of this name"))
}

impl FaultHandle {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    fn faults(&self) -> &Faults {
        &self.node.faults
    }

    /// Arms a fault; its number names it.
    pub fn arm(&self, fault: Fault) -> u64 {
        self.faults().change(|rules| {
            rules.next_id += 1;
            let id = rules.next_id;
            rules.faults.insert(id, Hits { id, fault, hits: 0 });
            id
        })
    }

    pub fn delay_response(&self, filter: Filter, delay: Duration) -> u64 {
        self.arm(Fault { filter, action: Action::DelayResponse { ms: delay.as_millis() as u64 } })
    }

    pub fn drop_response_after_apply(&self, filter: Filter, times: u32) -> u64 {
        self.arm(Fault { filter, action: Action::DropResponseAfterApply { times } })
    }

    pub fn drop_request(&self, filter: Filter, times: u32) -> u64 {
        self.arm(Fault { filter, action: Action::DropRequest { times } })
    }

    /// `error` is Kafka's code.
    pub fn fail_next(&self, filter: Filter, times: u32, error: i16) -> u64 {
        self.arm(Fault { filter, action: Action::Fail { times, error } })
    }

    pub fn list(&self) -> Vec<Hits> {
        self.faults().rules().faults.values().cloned().collect()
    }

    /// What is frozen, held, hung or about to be disconnected.
    pub fn marks(&self) -> Vec<Mark> {
        let rules = self.faults().rules();
        let mark = |kind: &str, name: String, hits: u64| Mark { kind: kind.to_owned(), name, hits };
        let mut found: Vec<Mark> =
            rules.frozen.iter().map(|((t, p), n)| mark("frozen", format!("{t}-{p}"), *n)).collect();
        for (kind, of) in [("markers_held", &rules.held), ("hung", &rules.hung), ("disconnect", &rules.disconnect)] {
            found.extend(of.iter().map(|(name, n)| mark(kind, name.clone(), *n)));
        }
        found
    }

    /// How often a fault has struck; 0 if it was cleared.
    pub fn hits(&self, id: u64) -> u64 {
        self.faults().rules().faults.get(&id).map_or(0, |h| h.hits)
    }

    pub fn clear(&self, id: u64) {
        self.faults().change(|rules| rules.faults.remove(&id));
    }

    /// No faults any more: also thaws, releases markers, frees the disk. The clock stays where it is.
    pub fn clear_all(&self) {
        self.faults().change(|rules| *rules = Rules { next_id: rules.next_id, ..Rules::default() });
        self.faults().full.set(false);
        self.faults().thaw.notify_waiters();
        for p in self.node.topics.all().iter().flat_map(|t| &t.partitions) {
            p.wake();
        }
    }

    /// Produce to the partition waits, fetches find nothing.
    pub fn freeze(&self, topic: &str, partition: i32) {
        self.faults().change(|rules| rules.frozen.insert((topic.to_owned(), partition), 0));
    }

    pub fn thaw(&self, topic: &str, partition: i32) {
        self.faults().change(|rules| rules.frozen.remove(&(topic.to_owned(), partition)));
        self.faults().thaw.notify_waiters();
        if let Some(p) = self.node.topics.partition(topic, partition) {
            p.wake();
        }
    }

    /// As if retention had passed: the log starts at `offset`. Returns the log start.
    pub fn trim(&self, topic: &str, partition: i32, offset: i64) -> io::Result<i64> {
        let t = self.node.topics.get(topic).ok_or_else(|| not_found("topic"))?;
        let p = t.partition(partition).ok_or_else(|| not_found("partition"))?;
        let start = {
            let mut log = p.log();
            let offset = offset.clamp(log.start(), log.next());
            self.node.topics.note_start(t.id, partition, offset)?;
            log.delete_below(offset, self.node.clock.now_ms())?
        };
        p.wake();
        Ok(start)
    }

    /// As an unclean election: records from `offset` on are lost, under a new leader epoch. Returns the log end.
    pub fn truncate(&self, topic: &str, partition: i32, offset: i64) -> io::Result<i64> {
        let t = self.node.topics.get(topic).ok_or_else(|| not_found("topic"))?;
        let p = t.partition(partition).ok_or_else(|| not_found("partition"))?;
        let end = {
            let mut log = p.log();
            log.truncate(offset, self.node.clock.now_ms())?;
            log.next()
        };
        self.node.topics.begin_epoch(&t, p)?;
        Ok(end)
    }

    /// As if the leader had changed. Returns the new epoch.
    pub fn move_leader_epoch(&self, topic: &str, partition: i32) -> io::Result<i32> {
        let t = self.node.topics.get(topic).ok_or_else(|| not_found("topic"))?;
        let p = t.partition(partition).ok_or_else(|| not_found("partition"))?;
        self.node.topics.begin_epoch(&t, p)
    }

    /// The open transaction of this id never ends: its end requests are told to come again, no timeout aborts it.
    pub fn hang_transaction(&self, id: &str) {
        self.faults().change(|rules| rules.hung.insert(id.to_owned(), 0));
    }

    pub fn release_transaction(&self, id: &str) {
        self.faults().change(|rules| rules.hung.remove(id));
    }

    /// The end of a transaction is decided and answered, but its markers are not written.
    pub fn hold_markers(&self, id: &str) {
        self.faults().change(|rules| rules.held.insert(id.to_owned(), 0));
    }

    /// The markers follow at the next look, within a second.
    pub fn release_markers(&self, id: &str) {
        self.faults().change(|rules| rules.held.remove(id));
    }

    /// As if the timeout had passed: aborts the open transaction and fences its producer.
    pub async fn expire_transaction(&self, id: &str) -> io::Result<()> {
        let (node, id) = (Arc::clone(&self.node), id.to_owned());
        let expiry = async move { node.transactions.expire(&id, node.clock.now_ms()).await };
        self.node.runtime.spawn(expiry).await?.map_err(io::Error::other)
    }

    /// Deletes the topic and makes it again with the same partitions and configs, and another id.
    pub fn recreate_topic(&self, topic: &str) -> io::Result<()> {
        let t = self.node.topics.get(topic).ok_or_else(|| not_found("topic"))?;
        let refused = |(e, why): crate::topics::Refused| io::Error::other(format!("{e}: {}", why.unwrap_or_default()));
        self.node.delete_topic(topic).map_err(refused)?;
        let partitions = t.partitions.len() as i32;
        self.node.topics.create(topic, partitions, t.config.clone(), false).map_err(refused)?;
        Ok(())
    }

    /// Adds partitions up to `partitions`.
    pub fn grow(&self, topic: &str, partitions: i32) -> io::Result<()> {
        let refused = |(e, why): crate::topics::Refused| io::Error::other(format!("{e}: {}", why.unwrap_or_default()));
        self.node.topics.grow(topic, partitions, false).map(|_| ()).map_err(refused)
    }

    /// Closes the connection of a client after its next request.
    pub fn disconnect(&self, client_id: &str) {
        self.faults().change(|rules| rules.disconnect.insert(client_id.to_owned(), 0));
    }

    /// Writes of records and journals fail as on a full disk.
    pub fn disk_full(&self, on: bool) {
        self.faults().full.set(on);
    }

    /// Moves the broker's clock; it goes on from there. Sessions, transactions and retention follow it.
    pub fn set_clock(&self, now_ms: i64) {
        self.faults().clock.set_ms(now_ms);
    }

    /// The broker's time.
    pub fn clock_ms(&self) -> i64 {
        self.faults().clock.now_ms()
    }
}

/// For filters by name.
pub(super) fn is_api(name: &str) -> bool {
    ApiKey::iter().any(|k| format!("{k:?}").eq_ignore_ascii_case(name))
}
