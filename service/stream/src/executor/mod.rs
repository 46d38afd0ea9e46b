//! Operators: batch transformers that the job loop calls, one epoch at a time.
//!
//! Chunks of [`backfill`] pass [`filter`], [`project`] and [`hash_agg`] in the order of the plan and end in [`materialize`], which nets them per key, and
//! [`sink`], which encodes them. All chunks of an epoch come before its barrier, so inputs are aligned by construction. [`pipeline`] is the chain.

pub mod backfill;
pub(crate) mod eval;
pub(crate) mod filter;
pub(crate) mod hash_agg;
pub(crate) mod materialize;
pub(crate) mod pipeline;
pub(crate) mod project;
pub(crate) mod sink;
