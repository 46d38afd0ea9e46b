//! The region engine: topic or shared WAL -> region worker -> memtable -> flush -> Parquet SST + manifest on object storage.
//!
//! Write path: `wal` reader -> decode -> `worker` mailbox -> [`memtable`] -> [`region::version`] -> readers.
//! Durable path: `worker` -> `flush` -> [`sst`] -> [`manifest`] (put-if-absent) -> `wal/prune`.
//! Read path: [`api::Region`] -> [`read`] (scan, changes, lookup) over memtable runs and SSTs.
//!
//! What `service/stream` and `service/sql` may use stands in [`api`]; everything else is this crate's own.

pub mod api;
pub mod compaction;
pub mod config;
mod context;
pub mod engine;
pub mod error;
mod gc;
pub mod layout;
pub mod listener;
pub mod manifest;
pub mod memtable;
mod metrics;
pub mod object_store;
pub mod read;
pub mod region;
mod request;
pub mod sst;
pub mod wal;
mod worker;

pub use api::{
    Estimate, KeyMatch, LookupRows, LostRange, Pin, PinOwner, Region, RegionSpec, RegionStatus, ScanItem, ScanRequest,
    ScanStream, Storage, WalBinding,
};
pub use config::StorageConfig;
pub use context::StorageDeps;
pub use engine::Engine;
pub use error::StorageError;
