//! Test doubles of the stream engine: storage in memory, a text encoder, a harness for single operators. Behind the cargo feature `testing`.
//!
//! The twin keeps every version of every row and answers reads exactly, but only for sequences that are pinned or current: a missing pin fails a test
//! (B4). Its log is `types`' memory log, so commits, aborts, fences and lost answers are those of Kafka.

mod encode;
mod harness;
mod region;
mod storage;

pub use encode::{TextEncoder, hash_partition};
pub use harness::Harness;
pub use region::MemoryRegion;
pub use storage::MemoryStorage;
