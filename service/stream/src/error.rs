//! Errors of the stream engine: each names its job, input or region, and classifies itself.

use millstream_storage::StorageError;
use millstream_types::{
    BoxError, Classified, Epoch, ErrorKind, InputId, JobId, LogError, RegionId, Retry, Seq, invariant::Broken,
};

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("job {job} not found")]
    JobNotFound { job: JobId },
    #[error("job {job} exists already")]
    JobExists { job: JobId },
    #[error("job {job} is {state}: {reason}")]
    WrongState { job: JobId, state: &'static str, reason: String },
    #[error("job {job}: {what} not reached after {waited_ms} ms, {present}")]
    Timeout { job: JobId, what: String, waited_ms: u64, present: String },
    #[error(
        "job {job}: the stored plan {stored:016x} is not the plan {ours:016x} of this version, drop and create the view again"
    )]
    PlanChanged { job: JobId, stored: u64, ours: u64 },
    #[error("job {job}: plan: {what}")]
    Plan { job: JobId, what: String },
    #[error("job {job}: a newer producer with id {transactional_id} exists")]
    Fenced {
        job: JobId,
        transactional_id: String,
        #[source]
        source: Option<LogError>,
    },
    #[error("job {job}: progress row of epoch {found} is newer than epoch {ours}: another owner is at work")]
    Overtaken { job: JobId, found: Epoch, ours: Epoch },
    #[error("numeric out of range in {column}")]
    OutOfRange { column: String },
    #[error("evaluation of {expr} failed")]
    Eval {
        expr: String,
        #[source]
        source: Box<datafusion_common::DataFusionError>,
    },
    #[error("{operator}: inconsistent input: {what}")]
    Inconsistent { operator: &'static str, what: String },
    #[error("job {job}: the log refuses what the job writes")]
    Rejected {
        job: JobId,
        #[source]
        source: LogError,
    },
    #[error(
        "job {job}: a row of {of} has {bytes} bytes, the limit is {limit}, its key is ({key}): make the row smaller or delete it in the input, or raise \
         storage.wal.max_row_bytes, then resume it (ALTER .. RESUME)"
    )]
    RowTooLarge { job: JobId, of: String, key: String, bytes: usize, limit: usize },
    #[error(
        "job {job}: a record of topic {topic} is too large; the largest has {bytes} bytes, its key is {key}: make the row smaller or delete it in the \
         input, or raise max.message.bytes of the topic, then resume it (ALTER .. RESUME)"
    )]
    RecordTooLarge {
        job: JobId,
        topic: String,
        key: String,
        bytes: usize,
        #[source]
        source: Box<LogError>,
    },
    #[error(
        "input {table}: records [{from}, {to}) of region {region} were lost after this job had used them and before the table had flushed them, and the \
         table went on without them (on_data_loss = 'continue'): its result has rows that the table has not; drop it and create it again"
    )]
    InputLost { table: String, region: RegionId, from: Seq, to: Seq },
    #[error("input {input}: region {region} has no cut, it is closed or quarantined")]
    InputClosed { input: InputId, region: RegionId },
    #[error("progress row: {what}")]
    Progress { what: String },
    #[error("encode records for topic {topic}")]
    Encode {
        topic: String,
        #[source]
        source: BoxError,
    },
    #[error("storage")]
    Storage(#[source] Box<StorageError>),
    #[error("log")]
    Log(#[from] LogError),
    #[error("arrow")]
    Arrow(#[from] arrow::error::ArrowError),
    #[error("{what} stopped")]
    Stopped { what: &'static str },
    #[error("job {job}: a task panicked, the log line before names it")]
    Panicked { job: JobId },
    #[error("metric could not be registered")]
    Metric(#[from] prometheus::Error),
    #[error(transparent)]
    Broken(#[from] Broken),
}

impl From<StorageError> for StreamError {
    fn from(e: StorageError) -> Self {
        StreamError::Storage(Box::new(e))
    }
}

impl StreamError {
    /// The reason code that status and REST show.
    pub fn code(&self) -> &'static str {
        match self {
            StreamError::JobNotFound { .. } => "job_not_found",
            StreamError::JobExists { .. } => "job_exists",
            StreamError::WrongState { .. } => "wrong_state",
            StreamError::Timeout { .. } => "timeout",
            StreamError::PlanChanged { .. } => "plan_changed",
            StreamError::Plan { .. } => "invalid_plan",
            StreamError::Fenced { .. } | StreamError::Overtaken { .. } => "fenced",
            StreamError::OutOfRange { .. } => "numeric_out_of_range",
            StreamError::Eval { .. } => "eval_error",
            StreamError::Inconsistent { .. } => "inconsistent_input",
            StreamError::Rejected { .. } => "output_rejected",
            StreamError::RowTooLarge { .. } => "row_too_large",
            StreamError::RecordTooLarge { .. } => "record_too_large",
            StreamError::InputLost { .. } => "data_loss",
            StreamError::InputClosed { .. } => "input_closed",
            StreamError::Progress { .. } => "layout_mismatch",
            StreamError::Encode { .. } => "encode_failed",
            StreamError::Storage(_) => "storage_error",
            StreamError::Log(_) => "output_blocked",
            StreamError::Arrow(_) | StreamError::Broken(_) | StreamError::Metric(_) => "internal",
            StreamError::Stopped { .. } => "stopped",
            StreamError::Panicked { .. } => "panicked",
        }
    }

    /// Whether trying again cannot help: the job is quarantined at once.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            StreamError::PlanChanged { .. }
                | StreamError::Plan { .. }
                | StreamError::Progress { .. }
                | StreamError::OutOfRange { .. }
                | StreamError::Eval { .. }
                | StreamError::Rejected { .. }
                | StreamError::RowTooLarge { .. }
                | StreamError::RecordTooLarge { .. }
                | StreamError::InputLost { .. }
        )
    }
}

impl Classified for StreamError {
    fn kind(&self) -> ErrorKind {
        match self {
            StreamError::JobNotFound { .. } => ErrorKind::NotFound,
            StreamError::JobExists { .. } | StreamError::WrongState { .. } | StreamError::PlanChanged { .. } => {
                ErrorKind::Conflict
            }
            StreamError::Timeout { .. } | StreamError::InputClosed { .. } | StreamError::Stopped { .. } => {
                ErrorKind::Unavailable
            }
            StreamError::Plan { .. }
            | StreamError::OutOfRange { .. }
            | StreamError::Eval { .. }
            | StreamError::Rejected { .. }
            | StreamError::RowTooLarge { .. }
            | StreamError::RecordTooLarge { .. } => ErrorKind::Invalid,
            StreamError::Fenced { .. } | StreamError::Overtaken { .. } => ErrorKind::Fenced,
            StreamError::Progress { .. } | StreamError::InputLost { .. } => ErrorKind::Corrupt,
            StreamError::Storage(e) => e.kind(),
            StreamError::Log(e) => e.kind(),
            StreamError::Inconsistent { .. }
            | StreamError::Encode { .. }
            | StreamError::Arrow(_)
            | StreamError::Panicked { .. }
            | StreamError::Metric(_)
            | StreamError::Broken(_) => ErrorKind::Internal,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            StreamError::Storage(e) => e.retry(),
            StreamError::Log(e) => e.retry(),
            _ => match self.kind() {
                ErrorKind::Unavailable | ErrorKind::Exhausted | ErrorKind::Fenced => Retry::Safe,
                ErrorKind::Unknown => Retry::AfterReadBack,
                _ => Retry::Never,
            },
        }
    }
}
