//! Why a node could not start. Everything that may heal by itself is waited for instead.

use std::{io, net::SocketAddr};

use millstream_kafka::KafkaError;
use millstream_sql::SqlError;
use millstream_storage::StorageError;
use millstream_stream::StreamError;
use millstream_types::{Classified, ErrorKind, LogError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error("cannot listen on {address} (`{key}`)")]
    Bind { key: &'static str, address: SocketAddr, source: io::Error },
    #[error("cannot register metrics")]
    Metrics(#[from] prometheus::Error),
    #[error("section `kafka`")]
    Kafka(#[from] KafkaError),
    #[error("the write-ahead log")]
    Log(#[from] LogError),
    #[error("storage")]
    Storage(#[source] Box<StorageError>),
    #[error("stream")]
    Stream(#[from] StreamError),
    #[error("recovery")]
    Sql(#[from] SqlError),
    #[error("{topic} is not fit to be the write-ahead log: {what}")]
    WalTopic { topic: String, what: String },
}

impl NodeError {
    pub(crate) fn bind(key: &'static str, address: SocketAddr, source: io::Error) -> Self {
        NodeError::Bind { key, address, source }
    }
}

impl From<StorageError> for NodeError {
    fn from(e: StorageError) -> Self {
        NodeError::Storage(Box::new(e))
    }
}

impl Classified for NodeError {
    fn kind(&self) -> ErrorKind {
        match self {
            NodeError::Metrics(_) => ErrorKind::Internal,
            NodeError::Bind { .. } => ErrorKind::Conflict,
            NodeError::WalTopic { .. } => ErrorKind::Invalid,
            NodeError::Kafka(e) => e.kind(),
            NodeError::Log(e) => e.kind(),
            NodeError::Storage(e) => e.kind(),
            NodeError::Stream(e) => e.kind(),
            NodeError::Sql(e) => e.kind(),
        }
    }
}
