//! Operators: batch transformers that the job loop calls, one epoch at a time.
//!
//! Chunks of [`backfill`] pass [`filter`], [`project`] and [`hash_agg`] in the order of the plan and end in [`materialize`], and in
//! [`sink`], which encodes them ([`fold`]: at most one record per key). All chunks of an epoch come before its barrier, so inputs are aligned by construction. [`pipeline`] is the chain.

pub mod backfill;
pub(crate) mod cache_budget;
pub(crate) mod eval;
pub(crate) mod filter;
pub(crate) mod fold;
pub(crate) mod hash_agg;
pub(crate) mod materialize;
pub(crate) mod pipeline;
pub(crate) mod project;
pub(crate) mod sink;
