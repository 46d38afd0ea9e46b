//! The engine as a map of regions, with replay of the shared WAL from the memory log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use millstream_storage::{
    Region, RegionSpec, Storage, StorageError,
    api::AppliedEntry,
    wal::entry::{self, Kind, Origin},
};
use millstream_types::{Epoch, EpochCuts, JobId, RegionId, Seq, ShardId, TopicPartition, testing::MemoryLog};

use super::MemoryRegion;

#[derive(Debug)]
pub struct MemoryStorage {
    log: MemoryLog,
    wal_topic: Arc<str>,
    regions: Mutex<BTreeMap<RegionId, Arc<MemoryRegion>>>,
}

impl MemoryStorage {
    pub fn new(log: MemoryLog, wal_topic: &str) -> Self {
        Self { log, wal_topic: wal_topic.into(), regions: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RegionId, Arc<MemoryRegion>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The twin of an open region.
    pub fn memory_region(&self, id: RegionId) -> Option<Arc<MemoryRegion>> {
        self.lock().get(&id).cloned()
    }

    fn create(&self, spec: &RegionSpec) -> Arc<MemoryRegion> {
        let new = || Arc::new(MemoryRegion::new(spec.id, Arc::clone(&spec.schema), spec.wal.clone()));
        Arc::clone(self.lock().entry(spec.id).or_insert_with(new))
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    async fn create_region(&self, spec: &RegionSpec) -> Result<(), StorageError> {
        self.create(spec);
        Ok(())
    }

    async fn open_region(&self, spec: &RegionSpec) -> Result<Arc<dyn Region>, StorageError> {
        Ok(self.create(spec))
    }

    async fn open_regions(&self, specs: Vec<RegionSpec>) -> Vec<(RegionId, Result<Arc<dyn Region>, StorageError>)> {
        specs.iter().map(|s| (s.id, Ok(self.create(s) as Arc<dyn Region>))).collect()
    }

    async fn close_region(&self, _id: RegionId) -> Result<(), StorageError> {
        Ok(())
    }

    async fn drop_region(&self, id: RegionId) -> Result<(), StorageError> {
        self.lock().remove(&id);
        Ok(())
    }

    fn region(&self, id: RegionId) -> Option<Arc<dyn Region>> {
        self.memory_region(id).map(|r| r as Arc<dyn Region>)
    }

    fn regions(&self) -> Vec<Arc<dyn Region>> {
        self.lock().values().map(|r| Arc::clone(r) as Arc<dyn Region>).collect()
    }

    async fn barrier(&self, epoch: Epoch) -> EpochCuts {
        let cuts = self.lock().iter().map(|(id, r)| (*id, r.applied())).collect();
        EpochCuts { epoch, cuts: Arc::new(cuts) }
    }

    async fn replay_shard(&self, shard: ShardId, job: JobId, regions: &[RegionId]) -> Result<(), StorageError> {
        let records = self.log.committed(&TopicPartition::new(Arc::clone(&self.wal_topic), shard.0 as i32));
        let mut open: HashMap<RegionId, Vec<AppliedEntry>> = HashMap::new();
        for r in records {
            let bytes = r.value.unwrap_or_default();
            let Ok((header, payload)) = entry::parse(&bytes) else { continue };
            let Origin::Job { job: of, epoch: _ } = header.origin else { continue };
            if of != job {
                continue;
            }
            if header.kind == Kind::Rows {
                let (rows, ops) =
                    entry::decode_rows(payload, header.rows).map_err(|what| StorageError::corrupt("wal", what))?;
                open.entry(header.region).or_default().push(AppliedEntry { seq: Seq(r.offset), rows, ops });
                continue;
            }
            for (id, entries) in open.drain().filter(|(id, _)| regions.contains(id)) {
                if let Some(region) = self.memory_region(id) {
                    // The entry's batch has the writer's field metadata; the region's schema is the same otherwise.
                    region.apply(entries).await?;
                }
            }
        }
        Ok(())
    }

    async fn unpin_job(&self, job: JobId) -> Result<(), StorageError> {
        self.lock().values().for_each(|r| r.unpin_job(job));
        Ok(())
    }
}
