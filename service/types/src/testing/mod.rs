//! Test doubles and test data for every crate above this one. Behind the cargo feature `testing`; never part of the service.
//!
//! Owns: a log in memory with the transaction semantics of Kafka, chunks as text, and the conformance suite of the log traits.

pub mod literal;
pub mod log_suite;
pub mod memory_log;

pub use memory_log::{CommitFault, CommitGate, MemoryLog, StoredRecord};
