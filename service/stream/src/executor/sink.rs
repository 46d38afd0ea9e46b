//! The derived records of an epoch, encoded from its net rows into one arena.
//!
//! | envelope | Insert, new row of a pair | Delete |
//! |---|---|---|
//! | append | value | dropped, counted |
//! | upsert | key, value | key, null (tombstone) |
//!
//! Records of one key share a partition, and there is at most one per key and epoch, so their order within an epoch does not matter: tombstones come
//! first. Timestamps and headers are those of the epoch; an epoch that is sent again is byte for byte the same.

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use bytes::Bytes;
use millstream_types::{BinaryArena, BoxError, Chunk, Epoch, JobId, OutBatch};

use crate::{
    StreamError,
    metrics::JobMetrics,
    plan::{Envelope, TopicOutput},
};

#[derive(Debug)]
pub(crate) struct Sink {
    plan: TopicOutput,
    job: JobId,
    metrics: JobMetrics,
}

impl Sink {
    pub(crate) fn new(plan: TopicOutput, job: JobId, metrics: JobMetrics) -> Self {
        Self { plan, job, metrics }
    }

    /// `None` if there is nothing to write.
    pub(crate) fn encode(&self, epoch: Epoch, chunks: &[Chunk]) -> Result<Option<OutBatch>, StreamError> {
        let mut out = OutBatch::new(std::sync::Arc::clone(&self.plan.topic), epoch.0 as i64);
        if self.plan.headers_epoch {
            out.headers.push(("millstream-job".into(), Bytes::from(self.job.to_string())));
            out.headers.push(("millstream-epoch".into(), Bytes::from(epoch.to_string())));
        }
        for chunk in chunks {
            let inserts = chunk.ops.iter().filter(|op| op.is_insert()).count();
            if inserts == chunk.len() {
                self.values(&chunk.rows, &mut out)?;
                continue;
            }
            let mask: BooleanArray = chunk.ops.iter().map(|op| Some(op.is_insert())).collect();
            if self.plan.envelope == Envelope::Upsert {
                let deleted = filter_record_batch(&chunk.rows, &arrow::compute::not(&mask)?)?;
                self.keys(&deleted, &mut out.keys)?;
                for _ in 0..deleted.num_rows() {
                    out.values.push(None);
                }
            } else {
                self.metrics.dropped_records.inc_by((chunk.len() - inserts) as u64);
            }
            if inserts > 0 {
                self.values(&filter_record_batch(&chunk.rows, &mask)?, &mut out)?;
            }
        }
        self.partition(epoch, &mut out);
        self.metrics.sink_records.inc_by(out.len() as u64);
        Ok((!out.is_empty()).then_some(out))
    }

    fn values(&self, rows: &RecordBatch, out: &mut OutBatch) -> Result<(), StreamError> {
        self.keys(rows, &mut out.keys)?;
        let rows = rows.project(&self.plan.value_columns)?;
        self.plan.value_encoder.encode(&rows, &mut out.values).map_err(|e| self.error(e))
    }

    fn keys(&self, rows: &RecordBatch, keys: &mut BinaryArena) -> Result<(), StreamError> {
        let Some(encoder) = &self.plan.key_encoder else {
            for _ in 0..rows.num_rows() {
                keys.push(None);
            }
            return Ok(());
        };
        encoder.encode(&rows.project(&self.plan.key_columns)?, keys).map_err(|e| self.error(e))
    }

    /// By key; records without one are spread evenly from a place that depends on the epoch, so that small epochs do not all hit partition 0.
    fn partition(&self, epoch: Epoch, out: &mut OutBatch) {
        let n = self.plan.partitions.max(1);
        out.partitions.reserve(out.keys.len());
        for i in 0..out.keys.len() {
            let p = match out.keys.get(i) {
                Some(key) => (self.plan.partitioner)(key, n),
                None => ((epoch.0.wrapping_add(i as u64)) % n as u64) as i32,
            };
            out.partitions.push(p);
        }
    }

    fn error(&self, source: BoxError) -> StreamError {
        StreamError::Encode { topic: self.plan.topic.to_string(), source }
    }
}
