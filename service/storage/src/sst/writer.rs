//! Writes SSTs.
use std::sync::Arc;

use millstream_types::{RegionId, Seq};

use super::SstOptions;
use crate::{StorageError, compaction::KeepRule, layout::Layout, manifest::FileEntry, memtable::Run, object_store::Bucket};

pub(super) async fn write_runs(
    bucket: &Arc<Bucket>,
    layout: &Arc<Layout>,
    region: RegionId,
    runs: &[Arc<Run>],
    keep: &KeepRule,
    range: (Seq, Seq),
    options: &SstOptions,
) -> Result<Vec<FileEntry>, StorageError> {
    let _unused = (bucket, layout, region, runs, keep, range, options);
    Err(StorageError::Stopped { what: "sst writer" })
}
