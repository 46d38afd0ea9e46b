//! One region: the immutable version that readers take, its states, the handle behind [`crate::Region`], pins, and how it opens.
//!
//! `version` is what readers see, `shared` the cell with the current one, `state` the state machine, `handle` the public face, `apply` the way of
//! committed rows in, `opener` claim and load, `pins` what jobs keep.

pub(crate) mod apply;
pub(crate) mod handle;
pub(crate) mod opener;
pub mod pins;
pub mod shared;
pub mod state;
pub mod version;

pub use shared::RegionShared;
