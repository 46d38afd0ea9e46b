//! The region engine: topic or shared WAL -> region worker -> memtable -> flush -> Parquet SST + manifest on object storage.
//!
//! Write path: `wal` reader -> decode -> `worker` mailbox -> [`memtable`] -> [`region::version`] -> readers.
//! Durable path: `worker` -> `flush` -> [`sst`] -> [`manifest`] (put-if-absent) -> `wal/prune`.
//! Read path: [`api::Region`] -> [`read`] (scan, changes, lookup) over memtable runs and SSTs.
//!
//! What `service/stream` and `service/sql` may use stands in [`api`]; everything else is this crate's own.

pub mod api;
pub mod compaction;
pub mod error;
pub mod layout;
pub mod manifest;
pub mod memtable;
pub mod object_store;
pub mod read;
pub mod region;
pub mod sst;

pub use api::{
    Estimate, LookupRows, Pin, PinOwner, Region, RegionSpec, RegionStatus, ScanItem, ScanRequest, ScanStream, Storage, WalBinding,
};
pub use error::StorageError;
