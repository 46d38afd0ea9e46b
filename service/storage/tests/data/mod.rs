//! The data plane: reads, files, compaction, manifest, bucket, each against a small model.

mod faulty;
mod manifest;
mod reads;
mod rig;
mod sst;
