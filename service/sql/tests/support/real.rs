//! The whole path in one process: memory log, engine, stream, SQL.

use std::{sync::Arc, time::Duration};

use millstream_sql::{SqlConfig, SqlDeps, SqlService};
use millstream_storage::{Engine, Storage, StorageConfig, StorageDeps, listener::NoListener, object_store::Bucket};
use millstream_stream::{StreamConfig, StreamDeps, StreamService};
use millstream_types::{
    BadRecord, BadRecordSink, TopicPartition,
    runtime::{SystemClock, Tasks},
    testing::MemoryLog,
};

use super::{answer_rows, run};

const WAL: &str = "millstream.wal";

#[derive(Debug, Default)]
pub(crate) struct CountedBadRecords(pub std::sync::Mutex<Vec<BadRecord>>);

impl BadRecordSink for CountedBadRecords {
    fn report(&self, _partition: &TopicPartition, bad: Vec<BadRecord>) {
        self.0.lock().unwrap().extend(bad);
    }
}

pub(crate) struct Real {
    pub(crate) log: MemoryLog,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) stream: StreamService,
    pub(crate) sql: SqlService,
    pub(crate) bad: Arc<CountedBadRecords>,
}

impl Real {
    pub(crate) async fn new() -> Real {
        let log = MemoryLog::new();
        log.create_topic(WAL, 4);
        Self::start(log, Bucket::memory()).await
    }

    pub(crate) async fn start(log: MemoryLog, bucket: Arc<Bucket>) -> Real {
        let (logs, tasks, clock) = (log.system(), Tasks::current(), Arc::new(SystemClock));
        let deps = StorageDeps {
            bucket: Arc::clone(&bucket),
            logs: Arc::clone(&logs),
            tasks: tasks.clone(),
            clock: clock.clone(),
            listener: Arc::new(NoListener),
            registry: prometheus::Registry::new(),
            wal_topic: WAL.into(),
            prefix: "millstream".into(),
            replica: "test".into(),
        };
        let engine = Engine::start(StorageConfig::default(), deps).await.unwrap();
        let storage: Arc<dyn Storage> = engine.clone();
        let config = StreamConfig { barrier_interval: Duration::from_millis(50), ..StreamConfig::default() };
        let deps = StreamDeps {
            storage: Arc::clone(&storage),
            logs: Arc::clone(&logs),
            tasks: tasks.clone(),
            clock: clock.clone(),
            wal_topic: WAL.into(),
            prefix: "millstream".into(),
            metrics: prometheus::Registry::new(),
        };
        let stream = StreamService::new(config, deps).unwrap();
        stream.run_injector();
        let bad = Arc::new(CountedBadRecords::default());
        let deps = SqlDeps {
            storage,
            stream: stream.clone(),
            logs,
            bucket: Arc::clone(&bucket),
            bad_records: bad.clone(),
            tasks,
            clock,
            metrics: prometheus::Registry::new(),
        };
        let config = SqlConfig { shards: 4, wait_timeout: Duration::from_secs(60), ..SqlConfig::default() };
        let sql = SqlService::new(config, deps).unwrap();
        sql.recover().await.unwrap();
        Real { log, bucket, engine, stream, sql, bad }
    }

    /// As kill -9: tasks end where they stand. The same cluster in a new process.
    pub(crate) async fn crash_and_restart(self) -> Real {
        let (log, bucket) = self.crash().await;
        Self::start(log, bucket).await
    }

    /// What is left of a killed process.
    pub(crate) async fn crash(self) -> (MemoryLog, Arc<Bucket>) {
        let (log, bucket) = (self.log.clone(), Arc::clone(&self.bucket));
        self.engine.kill().await;
        self.stream.shutdown(Duration::ZERO).await;
        drop(self);
        (log, bucket)
    }

    pub(crate) async fn run(&self, sql: &str) {
        run(&self.sql, sql).await;
    }

    pub(crate) async fn rows(&self, sql: &str) -> Vec<String> {
        answer_rows(&self.sql, sql).await
    }

    pub(crate) async fn sorted(&self, sql: &str) -> Vec<String> {
        let mut rows = self.rows(sql).await;
        rows.sort();
        rows
    }

    /// A JSON record, keyed as a producer would.
    pub(crate) fn put(&self, topic: &str, partition: i32, key: &str, value: Option<&str>) {
        self.log.put(topic, partition, Some(key), value);
    }
}
