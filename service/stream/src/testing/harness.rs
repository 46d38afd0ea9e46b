//! The operators of a plan without job, barriers and log: chunks in, the net rows of an epoch out, state applied at once or later.

use std::sync::Arc;

use millstream_storage::{Region, RegionSpec};
use millstream_types::{Chunk, Epoch, RegionId, testing::literal};

use super::MemoryRegion;
use crate::{
    StreamConfig, StreamError,
    executor::{
        backfill::driver::Downstream,
        cache_budget::CacheBudget,
        pipeline::{EpochRows, Pipeline},
    },
    job::task::build,
    metrics::StreamMetrics,
    plan::JobPlan,
};

#[derive(Debug)]
pub struct Harness {
    plan: JobPlan,
    config: StreamConfig,
    regions: Vec<Arc<MemoryRegion>>,
    pipeline: Pipeline,
    epoch: Epoch,
    /// Epochs that are sealed and not applied yet, as commits in flight.
    in_flight: Vec<EpochRows>,
}

impl Harness {
    pub fn new(plan: JobPlan, config: StreamConfig) -> Result<Self, StreamError> {
        let regions: Vec<Arc<MemoryRegion>> = plan.own_regions().iter().map(twin).collect();
        let pipeline = pipeline(&plan, &config, &regions)?;
        Ok(Self { plan, config, regions, pipeline, epoch: Epoch(0), in_flight: Vec::new() })
    }

    pub async fn chunk(&mut self, chunk: Chunk) -> Result<(), StreamError> {
        self.pipeline.chunk(chunk).await
    }

    /// Ends the epoch; its rows wait as a commit in flight. Returns the net rows as text, one line a chunk.
    pub async fn barrier(&mut self) -> Result<String, StreamError> {
        let applied = Epoch(self.epoch.0 - self.in_flight.len() as u64);
        self.epoch.0 += 1;
        let rows = self.pipeline.barrier(self.epoch, applied, &[]).await?;
        let text = rows.view.iter().map(literal::print).collect::<Vec<_>>().join("\n");
        self.in_flight.push(rows);
        Ok(text)
    }

    /// Ends the epoch as committed, without storing it. Returns how many rows it had; for measurements.
    pub async fn pass(&mut self) -> Result<usize, StreamError> {
        self.epoch.0 += 1;
        let rows = self.pipeline.barrier(self.epoch, self.epoch, &[]).await?;
        Ok(rows.view.iter().map(Chunk::len).sum())
    }

    /// The commits in flight succeed.
    pub fn commit(&mut self) {
        for rows in self.in_flight.drain(..) {
            for w in rows.state {
                find(&self.regions, w.region).put(&w.chunk);
            }
            if let Some(view) = &self.plan.output.view {
                rows.view.iter().for_each(|c| _ = find(&self.regions, view.region.id).put(c));
            }
        }
    }

    /// A crash: commits in flight are lost and the operators know nothing any more. Returns how many epochs were lost.
    pub fn restart(&mut self) -> Result<usize, StreamError> {
        let lost = self.in_flight.len();
        self.epoch.0 -= lost as u64;
        self.in_flight.clear();
        self.pipeline = pipeline(&self.plan, &self.config, &self.regions)?;
        Ok(lost)
    }

    /// The view as committed, sorted text.
    pub fn view(&self) -> String {
        let Some(view) = &self.plan.output.view else { return String::new() };
        let region = find(&self.regions, view.region.id);
        literal::print_sorted(&region.rows_at(region.applied()))
    }

    pub fn region(&self, id: RegionId) -> Arc<MemoryRegion> {
        Arc::clone(find(&self.regions, id))
    }
}

fn twin(spec: &RegionSpec) -> Arc<MemoryRegion> {
    Arc::new(MemoryRegion::new(spec.id, Arc::clone(&spec.schema), spec.wal.clone()))
}

fn find(regions: &[Arc<MemoryRegion>], id: RegionId) -> &Arc<MemoryRegion> {
    regions.iter().find(|r| r.id() == id).expect("the plan lists its regions")
}

fn pipeline(plan: &JobPlan, config: &StreamConfig, regions: &[Arc<MemoryRegion>]) -> Result<Pipeline, StreamError> {
    let metrics = StreamMetrics::new(&prometheus::Registry::new())?.job(&plan.name);
    let regions: Vec<Arc<dyn Region>> = regions.iter().map(|r| Arc::clone(r) as Arc<dyn Region>).collect();
    build(&CacheBudget::new(config.state_cache_bytes), plan, &regions, &[], &metrics)
}
