//! Compaction: `picker` says what to merge, `keep` what may go, `rewrite` does it. Scheduling and the manifest put are the worker's.

mod keep;
mod picker;
mod rewrite;

pub use keep::KeepRule;
pub(crate) use keep::Keeper;
pub use picker::{PickOptions, Plan, pick, pick_all};
pub use rewrite::rewrite;
