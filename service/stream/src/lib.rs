//! The stream engine: snapshot + changes of one table -> operators -> view region and derived topic, exactly once.
//!
//! Derive path: [`barrier`] (cuts of all regions) -> [`job`] (one loop per job) -> [`executor::backfill`] (which rows this epoch reads) ->
//! [`executor`] (filter, project, hash agg, materialize, sink) -> [`checkpoint`] (one transaction per epoch: rows, records, progress).
//!
//! Jobs pull: an epoch takes the newest cuts, reads the net changes up to them, and hands everything it produced to the committer. A job that is slow
//! skips to the newest cuts; nothing upstream ever waits for it. Not here: SQL (`service/sql`), storage of rows (`service/storage`), Kafka.

pub mod barrier;
pub mod checkpoint;
pub mod config;
pub mod error;
pub mod executor;
pub mod job;
pub mod metrics;
pub mod plan;
#[cfg(feature = "testing")]
pub mod testing;

pub use checkpoint::progress_row::progress_schema;
pub use config::StreamConfig;
pub use error::StreamError;
pub use job::{
    service::{StreamDeps, StreamService},
    status::{BackfillStatus, CheckpointStatus, JobState, JobStatus, Reason},
};
pub use plan::{
    AggCall, AggFunc, AggState, Envelope, HashAggNode, InputPlan, JobKind, JobOptions, JobPlan, Node, OnEvalError,
    OutputPlan, TopicOutput, ViewOutput,
};
