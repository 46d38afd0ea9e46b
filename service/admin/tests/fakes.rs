//! A service with one table `orders` (topic `orders`, two regions), one view `totals` and one sink `out`, whose answers a test sets.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use async_trait::async_trait;
use futures::StreamExt;
use millstream_admin::{
    AdminConfig, AdminDeps, AdminMetrics, AdminState, ApiError, Health, NodeInfo, Phase, bind,
    model::{job::JobInfo, object::ErrorsInfo},
    ports::{CatalogObject, JobPort, ObjectKind, SqlPort, StatementOutput},
    routes, serve,
};
use millstream_storage::{
    Estimate, KeyMatch, LookupRows, Pin, PinOwner, Region, RegionSpec, RegionStatus, ScanItem, ScanRequest, ScanStream,
    Storage, StorageError, WalBinding,
    api::{AppliedEntry, FileStatus},
};
use millstream_types::{
    Chunk, Column, Epoch, EpochCuts, ErrorKind, JobId, Key, KeyCodec, LeaderEpoch, Op, Pos, RegionId, RegionKind, Seq,
    ShardId, SqlType, TableId, TableSchema, TopicPartition,
    runtime::{SystemClock, Tasks},
};
use prometheus::Registry;

pub(crate) fn schema() -> Arc<TableSchema> {
    let hidden = Column { hidden: true, ..Column::new(3, "acc", SqlType::BigInt) };
    Arc::new(TableSchema {
        id: 1,
        columns: vec![
            Column::new(1, "id", SqlType::BigInt).not_null(),
            Column::new(2, "name", SqlType::Varchar),
            hidden,
        ],
        primary_key: vec![0],
    })
}

/// Rows with ids from..to.
pub(crate) fn batch(from: i64, to: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    let names: ArrayRef = Arc::new(StringArray::from_iter_values((from..to).map(|i| format!("n{i}"))));
    let acc: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
    RecordBatch::try_new(schema().arrow(), vec![ids, names, acc]).unwrap()
}

#[derive(Debug)]
pub(crate) struct FakeRegion {
    id: RegionId,
    rows: RecordBatch,
    pub(crate) flushed: Mutex<bool>,
}

impl FakeRegion {
    fn new(id: RegionId, rows: RecordBatch) -> Arc<Self> {
        Arc::new(Self { id, rows, flushed: Mutex::new(false) })
    }
}

#[async_trait]
impl Region for FakeRegion {
    fn id(&self) -> RegionId {
        self.id
    }
    fn schema(&self) -> Arc<TableSchema> {
        schema()
    }
    fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(3)
    }
    fn applied(&self) -> Seq {
        Seq(100)
    }
    fn status(&self) -> RegionStatus {
        let file = FileStatus {
            name: "f.parquet".to_owned(),
            rows: 4,
            deletes: 1,
            size_bytes: 10,
            from: Seq(0),
            end: Seq(60),
            run: 1,
        };
        RegionStatus {
            region: self.id.to_string(),
            table: "orders".to_owned(),
            kind: RegionKind::Keyed,
            state: "writable",
            reason: None,
            leader_epoch: self.leader_epoch(),
            manifest_version: 7,
            applied: self.applied(),
            flushed: Seq(60),
            history_from: Seq(10),
            memtable_rows: 2,
            memtable_bytes: 20,
            files: vec![file],
            wal: WalBinding::Topic {
                partition: TopicPartition::new("orders", 0),
                topic_id: String::new(),
                start: Seq(0),
            },
            wal_start: Some(Seq(5)),
            wal_end: Some(Seq(120)),
            pins: vec![(
                PinOwner { job: JobId(9), input: millstream_types::InputId(0) },
                Pin { exact: vec![Seq(50)], floor: Some(Seq(55)) },
            )],
            gaps: Vec::new(),
        }
    }
    async fn wait_applied(&self, seq: Seq) -> Result<(), StorageError> {
        if seq <= self.applied() { Ok(()) } else { std::future::pending().await }
    }
    fn scan(&self, request: ScanRequest) -> ScanStream {
        let rows = self.rows.project(&request.columns.unwrap()).unwrap();
        let rows = rows.slice(0, rows.num_rows().min(request.max_rows));
        let item = ScanItem::Rows { chunk: Chunk::inserts(rows), last: Key::default(), scanned: 1 };
        futures::stream::iter([Ok(ScanItem::Mark { at: Key::default(), scanned: 1 }), Ok(item)]).boxed()
    }
    async fn lookup(
        &self,
        prefixes: Vec<Key>,
        _by: KeyMatch,
        at: Seq,
        columns: Option<Vec<usize>>,
    ) -> Result<LookupRows, StorageError> {
        assert_eq!(at, self.applied());
        let codec = KeyCodec::new([arrow::datatypes::DataType::Int64]).unwrap();
        let keys = codec.encode(&[Arc::clone(self.rows.column(0))]).unwrap();
        let hits =
            (0..self.rows.num_rows()).filter(|i| keys.row(*i).as_ref() == prefixes[0].as_bytes()).collect::<Vec<_>>();
        let rows = self.rows.project(&columns.unwrap()).unwrap();
        let rows = hits.first().map_or_else(|| rows.slice(0, 0), |i| rows.slice(*i, 1));
        Ok(LookupRows { which: vec![0; rows.num_rows()], rows })
    }
    fn estimate(&self, _from: Option<Seq>, _to: Seq, _after: &Pos) -> Estimate {
        Estimate::default()
    }
    async fn pin(&self, _owner: PinOwner, _pin: Pin) -> Result<(), StorageError> {
        Ok(())
    }
    async fn unpin(&self, _owner: PinOwner) -> Result<(), StorageError> {
        Ok(())
    }
    async fn apply(&self, _entries: Vec<AppliedEntry>) -> Result<(), StorageError> {
        Ok(())
    }
    async fn write(&self, _rows: RecordBatch, _ops: Vec<Op>, write_id: u128) -> Result<(Seq, Seq), StorageError> {
        Err(StorageError::AppendUnknown { region: self.id, write_id, what: "fake".to_owned() })
    }
    async fn flush(&self) -> Result<Seq, StorageError> {
        *self.flushed.lock().unwrap() = true;
        Ok(self.applied())
    }
    async fn compact(&self) -> Result<(), StorageError> {
        Err(StorageError::Stopped { what: "compaction" })
    }
}

#[derive(Debug)]
pub(crate) struct FakeStorage {
    pub(crate) regions: Vec<Arc<FakeRegion>>,
}

#[async_trait]
impl Storage for FakeStorage {
    async fn create_region(&self, _spec: &RegionSpec) -> Result<(), StorageError> {
        Ok(())
    }
    async fn open_region(&self, spec: &RegionSpec) -> Result<Arc<dyn Region>, StorageError> {
        self.region(spec.id).ok_or(StorageError::RegionNotFound { region: spec.id })
    }
    async fn open_regions(&self, _specs: Vec<RegionSpec>) -> Vec<(RegionId, Result<Arc<dyn Region>, StorageError>)> {
        Vec::new()
    }
    async fn close_region(&self, _id: RegionId) -> Result<(), StorageError> {
        Ok(())
    }
    async fn drop_region(&self, _id: RegionId) -> Result<(), StorageError> {
        Ok(())
    }
    fn region(&self, id: RegionId) -> Option<Arc<dyn Region>> {
        self.regions.iter().find(|r| r.id == id).map(|r| Arc::clone(r) as Arc<dyn Region>)
    }
    fn regions(&self) -> Vec<Arc<dyn Region>> {
        self.regions.iter().map(|r| Arc::clone(r) as Arc<dyn Region>).collect()
    }
    async fn barrier(&self, epoch: Epoch) -> EpochCuts {
        EpochCuts { epoch, ..EpochCuts::default() }
    }
    async fn replay_shard(&self, _shard: ShardId, _job: JobId, _regions: &[RegionId]) -> Result<(), StorageError> {
        Ok(())
    }
    async fn unpin_job(&self, _job: JobId) -> Result<(), StorageError> {
        Ok(())
    }
}

type Answer = Result<Vec<StatementOutput>, (ErrorKind, &'static str)>;

#[derive(Debug)]
pub(crate) struct FakeSql {
    pub(crate) seen: Mutex<Vec<String>>,
    pub(crate) answer: Mutex<Answer>,
    /// Statements wait while it is locked.
    pub(crate) gate: tokio::sync::Mutex<()>,
    /// Statements that were begun and neither ended nor were cancelled.
    pub(crate) waiting: Arc<AtomicUsize>,
}

fn object(kind: ObjectKind, name: &str, table: Option<u32>, regions: u32) -> CatalogObject {
    let id = table.map(TableId);
    CatalogObject {
        kind,
        name: name.to_owned(),
        table: id,
        job: (kind != ObjectKind::Table).then_some(JobId(9)),
        schema: Some(schema()),
        sql: format!("CREATE .. {name}"),
        options: BTreeMap::new(),
        topic: Some(name.to_owned()),
        regions: id.map(|id| (0..regions).map(|n| RegionId::new(id, n)).collect()).unwrap_or_default(),
        inputs: if kind == ObjectKind::Table { Vec::new() } else { vec!["orders".to_owned()] },
        quarantined: None,
    }
}

struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl SqlPort for FakeSql {
    async fn execute(&self, text: &str) -> Result<Vec<StatementOutput>, ApiError> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ended = Ended(Arc::clone(&self.waiting));
        let _open = self.gate.lock().await;
        self.seen.lock().unwrap().push(text.to_owned());
        let answer = self.answer.lock().unwrap().clone();
        answer.map_err(|(kind, code)| ApiError::new(kind, code, "line 1, column 8: no").detail("line", 1).sql())
    }
    async fn validate(&self, text: &str) -> Result<Vec<String>, ApiError> {
        self.execute(text).await.map(|_| vec!["retention stays".to_owned()])
    }
    fn objects(&self) -> Vec<CatalogObject> {
        vec![
            object(ObjectKind::Table, "orders", Some(1), 2),
            object(ObjectKind::View, "totals", Some(2), 1),
            object(ObjectKind::Sink, "out", None, 0),
        ]
    }
    fn bad_records(&self, _table: &CatalogObject) -> ErrorsInfo {
        ErrorsInfo { total: 3, ..ErrorsInfo::default() }
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeJobs {
    pub(crate) calls: Mutex<Vec<String>>,
}

impl FakeJobs {
    fn call(&self, text: String) {
        self.calls.lock().unwrap().push(text);
    }
}

#[async_trait]
impl JobPort for FakeJobs {
    fn jobs(&self) -> Vec<JobInfo> {
        self.job(JobId(9)).into_iter().collect()
    }
    fn job(&self, job: JobId) -> Option<JobInfo> {
        (job == JobId(9)).then(|| JobInfo {
            job: 9,
            name: "totals".to_owned(),
            kind: "view".to_owned(),
            state: "running".to_owned(),
            reason: None,
            committed_epoch: 77,
            positions: Vec::new(),
            restarts: 0,
            last_error: None,
            rate_limit: None,
            finish_epoch: None,
            backfills: Vec::new(),
            checkpoints: Vec::new(),
        })
    }
    async fn pause(&self, job: JobId) -> Result<(), ApiError> {
        self.call(format!("pause {job}"));
        Ok(())
    }
    async fn resume(&self, job: JobId) -> Result<(), ApiError> {
        self.call(format!("resume {job}"));
        Ok(())
    }
    async fn set_rate_limit(&self, job: JobId, limit: Option<u64>) -> Result<(), ApiError> {
        self.call(format!("limit {job} {limit:?}"));
        Ok(())
    }
    async fn wait_for(&self, _job: JobId, positions: &[(RegionId, Seq)], timeout: Duration) -> Result<(), ApiError> {
        self.call(format!("wait {} {} {timeout:?}", positions[0].0, positions[0].1));
        Ok(())
    }
    async fn checkpoint(&self) -> Result<Epoch, ApiError> {
        Ok(Epoch(78))
    }
    fn latest_epoch(&self) -> Epoch {
        Epoch(77)
    }
}

/// A running REST port and probe port.
pub(crate) struct Service {
    pub(crate) rest: String,
    pub(crate) probes: String,
    pub(crate) health: Health,
    pub(crate) sql: Arc<FakeSql>,
    pub(crate) jobs: Arc<FakeJobs>,
    pub(crate) storage: Arc<FakeStorage>,
    pub(crate) http: reqwest::Client,
}

pub(crate) async fn start(config: AdminConfig) -> Service {
    let registry = Registry::new();
    let health = Health::new(&registry).unwrap();
    health.set_phase(Phase::Serving);
    let metrics = AdminMetrics::new(&registry, "1.2.3", "abc").unwrap();
    let sql = Arc::new(FakeSql {
        seen: Mutex::default(),
        answer: Mutex::new(Ok(Vec::new())),
        gate: tokio::sync::Mutex::default(),
        waiting: Arc::default(),
    });
    let jobs = Arc::new(FakeJobs::default());
    let orders = |n, from, to| FakeRegion::new(RegionId::new(TableId(1), n), batch(from, to));
    let storage = Arc::new(FakeStorage {
        regions: vec![orders(0, 0, 3), orders(1, 10, 13), FakeRegion::new(RegionId::new(TableId(2), 0), batch(40, 45))],
    });
    let tasks = Tasks::current();
    let deps = AdminDeps {
        sql: Arc::clone(&sql) as Arc<dyn SqlPort>,
        jobs: Arc::clone(&jobs) as Arc<dyn JobPort>,
        storage: Arc::clone(&storage) as Arc<dyn Storage>,
        tasks: tasks.clone(),
        clock: Arc::new(SystemClock),
        registry,
        info: NodeInfo {
            version: "1.2.3",
            commit: "abc",
            replica: "r0".to_owned(),
            prefix: "m".to_owned(),
            started_ms: 0,
        },
    };
    let any = "127.0.0.1:0".parse().unwrap();
    let (rest, rest_address) = bind(any).await.unwrap();
    let (probes, probe_address) = bind(any).await.unwrap();
    let state = AdminState::new(config, deps, health.clone(), metrics.clone());
    drop(serve("rest", rest, routes::rest(state), &tasks, std::future::pending()));
    drop(serve("probes", probes, routes::probes(health.clone(), metrics), &tasks, std::future::pending()));
    Service {
        rest: format!("http://{rest_address}"),
        probes: format!("http://{probe_address}"),
        health,
        sql,
        jobs,
        storage,
        http: reqwest::Client::new(),
    }
}

impl Service {
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> (u16, serde_json::Value) {
        let mut request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.rest));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, serde_json::Value) {
        self.send("GET", path, None).await
    }
}
