//! An engine on a log and a bucket in memory, with gates at its durability edges. `crash` stops it where it stands; `start` begins anew on the same data.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use async_trait::async_trait;
use futures::TryStreamExt;
use millstream_storage::{
    Engine, Region, RegionSpec, ScanItem, ScanRequest, Storage, StorageConfig, StorageDeps, StorageError, WalBinding,
    api::OnDataLoss,
    listener::{Point, WorkerListener},
    object_store::Bucket,
    wal::EpochBatch,
};
use millstream_types::{
    Column, CommitOutcome, Decoded, Decoder, DecoderFactory, Epoch, EpochWriter, JobId, LogSystem, Offset, Op,
    RawBatch, RegionId, Seq, ShardId, SqlType, TableId, TableSchema, TopicPartition,
    runtime::{Clock, SystemClock, Tasks},
    testing::MemoryLog,
};
use tokio::sync::Notify;

use crate::data::faulty::{FaultyStore, faulty};

pub(crate) const WAL: &str = "t.wal";
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Key and value; `None` is a delete.
pub(crate) type Row = (i64, Option<i64>);
/// What a checkpoint has for one region.
pub(crate) type Part<'a> = (&'a Arc<dyn Region>, &'a [Row]);

pub(crate) struct Env {
    pub log: MemoryLog,
    pub store: Arc<FaultyStore>,
    pub bucket: Arc<Bucket>,
    pub config: StorageConfig,
    pub clock: Arc<dyn Clock>,
    pub gates: Arc<Gates>,
    pub engine: Arc<Engine>,
}

/// Small limits and short intervals; nothing is kept longer than a test.
pub(crate) fn small() -> StorageConfig {
    let mut c = StorageConfig {
        workers: 2,
        write_buffer_bytes: 4 << 20,
        region_buffer_bytes: 1 << 20,
        stall_wait: Duration::from_millis(300),
        check_interval: Duration::from_millis(200),
        open_fresh_wait: Duration::from_secs(10),
        ..StorageConfig::default()
    };
    c.wal.prune_interval = Duration::from_secs(3600);
    c.wal.keep_tail = Duration::ZERO;
    c.wal.guard_interval = Duration::from_secs(3600);
    c.flush.interval = Duration::from_secs(3600);
    c.flush.backoff_min = Duration::from_millis(5);
    c.flush.backoff_max = Duration::from_millis(50);
    c.compaction.automatic = false;
    c.pins.grace = Duration::ZERO;
    c.pins.publish_interval = Duration::from_secs(3600);
    c.gc.interval = Duration::from_secs(3600);
    c.gc.file_grace = Duration::ZERO;
    c
}

impl Env {
    pub(crate) async fn new() -> Env {
        Env::with(small()).await
    }

    pub(crate) async fn with(config: StorageConfig) -> Env {
        let log = MemoryLog::new();
        log.create_topic(WAL, 2);
        let (store, bucket) = faulty();
        let gates = Arc::new(Gates::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let engine = start(&config, &log, &bucket, &clock, &gates).await;
        Env { log, store, bucket, config, clock, gates, engine }
    }

    /// A second process on the same log and bucket.
    pub(crate) async fn second(&self) -> Arc<Engine> {
        start(&self.config, &self.log, &self.bucket, &self.clock, &Arc::new(Gates::default())).await
    }

    pub(crate) async fn crash(&mut self) {
        self.engine.kill().await;
        self.gates = Arc::new(Gates::default());
        self.engine = start(&self.config, &self.log, &self.bucket, &self.clock, &self.gates).await;
    }

    pub(crate) async fn create_open(&self, spec: &RegionSpec) -> Arc<dyn Region> {
        self.engine.create_region(spec).await.unwrap();
        self.engine.open_region(spec).await.unwrap()
    }
}

async fn start(
    config: &StorageConfig,
    log: &MemoryLog,
    bucket: &Arc<Bucket>,
    clock: &Arc<dyn Clock>,
    gates: &Arc<Gates>,
) -> Arc<Engine> {
    let deps = StorageDeps {
        bucket: bucket.clone(),
        logs: log.system(),
        tasks: Tasks::current(),
        clock: clock.clone(),
        listener: gates.clone(),
        registry: prometheus::Registry::new(),
        wal_topic: WAL.into(),
        prefix: "t".into(),
        replica: "test".into(),
    };
    Engine::start(config.clone(), deps).await.unwrap()
}

/// Columns id BIGINT (key), v BIGINT.
pub(crate) fn keyed_schema() -> Arc<TableSchema> {
    Arc::new(TableSchema {
        id: 1,
        columns: vec![Column::new(1, "id", SqlType::BigInt).not_null(), Column::new(2, "v", SqlType::BigInt)],
        primary_key: vec![0],
    })
}

pub(crate) fn append_schema() -> Arc<TableSchema> {
    Arc::new(TableSchema { primary_key: vec![], ..(*keyed_schema()).clone() })
}

pub(crate) fn shared_spec(table: u32, schema: Arc<TableSchema>) -> RegionSpec {
    RegionSpec {
        id: RegionId::new(TableId(table), 0),
        schema,
        wal: WalBinding::Shared { shard: ShardId(0) },
        table_name: format!("table_{table}").into(),
        decoder: None,
        bad_records: None,
        on_data_loss: OnDataLoss::Fail,
    }
}

/// A table over partition 0 of `topic`; the topic must exist.
pub(crate) async fn topic_spec(env: &Env, table: u32, topic: &str, schema: Arc<TableSchema>) -> RegionSpec {
    let info = env.log.system().admin().describe(topic).await.unwrap().unwrap();
    let partition = TopicPartition::new(topic, 0);
    let start = env.log.ends(&partition).unwrap().start.into();
    let keyed = !schema.primary_key.is_empty();
    RegionSpec {
        id: RegionId::new(TableId(table), 0),
        wal: WalBinding::Topic { partition, topic_id: info.topic_id, start },
        table_name: topic.into(),
        decoder: Some(Arc::new(TextDecoder { schema: schema.clone(), keyed })),
        schema,
        bad_records: None,
        on_data_loss: OnDataLoss::Fail,
    }
}

/// Key and value are decimal numbers; a tombstone deletes; anything else is ignored.
#[derive(Debug, Clone)]
struct TextDecoder {
    schema: Arc<TableSchema>,
    keyed: bool,
}

impl DecoderFactory for TextDecoder {
    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(self.clone())
    }
}

impl Decoder for TextDecoder {
    fn decode(&mut self, batch: &RawBatch) -> Decoded {
        let (mut ids, mut values, mut ops, mut offsets, mut ignored) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
        let number = |b: Option<&[u8]>| std::str::from_utf8(b?).ok()?.parse::<i64>().ok();
        for i in 0..batch.len() {
            let value = number(batch.values.get(i));
            match number(batch.keys.get(i)) {
                Some(id) if value.is_some() || self.keyed => {
                    ids.push(id);
                    values.push(value);
                    ops.push(if value.is_some() { Op::Insert } else { Op::Delete });
                    offsets.push(batch.offsets[i]);
                }
                _ => ignored += 1,
            }
        }
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(Int64Array::from(values))];
        let rows = RecordBatch::try_new(self.schema.arrow(), columns).unwrap();
        Decoded { rows, ops, offsets, bad: Vec::new(), ignored, next: batch.next }
    }
}

/// Rows (id, v) of the test schemas; `None` = a delete.
pub(crate) fn batch(schema: &TableSchema, rows: &[(i64, Option<i64>)]) -> (RecordBatch, Vec<Op>) {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
        Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
    ];
    let ops = rows.iter().map(|r| if r.1.is_some() { Op::Insert } else { Op::Delete }).collect();
    (RecordBatch::try_new(schema.arrow(), columns).unwrap(), ops)
}

pub(crate) async fn write(
    region: &Arc<dyn Region>,
    rows: &[(i64, Option<i64>)],
    id: u128,
) -> Result<(Seq, Seq), StorageError> {
    let (rows, ops) = batch(&region.schema(), rows);
    region.write(rows, ops, id).await
}

/// All rows of a scan, in its order.
pub(crate) async fn scanned(
    region: &Arc<dyn Region>,
    request: ScanRequest,
) -> Result<Vec<(Op, i64, Option<i64>)>, StorageError> {
    let items: Vec<ScanItem> = region.scan(request).try_collect().await?;
    let mut rows = Vec::new();
    for item in items {
        let ScanItem::Rows { chunk, .. } = item else { continue };
        let ids = chunk.rows.column(0).as_primitive::<arrow::datatypes::Int64Type>();
        let values = chunk.rows.column(1).as_primitive::<arrow::datatypes::Int64Type>();
        for i in 0..chunk.len() {
            rows.push((chunk.ops[i], ids.value(i), values.is_valid(i).then(|| values.value(i))));
        }
    }
    Ok(rows)
}

/// Content of a keyed region as of `to`.
pub(crate) async fn as_of(region: &Arc<dyn Region>, to: Seq) -> BTreeMap<i64, i64> {
    let rows = scanned(region, ScanRequest::snapshot(to)).await.unwrap();
    let map: BTreeMap<i64, i64> = rows.iter().map(|(_, id, v)| (*id, v.unwrap())).collect();
    assert_eq!(map.len(), rows.len(), "a key twice: {rows:?}");
    map
}

pub(crate) async fn content(region: &Arc<dyn Region>) -> BTreeMap<i64, i64> {
    as_of(region, region.applied()).await
}

/// Values of an append region in order.
pub(crate) async fn appended(region: &Arc<dyn Region>) -> Vec<i64> {
    let rows = scanned(region, ScanRequest::snapshot(region.applied())).await.unwrap();
    rows.into_iter().map(|(_, _, v)| v.unwrap()).collect()
}

/// Commits one checkpoint of `job` and applies it; the offsets of its records.
pub(crate) async fn checkpoint(
    env: &Env,
    writer: &mut Box<dyn EpochWriter>,
    job: u64,
    epoch: u64,
    parts: &[Part<'_>],
) -> Vec<i64> {
    let (batch, offsets) = commit_only(writer, job, epoch, parts).await;
    batch.apply(&*env.engine, &offsets).await.unwrap();
    offsets
}

pub(crate) fn epoch_batch(job: u64, epoch: u64, parts: &[Part<'_>]) -> EpochBatch {
    let mut epoch_batch = EpochBatch::new(WAL, ShardId(0), JobId(job), Epoch(epoch), 0);
    for (region, rows) in parts {
        let (rows, ops) = batch(&region.schema(), rows);
        epoch_batch.add(&***region, rows, ops).unwrap();
    }
    epoch_batch.end(b"positions");
    epoch_batch
}

/// Commits one checkpoint without applying it.
pub(crate) async fn commit_only(
    writer: &mut Box<dyn EpochWriter>,
    job: u64,
    epoch: u64,
    parts: &[Part<'_>],
) -> (EpochBatch, Vec<i64>) {
    let epoch_batch = epoch_batch(job, epoch, parts);
    match writer.commit(std::slice::from_ref(epoch_batch.out_batch())).await {
        CommitOutcome::Committed { offsets } => {
            let offsets = offsets.into_iter().next().unwrap();
            (epoch_batch, offsets)
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn job_writer(env: &Env, job: u64) -> Box<dyn EpochWriter> {
    let mut writer = env.log.epoch_writer(&format!("t.{job}"));
    writer.init().await.unwrap();
    writer
}

/// Waits for a condition; fails with what it saw last.
pub(crate) async fn eventually<T: std::fmt::Debug>(what: &str, mut look: impl AsyncFnMut() -> (bool, T)) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let (done, seen) = look().await;
        if done {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: last seen {seen:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Holds and counts the engine at named points.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    state: Mutex<HashMap<Point, PointState>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PointState {
    passed: usize,
    held: bool,
    waiting: usize,
}

impl Gates {
    pub(crate) fn hold(&self, point: Point) {
        self.state.lock().unwrap().entry(point).or_default().held = true;
    }

    pub(crate) fn release(&self, point: Point) {
        self.state.lock().unwrap().entry(point).or_default().held = false;
        self.changed.notify_waiters();
    }

    /// How often a task or loop came by.
    pub(crate) fn passed(&self, point: Point) -> usize {
        self.state.lock().unwrap().get(&point).map_or(0, |s| s.passed)
    }

    /// Returns when a task waits at the point.
    pub(crate) async fn waiting(&self, point: Point) {
        eventually(&format!("a task at {point:?}"), async || {
            let n = self.state.lock().unwrap().get(&point).map_or(0, |s| s.waiting);
            (n > 0, n)
        })
        .await;
    }
}

#[async_trait]
impl WorkerListener for Gates {
    async fn at(&self, point: Point, region: RegionId) {
        self.reached(point, region);
        self.state.lock().unwrap().entry(point).or_default().waiting += 1;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.state.lock().unwrap().entry(point).or_default().held {
                break;
            }
            changed.await;
        }
        self.state.lock().unwrap().entry(point).or_default().waiting -= 1;
    }

    fn reached(&self, point: Point, _region: RegionId) {
        self.state.lock().unwrap().entry(point).or_default().passed += 1;
    }
}

/// Only so that offsets read well in tests.
pub(crate) fn at(offset: i64) -> Seq {
    Seq::from(Offset(offset))
}
