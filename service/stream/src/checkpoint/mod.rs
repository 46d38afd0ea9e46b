//! Checkpoints: one Kafka transaction commits the rows, the derived records and the position of an epoch, or none of them.
//!
//! [`progress_row`] is the layout of stored positions, [`committer`] the task that commits epochs in order, [`recovery`] what a start reads back,
//! [`pins`] what the job's inputs must keep for it, [`oversize`] the words for a row that cannot be written.

pub(crate) mod committer;
pub(crate) mod oversize;
pub(crate) mod pins;
pub mod progress_row;
pub(crate) mod recovery;
