//! The write-ahead log of a region: a user's topic partition, or a partition of the shared WAL.
//!
//! Topic: `topic` (read, decode, sort, hand over) and `guard` (retention, gaps, recreated topics).
//! Shared: `entry` (bytes), `appender` (client writes in one transaction per group), `epoch_batch` (checkpoints of jobs), `replay` (reading back at start
//! and after an unknown outcome), `shard` (what one partition knows), `prune` (deleting what every region has in SSTs).

pub(crate) mod appender;
pub mod entry;
pub mod epoch_batch;
pub(crate) mod guard;
pub(crate) mod prune;
pub(crate) mod replay;
pub(crate) mod shard;
pub(crate) mod topic;

pub use epoch_batch::EpochBatch;
