//! Consumer groups: the registry of groups, their journal, and the requests that wait in them. Membership is decided in `state.rs`, offsets are kept in
//! `offsets.rs`. Groups outlive a restart with members and generation, so that clients go on without a rebalance.

pub(crate) mod member;
pub(crate) mod message;
pub(crate) mod offsets;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use self::{
    member::Stored,
    message::{Join, Joined, Reply, Sync, Synced, Token},
    offsets::{Committed, Offsets},
    state::{Group, Phase},
};
use crate::{
    clock::Clock,
    faults::DiskFull,
    journal::{Journal, Ticket},
    log::batch::Marker,
};

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Members {
        group: String,
        generation: i32,
        protocol_type: Option<String>,
        protocol: Option<String>,
        leader: Option<String>,
        members: Vec<Stored>,
    },
    /// With a producer: offsets of its open transaction.
    Offsets {
        group: String,
        producer: Option<i64>,
        offsets: Vec<(String, i32, Committed)>,
    },
    TransactionEnded {
        producer: i64,
        groups: Vec<String>,
        marker: Marker,
    },
    OffsetsDeleted {
        group: String,
        partitions: Vec<(String, i32)>,
    },
    /// Offsets of these topics are gone from all groups.
    TopicsDeleted {
        topics: BTreeSet<String>,
    },
    Deleted {
        group: String,
    },
}

/// One group with its offsets.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) group: Group,
    pub(crate) offsets: Offsets,
}

#[derive(Debug)]
enum Waiter {
    Join(oneshot::Sender<Joined>),
    Sync(oneshot::Sender<Synced>),
}

#[derive(Debug, Default)]
struct Live {
    groups: BTreeMap<String, Held>,
    waiters: HashMap<Token, Waiter>,
    next_token: Token,
    /// The journal lacks something that the groups have.
    rewrite: bool,
}

#[derive(Debug)]
pub(crate) struct Groups {
    journal: Journal,
    live: Mutex<Live>,
    clock: Clock,
}

fn storage(e: &io::Error) -> ResponseError {
    tracing::error!(error = %e, "the group journal cannot be written");
    ResponseError::CoordinatorNotAvailable
}

impl Groups {
    pub(crate) fn open(data: &Path, sync: bool, clock: Clock, full: DiskFull) -> io::Result<Self> {
        let (journal, entries) = Journal::open(data, "groups", sync, full)?;
        let mut groups = BTreeMap::new();
        for e in entries {
            replay(&mut groups, e, clock.now_ms());
        }
        Ok(Self { journal, live: Mutex::new(Live { groups, ..Live::default() }), clock })
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // The state machine is pure and changes whole; a panic elsewhere does not spoil it.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn durable(&self, ticket: Ticket) -> Result<(), ResponseError> {
        self.journal.durable(ticket).await.map_err(|e| storage(&e))
    }

    #[cfg(test)]
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Sends answers and journals what has to outlive a restart. Lost waiters are clients that have gone.
    fn settle(&self, live: &mut Live, name: &str, replies: Vec<Reply>) {
        if let Some(held) = live.groups.get_mut(name).filter(|h| h.group.changed) {
            held.group.changed = false;
            // A group that is about to assign is journaled with its assignments.
            if held.group.phase != Phase::Completing
                && let Err(e) = self.journal.append(&[members_entry(name, &held.group)])
            {
                tracing::error!(group = name, error = %e, "the members of a group cannot be journaled");
            }
        }
        for reply in replies {
            let (token, waiter) = match &reply {
                Reply::Join(t, _) | Reply::Sync(t, _) => (*t, live.waiters.remove(t)),
            };
            let gone = match (reply, waiter) {
                (Reply::Join(_, answer), Some(Waiter::Join(to))) => to.send(answer).is_err(),
                (Reply::Sync(_, answer), Some(Waiter::Sync(to))) => to.send(answer).is_err(),
                _ => true,
            };
            if gone {
                tracing::debug!(group = name, token, "an answer has nobody to go to");
            }
        }
    }

    pub(crate) fn join(&self, name: &str, join: Join) -> oneshot::Receiver<Joined> {
        let (to, answer) = oneshot::channel();
        let mut live = self.live();
        live.next_token += 1;
        let token = live.next_token;
        live.waiters.insert(token, Waiter::Join(to));
        let now = self.clock.now_ms();
        let known = live.groups.contains_key(name);
        let replies = if !known && !join.member_id.is_empty() {
            // An id that we never gave: no group is made for it.
            Group::default().join(token, join, now)
        } else {
            live.groups.entry(name.to_owned()).or_default().group.join(token, join, now)
        };
        self.settle(&mut live, name, replies);
        answer
    }

    pub(crate) fn sync(&self, name: &str, sync: Sync) -> oneshot::Receiver<Synced> {
        let (to, answer) = oneshot::channel();
        let mut live = self.live();
        live.next_token += 1;
        let token = live.next_token;
        live.waiters.insert(token, Waiter::Sync(to));
        let now = self.clock.now_ms();
        let replies = match live.groups.get_mut(name) {
            Some(held) => held.group.sync(token, sync, now),
            None => vec![Reply::Sync(token, Err(ResponseError::UnknownMemberId))],
        };
        self.settle(&mut live, name, replies);
        answer
    }

    pub(crate) fn heartbeat(
        &self,
        name: &str,
        id: &str,
        instance: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        let now = self.clock.now_ms();
        let mut live = self.live();
        let held = live.groups.get_mut(name).ok_or(ResponseError::UnknownMemberId)?;
        held.group.heartbeat(id, instance, generation, now)
    }

    pub(crate) fn leave(&self, name: &str, id: &str, instance: Option<&str>) -> Result<(), ResponseError> {
        let now = self.clock.now_ms();
        let mut live = self.live();
        let mut replies = Vec::new();
        let held = live.groups.get_mut(name).ok_or(ResponseError::UnknownMemberId)?;
        let outcome = held.group.leave(id, instance, now, &mut replies);
        self.settle(&mut live, name, replies);
        outcome
    }

    /// May a member (or, with a negative generation, a client without membership) commit offsets?
    fn check_commit(
        held: Option<&mut Held>,
        (id, instance, generation): (&str, Option<&str>, i32),
        transactional: bool,
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        let Some(held) = held else {
            return if generation < 0 { Ok(()) } else { Err(ResponseError::IllegalGeneration) };
        };
        // Not from a member of a generation, whoever it says it is.
        if generation < 0 && held.group.phase == Phase::Empty {
            return Ok(());
        }
        if generation < 0 && id.is_empty() && instance.is_none() {
            return Err(ResponseError::UnknownMemberId);
        }
        match held.group.heartbeat(id, instance, generation, now_ms) {
            // Members commit what they have before they join again.
            Err(ResponseError::RebalanceInProgress) => Ok(()),
            Ok(()) if held.group.phase == Phase::Completing && !transactional => {
                Err(ResponseError::RebalanceInProgress)
            }
            other => other,
        }
    }

    /// Offsets of a client, or of a transaction if `producer` is set; `allowed` is asked under the lock.
    pub(crate) fn commit(
        &self,
        name: &str,
        (id, instance, generation): (&str, Option<&str>, i32),
        producer: Option<i64>,
        offsets: Vec<(String, i32, Committed)>,
        allowed: impl FnOnce() -> Result<(), ResponseError>,
    ) -> Result<Ticket, ResponseError> {
        let now = self.clock.now_ms();
        let mut live = self.live();
        // A producer that does not know its group's generation (before version 3) is fenced by its epoch alone.
        if producer.is_none() || generation >= 0 || !id.is_empty() {
            let who = (id, instance, generation);
            Self::check_commit(live.groups.get_mut(name), who, producer.is_some(), now)?;
        }
        allowed()?;
        let entry = Entry::Offsets { group: name.to_owned(), producer, offsets };
        let ticket = self.journal.append(std::slice::from_ref(&entry)).map_err(|e| storage(&e))?;
        replay(&mut live.groups, entry, now);
        Ok(ticket)
    }

    /// A transaction has ended: its offsets count or go. Nothing is written, and there is nothing to wait for, if it has none.
    pub(crate) fn end_transaction(
        &self,
        producer: i64,
        groups: &BTreeSet<String>,
        marker: Marker,
    ) -> io::Result<Ticket> {
        if groups.is_empty() {
            return Ok(Ticket::default());
        }
        let mut live = self.live();
        let entry = Entry::TransactionEnded { producer, groups: groups.iter().cloned().collect(), marker };
        let ticket = self.journal.append(std::slice::from_ref(&entry))?;
        replay(&mut live.groups, entry, self.clock.now_ms());
        Ok(ticket)
    }

    /// (group, producer) of all offsets that wait for the end of a transaction.
    pub(crate) fn open_producers(&self) -> Vec<(String, i64)> {
        let live = self.live();
        let of = |(name, held): (&String, &Held)| {
            held.offsets.pending.keys().map(|id| (name.clone(), *id)).collect::<Vec<_>>()
        };
        live.groups.iter().flat_map(of).collect()
    }

    /// Looks at one group.
    pub(crate) fn with<T>(&self, name: &str, look: impl FnOnce(Option<&Held>) -> T) -> T {
        look(self.live().groups.get(name))
    }

    /// (group, protocol type, phase) of all groups.
    pub(crate) fn list(&self) -> Vec<(String, String, Phase)> {
        let live = self.live();
        let row =
            |(n, h): (&String, &Held)| (n.clone(), h.group.protocol_type.clone().unwrap_or_default(), h.group.phase);
        live.groups.iter().map(row).collect()
    }

    pub(crate) fn delete(&self, name: &str) -> Result<Ticket, ResponseError> {
        let mut live = self.live();
        let held = live.groups.get(name).ok_or(ResponseError::GroupIdNotFound)?;
        if !held.group.is_unused() {
            return Err(ResponseError::NonEmptyGroup);
        }
        let entry = Entry::Deleted { group: name.to_owned() };
        let ticket = self.journal.append(std::slice::from_ref(&entry)).map_err(|e| storage(&e))?;
        replay(&mut live.groups, entry, self.clock.now_ms());
        Ok(ticket)
    }

    /// Forgets offsets, except of topics that a member has subscribed to. Returns those.
    pub(crate) fn delete_offsets(
        &self,
        name: &str,
        partitions: Vec<(String, i32)>,
    ) -> Result<(Ticket, BTreeSet<String>), ResponseError> {
        let mut live = self.live();
        let held = live.groups.get(name).ok_or(ResponseError::GroupIdNotFound)?;
        let subscribed = subscriptions(&held.group);
        let partitions = partitions.into_iter().filter(|(t, _)| !subscribed.contains(t)).collect();
        let entry = Entry::OffsetsDeleted { group: name.to_owned(), partitions };
        let ticket = self.journal.append(std::slice::from_ref(&entry)).map_err(|e| storage(&e))?;
        replay(&mut live.groups, entry, self.clock.now_ms());
        Ok((ticket, subscribed))
    }

    /// Topics are gone: whoever gets their names next begins with records that no group has seen.
    pub(crate) fn forget_topics(&self, gone: impl Fn(&str) -> bool) -> Ticket {
        let mut live = self.live();
        let topics: BTreeSet<String> =
            live.groups.values().flat_map(|h| h.offsets.topics()).filter(|t| gone(t)).map(str::to_owned).collect();
        if topics.is_empty() {
            return Ticket::default();
        }
        let entry = Entry::TopicsDeleted { topics };
        let ticket = self.journal.append(std::slice::from_ref(&entry)).unwrap_or_else(|e| {
            // The topics are gone all the same. A whole new journal says so as soon as one can be written.
            tracing::error!(error = %e, "that offsets of deleted topics are gone cannot be journaled yet");
            live.rewrite = true;
            Ticket::default()
        });
        replay(&mut live.groups, entry, self.clock.now_ms());
        ticket
    }

    /// Time passes in all groups.
    pub(crate) fn tick(&self) {
        let now = self.clock.now_ms();
        let mut live = self.live();
        let names: Vec<String> = live.groups.keys().cloned().collect();
        for name in names {
            let replies = live.groups.get_mut(&name).map(|h| h.group.tick(now)).unwrap_or_default();
            self.settle(&mut live, &name, replies);
        }
        live.groups.retain(|_, h| !h.group.is_unused() || !h.offsets.is_empty() || h.group.generation > 0);
        if live.rewrite || self.journal.wants_snapshot() {
            let entries: Vec<Entry> = live.groups.iter().flat_map(|(n, h)| snapshot(n, h)).collect();
            match self.journal.snapshot(entries.into_iter()) {
                Ok(()) => live.rewrite = false,
                Err(e) => tracing::warn!(error = %e, "the group journal cannot be rewritten"),
            }
        }
    }
}

fn members_entry(name: &str, g: &Group) -> Entry {
    Entry::Members {
        group: name.to_owned(),
        generation: g.generation,
        protocol_type: g.protocol_type.clone(),
        protocol: g.protocol.clone(),
        leader: g.leader.clone(),
        members: g.members.values().map(Stored::of).collect(),
    }
}

fn snapshot(name: &str, held: &Held) -> Vec<Entry> {
    let list = |o: &offsets::ByPartition| o.iter().map(|((t, p), c)| (t.clone(), *p, c.clone())).collect();
    let mut out = vec![members_entry(name, &held.group)];
    out.push(Entry::Offsets { group: name.to_owned(), producer: None, offsets: list(&held.offsets.committed) });
    for (producer, o) in &held.offsets.pending {
        out.push(Entry::Offsets { group: name.to_owned(), producer: Some(*producer), offsets: list(o) });
    }
    out
}

fn replay(groups: &mut BTreeMap<String, Held>, entry: Entry, now_ms: i64) {
    match entry {
        Entry::Members { group, generation, protocol_type, protocol, leader, members } => {
            let members = members.into_iter().map(|m| m.restore(now_ms)).collect();
            groups.entry(group).or_default().group =
                Group::restore(generation, protocol_type, protocol, leader, members);
        }
        Entry::Offsets { group, producer, offsets } => {
            groups.entry(group).or_default().offsets.commit(producer, offsets)
        }
        Entry::TransactionEnded { producer, groups: names, marker } => {
            for name in names {
                if let Some(held) = groups.get_mut(&name) {
                    held.offsets.end(producer, marker);
                }
            }
        }
        Entry::OffsetsDeleted { group, partitions } => {
            if let Some(held) = groups.get_mut(&group) {
                held.offsets.committed.retain(|key, _| !partitions.contains(key));
            }
        }
        Entry::TopicsDeleted { topics } => {
            for held in groups.values_mut() {
                held.offsets.forget(&topics);
            }
        }
        Entry::Deleted { group } => {
            groups.remove(&group);
        }
    }
}

/// Topics that members of a `consumer` group have subscribed to, as far as their metadata can be read.
fn subscriptions(group: &Group) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if group.protocol_type.as_deref() != Some("consumer") {
        return found;
    }
    for member in group.members.values() {
        let metadata = member.metadata(group.protocol.as_deref().unwrap_or_default());
        // version, number of topics, then length and name of each
        let Some((count, mut rest)) = metadata.get(2..).and_then(|b| b.split_first_chunk::<4>()) else { continue };
        for _ in 0..u32::from_be_bytes(*count).min(100_000) {
            let Some((length, tail)) = rest.split_first_chunk::<2>() else { break };
            let Some((name, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length))) else { break };
            found.extend(std::str::from_utf8(name).map(str::to_owned));
            rest = tail;
        }
    }
    found
}
