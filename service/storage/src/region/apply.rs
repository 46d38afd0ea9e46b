//! Committed rows of the shared WAL into a region: skip what is there, sort, hand over to the worker, wait until it is readable.

use std::sync::Arc;

use arrow::{array::RecordBatch, compute::concat_batches};
use millstream_types::{Op, Seq};
use tokio::sync::oneshot;

use super::RegionShared;
use crate::{
    StorageError,
    api::AppliedEntry,
    context::Context,
    layout::Layout,
    memtable::Run,
    request::{Insert, Inserted, Request, Source},
};

/// Returns when all rows of `entries` (ascending in sequence) are readable, in one step. Entries below `applied` are skipped, so it is idempotent.
pub(crate) async fn apply(
    ctx: &Context,
    region: &Arc<RegionShared>,
    entries: Vec<AppliedEntry>,
    source: Source,
) -> Result<(), StorageError> {
    let mut from = region.applied();
    loop {
        let rest: Vec<AppliedEntry> = entries.iter().filter(|e| e.seq >= from).cloned().collect();
        let Some(last) = rest.last().map(|e| e.seq.next()) else { return Ok(()) };
        let layout = region.layout.clone();
        let id = region.id;
        let run = ctx
            .runner
            .on_compute("sort applied rows", move || build(&layout, id, &rest))
            .await
            .ok_or(StorageError::Stopped { what: "storage engine" })??;
        let (reply, answer) = oneshot::channel();
        let insert = Insert {
            region: region.clone(),
            source,
            run: Some(Arc::new(run)),
            applied: last,
            oldest_record_ms: None,
            permits: Vec::new(),
            reply: Some(reply),
        };
        region.worker.request(Request::Insert(insert)).await?;
        match answer.await.map_err(|_| StorageError::Stopped { what: "region worker" })?? {
            Inserted::Done => return Ok(()),
            Inserted::Overlaps(applied) => from = applied,
        }
    }
}

fn build(layout: &Layout, region: millstream_types::RegionId, entries: &[AppliedEntry]) -> Result<Run, StorageError> {
    let mut parts = Vec::with_capacity(entries.len());
    let mut ops: Vec<Op> = Vec::new();
    let mut seqs: Vec<i64> = Vec::new();
    for entry in entries {
        parts.push(conform(layout, region, &entry.rows)?);
        ops.extend(&entry.ops);
        seqs.extend(std::iter::repeat_n(entry.seq.0, entry.rows.num_rows()));
    }
    let rows = concat_batches(&layout.table, &parts)?;
    Run::build(layout, &rows, &ops, &seqs, 0)
}

/// The same columns under the region's own schema: names and metadata of a batch in motion may differ, types may not.
pub(crate) fn conform(
    layout: &Layout,
    region: millstream_types::RegionId,
    rows: &RecordBatch,
) -> Result<RecordBatch, StorageError> {
    RecordBatch::try_new(layout.table.clone(), rows.columns().to_vec())
        .map_err(|e| StorageError::Invalid { region, what: format!("rows do not fit the table: {e}") })
}

/// Sequence range of a write's entries.
pub(crate) fn range(entries: &[AppliedEntry]) -> Option<(Seq, Seq)> {
    Some((entries.first()?.seq, entries.last()?.seq.next()))
}
