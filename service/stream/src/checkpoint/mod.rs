//! Checkpoints: one Kafka transaction commits the rows, the derived records and the position of an epoch, or none of them.
//!
//! [`progress_row`] is the layout of the stored positions, `committer` the task that commits epochs in order, `recovery` what a start reads back.

pub mod progress_row;
