//! The chain of a job's operators, and what an epoch leaves behind.

use millstream_types::{Chunk, Epoch, OutBatch, RegionId};

use super::{
    backfill::driver::Downstream, filter::Filter, hash_agg::HashAgg, materialize::Materialize, project::Project,
    sink::Sink,
};
use crate::StreamError;

/// Rows for a state region of the job.
#[derive(Debug, Clone)]
pub(crate) struct StateWrite {
    pub(crate) region: RegionId,
    /// Inserts and deletes in the region's schema.
    pub(crate) chunk: Chunk,
}

#[derive(Debug)]
pub(crate) enum Operator {
    Filter(Filter),
    Project(Project),
    HashAgg(Box<HashAgg>),
}

/// What one epoch produced.
#[derive(Debug, Default)]
pub(crate) struct EpochRows {
    pub(crate) view: Vec<Chunk>,
    pub(crate) state: Vec<StateWrite>,
    pub(crate) derived: Option<OutBatch>,
}

impl EpochRows {
    pub(crate) fn is_empty(&self) -> bool {
        self.view.is_empty() && self.state.is_empty() && self.derived.is_none()
    }
}

#[derive(Debug)]
pub(crate) struct Pipeline {
    operators: Vec<Operator>,
    materialize: Materialize,
    sink: Option<Sink>,
    /// Whether the net rows are also stored in a view.
    has_view: bool,
    /// Rows and bytes that `materialize` has of this epoch.
    collected: (u64, usize),
}

impl Pipeline {
    pub(crate) fn new(operators: Vec<Operator>, materialize: Materialize, sink: Option<Sink>, has_view: bool) -> Self {
        Self { operators, materialize, sink, has_view, collected: (0, 0) }
    }

    /// Takes a chunk through the operators from place `from` on.
    async fn push(&mut self, from: usize, chunk: Chunk) -> Result<(), StreamError> {
        let mut chunk = chunk;
        for op in &mut self.operators[from..] {
            let next = match op {
                Operator::Filter(f) => f.chunk(chunk)?,
                Operator::Project(p) => p.chunk(chunk)?,
                Operator::HashAgg(a) => {
                    a.chunk(&chunk).await?;
                    None
                }
            };
            match next {
                Some(c) => chunk = c,
                None => return Ok(()),
            }
        }
        self.collected.0 += chunk.len() as u64;
        self.collected.1 += chunk.rows.columns().iter().map(slice_bytes).sum::<usize>();
        self.materialize.chunk(chunk)
    }

    /// Ends the epoch. `applied` is the newest epoch whose rows are in the regions.
    pub(crate) async fn barrier(&mut self, epoch: Epoch, applied: Epoch) -> Result<EpochRows, StreamError> {
        let mut rows = EpochRows::default();
        for i in 0..self.operators.len() {
            if let Operator::HashAgg(a) = &mut self.operators[i]
                && let Some(chunk) = a.barrier(epoch, applied, &mut rows.state).await?
            {
                self.push(i + 1, chunk).await?;
            }
        }
        self.collected = (0, 0);
        let net = self.materialize.barrier()?;
        if let Some(sink) = &self.sink {
            rows.derived = sink.encode(epoch, &net)?;
        }
        if self.has_view {
            rows.view = net;
        }
        Ok(rows)
    }
}

impl Downstream for Pipeline {
    async fn chunk(&mut self, chunk: Chunk) -> Result<(), StreamError> {
        self.push(0, chunk).await
    }

    fn held(&self) -> (u64, usize) {
        let groups = self.operators.iter().map(|op| if let Operator::HashAgg(a) = op { a.dirty_groups() } else { 0 });
        (self.collected.0 + groups.sum::<usize>() as u64, self.collected.1)
    }
}

fn slice_bytes(array: &arrow::array::ArrayRef) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or(0)
}
