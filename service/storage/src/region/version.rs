//! What a reader sees of a region: memtable runs and SSTs as of one moment, never changed.
//!
//! Protocol: a reader takes the current `Arc<Version>` once, reads only what it names, and drops it. The worker swaps in a new one after each batch of
//! writes and after each manifest change; a flush may do so at any time, which is why nobody asks the region twice within one read.

use std::sync::Arc;

use millstream_types::Seq;

use crate::{layout::Layout, manifest::FileEntry, memtable::Run};

#[derive(Debug, Clone)]
pub struct Version {
    pub layout: Arc<Layout>,
    /// All below it is here.
    pub applied: Seq,
    /// All below it is in `files`.
    pub flushed: Seq,
    /// Every version at or after it is kept.
    pub history_from: Seq,
    /// Frozen ++ mutable, oldest first, disjoint in sequence.
    pub runs: Arc<[Arc<Run>]>,
    /// Ordered by sorted run (oldest first), then by key (append: by sequence), as `manifest::State` holds them.
    pub files: Arc<[Arc<FileEntry>]>,
    pub manifest_version: u64,
}
