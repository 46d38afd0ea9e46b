//! What must work although it is long, or as deep as is allowed.

use std::time::{Duration, Instant};

use super::{MEMORY, chain, execute, joined, nested, table_within};
use crate::support::Real;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_long_statements_work() {
    let _alone = MEMORY.lock().await;
    // the slowest is an INSERT of a million words on a machine that does other things, too
    let env = table_within(Duration::from_secs(60)).await;
    let columns = joined(50, ",", |i| format!("c{i} bigint"));
    execute(&env, format!("create table wide50 ({columns})")).await.unwrap();
    let statements = [
        format!("insert into t (id, name) values {}", joined(10_000, ",", |i| format!("({i}, 'n{i}')"))),
        format!(
            "insert into t (id, d) values {}",
            joined(10_000, ",", |i| format!("({i}, cast('{i}.5' as decimal(12,2)))"))
        ),
        format!(
            "insert into wide50 values {}",
            joined(10_000, ",", |i| format!("({})", joined(50, ", ", |c| format!("{}", i * c))))
        ),
        format!("select count(*) from t where id in ({})", joined(10_000, ",", |i| i.to_string())),
        format!("select count(*) from t where name in ({})", joined(10_000, ",", |i| format!("'{i}'"))),
        format!("select count(*) from t where {}", joined(200, " or ", |i| format!("(id = {i} and name = 'n{i}')"))),
        format!("select count(*) from t where {}", joined(200, " and ", |i| format!("id <> {i}"))),
        format!(
            "select case {} else 'none' end from t limit 1",
            joined(300, " ", |i| format!("when id = {i} then 'name {i}'"))
        ),
        format!("select {} from t limit 1", joined(300, ",", |i| format!("id + {i} as c{i}"))),
        format!("select {} from t", joined(300, ",", |i| format!("sum(id + {i})"))),
        format!("create table wide ({})", joined(300, ",", |i| format!("c{i} int"))),
        joined(50, " union all ", |i| format!("select id from t where id = {i}")),
        format!("select count(*) from t {}", joined(10, " ", |i| format!("join t q{i} on t.id = q{i}.id"))),
        chain(20, 1),
        format!("select length('{}')", "x".repeat(6 << 20)),
        format!("insert into t (id, name) values (1, '{}')", "x".repeat(6 << 20)),
        "show tables;".repeat(500),
    ];
    for text in statements {
        let begun = Instant::now();
        let shown: String = text.chars().take(60).collect();
        execute(&env, text).await.unwrap_or_else(|e| panic!("{shown}: {e}"));
        eprintln!("{shown} {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_as_deep_as_allowed_runs_on_the_threads_of_jobs_also_after_a_restart() {
    const DEEP: usize = 480;
    let real = Real::new().await;
    real.run("create table t (id bigint primary key, name varchar, d decimal(12,2))").await;
    let nots = joined(DEEP, " or ", |i| format!("id % {} = {}", i + 1001, i + 5));
    let views = [
        format!("select id from t where {nots} or id > 0"),
        format!("select id, {} as x from t", joined(DEEP, "+", |_| "id".to_owned())),
        format!("select id, {} as x from t", joined(DEEP, "||", |_| "name".to_owned())),
        format!("select id, {} as x from t", joined(DEEP, "-", |_| "cast(id as double)".to_owned())),
        format!("select id, case {} end as x from t", joined(400, " ", |i| format!("when id = {i} then {i}"))),
        format!("select id, {} as x from t", nested(20, "case when id = 7 then 1 else ", "2", " end")),
        format!("select id, id {} as x from t", "is null = false ".repeat(DEEP / 2)),
        format!("select id % 2 as g, sum({}) as x from t group by id % 2", joined(DEEP, "+", |_| "id".to_owned())),
        format!(
            "select id % 2 as g, count(*) as x from t group by id % 2 having {}",
            joined(DEEP, " and ", |i| format!("count(*) <> {}", i + 100))
        ),
    ];
    for (i, view) in views.iter().enumerate() {
        real.run(&format!("create materialized view v{i} as {view}")).await;
    }
    real.run("insert into t values (1, 'a', 1), (2, 'b', 2)").await;
    let real = real.crash_and_restart().await;
    real.run("insert into t values (3, 'c', 3)").await;
    for i in 0..views.len() {
        let rows = if i < 7 { "3" } else { "2" };
        let count = format!("select count(*) from v{i}");
        let end = Instant::now() + Duration::from_secs(60);
        while real.rows(&count).await != [rows] {
            assert!(Instant::now() < end, "view {i}: {:?}, {:?}", real.rows(&count).await, real.sql.broken());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
