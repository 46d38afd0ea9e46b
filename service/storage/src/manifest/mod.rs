//! The manifest of a region: a contiguous log of versions in the bucket, each a list of actions, made by put-if-absent.
//!
//! `action` is what is written, `codec` its bytes, `state` the pure fold over all versions, `store` the I/O: load, claim, put, checkpoint, clean-up.

mod action;
pub mod codec;
mod state;
mod store;

pub use action::{Action, Edit, EditReason, FileEntry, FlushRange, Gap};
pub(crate) use action::{hex, unhex};
pub use state::{ManifestVersion, Refused, Removed, State};
pub use store::{Store, StoreContext};
