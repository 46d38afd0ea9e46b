//! Goal: S2 and S3 under faults. At every quiet point the view equals the batch query over the committed input, and the derived topic, folded by a
//! `read_committed` consumer, equals the view; no epoch comes twice or out of order.
//! Method: the whole engine over a memory log and a storage twin; random writes, barriers, lost answers (committed or not), aborts, fences, pauses, rate
//! limits and crashes. The twin refuses reads at sequences that are not pinned (B4). Seeds are printed on failure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use arrow::array::RecordBatch;
use datafusion_expr::Operator;
use millstream_storage::{LostRange, Region};
use millstream_stream::{
    AggFunc::{Count, CountStar, Max, Min, Sum},
    Envelope, JobPlan, JobState, Node, StreamConfig, StreamDeps, StreamService,
    plan::region_column,
    testing::{MemoryRegion, MemoryStorage},
};
use millstream_types::{
    Chunk, LogSystem, Op, RegionId, Seq, TopicPartition,
    runtime::{SystemClock, Tasks},
    testing::{CommitFault, MemoryLog, literal},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{
    INPUT, VIEW, Where, binary, call, column, int, plan, small, spec, table, topic_agrees, with_agg, with_topic,
    with_view,
};

pub(crate) const WAL: &str = "ms.wal";
pub(crate) const TOPIC: &str = "derived";
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// One cluster, one storage, and a service that can be killed and started again.
pub(crate) struct World {
    pub(crate) log: MemoryLog,
    pub(crate) storage: Arc<MemoryStorage>,
    pub(crate) inputs: Vec<Arc<MemoryRegion>>,
    pub(crate) plan: JobPlan,
    pub(crate) config: StreamConfig,
    pub(crate) service: StreamService,
    pub(crate) seed: u64,
}

impl World {
    pub(crate) async fn new(plan: JobPlan, config: StreamConfig, seed: u64) -> Self {
        let log = MemoryLog::new();
        log.create_topic(WAL, 1);
        log.create_topic(TOPIC, 3);
        let storage = Arc::new(MemoryStorage::new(log.clone(), WAL));
        let mut inputs = Vec::new();
        for id in &plan.input.regions {
            let s = spec(id.table, id.number, plan.input.schema.as_ref().clone());
            millstream_storage::Storage::open_region(storage.as_ref(), &s).await.unwrap();
            inputs.push(storage.memory_region(*id).unwrap());
        }
        let service = start(&log, &storage, &config);
        Self { log, storage, inputs, plan, config, service, seed }
    }

    pub(crate) async fn create(&self) {
        self.service.create_job(self.plan.clone()).await.unwrap();
    }

    /// Nothing of the old process goes on but its commit in flight, whose client is dropped.
    pub(crate) async fn crash(&mut self) {
        let old = std::mem::replace(&mut self.service, start(&self.log, &self.storage, &self.config));
        old.shutdown(Duration::ZERO).await;
        drop(old);
        self.service.start_job(self.plan.clone(), false).await.unwrap();
    }

    pub(crate) async fn settle(&self) {
        let wanted: Vec<_> = self.inputs.iter().map(|r| (r.id(), r.applied())).collect();
        let reached = self.service.wait_for(self.plan.job, &wanted, DEADLINE).await;
        reached.unwrap_or_else(|e| panic!("seed {}: {e}; {:?}", self.seed, self.service.job(self.plan.job)));
    }

    pub(crate) fn input_rows(&self) -> Vec<RecordBatch> {
        self.inputs.iter().map(|r| r.rows_at(r.applied())).collect()
    }

    /// Visible columns of the view as committed.
    pub(crate) fn view(&self) -> RecordBatch {
        let v = self.storage.memory_region(RegionId::new(VIEW, 0)).unwrap();
        v.rows_at(v.applied()).project(&v.schema().visible()).unwrap()
    }

    /// What a consumer has: per key the newest value; checks that epochs rise and no key comes twice in one.
    pub(crate) fn folded(&self) -> BTreeMap<String, String> {
        let mut rows: BTreeMap<String, String> = BTreeMap::new();
        let mut seen: HashMap<(String, String), i64> = HashMap::new();
        for p in 0..3 {
            let mut last = 0_u64;
            for r in self.log.committed(&TopicPartition::new(TOPIC, p)) {
                let key = r.key_text().unwrap();
                let epoch = String::from_utf8(r.headers.iter().find(|h| h.0 == "millstream-epoch").unwrap().1.to_vec())
                    .unwrap();
                let n: u64 = epoch.parse().unwrap();
                assert!(n >= last, "seed {}: epoch {n} after {last} in partition {p}", self.seed);
                last = n;
                let twice = seen.insert((key.clone(), epoch), r.offset);
                assert!(twice.is_none(), "seed {}: key {key} twice in epoch {n}", self.seed);
                match r.value_text() {
                    Some(v) => _ = rows.insert(key, v),
                    None => {
                        assert!(rows.remove(&key).is_some(), "seed {}: tombstone of {key} without a row", self.seed)
                    }
                }
            }
        }
        rows
    }

    pub(crate) fn check(&self, expected: &dyn Fn(&[RecordBatch]) -> String, step: usize) {
        let view = literal::print_sorted(&self.view());
        assert_eq!(view, expected(&self.input_rows()), "seed {} step {step}: view and batch query", self.seed);
        topic_agrees(&self.folded(), &view).unwrap_or_else(|e| panic!("seed {} step {step}: {e}", self.seed));
    }
}

fn start(log: &MemoryLog, storage: &Arc<MemoryStorage>, config: &StreamConfig) -> StreamService {
    let deps = StreamDeps {
        storage: Arc::clone(storage) as _,
        logs: log.system(),
        tasks: Tasks::current(),
        clock: Arc::new(SystemClock),
        wal_topic: WAL.into(),
        prefix: "ms".into(),
        metrics: prometheus::Registry::new(),
    };
    let service = StreamService::new(config.clone(), deps).unwrap();
    service.run_injector();
    service
}

/// Random puts and deletes of 40 keys in each region: every key may be in all of them, as after partitions were added.
fn random_writes(rng: &mut StdRng, world: &World) {
    let s = world.plan.input.schema.arrow();
    for region in &world.inputs {
        let mut rows: BTreeMap<i64, String> = BTreeMap::new();
        for _ in 0..rng.random_range(0..12) {
            let k = rng.random_range(0..40);
            let row = if rng.random_bool(0.3) {
                format!("- {k} NULL NULL")
            } else {
                let v = if rng.random_bool(0.1) { "NULL".into() } else { rng.random_range(0..100).to_string() };
                format!("+ {k} g{} {v}", rng.random_range(0..5))
            };
            rows.insert(k, row);
        }
        if !rows.is_empty() {
            let text = rows.into_values().collect::<Vec<_>>().join(" | ");
            region.put(&chunk(&s, &text));
        } else if rng.random_bool(0.3) {
            region.skip(3);
        }
    }
}

pub(crate) fn chunk(schema: &arrow::datatypes::SchemaRef, text: &str) -> Chunk {
    let nullable = literal::schema("k bigint, g varchar, v bigint");
    let c = literal::chunk(&nullable, text);
    Chunk::new(RecordBatch::try_new(Arc::clone(schema), c.rows.columns().to_vec()).unwrap(), c.ops)
}

async fn faults(seed: u64, plan: JobPlan, expected: &dyn Fn(&[RecordBatch]) -> String) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut world = World::new(plan, small(), seed).await;
    for _ in 0..rng.random_range(0..20) {
        random_writes(&mut rng, &world);
    }
    world.create().await;
    for step in 0..40 {
        match rng.random_range(0..14) {
            0..5 => random_writes(&mut rng, &world),
            5 => world.log.fail_next_commit(CommitFault::Unknown { committed: rng.random_bool(0.5) }),
            6 => world.log.abort_next_commit(),
            7 => {
                let mut zombie_killer = world.log.epoch_writer(&format!("ms.{}", world.plan.job));
                zombie_killer.init().await.unwrap();
            }
            8 => world.crash().await,
            9 => {
                let limit = [None, Some(0), Some(1), Some(2_000)][rng.random_range(0..4)];
                world.service.set_rate_limit(world.plan.job, limit).unwrap();
            }
            10 => world.service.pause(world.plan.job).unwrap(),
            11 => world.service.resume(world.plan.job).unwrap(),
            12 => {
                // Many writes at once: the gap is above `catchup_rows`, so the job sweeps over it.
                for _ in 0..6 {
                    random_writes(&mut rng, &world);
                }
            }
            _ => tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await,
        }
        tokio::task::yield_now().await;
        if step % 10 == 9 {
            world.service.resume(world.plan.job).unwrap();
            world.service.set_rate_limit(world.plan.job, None).unwrap();
            world.settle().await;
            world.check(expected, step);
        }
    }
    let status = world.service.job(world.plan.job).unwrap();
    assert!(status.finish_epoch.is_some() && status.state == JobState::Running, "seed {seed}: {status:?}");
    world.service.drop_job(world.plan.job).await.unwrap();
    assert!(world.inputs.iter().all(|r| r.pins().is_empty()), "pins go with the job");
    assert!(world.storage.memory_region(RegionId::new(VIEW, 0)).is_none());
}

pub(crate) fn input_table() -> millstream_types::TableSchema {
    table("k bigint, g varchar, v bigint", 1)
}

pub(crate) fn filtered() -> JobPlan {
    let t = input_table();
    let mut p = plan(&t, 2);
    p.input.with_region = true;
    p.nodes.push(Node::Filter { predicate: binary(column("v", 2), Operator::Gt, int(40)) });
    let mut out = table("k bigint, w bigint", 1).columns;
    out.push(region_column());
    let twice = binary(column("v", 2), Operator::Plus, column("v", 2));
    let exprs = [column("k", 0), twice, column("__region", 3)].into_iter().zip(out.clone()).collect();
    p.nodes.push(Node::Project { exprs });
    with_topic(with_view(p, out, vec![0, 2]), TOPIC, 3, Envelope::Upsert)
}

pub(crate) fn expect_filtered(input: &[RecordBatch]) -> String {
    let mut lines = Vec::new();
    for (k, _, v) in rows(input) {
        if let Some(v) = v.filter(|v| *v > 40) {
            lines.push(format!("{k} {}", 2 * v));
        }
    }
    lines.sort();
    lines.join(" | ")
}

pub(crate) fn grouped(at: Where) -> JobPlan {
    let t = input_table();
    let calls = vec![
        call(CountStar, None, "n", "BIGINT"),
        call(Count, Some(2), "nv", "BIGINT"),
        call(Sum, Some(2), "s", "BIGINT"),
        call(Min, Some(2), "lo", "BIGINT"),
        call(Max, Some(2), "hi", "BIGINT"),
    ];
    let mut p = plan(&t, 2);
    p.input.with_region = true;
    let row = p.input.row();
    let p = with_agg(p, &row, vec![1], calls, false, at);
    with_topic(p, TOPIC, 3, Envelope::Upsert)
}

pub(crate) fn expect_grouped(input: &[RecordBatch]) -> String {
    let mut groups: BTreeMap<String, (i64, Vec<i64>)> = BTreeMap::new();
    for (_, g, v) in rows(input) {
        let e = groups.entry(g).or_default();
        e.0 += 1;
        e.1.extend(v);
    }
    let text = |v: Option<i64>| v.map_or("NULL".to_owned(), |v| v.to_string());
    let line = |(g, (n, v)): (&String, &(i64, Vec<i64>))| {
        let sum = (!v.is_empty()).then(|| v.iter().sum::<i64>());
        let (lo, hi) = (v.iter().min().copied(), v.iter().max().copied());
        format!("{g} {n} {} {} {} {}", v.len(), text(sum), text(lo), text(hi))
    };
    let mut lines: Vec<String> = groups.iter().map(line).collect();
    lines.sort();
    lines.join(" | ")
}

fn rows(input: &[RecordBatch]) -> Vec<(i64, String, Option<i64>)> {
    use arrow::array::{Array, cast::AsArray};
    use arrow::datatypes::Int64Type;
    let mut all = Vec::new();
    for b in input {
        let (k, g, v) = (
            b.column(0).as_primitive::<Int64Type>(),
            b.column(1).as_string::<i32>(),
            b.column(2).as_primitive::<Int64Type>(),
        );
        all.extend((0..b.num_rows()).map(|i| (k.value(i), g.value(i).to_owned(), v.is_valid(i).then(|| v.value(i)))));
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_view_and_its_topic_survive_faults() {
    for seed in 0..12 {
        faults(seed, filtered(), &expect_filtered).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grouped_view_and_its_topic_survive_faults() {
    for seed in 100..110 {
        faults(seed, grouped(Where::View), &expect_grouped).await;
        faults(seed, grouped(Where::Own), &expect_grouped).await;
    }
}

/// Returns when the status satisfies the condition.
pub(crate) async fn eventually(world: &World, what: &str, is: impl Fn(&millstream_stream::JobStatus) -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let status = world.service.job(world.plan.job).unwrap();
        if is(&status) {
            return;
        }
        assert!(tokio::time::Instant::now() < end, "{what} not reached: {status:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn write(world: &World, region: usize, keys: std::ops::Range<i64>) {
    let text = keys.map(|k| format!("+ {k} g{} {k}", k % 3)).collect::<Vec<_>>().join(" | ");
    world.inputs[region].put(&chunk(&world.plan.input.schema.arrow(), &text));
}

#[tokio::test]
async fn a_paused_job_freezes_and_its_pins_keep_what_it_needs() {
    let mut world = World::new(filtered(), small(), 0).await;
    write(&world, 0, 0..200);
    world.create().await;
    world.settle().await;
    world.service.pause(world.plan.job).unwrap();
    eventually(&world, "paused", |s| s.state == JobState::Paused).await;
    let frozen = world.service.job(world.plan.job).unwrap().positions;
    for i in 0..30 {
        write(&world, 0, i..i + 50);
    }
    let epoch = world.service.job(world.plan.job).unwrap().committed_epoch;
    eventually(&world, "barriers go on", |s| s.committed_epoch > epoch).await;
    assert_eq!(world.service.job(world.plan.job).unwrap().positions, frozen);
    world.crash().await;
    world.settle().await;
    world.check(&expect_filtered, 0);
}

#[tokio::test]
async fn rate_zero_holds_the_scan_and_not_the_barriers() {
    let mut p = filtered();
    p.options.backfill_rate_limit = Some(0);
    let world = World::new(p, small(), 0).await;
    write(&world, 0, 0..100);
    world.create().await;
    eventually(&world, "an epoch", |s| s.committed_epoch.0 > 0).await;
    let epoch = world.service.job(world.plan.job).unwrap().committed_epoch;
    eventually(&world, "barriers go on", |s| s.committed_epoch > epoch).await;
    let s = world.service.job(world.plan.job).unwrap();
    assert!(s.backfills.iter().all(|b| b.rows == 0 && b.paused == ["limit"]), "{s:?}");
    let whole = s.backfills.iter().find(|b| b.region == world.inputs[0].id()).unwrap();
    assert_eq!(
        (whole.total, whole.fraction),
        (100, 0.0),
        "known before anything is scanned, although nothing was written since CREATE"
    );
    world.service.set_rate_limit(world.plan.job, Some(1_000_000)).unwrap();
    world.service.wait_running(world.plan.job).await.unwrap();
    world.settle().await;
    world.check(&expect_filtered, 0);
}

#[tokio::test]
async fn a_job_that_used_rows_which_its_table_lost_is_quarantined() {
    let world = World::new(filtered(), small(), 0).await;
    write(&world, 0, 0..100);
    world.create().await;
    world.settle().await;
    let used = world.inputs[0].applied();
    let running = async |why: &str| {
        let epoch = world.service.job(world.plan.job).unwrap().committed_epoch;
        eventually(&world, why, |s| s.committed_epoch > epoch && s.state == JobState::Running).await;
    };
    // Before the job came: in neither of them. At its position, while both run: it has none of it, and goes on behind it.
    world.inputs[0].lose(LostRange { from: Seq(0), to: Seq(used.0 - 10), at_ms: 1 });
    running("an old loss").await;
    world.inputs[0].lose(LostRange { from: used, to: Seq(used.0 + 10), at_ms: u64::MAX });
    running("a loss of what nobody has").await;
    write(&world, 0, 100..150);
    world.settle().await;
    running("behind the loss").await;
    // The table was set back by a restart, beyond which the job is, whether or not it is behind the end of the loss.
    world.inputs[0].lose(LostRange { from: Seq(used.0 - 5), to: Seq(used.0 + 3), at_ms: u64::MAX });
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    let reason = world.service.job(world.plan.job).unwrap().reason.unwrap();
    assert!(reason.code == "data_loss" && reason.message.contains("drop it and create it again"), "{reason:?}");
}

#[tokio::test]
async fn few_large_rows_are_too_much_for_one_epoch_as_many_small_ones_are() {
    for (row_bytes, passes) in [(32, 1), (10 << 20, 2)] {
        let world = World::new(filtered(), small(), 0).await;
        world.inputs[0].set_row_bytes(row_bytes);
        write(&world, 0, 0..10);
        world.create().await;
        world.settle().await;
        world.service.pause(world.plan.job).unwrap();
        eventually(&world, "paused", |s| s.state == JobState::Paused).await;
        // Fewer than `catchup_rows`; of 10 MiB each they are more than an epoch of 64 MiB.
        write(&world, 0, 10..20);
        world.service.resume(world.plan.job).unwrap();
        world.settle().await;
        world.check(&expect_filtered, 0);
        let status = world.service.job(world.plan.job).unwrap();
        assert_eq!(status.backfills.iter().map(|b| b.pass).max(), Some(passes), "rows of {row_bytes} bytes");
    }
}

#[tokio::test]
async fn a_job_can_be_dropped_while_the_broker_is_away() {
    let world = World::new(filtered(), small(), 0).await;
    write(&world, 0, 0..100);
    world.log.unavailable(true);
    world.create().await;
    eventually(&world, "waits for its producer", |s| s.reason.as_ref().is_some_and(|r| r.code == "txn_init")).await;
    world.service.drop_job(world.plan.job).await.unwrap();
    assert!(world.service.job(world.plan.job).is_none());
    assert!(world.storage.memory_region(RegionId::new(VIEW, 0)).is_none());
}

#[tokio::test]
async fn a_job_can_be_dropped_while_it_commits() {
    let world = World::new(filtered(), small(), 0).await;
    write(&world, 0, 0..100);
    let gate = world.log.hold_commits();
    world.create().await;
    gate.reached(1).await;
    world.service.drop_job(world.plan.job).await.unwrap();
    assert!(world.inputs.iter().all(|r| r.pins().is_empty()));
    gate.release();
}

#[tokio::test]
async fn another_plan_under_the_same_job_is_quarantined_and_names_both() {
    let mut world = World::new(filtered(), small(), 0).await;
    world.create().await;
    world.settle().await;
    world.plan.plan_hash = 2;
    world.crash().await;
    eventually(&world, "quarantined", |s| s.state == JobState::Quarantined).await;
    let reason = world.service.job(world.plan.job).unwrap().reason.unwrap();
    assert_eq!(reason.code, "plan_changed");
    assert!(world.service.wait_running(world.plan.job).await.is_err());
    world.service.drop_job(world.plan.job).await.unwrap();
}

#[tokio::test]
async fn a_missing_topic_degrades_the_job_until_it_is_there() {
    let p = with_topic(filtered(), "late", 3, Envelope::Upsert);
    let world = World::new(p, small(), 0).await;
    write(&world, 0, 0..100);
    world.create().await;
    let blocked = |s: &millstream_stream::JobStatus| s.reason.as_ref().is_some_and(|r| r.code == "output_blocked");
    eventually(&world, "output blocked", blocked).await;
    assert_eq!(world.view().num_rows(), 0, "nothing of the epoch is there without its records");
    world.log.create_topic("late", 3);
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), expect_filtered(&world.input_rows()));
    let records: usize = (0..3).map(|p| world.log.committed(&TopicPartition::new("late", p)).len()).sum();
    assert_eq!(records, world.view().num_rows());
}

#[tokio::test]
async fn a_global_row_is_there_before_any_input() {
    let t = input_table();
    let calls = vec![call(CountStar, None, "n", "BIGINT"), call(Sum, Some(2), "s", "BIGINT")];
    let p = with_agg(plan(&t, 1), &t.columns, vec![], calls, false, Where::View);
    let world = World::new(p, small(), 0).await;
    world.create().await;
    world.service.wait_running(world.plan.job).await.unwrap();
    assert_eq!(literal::print_sorted(&world.view()), "0 NULL");
    write(&world, 0, 1..4);
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "3 6");
}

#[tokio::test]
async fn a_min_keeps_a_value_that_another_partition_still_has_for_the_same_key() {
    let world = World::new(grouped(Where::View), small(), 0).await;
    let put = |region: usize, text: &str| put(&world, region, text);
    put(0, "+ 1 a 5 | + 2 a 9");
    // the topic was given more partitions, and the key moved: the old partition still has it
    put(1, "+ 1 a 5");
    world.create().await;
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "a 3 3 19 5 9");
    put(0, "- 1 a 5");
    world.settle().await;
    assert_eq!(literal::print_sorted(&world.view()), "a 2 2 14 5 9");
}

pub(crate) fn put(world: &World, region: usize, text: &str) {
    world.inputs[region].put(&chunk(&world.plan.input.schema.arrow(), text));
}

#[tokio::test]
async fn an_append_view_appends_each_row_once() {
    let t = table("k bigint, g varchar, v bigint", 0);
    let p = with_view(plan(&t, 2), t.columns.clone(), vec![]);
    let mut world = World::new(p, small(), 0).await;
    let append = |world: &World, region: usize, keys: std::ops::Range<i64>| {
        let text = keys.map(|k| format!("+ {k} g {k}")).collect::<Vec<_>>().join(" | ");
        let c = literal::chunk(&literal::schema("k bigint, g varchar, v bigint"), &text);
        let rows = RecordBatch::try_new(world.plan.input.schema.arrow(), c.rows.columns().to_vec()).unwrap();
        world.inputs[region].put(&Chunk::new(rows, vec![Op::Insert; c.ops.len()]));
    };
    append(&world, 0, 0..100);
    world.create().await;
    for i in 0..10 {
        append(&world, i % 2, 100 + 10 * i as i64..110 + 10 * i as i64);
        world.log.fail_next_commit(CommitFault::Unknown { committed: i % 3 == 0 });
        if i % 4 == 3 {
            world.crash().await;
        }
        world.settle().await;
    }
    let all: Vec<String> = rows(&[world.view()]).into_iter().map(|r| r.0.to_string()).collect();
    let mut sorted: Vec<i64> = all.iter().map(|s| s.parse().unwrap()).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..200).collect::<Vec<_>>());
    assert_eq!(INPUT.0, 1);
}
