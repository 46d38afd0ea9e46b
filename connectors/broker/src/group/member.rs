//! A member of a consumer group.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::message::{Join, Token};

/// (name, metadata), the preferred first.
pub(crate) type Protocols = Vec<(String, Bytes)>;

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_ms: i64,
    pub(crate) rebalance_ms: i64,
    pub(crate) protocols: Protocols,
    pub(crate) assignment: Bytes,
    /// When its session ends unless it is heard of.
    pub(crate) deadline_ms: i64,
    /// Its request that waits for the others.
    pub(crate) joining: Option<Token>,
    pub(crate) syncing: Option<Token>,
}

impl Member {
    pub(crate) fn new(id: String, join: Join, token: Token, now_ms: i64) -> Self {
        Self {
            id,
            instance_id: join.instance_id,
            client_id: join.client_id,
            client_host: join.client_host,
            session_ms: join.session_ms,
            rebalance_ms: join.rebalance_ms,
            protocols: join.protocols,
            assignment: Bytes::new(),
            deadline_ms: now_ms + join.session_ms,
            joining: Some(token),
            syncing: None,
        }
    }

    pub(crate) fn seen(&mut self, now_ms: i64) {
        self.deadline_ms = now_ms + self.session_ms;
    }

    pub(crate) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols.iter().find(|(name, _)| name == protocol).map(|(_, m)| m.clone()).unwrap_or_default()
    }
}

/// What of a member outlives a restart.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    id: String,
    instance_id: Option<String>,
    client_id: String,
    client_host: String,
    session_ms: i64,
    rebalance_ms: i64,
    protocols: Vec<(String, Vec<u8>)>,
    assignment: Vec<u8>,
}

impl Stored {
    pub(crate) fn of(m: &Member) -> Self {
        Self {
            id: m.id.clone(),
            instance_id: m.instance_id.clone(),
            client_id: m.client_id.clone(),
            client_host: m.client_host.clone(),
            session_ms: m.session_ms,
            rebalance_ms: m.rebalance_ms,
            protocols: m.protocols.iter().map(|(n, b)| (n.clone(), b.to_vec())).collect(),
            assignment: m.assignment.to_vec(),
        }
    }

    pub(crate) fn restore(self, now_ms: i64) -> Member {
        Member {
            id: self.id,
            instance_id: self.instance_id,
            client_id: self.client_id,
            client_host: self.client_host,
            session_ms: self.session_ms,
            rebalance_ms: self.rebalance_ms,
            protocols: self.protocols.into_iter().map(|(n, b)| (n, b.into())).collect(),
            assignment: self.assignment.into(),
            deadline_ms: now_ms + self.session_ms,
            joining: None,
            syncing: None,
        }
    }
}
