//! A service over a storage double: [`Env`].

mod real;
mod storage;

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use millstream_sql::{SqlConfig, SqlDeps, SqlError, SqlService, StatementResult};
use millstream_storage::{Storage, object_store::Bucket};
use millstream_stream::{StreamConfig, StreamDeps, StreamService};
use millstream_types::{
    BadRecord, BadRecordSink, TopicPartition,
    runtime::{SystemClock, Tasks},
    testing::MemoryLog,
};
pub(crate) use real::Real;
pub(crate) use storage::FakeStorage;

#[derive(Debug)]
struct NoBadRecords;

impl BadRecordSink for NoBadRecords {
    fn report(&self, partition: &TopicPartition, bad: Vec<BadRecord>) {
        panic!("bad records of {partition}: {bad:?}");
    }
}

pub(crate) struct Env {
    pub(crate) log: MemoryLog,
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) storage: Arc<FakeStorage>,
    pub(crate) sql: SqlService,
}

impl Env {
    /// A new cluster.
    pub(crate) async fn new() -> Env {
        Self::start(MemoryLog::new(), Bucket::memory(), Arc::new(FakeStorage::default())).await
    }

    /// Another process over the same log, bucket and storage.
    pub(crate) async fn start(log: MemoryLog, bucket: Arc<Bucket>, storage: Arc<FakeStorage>) -> Env {
        let sql = Self::service(&log, &bucket, &storage, SqlConfig::default());
        sql.recover().await.unwrap();
        Env { log, bucket, storage, sql }
    }

    pub(crate) fn service(
        log: &MemoryLog,
        bucket: &Arc<Bucket>,
        storage: &Arc<FakeStorage>,
        config: SqlConfig,
    ) -> SqlService {
        let storage: Arc<dyn Storage> = Arc::clone(storage) as Arc<dyn Storage>;
        let stream = StreamDeps {
            storage: Arc::clone(&storage),
            logs: log.system(),
            tasks: Tasks::current(),
            clock: Arc::new(SystemClock),
            wal_topic: "millstream.wal".into(),
            prefix: "millstream".into(),
            metrics: prometheus::Registry::new(),
        };
        let deps = SqlDeps {
            storage,
            stream: StreamService::new(StreamConfig::default(), stream).unwrap(),
            logs: log.system(),
            bucket: Arc::clone(bucket),
            bad_records: Arc::new(NoBadRecords),
            tasks: Tasks::current(),
            clock: Arc::new(SystemClock),
            metrics: prometheus::Registry::new(),
        };
        SqlService::new(config, deps).unwrap()
    }

    /// Runs statements that must succeed.
    pub(crate) async fn run(&self, sql: &str) -> Vec<StatementResult> {
        run(&self.sql, sql).await
    }

    /// The notices of one statement.
    pub(crate) async fn notices(&self, sql: &str) -> Vec<String> {
        self.run(sql).await.remove(0).notices().to_vec()
    }

    pub(crate) async fn rows(&self, sql: &str) -> Vec<String> {
        answer_rows(&self.sql, sql).await
    }

    pub(crate) async fn sorted(&self, sql: &str) -> Vec<String> {
        let mut rows = self.rows(sql).await;
        rows.sort();
        rows
    }

    /// The error of a statement that must fail.
    pub(crate) async fn error(&self, sql: &str) -> SqlError {
        match self.sql.execute(sql).await {
            Ok(r) => panic!("{sql}: must fail, but answered {r:?}"),
            Err(e) => e,
        }
    }

    /// The streaming plan, one line a node, indentation kept.
    pub(crate) async fn explain(&self, sql: &str) -> String {
        let last = self.run(&format!("EXPLAIN {sql}")).await.pop().unwrap();
        let StatementResult::Rows { batches, .. } = last else { panic!("no rows") };
        let column = batches[0].column(0).as_any().downcast_ref::<arrow::array::StringArray>().unwrap();
        column.iter().map(|l| l.unwrap().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

/// Runs statements that must succeed.
pub(crate) async fn run(service: &SqlService, sql: &str) -> Vec<StatementResult> {
    service.execute(sql).await.unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// The rows of the last statement, one line a row, columns parted by a bar.
pub(crate) async fn answer_rows(service: &SqlService, sql: &str) -> Vec<String> {
    let last = run(service, sql).await.pop().unwrap();
    let StatementResult::Rows { batches, .. } = last else { panic!("{sql}: no rows") };
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let lines: Vec<&str> = table.lines().filter(|l| !l.starts_with('+')).skip(1).collect();
    lines.iter().map(|l| l.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>().join(" | ")).collect()
}
