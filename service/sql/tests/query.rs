//! SELECT, INSERT and DELETE over the storage double, limits, system tables.

use std::sync::{Arc, atomic::Ordering};

use millstream_sql::{SqlConfig, StatementResult};
use millstream_storage::object_store::Bucket;
use millstream_types::{Classified, ErrorKind, testing::MemoryLog};

use crate::support::{Env, FakeStorage};

async fn env() -> Env {
    let env = Env::new().await;
    env.run(
        "create table t (id bigint primary key, name varchar default 'none', amount decimal(12,2));
         insert into t values (1, 'a', 1.5), (2, 'b', 2.25), (3, null, null)",
    )
    .await;
    env
}

#[tokio::test]
async fn rows_come_back_as_they_went_in() {
    let env = env().await;
    assert_eq!(env.sorted("select * from t").await, ["1 | a | 1.50", "2 | b | 2.25", "3 |  | "]);
    env.run("insert into t (amount, id) values (9, 4)").await;
    assert_eq!(env.rows("select name, amount from t where id = 4").await, ["none | 9.00"]);
    // a row with a key that is there replaces the old one; of two rows with one key the last counts
    env.run("insert into t values (1, 'x', 7), (1, 'y', 8)").await;
    assert_eq!(env.rows("select name, amount from t where id = 1").await, ["y | 8.00"]);
    env.run("insert into t select id + 10, upper(name), amount from t where id < 3").await;
    assert_eq!(env.rows("select count(*), sum(amount) from t").await, ["6 | 29.50"]);
}

#[tokio::test]
async fn delete_takes_the_rows_that_the_query_finds() {
    let env = env().await;
    let results = env.run("delete from t where amount > 2 or id = 3").await;
    assert!(matches!(&results[0], StatementResult::Command { tag, .. } if tag == "DELETE 2"), "{results:?}");
    assert_eq!(env.rows("select id from t").await, ["1"]);
    env.run("create table log (line varchar)").await;
    assert_eq!(env.error("delete from log").await.code, "NOT_SUPPORTED");
}

#[tokio::test]
async fn a_row_that_breaks_not_null_is_refused() {
    let env = env().await;
    env.run("create table u (id int, v varchar not null, primary key (id))").await;
    let error = env.error("insert into u (id) values (1)").await;
    assert_eq!(error.message, "column v is NOT NULL");
    assert_eq!(env.error("insert into u values (null, 'x')").await.message, "column id is NOT NULL");
    assert_eq!(env.rows("select count(*) from u").await, ["0"]);
}

#[tokio::test]
async fn a_write_with_a_lost_answer_happens_once() {
    let env = env().await;
    env.run("create table log (line varchar)").await;
    env.storage.lost_answers.store(2, Ordering::SeqCst);
    env.run("insert into log values ('once')").await;
    assert_eq!(env.rows("select count(*) from log").await, ["1"]);
}

#[tokio::test]
async fn the_whole_key_is_looked_up_and_not_scanned() {
    let env = env().await;
    let scans = env.storage.scans.load(Ordering::SeqCst);
    assert_eq!(env.rows("select name from t where id = 2").await, ["b"]);
    assert_eq!(env.rows("select name from t where id in (1, 2, 99) and name <> 'a'").await, ["b"]);
    assert_eq!(env.rows("select name from t where id = 3 and amount > 1").await, Vec::<String>::new());
    assert_eq!(env.storage.scans.load(Ordering::SeqCst), scans);
    assert_eq!(env.storage.lookups.load(Ordering::SeqCst), 3);
    assert_eq!(env.rows("select name from t where name = 'b'").await, ["b"]);
    assert_eq!(env.storage.scans.load(Ordering::SeqCst), scans + 1);
}

#[tokio::test]
async fn any_query_works_on_tables() {
    let env = env().await;
    assert_eq!(
        env.rows("with a as (select * from t) select a.id, b.name, row_number() over (order by a.id desc) as r from a join t b on a.id = b.id order by a.id limit 2").await,
        ["1 | a | 3", "2 | b | 2"]
    );
    assert_eq!(env.rows("select count(distinct name), max(amount) from t").await, ["2 | 2.25"]);
    assert_eq!(env.rows("select 0.1 + 0.2 as exact").await, ["0.3"]);
    assert_eq!(env.rows("values (1, 'x')").await, ["1 | x"]);
    assert_eq!(env.rows("select table_name from information_schema.tables where table_schema = 'public'").await, ["t"]);
}

#[tokio::test]
async fn errors_of_queries_have_places_and_near_names() {
    let env = env().await;
    let error = env.error("select id,\n  amout from t").await;
    assert_eq!((error.line, error.column), (Some(2), Some(3)), "{error}");
    assert!(error.hint.as_deref().unwrap_or_default().contains("amount"), "{error:?}");
    let error = env.error("select 1;\nselect * from\n tt").await;
    assert_eq!(error.to_string(), "line 3, column 2: table tt does not exist (hint: did you mean t?)");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = env.error("insert into t (id, nme) values (1, 'x')").await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let error = env.error("select cast('abc' as int)").await;
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(env.error("insert into t values (1)").await.kind(), ErrorKind::Invalid);
    assert_eq!(env.error("delete from nope").await.code, "NOT_FOUND");
}

#[tokio::test]
async fn a_result_over_the_limit_is_refused_not_cut() {
    let env = limited(SqlConfig { max_result_rows: 10, ..SqlConfig::default() }).await;
    env.run("create table t (id bigint primary key); insert into t select * from generate_series(1, 20)").await;
    let error = env.error("select * from t").await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Invalid, "RESULT_TOO_LARGE"));
    assert_eq!(env.rows("select count(*) from t where id > 15").await, ["5"]);
}

async fn limited(config: SqlConfig) -> Env {
    let (log, bucket, storage) = (MemoryLog::new(), Bucket::memory(), Arc::new(FakeStorage::default()));
    let sql = Env::service(&log, &bucket, &storage, config);
    sql.recover().await.unwrap();
    Env { log, bucket, storage, sql }
}

#[tokio::test]
async fn a_query_that_needs_too_much_memory_fails_alone() {
    let env = limited(SqlConfig { query_memory_bytes: 1 << 20, ..SqlConfig::default() }).await;
    let error = env.error("select * from generate_series(1, 3000000) a order by 1 desc limit 2000000").await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Exhausted, "QUERY_MEMORY"), "{error}");
    assert_eq!(env.rows("select 1").await, ["1"]);
}

#[tokio::test]
async fn a_query_that_takes_too_long_is_stopped() {
    let env = limited(SqlConfig { query_timeout: std::time::Duration::from_millis(500), ..SqlConfig::default() }).await;
    let pairs = "generate_series(1, 1000) a, generate_series(1, 100000000) b where a.value * b.value = 77";
    let error = env.error(&format!("select count(*) from {pairs}")).await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Exhausted, "QUERY_TIMEOUT"), "{error}");
    assert_eq!(env.rows("select 1").await, ["1"]);
}

#[tokio::test]
async fn system_tables_say_what_show_says() {
    let env = env().await;
    env.run("create materialized view v as select name from t").await;
    assert_eq!(env.rows("select name, primary_key, rows from millstream.tables").await, ["t | id | 3"]);
    assert_eq!(env.rows("show tables").await, ["t | 1 |  | id | 1 | 3 | "]);
    assert_eq!(env.rows("select name, input from millstream.views").await, ["v | t"]);
    assert_eq!(
        env.rows("select region, \"table\", kind from millstream.regions order by 1").await,
        ["1-0 | t | keyed", "2-0 | v | keyed", "3-0 | v.progress | keyed"]
    );
    assert_eq!(
        env.rows("select count(*) from millstream.tables a join millstream.views b on a.name = b.input").await,
        ["1"]
    );
    assert_eq!(env.rows("show create v").await, ["v | create materialized view v as select name from t"]);
    assert_eq!(
        env.rows("describe t").await,
        ["id | BIGINT | no | 1 |  | ", "name | VARCHAR | yes |  | 'none' | ", "amount | DECIMAL(12,2) | yes |  |  | "]
    );
}

#[tokio::test]
async fn now_is_the_time_of_the_statement() {
    let env = Env::new().await;
    env.run("create table t (at timestamptz); insert into t values (now())").await;
    let found = env.rows("select count(*), now() at time zone 'utc' is not null, now() = now() from t where at <= now() and at > now() - interval '1 minute'").await;
    assert_eq!(found, ["1 | true | true"]);
}
