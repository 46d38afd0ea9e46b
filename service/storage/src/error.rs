//! Storage errors: each names its region and path or topic, and classifies itself.

use millstream_types::{
    BoxError, Classified, ErrorKind, LeaderEpoch, LogError, RegionId, Retry, Seq, invariant::Broken,
};

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("region {region} not found")]
    RegionNotFound { region: RegionId },
    #[error("region {region}: sequence {seq} is not kept any more, history starts at {history_from}")]
    SequenceNotKept { region: RegionId, seq: Seq, history_from: Seq },
    #[error("region {region} exists with a different {what}")]
    RegionDiffers { region: RegionId, what: &'static str },
    #[error("region {region} is {state}: {reason}")]
    WrongState { region: RegionId, state: &'static str, reason: String },
    #[error("region {region}: manifest {version} belongs to leader epoch {theirs}, ours is {ours}")]
    Fenced { region: RegionId, version: u64, theirs: LeaderEpoch, ours: LeaderEpoch },
    #[error(
        "region {region}: write buffer is full ({used_bytes} of {limit_bytes} bytes), retry after {retry_after_ms} ms"
    )]
    WriteBufferFull { region: RegionId, used_bytes: u64, limit_bytes: u64, retry_after_ms: u64 },
    #[error("region {region}: {what}")]
    Invalid { region: RegionId, what: String },
    /// `row` is its place in the batch.
    #[error("region {region}: a row of {bytes} bytes is above the limit of {limit} bytes (storage.wal.max_row_bytes)")]
    RowTooLarge { region: RegionId, row: usize, bytes: usize, limit: usize },
    #[error("{what}")]
    InvalidOption { what: String },
    #[error("region {region}: records [{from}, {to}) were removed from the topic by retention before they were read")]
    DataLoss { region: RegionId, from: Seq, to: Seq },
    #[error("region {region}: {what}: the outcome of write {write_id:032x} is unknown, ask again with the same id")]
    AppendUnknown { region: RegionId, write_id: u128, what: String },
    #[error("region {region}: append failed, nothing was written")]
    AppendFailed {
        region: RegionId,
        #[source]
        source: Option<LogError>,
    },
    #[error("region {region} could not be opened: {what}")]
    OpenFailed { region: RegionId, what: String },
    #[error("object store: {op} {path}")]
    Bucket {
        op: &'static str,
        path: String,
        kind: ErrorKind,
        #[source]
        source: object_store::Error,
    },
    #[error("{path}: {what}")]
    Corrupt {
        path: String,
        what: String,
        #[source]
        source: Option<BoxError>,
    },
    #[error("log")]
    Log(#[from] LogError),
    #[error("{what} stopped")]
    Stopped { what: &'static str },
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("{what}")]
    Internal {
        what: String,
        #[source]
        source: Option<BoxError>,
    },
}

impl StorageError {
    /// A library call that cannot fail on valid data did: our bug or bad memory.
    pub fn internal(what: impl Into<String>, source: impl Into<BoxError>) -> Self {
        StorageError::Internal { what: what.into(), source: Some(source.into()) }
    }

    pub fn corrupt(path: impl Into<String>, what: impl Into<String>) -> Self {
        StorageError::Corrupt { path: path.into(), what: what.into(), source: None }
    }
}

impl From<arrow::error::ArrowError> for StorageError {
    fn from(e: arrow::error::ArrowError) -> Self {
        StorageError::internal("arrow", e)
    }
}

impl Classified for StorageError {
    fn kind(&self) -> ErrorKind {
        match self {
            StorageError::RegionNotFound { .. } | StorageError::SequenceNotKept { .. } => ErrorKind::NotFound,
            StorageError::RegionDiffers { .. } | StorageError::WrongState { .. } | StorageError::DataLoss { .. } => {
                ErrorKind::Conflict
            }
            StorageError::Fenced { .. } => ErrorKind::Fenced,
            StorageError::WriteBufferFull { .. } => ErrorKind::Exhausted,
            StorageError::Invalid { .. } | StorageError::RowTooLarge { .. } | StorageError::InvalidOption { .. } => {
                ErrorKind::Invalid
            }
            StorageError::AppendUnknown { .. } => ErrorKind::Unknown,
            StorageError::AppendFailed { .. } | StorageError::OpenFailed { .. } | StorageError::Stopped { .. } => {
                ErrorKind::Unavailable
            }
            StorageError::Bucket { kind, .. } => *kind,
            StorageError::Corrupt { .. } => ErrorKind::Corrupt,
            StorageError::Log(e) => e.kind(),
            StorageError::Broken(_) | StorageError::Internal { .. } => ErrorKind::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self.kind() {
            ErrorKind::Unavailable | ErrorKind::Exhausted | ErrorKind::Fenced => Retry::Safe,
            ErrorKind::Unknown => Retry::AfterReadBack,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Corrupt
            | ErrorKind::Internal => Retry::Never,
        }
    }
}
