//! Backfill: which rows of the input each epoch reads, so that at every barrier downstream has exactly `content(P)`.
//!
//! ```text
//! P = { above, below, at }        T(s) = the region as of sequence s, T(None) = nothing
//! content(P) = rows of T(below) whose key is covered by at  +  rows of T(above) whose key is not      (B1)
//!
//! epoch with cut c:   advance   emit the net change below -> c of covered keys, below = c        (or stay: emit nothing)
//!                     scan      emit the net change above -> below of keys after at, at = last key, until the quantum ends
//!                     barrier   P is part of the same checkpoint as the rows
//! ```
//! A caught-up job is the case `at = End`; a job that was away for long is rebased to `{Some(below), c, NotStarted}`, which has the same content, so its
//! epochs stay bounded. [`machine`] decides and is pure, [`driver`] reads, [`scans`] decode ahead, [`limiter`] paces, [`progress`] is what is stored and told.

pub(crate) mod driver;
pub mod limiter;
pub mod machine;
pub mod progress;
mod scans;
