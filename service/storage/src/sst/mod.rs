//! Sorted string tables: Parquet files that any reader can open, with what Millstream needs in the footer metadata.

mod feed;
mod file_types;
mod filter;
mod lru;
mod meta;
mod reader;
mod writer;

use std::sync::Arc;

use millstream_types::{LeaderEpoch, Pos, RegionId, Seq};

pub(crate) use feed::{SstFeed, Window};
pub use meta::{FileMeta, GroupMeta, SEGMENT_ROWS};
pub(crate) use reader::SstFile;
pub use reader::SstReader;
pub(crate) use writer::Writer;

use crate::{
    StorageError,
    compaction::{KeepRule, Keeper},
    layout::Layout,
    manifest::FileEntry,
    memtable::Run,
    object_store::Bucket,
    read::{
        block::{Parts, Projection, gather},
        merge::{Merger, Step},
    },
};

/// Most rows of a decoded batch of a scan, and of a batch that is written.
pub(crate) const BATCH_ROWS: usize = 8192;

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
    pub leader_epoch: LeaderEpoch,
    /// Unix ms, for the age of the files.
    pub now_ms: u64,
}

impl Default for SstOptions {
    fn default() -> Self {
        Self {
            row_group_rows: 131_072,
            target_bytes: 128 << 20,
            zstd_level: 1,
            writer: String::new(),
            leader_epoch: LeaderEpoch(0),
            now_ms: 0,
        }
    }
}

/// Bytes that the reader may keep.
#[derive(Debug, Clone)]
pub struct CacheLimits {
    pub footers: usize,
    pub filters: usize,
    pub pages: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { footers: 32 << 20, filters: 32 << 20, pages: 64 << 20 }
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
    let mut writer = Writer::new(bucket, layout, region, range, options);
    if layout.is_keyed() {
        let mut merger = Merger::new(Projection::stored(layout), Pos::NotStarted, Pos::End);
        for run in runs {
            merger.add_run(run)?;
        }
        write_merged(merger, keep, &mut writer).await?;
    } else {
        for run in runs {
            for start in (0..run.len()).step_by(BATCH_ROWS) {
                writer.write(run.rows.slice(start, BATCH_ROWS.min(run.len() - start)), true).await?;
            }
        }
    }
    writer.finish().await
}

/// Drains a merge through the keep rule into a writer, in batches that end on key borders.
pub(crate) async fn write_merged(
    mut merger: Merger,
    keep: &KeepRule,
    writer: &mut Writer<'_>,
) -> Result<(), StorageError> {
    let projection = merger.projection().clone();
    let mut keeper = Keeper::new(keep.clone());
    let mut parts = Parts::default();
    loop {
        match merger.step() {
            Step::Rows(part) => {
                keeper.take(part, &mut parts);
                if parts.rows() >= BATCH_ROWS {
                    writer.write(gather(&projection, &parts.take_all())?, keeper.take_plain()).await?;
                }
            }
            Step::Load => merger.load().await?,
            Step::End => break,
        }
    }
    keeper.finish(&mut parts);
    if parts.rows() > 0 {
        writer.write(gather(&projection, &parts.take_all())?, keeper.take_plain()).await?;
    }
    Ok(())
}
