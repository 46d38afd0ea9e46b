//! Merges the files of a plan into one sorted run.

use std::sync::Arc;

use millstream_types::{Pos, RegionId, Seq};

use super::KeepRule;
use crate::{
    StorageError,
    layout::Layout,
    manifest::FileEntry,
    object_store::Bucket,
    read::{block::Projection, merge::Merger},
    sst::{SstFeed, SstOptions, SstReader, Window, Writer, write_merged},
};

/// Streams the merge of `inputs` (files of neighbouring runs of one region) through `keep` into new SSTs, which are in the bucket when it returns.
/// Memory: one batch and one fetched row group per input run, and one row group of output. Dropping the future leaves orphans, never a visible change.
pub async fn rewrite(
    bucket: &Arc<Bucket>,
    reader: &Arc<SstReader>,
    layout: &Arc<Layout>,
    region: RegionId,
    inputs: &[Arc<FileEntry>],
    keep: &KeepRule,
    options: &SstOptions,
) -> Result<Vec<FileEntry>, StorageError> {
    let from = inputs.iter().map(|f| f.from).min().unwrap_or_default();
    let end = inputs.iter().map(|f| f.run).max().map_or(Seq::ZERO, |run| Seq(run as i64));
    let mut writer = Writer::new(bucket, layout, region, (from, end), options);
    let projection = Projection::stored(layout);
    if layout.is_keyed() {
        let mut merger = Merger::new(projection.clone(), Pos::NotStarted, Pos::End);
        for run in inputs.chunk_by(|a, b| a.run == b.run) {
            merger.add_files(SstFeed::new(
                reader.clone(),
                projection.clone(),
                Window::everything(),
                run.iter().cloned(),
            ));
        }
        write_merged(merger, keep, &mut writer).await?;
    } else {
        let mut feed = SstFeed::new(reader.clone(), projection.clone(), Window::everything(), inputs.iter().cloned());
        while let Some(block) = feed.next().await? {
            writer.write(block.rows, true).await?;
        }
    }
    writer.finish().await
}
