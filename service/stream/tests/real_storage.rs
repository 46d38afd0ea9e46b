//! Goal: the same promises over the real region engine: pins, flushes, compactions, replay and leadership included.
//! Method: memory log and memory bucket; random writes, flushes, compactions, commit faults, fences, job restarts and crashes of the whole process; at
//! quiet points the view equals its recomputation and the folded topic equals the view. Seeds are printed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arrow::{array::RecordBatch, compute::concat_batches};
use futures::StreamExt;
use millstream_storage::{
    Engine, Region, RegionSpec, ScanItem, ScanRequest, Storage, StorageConfig, StorageDeps, listener::NoListener,
    object_store::Bucket,
};
use millstream_stream::{JobPlan, JobState, StreamConfig, StreamDeps, StreamService};
use millstream_types::{
    CommitOutcome, LogSystem, RegionId, TopicPartition,
    runtime::{SystemClock, Tasks},
    testing::{CommitFault, MemoryLog, literal},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    end_to_end::{TOPIC, WAL, chunk, expect_filtered, expect_grouped, filtered, grouped},
    support::{VIEW, Where, small, spec, topic_agrees},
};

const DEADLINE: Duration = Duration::from_secs(60);

struct World {
    log: MemoryLog,
    bucket: Arc<Bucket>,
    engine: Arc<Engine>,
    service: StreamService,
    plan: JobPlan,
    config: StreamConfig,
    seed: u64,
}

fn storage_config() -> StorageConfig {
    let mut c = StorageConfig { workers: 1, ..StorageConfig::default() };
    c.compaction.automatic = false;
    c.pins.grace = Duration::ZERO;
    c
}

async fn processes(log: &MemoryLog, bucket: &Arc<Bucket>, config: &StreamConfig) -> (Arc<Engine>, StreamService) {
    let deps = StorageDeps {
        bucket: Arc::clone(bucket),
        logs: log.system(),
        tasks: Tasks::current(),
        clock: Arc::new(SystemClock),
        listener: Arc::new(NoListener),
        registry: prometheus::Registry::new(),
        wal_topic: WAL.into(),
        prefix: "ms".into(),
        replica: "test".into(),
    };
    let engine = Engine::start(storage_config(), deps).await.unwrap();
    let deps = StreamDeps {
        storage: Arc::clone(&engine) as _,
        logs: log.system(),
        tasks: Tasks::current(),
        clock: Arc::new(SystemClock),
        wal_topic: WAL.into(),
        prefix: "ms".into(),
        metrics: prometheus::Registry::new(),
    };
    let service = StreamService::new(config.clone(), deps).unwrap();
    service.run_injector();
    (engine, service)
}

impl World {
    async fn new(plan: JobPlan, seed: u64) -> Self {
        let log = MemoryLog::new();
        log.create_topic(WAL, 1);
        log.create_topic(TOPIC, 3);
        let (bucket, config) = (Bucket::memory(), small());
        let (engine, service) = processes(&log, &bucket, &config).await;
        let world = Self { log, bucket, engine, service, plan, config, seed };
        for s in world.input_specs() {
            world.engine.create_region(&s).await.unwrap();
            world.engine.open_region(&s).await.unwrap();
        }
        world
    }

    fn input_specs(&self) -> Vec<RegionSpec> {
        let schema = self.plan.input.schema.as_ref();
        self.plan.input.regions.iter().map(|id| spec(id.table, id.number, schema.clone())).collect()
    }

    fn inputs(&self) -> Vec<Arc<dyn Region>> {
        self.plan.input.regions.iter().map(|id| self.engine.region(*id).unwrap()).collect()
    }

    /// Memory is lost; bucket and log stay.
    async fn crash(&mut self) {
        self.service.shutdown(Duration::ZERO).await;
        self.engine.stop().await;
        let (engine, service) = processes(&self.log, &self.bucket, &self.config).await;
        (self.engine, self.service) = (engine, service);
        let mut all = self.input_specs();
        all.extend(self.plan.own_regions());
        for (id, opened) in self.engine.open_regions(all).await {
            opened.unwrap_or_else(|e| panic!("seed {}: region {id}: {e}", self.seed));
        }
        self.service.start_job(self.plan.clone(), false).await.unwrap();
    }

    async fn write(&self, rng: &mut StdRng) {
        for region in &self.inputs() {
            let mut rows: BTreeMap<i64, String> = BTreeMap::new();
            for _ in 0..rng.random_range(1..12) {
                let k = rng.random_range(0..40);
                let row = if rng.random_bool(0.3) {
                    format!("- {k} NULL NULL")
                } else {
                    format!("+ {k} g{} {}", rng.random_range(0..5), rng.random_range(0..100))
                };
                rows.insert(k, row);
            }
            let c = chunk(&self.plan.input.schema.arrow(), &rows.into_values().collect::<Vec<_>>().join(" | "));
            // Faults are meant for the job, so a write that meets one asks again with its id.
            let id = rng.random();
            let mut tries = 0;
            while let Err(e) = region.write(c.rows.clone(), c.ops.clone(), id).await {
                tries += 1;
                assert!(tries < 20, "seed {}: {e}", self.seed);
            }
        }
    }

    async fn check(&self, expected: fn(&[RecordBatch]) -> String, step: usize) {
        let inputs = self.inputs();
        let wanted: Vec<_> = inputs.iter().map(|r| (r.id(), r.applied())).collect();
        let reached = self.service.wait_for(self.plan.job, &wanted, DEADLINE).await;
        reached
            .unwrap_or_else(|e| panic!("seed {} step {step}: {e}; {:?}", self.seed, self.service.job(self.plan.job)));
        let mut input = Vec::new();
        for r in &inputs {
            input.push(rows(r.as_ref()).await);
        }
        let region = self.engine.region(RegionId::new(VIEW, 0)).unwrap();
        let view = literal::print_sorted(&rows(region.as_ref()).await.project(&region.schema().visible()).unwrap());
        assert_eq!(view, expected(&input), "seed {} step {step}: view and batch query", self.seed);
        topic_agrees(&self.folded(), &view).unwrap_or_else(|e| panic!("seed {} step {step}: {e}", self.seed));
    }

    fn folded(&self) -> BTreeMap<String, String> {
        let mut rows: BTreeMap<String, Option<String>> = BTreeMap::new();
        for p in 0..3 {
            for r in self.log.committed(&TopicPartition::new(TOPIC, p)) {
                rows.insert(r.key_text().unwrap(), r.value_text());
            }
        }
        rows.into_iter().filter_map(|(k, v)| Some((k, v?))).collect()
    }
}

async fn rows(region: &dyn Region) -> RecordBatch {
    let mut scan = region.scan(ScanRequest::snapshot(region.applied()));
    let mut all = Vec::new();
    while let Some(item) = scan.next().await {
        if let ScanItem::Rows { chunk, .. } = item.unwrap() {
            all.push(chunk.rows);
        }
    }
    concat_batches(&region.schema().arrow(), &all).unwrap()
}

async fn faults(seed: u64, plan: JobPlan, expected: fn(&[RecordBatch]) -> String) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(plan, seed).await;
    for _ in 0..rng.random_range(0..10) {
        world.write(&mut rng).await;
    }
    world.service.create_job(world.plan.clone()).await.unwrap();
    for step in 0..40 {
        match rng.random_range(0..12) {
            0..4 => world.write(&mut rng).await,
            4 => world.log.fail_next_commit(CommitFault::Unknown { committed: rng.random_bool(0.5) }),
            5 => world.log.abort_next_commit(),
            6 => {
                let mut other = world.log.epoch_writer(&format!("ms.{}", world.plan.job));
                other.init().await.unwrap();
                assert!(matches!(
                    other.commit(&[]).await,
                    CommitOutcome::Committed { .. } | CommitOutcome::Unknown(_) | CommitOutcome::Aborted(_)
                ));
            }
            7 => world.crash().await,
            8 | 9 => {
                let all = world.engine.regions();
                let region = &all[rng.random_range(0..all.len())];
                region.flush().await.unwrap();
                if rng.random_bool(0.5) {
                    region.compact().await.unwrap();
                }
            }
            10 => {
                for _ in 0..6 {
                    world.write(&mut rng).await;
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await,
        }
        if step % 8 == 7 {
            world.check(expected, step).await;
        }
    }
    let status = world.service.job(world.plan.job).unwrap();
    assert!(status.finish_epoch.is_some() && status.state == JobState::Running, "seed {seed}: {status:?}");
    world.service.drop_job(world.plan.job).await.unwrap();
    assert!(world.engine.region(RegionId::new(VIEW, 0)).is_none());
    world.engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_on_the_real_engine_survive_faults_and_crashes() {
    for seed in 0..4 {
        faults(seed, filtered(), expect_filtered).await;
        faults(seed + 100, grouped(Where::View), expect_grouped).await;
        faults(seed + 200, grouped(Where::Own), expect_grouped).await;
    }
}
