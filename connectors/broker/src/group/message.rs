//! What members ask and what they are told, apart from the wire.

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::member::Protocols;

/// Names a waiting request.
pub(crate) type Token = u64;

#[derive(Debug, Clone)]
pub(crate) struct Join {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_ms: i64,
    pub(crate) rebalance_ms: i64,
    pub(crate) protocol_type: String,
    pub(crate) protocols: Protocols,
    /// The client can come again with an id that it is given (version 4).
    pub(crate) two_steps: bool,
    /// The client understands a leader that need not assign (version 9).
    pub(crate) may_skip: bool,
    /// For a member without id.
    pub(crate) new_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) error: Option<ResponseError>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: String,
    pub(crate) member_id: String,
    pub(crate) skip_assignment: bool,
    /// (id, instance, metadata); only for the leader.
    pub(crate) members: Vec<(String, Option<String>, Bytes)>,
}

impl Joined {
    pub(crate) fn error(error: ResponseError, member_id: &str) -> Self {
        Self {
            error: Some(error),
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            member_id: member_id.to_owned(),
            skip_assignment: false,
            members: Vec::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Sync {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) assignments: Vec<(String, Bytes)>,
}

pub(crate) type Synced = Result<Bytes, ResponseError>;

/// An answer to a request that may have waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Join(Token, Joined),
    Sync(Token, Synced),
}
