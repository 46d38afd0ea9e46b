//! The data plane: reads, files, compaction, manifest, bucket, each against a small model.

pub(crate) mod faulty;
mod manifest;
mod reads;
mod rig;
mod sst;
