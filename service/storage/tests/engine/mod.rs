//! The control plane on a log and a bucket in memory.
//!
//! `lifecycle` create, open, close, drop, fencing. `shared_wal` client writes, checkpoints, replay, prune. `topic` tails, gaps, restart. `flush` flush,
//! pressure, compaction, pins. `simulation` random operations with crashes against a model. `env` is the rig.

mod env;
mod flush;
mod lifecycle;
mod shared_wal;
mod simulation;
mod topic;
