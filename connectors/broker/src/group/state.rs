//! One classic consumer group as a pure state machine: a request and the time give answers, to this request or to earlier ones that waited.
//!
//! ```text
//! Empty --join--> Preparing (members join) --all there or time over--> Completing (the leader assigns) --sync of the leader--> Stable
//!    ^                ^___________________________ a member joins, leaves, changes or goes silent ________________________________|
//! ```
//! Invariants: the generation rises with every completed join; all members of a generation get the same protocol; every waiting request is answered.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::{
    member::Member,
    message::{Join, Joined, Reply, Sync, Token},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl Phase {
    /// Kafka's word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing => "PreparingRebalance",
            Self::Completing => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) phase: Phase,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) members: BTreeMap<String, Member>,
    instances: HashMap<String, String>,
    /// Ids that were given out and have not come back, with their deadlines.
    pending: BTreeMap<String, i64>,
    /// When the current phase stops waiting for members.
    deadline: i64,
    /// Generation, members or assignments differ from what was journaled.
    pub(crate) changed: bool,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::new(),
            pending: BTreeMap::new(),
            deadline: 0,
            changed: false,
        }
    }
}

impl Group {
    /// As it was before a restart; members have their whole session to come back.
    pub(crate) fn restore(
        generation: i32,
        protocol_type: Option<String>,
        protocol: Option<String>,
        leader: Option<String>,
        members: Vec<Member>,
    ) -> Self {
        let instances = members.iter().filter_map(|m| m.instance_id.clone().map(|i| (i, m.id.clone()))).collect();
        let phase = if members.is_empty() { Phase::Empty } else { Phase::Stable };
        let members = members.into_iter().map(|m| (m.id.clone(), m)).collect();
        Self { phase, generation, protocol_type, protocol, leader, members, instances, ..Self::default() }
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty()
    }

    pub(crate) fn join(&mut self, token: Token, join: Join, now_ms: i64) -> Vec<Reply> {
        let mut out = Vec::new();
        if let Err(error) = self.try_join(token, join.clone(), now_ms, &mut out) {
            let id = if error == ResponseError::MemberIdRequired { &join.new_id } else { &join.member_id };
            out.push(Reply::Join(token, Joined::error(error, id)));
        }
        out
    }

    fn try_join(&mut self, token: Token, join: Join, now_ms: i64, out: &mut Vec<Reply>) -> Result<(), ResponseError> {
        if !self.members.is_empty() && !self.agrees(&join) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        let known_instance = join.instance_id.as_ref().and_then(|i| self.instances.get(i)).cloned();
        if join.member_id.is_empty() {
            if let Some(old) = known_instance {
                return self.rejoin_static(token, join, &old, now_ms, out);
            }
            if join.two_steps && join.instance_id.is_none() {
                self.pending.insert(join.new_id.clone(), now_ms + join.session_ms);
                return Err(ResponseError::MemberIdRequired);
            }
            let id = join.new_id.clone();
            self.add(id, token, join, now_ms, out);
            return Ok(());
        }
        if known_instance.is_some_and(|id| id != join.member_id) {
            return Err(ResponseError::FencedInstanceId);
        }
        if self.pending.remove(&join.member_id).is_some() {
            let id = join.member_id.clone();
            self.add(id, token, join, now_ms, out);
            return Ok(());
        }
        let id = join.member_id.clone();
        let Some(member) = self.members.get_mut(&id) else { return Err(ResponseError::UnknownMemberId) };
        let same = member.protocols == join.protocols;
        let is_leader = self.leader.as_deref() == Some(&*id);
        member.seen(now_ms);
        match self.phase {
            Phase::Empty => return Err(ResponseError::UnknownMemberId),
            // It lost the answer.
            Phase::Completing if same => out.push(Reply::Join(token, self.joined(&id, false))),
            Phase::Stable if same && !is_leader => out.push(Reply::Join(token, self.joined(&id, false))),
            Phase::Preparing | Phase::Completing | Phase::Stable => {
                self.update(&id, token, join, out);
                self.rebalance(now_ms, out);
            }
        }
        Ok(())
    }

    fn agrees(&self, join: &Join) -> bool {
        let same_type = self.protocol_type.as_deref() == Some(&*join.protocol_type);
        same_type && join.protocols.iter().any(|(name, _)| self.members.values().all(|m| m.supports(name)))
    }

    fn add(&mut self, id: String, token: Token, join: Join, now_ms: i64, out: &mut Vec<Reply>) {
        self.protocol_type = Some(join.protocol_type.clone());
        if let Some(i) = &join.instance_id {
            self.instances.insert(i.clone(), id.clone());
        }
        self.members.insert(id.clone(), Member::new(id, join, token, now_ms));
        self.rebalance(now_ms, out);
    }

    fn update(&mut self, id: &str, token: Token, join: Join, out: &mut Vec<Reply>) {
        if let Some(m) = self.members.get_mut(id) {
            if let Some(old) = m.joining.replace(token) {
                out.push(Reply::Join(old, Joined::error(ResponseError::UnknownMemberId, id)));
            }
            m.protocols = join.protocols;
            m.session_ms = join.session_ms;
            m.rebalance_ms = join.rebalance_ms;
        }
    }

    /// A static member has restarted: it takes the place of its former self, and nobody moves if nothing else changed.
    fn rejoin_static(
        &mut self,
        token: Token,
        join: Join,
        old_id: &str,
        now_ms: i64,
        out: &mut Vec<Reply>,
    ) -> Result<(), ResponseError> {
        let Some(mut member) = self.members.remove(old_id) else { return Err(ResponseError::UnknownMemberId) };
        if let Some(t) = member.joining.take() {
            out.push(Reply::Join(t, Joined::error(ResponseError::FencedInstanceId, old_id)));
        }
        if let Some(t) = member.syncing.take() {
            out.push(Reply::Sync(t, Err(ResponseError::FencedInstanceId)));
        }
        let (id, former) = (join.new_id.clone(), self.leader.clone());
        let was_leader = former.as_deref() == Some(old_id);
        if was_leader {
            self.leader = Some(id.clone());
        }
        member.id.clone_from(&id);
        member.client_id.clone_from(&join.client_id);
        member.client_host.clone_from(&join.client_host);
        member.protocols.clone_from(&join.protocols);
        (member.session_ms, member.rebalance_ms) = (join.session_ms, join.rebalance_ms);
        member.seen(now_ms);
        self.instances.extend(join.instance_id.clone().map(|i| (i, id.clone())));
        self.members.insert(id.clone(), member);
        self.changed = true;
        if self.phase == Phase::Stable && self.vote() == self.protocol {
            let mut answer = self.joined(&id, was_leader && join.may_skip);
            if !join.may_skip {
                // An old client that is told that it leads would assign anew. So it hears of its former self.
                answer.leader = former.unwrap_or_default();
                answer.members.clear();
            }
            out.push(Reply::Join(token, answer));
            return Ok(());
        }
        self.update(&id, token, join, out);
        self.rebalance(now_ms, out);
        Ok(())
    }

    /// Everybody has to join again.
    fn rebalance(&mut self, now_ms: i64, out: &mut Vec<Reply>) {
        if self.phase != Phase::Preparing {
            self.phase = Phase::Preparing;
            self.deadline = now_ms + self.members.values().map(|m| m.rebalance_ms).max().unwrap_or(0);
            for m in self.members.values_mut() {
                m.assignment = Bytes::new();
                if let Some(t) = m.syncing.take() {
                    out.push(Reply::Sync(t, Err(ResponseError::RebalanceInProgress)));
                }
            }
        }
        self.complete_join_if_all(now_ms, out);
    }

    fn complete_join_if_all(&mut self, now_ms: i64, out: &mut Vec<Reply>) {
        let all = self.members.values().all(|m| m.joining.is_some()) && self.pending.is_empty();
        if self.phase == Phase::Preparing && all {
            self.complete_join(now_ms, out);
        }
    }

    /// The members that have joined are the next generation. Static members keep their place until their session ends.
    fn complete_join(&mut self, now_ms: i64, out: &mut Vec<Reply>) {
        let gone: Vec<String> = self
            .members
            .values()
            .filter(|m| m.joining.is_none() && m.instance_id.is_none())
            .map(|m| m.id.clone())
            .collect();
        for id in gone {
            self.forget(&id, out);
        }
        self.generation += 1;
        self.changed = true;
        if self.members.is_empty() {
            self.phase = Phase::Empty;
            self.protocol = None;
            self.leader = None;
            return;
        }
        self.protocol = self.vote();
        let leader_joined = self.leader.as_ref().and_then(|l| self.members.get(l)).is_some_and(|m| m.joining.is_some());
        if !leader_joined {
            let first = self.members.values().find(|m| m.joining.is_some()).or(self.members.values().next());
            self.leader = first.map(|m| m.id.clone());
        }
        self.phase = Phase::Completing;
        self.deadline = now_ms + self.members.values().map(|m| m.rebalance_ms).max().unwrap_or(0);
        let joined: Vec<String> = self.members.keys().cloned().collect();
        for id in joined {
            let answer = self.joined(&id, false);
            if let Some(m) = self.members.get_mut(&id) {
                m.seen(now_ms);
                out.extend(m.joining.take().map(|t| Reply::Join(t, answer)));
            }
        }
    }

    /// The protocol that most members name first among those that all support.
    fn vote(&self) -> Option<String> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for m in self.members.values() {
            let first = m.protocols.iter().find(|(name, _)| self.members.values().all(|m| m.supports(name)));
            if let Some((name, _)) = first {
                *votes.entry(name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, n)| *n).map(|(name, _)| name.to_owned())
    }

    fn joined(&self, id: &str, skip_assignment: bool) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = if leader == id {
            self.members.values().map(|m| (m.id.clone(), m.instance_id.clone(), m.metadata(protocol))).collect()
        } else {
            Vec::new()
        };
        Joined {
            error: None,
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            member_id: id.to_owned(),
            skip_assignment,
            members,
        }
    }

    pub(crate) fn sync(&mut self, token: Token, sync: Sync, now_ms: i64) -> Vec<Reply> {
        let mut out = Vec::new();
        if let Err(e) = self.try_sync(token, sync, now_ms, &mut out) {
            out.push(Reply::Sync(token, Err(e)));
        }
        out
    }

    fn try_sync(&mut self, token: Token, sync: Sync, now_ms: i64, out: &mut Vec<Reply>) -> Result<(), ResponseError> {
        self.check_member(&sync.member_id, sync.instance_id.as_deref(), sync.generation)?;
        let differs = |asked: &Option<String>, ours: &Option<String>| asked.is_some() && asked != ours;
        if differs(&sync.protocol_type, &self.protocol_type) || differs(&sync.protocol, &self.protocol) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        let is_leader = self.leader.as_deref() == Some(&*sync.member_id);
        let Some(member) = self.members.get_mut(&sync.member_id) else { return Err(ResponseError::UnknownMemberId) };
        member.seen(now_ms);
        match self.phase {
            Phase::Empty => Err(ResponseError::UnknownMemberId),
            Phase::Preparing => Err(ResponseError::RebalanceInProgress),
            Phase::Stable => {
                out.push(Reply::Sync(token, Ok(member.assignment.clone())));
                Ok(())
            }
            Phase::Completing => {
                if let Some(old) = member.syncing.replace(token) {
                    out.push(Reply::Sync(old, Err(ResponseError::UnknownMemberId)));
                }
                if is_leader {
                    self.assign(sync.assignments, now_ms, out);
                }
                Ok(())
            }
        }
    }

    fn assign(&mut self, assignments: Vec<(String, Bytes)>, now_ms: i64, out: &mut Vec<Reply>) {
        for (id, assignment) in assignments {
            if let Some(m) = self.members.get_mut(&id) {
                m.assignment = assignment;
            }
        }
        self.phase = Phase::Stable;
        self.changed = true;
        for m in self.members.values_mut() {
            if let Some(t) = m.syncing.take() {
                m.seen(now_ms);
                out.push(Reply::Sync(t, Ok(m.assignment.clone())));
            }
        }
    }

    /// Is this a member of this generation?
    pub(crate) fn check_member(&self, id: &str, instance: Option<&str>, generation: i32) -> Result<(), ResponseError> {
        if let Some(instance) = instance {
            match self.instances.get(instance) {
                None => return Err(ResponseError::UnknownMemberId),
                Some(current) if current != id => return Err(ResponseError::FencedInstanceId),
                Some(_) => {}
            }
        }
        if !self.members.contains_key(id) {
            return Err(ResponseError::UnknownMemberId);
        }
        if generation != self.generation { Err(ResponseError::IllegalGeneration) } else { Ok(()) }
    }

    pub(crate) fn heartbeat(
        &mut self,
        id: &str,
        instance: Option<&str>,
        generation: i32,
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        self.check_member(id, instance, generation)?;
        if let Some(m) = self.members.get_mut(id) {
            m.seen(now_ms);
        }
        if self.phase == Phase::Preparing { Err(ResponseError::RebalanceInProgress) } else { Ok(()) }
    }

    /// A member goes by itself. Static members may be named by their instance alone.
    pub(crate) fn leave(
        &mut self,
        id: &str,
        instance: Option<&str>,
        now_ms: i64,
        out: &mut Vec<Reply>,
    ) -> Result<(), ResponseError> {
        let id = match instance {
            Some(instance) => {
                let current = self.instances.get(instance).ok_or(ResponseError::UnknownMemberId)?.clone();
                if !id.is_empty() && id != current {
                    return Err(ResponseError::FencedInstanceId);
                }
                current
            }
            None => id.to_owned(),
        };
        if self.pending.remove(&id).is_some() {
            self.complete_join_if_all(now_ms, out);
            return Ok(());
        }
        if !self.members.contains_key(&id) {
            return Err(ResponseError::UnknownMemberId);
        }
        self.forget(&id, out);
        self.rebalance(now_ms, out);
        Ok(())
    }

    fn forget(&mut self, id: &str, out: &mut Vec<Reply>) {
        let Some(m) = self.members.remove(id) else { return };
        if let Some(i) = m.instance_id {
            self.instances.remove(&i);
        }
        out.extend(m.joining.map(|t| Reply::Join(t, Joined::error(ResponseError::UnknownMemberId, id))));
        out.extend(m.syncing.map(|t| Reply::Sync(t, Err(ResponseError::UnknownMemberId))));
    }

    /// Time passes: silent members go, phases stop waiting.
    pub(crate) fn tick(&mut self, now_ms: i64) -> Vec<Reply> {
        let mut out = Vec::new();
        let waiting = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now_ms);
        let silent: Vec<String> = self
            .members
            .values()
            // Who waits for us is not silent.
            .filter(|m| m.joining.is_none() && m.syncing.is_none() && m.deadline_ms <= now_ms)
            .map(|m| m.id.clone())
            .collect();
        for id in &silent {
            self.forget(id, &mut out);
        }
        if !silent.is_empty() {
            self.rebalance(now_ms, &mut out);
        } else if self.pending.len() < waiting {
            self.complete_join_if_all(now_ms, &mut out);
        }
        if now_ms >= self.deadline {
            match self.phase {
                Phase::Preparing => self.complete_join(now_ms, &mut out),
                Phase::Completing => {
                    let late: Vec<String> =
                        self.members.values().filter(|m| m.syncing.is_none()).map(|m| m.id.clone()).collect();
                    for id in late {
                        self.forget(&id, &mut out);
                    }
                    self.rebalance(now_ms, &mut out);
                }
                Phase::Empty | Phase::Stable => {}
            }
        }
        out
    }
}
