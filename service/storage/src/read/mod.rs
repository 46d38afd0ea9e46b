//! Reads of one [`Version`](crate::region::version::Version): `scan` and `changes`, `lookup`, `estimate`.
//!
//! None of them asks whether a sequence is still kept: the region handle, which knows the pins, does so before it calls.

mod append;
pub(crate) mod block;
mod changes;
mod estimate;
mod lookup;
pub(crate) mod merge;
pub(crate) mod newest;
mod scan;
mod touched;

pub use estimate::estimate;
pub use lookup::lookup;
pub use scan::scan;
