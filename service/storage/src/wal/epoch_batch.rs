//! One checkpoint of one job on the shared WAL: encode its rows, then, once committed, make them readable.
//!
//! Owns: the entries of an epoch and their application. Not here: the transaction (`service/stream`'s committer sends [`EpochBatch::out_batch`]).
//!
//! Use: `new`, `add` per region (the progress region last), `end`, commit the batch, `apply` with the offsets that the commit returned. From the first
//! `add` until `apply` (or `Storage::replay_shard` of the job) the engine holds back pruning, since only this batch knows rows that no region has yet.

use std::sync::Arc;

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use millstream_types::{Epoch, JobId, Op, OutBatch, RegionId, RegionKind, ShardId};

use crate::{
    Region, Storage, StorageError,
    api::AppliedEntry,
    wal::entry::{self, EntryLimits, Header, Kind, Origin},
};

/// The rows behind one record of the batch.
#[derive(Debug)]
struct Part {
    region: RegionId,
    rows: RecordBatch,
    ops: Vec<Op>,
}

/// See the module head.
#[derive(Debug)]
pub struct EpochBatch {
    shard: ShardId,
    job: JobId,
    epoch: Epoch,
    limits: EntryLimits,
    out: OutBatch,
    /// One per record of `out`, in order; `None` for the epoch's end.
    parts: Vec<Option<Part>>,
    rows_bytes: usize,
}

impl EpochBatch {
    pub fn new(wal_topic: impl Into<Arc<str>>, shard: ShardId, job: JobId, epoch: Epoch, timestamp_ms: i64) -> Self {
        let mut out = OutBatch::new(wal_topic, timestamp_ms);
        out.want_offsets = true;
        Self { shard, job, epoch, limits: EntryLimits::default(), out, parts: Vec::new(), rows_bytes: 0 }
    }

    #[must_use]
    pub fn with_limits(mut self, limits: EntryLimits) -> Self {
        self.limits = limits;
        self
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Adds rows of one region; `rows` has the columns of the region's schema. Of an update pair on a keyed region only the new row is logged, since a put
    /// replaces the old one. Call `add` for the progress region last: regions are applied in this order.
    pub fn add(&mut self, region: &dyn Region, rows: RecordBatch, ops: Vec<Op>) -> Result<(), StorageError> {
        if rows.num_rows() != ops.len() {
            let what = format!("{} rows but {} ops", rows.num_rows(), ops.len());
            return Err(StorageError::Invalid { region: region.id(), what });
        }
        let schema = region.schema();
        let (rows, ops) = match schema.kind() {
            RegionKind::Keyed if ops.contains(&Op::UpdateDelete) => without_old_rows(&rows, &ops)?,
            RegionKind::Keyed | RegionKind::Append => (rows, ops),
        };
        if ops.is_empty() {
            return Ok(());
        }
        region.hold_wal(self.job, self.epoch);
        let header = Header {
            kind: Kind::Rows,
            origin: Origin::Job { job: self.job, epoch: self.epoch },
            region: region.id(),
            leader_epoch: region.leader_epoch(),
            schema_id: schema.id,
            partition_version: 0,
            rows: 0,
        };
        let key = entry::record_key(region.id());
        let partition = self.shard.0 as i32;
        let (out, parts) = (&mut self.out, &mut self.parts);
        entry::encode_rows(header, &rows, &ops, self.limits, &mut |bytes, first, count| {
            out.push(partition, Some(&key), Some(&bytes));
            parts.push(Some(Part {
                region: region.id(),
                rows: rows.slice(first, count),
                ops: ops[first..first + count].to_vec(),
            }));
        })?;
        self.rows_bytes += rows.get_array_memory_size();
        Ok(())
    }

    /// Ends the epoch; `payload` is the job's own. Nothing can be added afterwards.
    pub fn end(&mut self, payload: &[u8]) {
        let bytes = entry::encode_epoch_end(self.job, self.epoch, payload);
        self.out.push(self.shard.0 as i32, None, Some(&bytes));
        self.parts.push(None);
    }

    /// The records to send, with `want_offsets`.
    pub fn out_batch(&self) -> &OutBatch {
        &self.out
    }

    /// Moves the records out, for a caller that sends them beside others in one slice. The rows for [`EpochBatch::apply`] stay.
    pub fn take_out_batch(&mut self) -> OutBatch {
        std::mem::replace(&mut self.out, OutBatch::new("", 0))
    }

    /// Bytes held by records and rows.
    pub fn size_bytes(&self) -> usize {
        self.out.size_bytes() + self.rows_bytes
    }

    /// Makes the committed rows readable; `offsets` are those of the WAL batch, one per record. Returns when all regions show them; idempotent.
    pub async fn apply(&self, storage: &dyn Storage, offsets: &[i64]) -> Result<(), StorageError> {
        if offsets.len() != self.parts.len() {
            let what = format!(
                "job {} epoch {}: {} offsets for {} wal records",
                self.job,
                self.epoch,
                offsets.len(),
                self.parts.len()
            );
            return Err(StorageError::Internal { what, source: None });
        }
        let mut by_region: Vec<(RegionId, Vec<AppliedEntry>)> = Vec::new();
        for (part, offset) in self.parts.iter().zip(offsets) {
            let Some(part) = part else { continue };
            let entry =
                AppliedEntry { seq: millstream_types::Seq(*offset), rows: part.rows.clone(), ops: part.ops.clone() };
            match by_region.iter_mut().find(|(id, _)| *id == part.region) {
                Some((_, entries)) => entries.push(entry),
                None => by_region.push((part.region, vec![entry])),
            }
        }
        let ids: Vec<RegionId> = by_region.iter().map(|(id, _)| *id).collect();
        for (id, entries) in by_region {
            let region = storage.region(id).ok_or(StorageError::RegionNotFound { region: id })?;
            region.apply(entries).await?;
        }
        let end = offsets.last().map_or(0, |o| o + 1);
        for region in ids.iter().filter_map(|id| storage.region(*id)) {
            region.release_wal(self.job, self.epoch, millstream_types::Seq(end));
        }
        Ok(())
    }
}

/// Drops `UpdateDelete` rows: the `UpdateInsert` of the same key follows and replaces them (M2).
fn without_old_rows(rows: &RecordBatch, ops: &[Op]) -> Result<(RecordBatch, Vec<Op>), StorageError> {
    let keep: BooleanArray = ops.iter().map(|op| Some(*op != Op::UpdateDelete)).collect();
    Ok((filter_record_batch(rows, &keep)?, ops.iter().copied().filter(|op| *op != Op::UpdateDelete).collect()))
}
