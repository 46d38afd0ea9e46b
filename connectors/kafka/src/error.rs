//! Errors of the crate, and the one place where librdkafka's codes become Millstream's error kinds.

use millstream_types::{Classified, ErrorKind, LogError};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode as Code};

/// Why a connection cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum KafkaError {
    #[error("option {name} {reason}")]
    Option { name: String, reason: String },
    #[error("option {name} is unknown: did you mean {nearest}?")]
    UnknownOption { name: String, nearest: &'static str },
    /// librdkafka refused a value: its message names the option.
    #[error("connection {connection}: the client refuses its options")]
    Client {
        connection: String,
        #[source]
        source: ClientError,
    },
    #[error("connection {connection}: no thread")]
    Thread {
        connection: String,
        #[source]
        source: std::io::Error,
    },
}

impl KafkaError {
    pub(crate) fn option(name: impl Into<String>, reason: impl Into<String>) -> Self {
        KafkaError::Option { name: name.into(), reason: reason.into() }
    }
}

impl Classified for KafkaError {
    fn kind(&self) -> ErrorKind {
        match self {
            KafkaError::Option { .. } | KafkaError::UnknownOption { .. } | KafkaError::Client { .. } => {
                ErrorKind::Invalid
            }
            KafkaError::Thread { .. } => ErrorKind::Exhausted,
        }
    }
}

/// The kind of a code for calls that are safe to repeat (reads, admin, init). Commits and produce calls have their own rules.
pub(crate) fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition | Code::UnknownTopicId => {
            ErrorKind::NotFound
        }
        Code::TopicAlreadyExists => ErrorKind::Conflict,
        Code::ProducerFenced | Code::InvalidProducerEpoch | Code::Fenced => ErrorKind::Fenced,
        Code::BadMessage | Code::InvalidMessage => ErrorKind::Corrupt,
        Code::QueueFull | Code::ThrottlingQuotaExceeded => ErrorKind::Exhausted,
        Code::InvalidTopic
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::InvalidConfig
        | Code::InvalidRequest
        | Code::PolicyViolation
        | Code::InvalidTransactionTimeout
        | Code::MessageSizeTooLarge
        | Code::InvalidTimestamp
        | Code::TopicAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::InvalidArgument => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

/// The code inside an error of the wrapper, where it has one.
pub(crate) fn code_of(error: &ClientError) -> Option<Code> {
    match error {
        ClientError::AdminOp(code) => Some(*code),
        other => other.rdkafka_error_code(),
    }
}

/// A failed call with its kind taken from the code.
pub(crate) fn call_failed(what: impl Into<String>, error: ClientError) -> LogError {
    let kind = match (&error, code_of(&error)) {
        (_, Some(code)) => kind_of(code),
        (ClientError::AdminOpCreation(_) | ClientError::ClientConfig(..) | ClientError::Nul(_), None) => {
            ErrorKind::Invalid
        }
        _ => ErrorKind::Unavailable,
    };
    LogError::new(kind, what).caused_by(error)
}

/// As [`call_failed`], for a bare code.
pub(crate) fn code_failed(what: impl Into<String>, code: Code) -> LogError {
    LogError::new(kind_of(code), what).caused_by(code)
}
