//! No statement, however long, deep or greedy, may end the process or take its memory: shapes x sizes, on the threads that a node has.

mod greedy;
mod odd;
mod ordinary;
mod planning;
mod shapes;

use std::{sync::Arc, time::Duration};

use millstream_sql::{SqlConfig, SqlError};
use millstream_storage::object_store::Bucket;
use millstream_types::{Classified, ErrorKind, testing::MemoryLog};

use crate::support::{Env, FakeStorage};

/// For tests that take much memory: what a process takes is measured, and seen by all of them.
static MEMORY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn joined(n: usize, between: &str, part: impl Fn(usize) -> String) -> String {
    (0..n).map(part).collect::<Vec<_>>().join(between)
}

fn nested(n: usize, open: &str, inner: &str, close: &str) -> String {
    format!("{}{inner}{}", open.repeat(n), close.repeat(n))
}

/// CTEs that each read the one before, `times` times.
fn chain(n: usize, times: usize) -> String {
    let one = |i: usize| match i {
        0 => "c0 as (select id from t)".to_owned(),
        i => format!("c{i} as ({})", joined(times, " union all ", |_| format!("select id + 1 as id from c{}", i - 1))),
    };
    format!("with {} select count(*) from c{}", joined(n, ", ", one), n.saturating_sub(1))
}

/// What a client can do something about.
fn is_refusal(e: &SqlError) -> bool {
    matches!(e.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
        || matches!(e.code, "QUERY_MEMORY" | "RESULT_TOO_LARGE" | "QUERY_TIMEOUT")
}

async fn table() -> Arc<Env> {
    table_within(Duration::from_secs(10)).await
}

async fn table_within(query_timeout: Duration) -> Arc<Env> {
    let (log, bucket, storage) = (MemoryLog::new(), Bucket::memory(), Arc::new(FakeStorage::default()));
    let config = SqlConfig { query_timeout, ..SqlConfig::default() };
    let sql = Env::service(&log, &bucket, &storage, config);
    sql.recover().await.unwrap();
    let env = Env { log, bucket, storage, sql };
    env.run("create table t (id bigint primary key, name varchar, d decimal(12,2), f double)").await;
    env.run("insert into t values (1, 'a', 1, 1), (2, 'b', 2, 2), (3, null, null, null)").await;
    Arc::new(env)
}

/// On a worker thread of the runtime, as a request.
async fn execute(env: &Arc<Env>, text: String) -> Result<(), SqlError> {
    let env = Arc::clone(env);
    let shown: String = text.chars().take(200).collect();
    let done = tokio::spawn(async move { env.sql.execute(&text).await.map(drop) });
    done.await.unwrap_or_else(|e| panic!("{shown}: {e}"))
}
