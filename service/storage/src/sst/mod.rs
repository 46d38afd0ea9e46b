//! Sorted string tables: Parquet files that any reader can open, with what Millstream needs in the footer metadata.

mod meta;
mod reader;
mod writer;

use std::sync::Arc;

use millstream_types::{RegionId, Seq};

pub use meta::{FileMeta, GroupMeta};
pub use reader::SstReader;

use crate::{
    StorageError,
    compaction::KeepRule,
    layout::Layout,
    manifest::FileEntry,
    memtable::Run,
    object_store::Bucket,
};

/// How files are cut and compressed.
#[derive(Debug, Clone)]
pub struct SstOptions {
    /// Rows of a row group; a group ends at the next key border after it.
    pub row_group_rows: usize,
    /// A file ends at the next key border after this many compressed bytes.
    pub target_bytes: usize,
    pub zstd_level: i32,
    /// Stored in the footer, for people who look at files.
    pub writer: String,
}

impl Default for SstOptions {
    fn default() -> Self {
        Self { row_group_rows: 131_072, target_bytes: 128 << 20, zstd_level: 1, writer: String::new() }
    }
}

/// Bytes that the reader may keep.
#[derive(Debug, Clone)]
pub struct CacheLimits {
    pub footers: usize,
    pub pages: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { footers: 32 << 20, pages: 96 << 20 }
    }
}

/// Merges frozen runs (oldest first), drops what `keep` lets go, and uploads one or more SSTs. `range` = [flushed, frozen at): the sequence range of the
/// new sorted run. Returns when all are in the bucket; empty if nothing is kept. Nothing is visible before the manifest names the files.
pub async fn write_runs(
    bucket: &Arc<Bucket>,
    layout: &Arc<Layout>,
    region: RegionId,
    runs: &[Arc<Run>],
    keep: &KeepRule,
    range: (Seq, Seq),
    options: &SstOptions,
) -> Result<Vec<FileEntry>, StorageError> {
    writer::write_runs(bucket, layout, region, runs, keep, range, options).await
}
