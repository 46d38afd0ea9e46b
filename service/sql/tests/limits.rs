//! No statement, however long, deep or greedy, may end the process or take its memory: shapes x sizes, on the threads that a node has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use millstream_sql::{SqlConfig, SqlError};
use millstream_storage::object_store::Bucket;
use millstream_types::{Classified, ErrorKind, testing::MemoryLog};

use crate::support::{Env, FakeStorage, Real};

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

type Shape = (&'static str, fn(usize) -> String);

/// Statements that grow with a number, each in a way of its own.
const SHAPES: &[Shape] = &[
    ("or", |n| format!("select count(*) from t where {}", joined(n, " or ", |i| format!("id % {} = {i}", i + 2)))),
    ("or of equal", |n| format!("select count(*) from t where {}", joined(n, " or ", |i| format!("id = {i}")))),
    ("and", |n| format!("select count(*) from t where {}", joined(n, " and ", |i| format!("id <> {i}")))),
    ("or in a case", |n| {
        format!("select case when {} then 1 end from t", joined(n, " or ", |i| format!("id % 7 = {i}")))
    }),
    ("plus of numbers", |n| format!("select {} as x", joined(n, "+", |_| "1".to_owned()))),
    ("plus of a column", |n| format!("select {} as x from t", joined(n, "+", |_| "id".to_owned()))),
    ("plus of a decimal", |n| format!("select {} as x from t", joined(n, "+", |_| "d".to_owned()))),
    ("plus of a double", |n| format!("select {} as x from t", joined(n, "+", |_| "f".to_owned()))),
    ("minus without a name", |n| format!("select {} from t", joined(n, "-", |_| "id".to_owned()))),
    ("modulo", |n| format!("select id {} from t", "% 7 ".repeat(n))),
    ("bits", |n| format!("select {} from t", joined(n, " & ", |_| "id".to_owned()))),
    ("concat", |n| format!("select {} as x from t", joined(n, "||", |_| "name".to_owned()))),
    ("comparisons", |n| format!("select id {} from t", "= 1 ".repeat(n))),
    ("union", |n| joined(n, " union all ", |_| "select 1 as x".to_owned())),
    ("union of tables", |n| joined(n, " union ", |_| "select id, name from t".to_owned())),
    ("intersect", |n| joined(n, " intersect ", |_| "select id from t".to_owned())),
    ("except in brackets", |n| nested(n, "(select id from t except ", "select 1", ")")),
    ("not", |n| format!("select {} true as x", "not ".repeat(n))),
    ("minus signs", |n| format!("select {}id from t", "- ".repeat(n))),
    ("brackets", |n| format!("select {} as x", nested(n, "(", "1", ")"))),
    ("brackets in from", |n| format!("select count(*) from {}", nested(n, "(", "t", ")"))),
    ("open brackets in from", |n| format!("select count(*) from {}", "(".repeat(n))),
    ("brackets around", |n| nested(n, "(", "select 1", ")")),
    ("only brackets", |n| "(".repeat(n)),
    ("braces", |n| format!("select {}", "{".repeat(n))),
    ("arrays", |n| format!("select {}", nested(n, "[", "1", "]"))),
    ("array words", |n| format!("select {}", nested(n, "array[", "1", "]"))),
    ("array words left open", |n| format!("select {}", "array[".repeat(n))),
    ("casts left open", |n| format!("select {}", "cast(".repeat(n))),
    ("trims left open", |n| format!("select {}", "trim(".repeat(n))),
    ("subqueries in from left open", |n| "select * from ((".repeat(n)),
    ("subqueries in from of three left open", |n| "select * from (((".repeat(n)),
    ("subqueries", |n| nested(n, "select * from (", "select 1 as x", ") q")),
    ("scalar subqueries", |n| nested(n, "select (", "select 1", ")")),
    ("exists", |n| nested(n, "select 1 where exists (", "select 1", ")")),
    ("in subqueries", |n| nested(n, "select id from t where id in (", "select 1", ")")),
    ("casts", |n| format!("select id{} from t", "::int::bigint".repeat(n))),
    ("cast words", |n| format!("select {}", nested(n, "cast(", "id", " as bigint)"))),
    ("functions", |n| format!("select {} from t", nested(n, "abs(", "id", ")"))),
    ("arguments", |n| format!("select concat({}) from t", joined(n, ",", |_| "name".to_owned()))),
    ("coalesce", |n| format!("select {} from t", nested(n, "coalesce(null, ", "id", ")"))),
    ("case in else", |n| format!("select {} from t", nested(n, "case when id = 1 then 1 else ", "2", " end"))),
    ("case in case", |n| format!("select {} from t", nested(n, "case when id = 1 then ", "2", " end"))),
    ("case of many", |n| format!("select case {} end from t", joined(n, " ", |i| format!("when id = {i} then {i}")))),
    ("is null", |n| format!("select id {} from t", "is null ".repeat(n))),
    ("is true", |n| format!("select true {} from t", "is true ".repeat(n))),
    ("like", |n| format!("select name {} from t", "like 'a' ".repeat(n))),
    ("between", |n| format!("select {} id from t", "id between 1 and ".repeat(n))),
    ("in", |n| format!("select id {} from t", "in (1) ".repeat(n))),
    ("subscripts", |n| format!("select make_array(1){} from t", "[1]".repeat(n))),
    ("slices", |n| format!("select make_array(1){} from t", "[1:2]".repeat(n))),
    ("dots", |n| format!("select t{} from t", ".a".repeat(n))),
    ("fields", |n| format!("select (name){} from t", ".a".repeat(n))),
    ("at time zone", |n| format!("select now() {}", "at time zone 'utc' ".repeat(n))),
    ("collate", |n| format!("select name {} from t", "collate c ".repeat(n))),
    ("intervals", |n| format!("select {} '1 day'", "interval ".repeat(n))),
    ("factorial", |n| format!("select 5{}", "!".repeat(n))),
    ("type of arrays", |n| format!("select cast(null as int{})", "[]".repeat(n))),
    ("type in types", |n| format!("select cast(null as {})", nested(n, "array<", "int", ">"))),
    ("struct in types", |n| format!("select cast(null as {})", nested(n, "struct<a int, b ", "int", ">"))),
    ("table type", |n| format!("create table x{n} (a int{})", "[]".repeat(n))),
    ("table type in types", |n| format!("create table x{n} (a {})", nested(n, "struct(a ", "int", ")"))),
    ("table default", |n| format!("create table y{n} (a int default {})", joined(n, "+", |_| "1".to_owned()))),
    ("table columns", |n| format!("create table z{n} ({})", joined(n, ",", |i| format!("c{i} int")))),
    ("joins", |n| format!("select count(*) from t {}", joined(n, " ", |i| format!("join t q{i} on t.id = q{i}.id")))),
    ("joins without on", |n| format!("select count(*) from t {}", "join t ".repeat(n))),
    ("cross joins", |n| format!("select 1 from t {}", joined(n, " ", |i| format!("cross join (select 1) q{i}")))),
    ("from list", |n| format!("select 1 from {}", joined(n, ", ", |i| format!("(select {i}) q{i}")))),
    ("nested joins", |n| format!("select 1 from {}", nested(n, "(t cross join ", "(select 1) q", ")"))),
    ("ctes", |n| chain(n, 1)),
    ("ctes that double", |n| chain(n, 2)),
    ("ctes side by side", |n| format!("with {} select 1", joined(n, ", ", |i| format!("c{i} as (select {i})")))),
    ("ctes in ctes", |n| nested(n, "with c as (", "select 1 as x", ") select * from c")),
    ("columns", |n| format!("select {} from t", joined(n, ",", |i| format!("id as c{i}")))),
    ("columns without names", |n| format!("select {} from t", joined(n, ",", |i| format!("id + {i}")))),
    ("group by", |n| format!("select 1 from t group by {}", joined(n, ",", |i| format!("id + {i}")))),
    ("order by", |n| format!("select id from t order by {}", joined(n, ",", |i| format!("id + {i}")))),
    ("aggregates", |n| format!("select {} from t", joined(n, ",", |i| format!("sum(id + {i})")))),
    ("windows", |n| format!("select {} from t", joined(n, ",", |i| format!("sum(id + {i}) over ()")))),
    ("values", |n| format!("values {}", joined(n, ",", |i| format!("({i})")))),
    ("in list", |n| format!("select count(*) from t where id in ({})", joined(n, ",", |i| i.to_string()))),
    ("in list of texts", |n| {
        format!("select count(*) from t where name in ({})", joined(n, ",", |i| format!("'{i}'")))
    }),
    ("insert", |n| format!("insert into t (id, name) values {}", joined(n, ",", |i| format!("({i}, 'n{i}')")))),
    ("insert of a sum", |n| format!("insert into t (id) values ({})", joined(n, "+", |_| "1".to_owned()))),
    ("insert of unions", |n| format!("insert into t (id) {}", joined(n, " union ", |i| format!("select {i}")))),
    ("delete", |n| format!("delete from t where {}", joined(n, " or ", |i| format!("id = {}", i + 1_000_000)))),
    ("view", |n| {
        format!(
            "create sink v{n} with (topic = 'x{n}') as select id from t where {}",
            joined(n, " or ", |i| format!("id % 9 = {i}"))
        )
    }),
    ("explain", |n| format!("explain select id from t where {}", joined(n, " or ", |i| format!("id % 9 = {i}")))),
    ("explain view", |n| {
        format!("explain create materialized view w as select {} as x from t", joined(n, "||", |_| "name".to_owned()))
    }),
    ("statements", |n| "show tables;".repeat(n)),
    ("comments", |n| nested(n, "/*", "", "*/") + "select 1"),
    ("a long text", |n| format!("select '{}'", "x".repeat(n * 10))),
    ("a long name", |n| format!("select 1 as {}", "x".repeat(n * 10))),
    ("a long number", |n| format!("select {}", "9".repeat(n))),
    ("merged projections", |n| {
        let inner = format!("select {} as x from t", joined(n / 10 + 1, "+", |_| "id".to_owned()));
        nested(12, &format!("select {} as x from (", joined(n / 10 + 1, "+", |_| "x".to_owned())), &inner, ") q")
    }),
    ("added to projections", |n| {
        nested(15, &format!("select x {} as x from (", "+ 1 ".repeat(n / 10)), "select id as x from t", ") q")
    }),
];

const SIZES: [usize; 9] = [10, 24, 60, 200, 450, 1_000, 6_000, 30_000, 200_000];

/// What a client can do something about.
fn is_refusal(e: &SqlError) -> bool {
    matches!(e.kind(), ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Conflict)
        || matches!(e.code, "QUERY_MEMORY" | "RESULT_TOO_LARGE" | "QUERY_TIMEOUT")
}

async fn table() -> Arc<Env> {
    let (log, bucket, storage) = (MemoryLog::new(), Bucket::memory(), Arc::new(FakeStorage::default()));
    let config = SqlConfig { query_timeout: Duration::from_secs(10), ..SqlConfig::default() };
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_shape_of_any_size_ends_the_process() {
    let env = table().await;
    let only = std::env::var("SHAPE").ok();
    for (name, shape) in SHAPES {
        if only.as_ref().is_some_and(|o| o != name) {
            continue;
        }
        for n in SIZES {
            let text = shape(n);
            if text.len() > 16 << 20 {
                continue;
            }
            let begun = Instant::now();
            let result = execute(&env, text).await;
            let took = begun.elapsed();
            eprintln!(
                "{name} {n}: {} {took:?}",
                result.as_ref().map_or_else(|e| e.to_string().chars().take(150).collect(), |()| "ok".to_owned())
            );
            if let Err(e) = result {
                assert!(is_refusal(&e), "{name} {n}: {} {e}", e.code);
            }
            assert!(took < Duration::from_secs(60), "{name} {n} took {took:?}");
        }
    }
}

/// Makes of a few bytes more than there is memory for, each in a way of its own.
const GREEDY: &[&str] = &[
    "select length(repeat('x', 2000000000))",
    "select length(repeat('xxxxxxxxxx', 200000000))",
    "select length(repeat(name, 2000000000)) from t",
    "select length(repeat('x', id * 1000000000)) from t",
    "select length(lpad('x', 2147483647, 'y'))",
    "select length(rpad(name, 2147483647, 'ÿ')) from t",
    "select array_length(range(0, 10000000000))",
    "select array_length(generate_series(1, id * 1000000000)) from t",
    "select array_length(range(date '0001-01-01', date '9999-01-01', interval '1 second'))",
    "select array_length(generate_series(timestamp '1970-01-01', timestamp '2200-01-01', interval '1 millisecond'))",
    "select array_length(generate_series(date '2021-02-01', date '2021-03-01', interval '1 month -28 days'))",
    "select array_length(array_repeat(1, 2000000000))",
    "select array_length(array_repeat(repeat('x', 1000000), 1000000))",
    "select array_length(array_resize(make_array(1), 2000000000, 0))",
    "select length(replace(repeat('a', 1000000), 'a', repeat('b', 1000000)))",
    "select length(replace(repeat('a', 1000000), '', repeat('b', 1000000)))",
    "select length(regexp_replace(repeat('a', 1000000), 'a', repeat('b', 1000000), 'g'))",
    "select length(regexp_replace(repeat('a', 1000000), '', repeat('b', 1000000), 'g'))",
    "select length(regexp_replace(repeat('a', 1000000), '(a+)', repeat('\\1', 100000)))",
    "select array_length(regexp_match(repeat('a', 8000000), repeat('(', 100) || 'a+' || repeat(')', 100)))",
    "select length(array_to_string(range(0, 1000000), repeat('x', 1000000)))",
    "select length(array_to_string(array_repeat(null, 1000000), ',', repeat('x', 1000000)))",
    "select length(concat_ws(repeat('x', 8000000), 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm'))",
    "select cardinality(arrays_zip(range(0, 1000000), make_array(1), make_array(1), make_array(1), make_array(1), make_array(1), make_array(1)))",
    "select levenshtein(repeat('a', 1000000), repeat('b', 1000000))",
    "select sum(levenshtein(repeat('a', 10000), repeat('b', id * 10000))) from generate_series(1, 10000) as g(id)",
    "select max(length(repeat('x', 1000000))) from generate_series(1, 100000)",
    "select max(length(lpad('x', 1000000 + value))) from generate_series(1, 100000)",
    "select max(length(array_to_string(array_transform(range(0, 1000000), v -> repeat('x', 1000 + v)), ',')))",
    "select repeat('x', 8000000) as x from generate_series(1, 10000)",
    "select repeat('x', 1000) as x from generate_series(1, 10000000)",
    "select array_agg(a.value) from generate_series(1, 1000000) a cross join generate_series(1, 1000000) b",
    "select string_agg(repeat('x', 1000), ',') from generate_series(1, 10000000)",
    "select array_agg(repeat('x', 1000)) from generate_series(1, 10000000)",
    "select median(value) from generate_series(1, 10000000000)",
    "select count(distinct value) from generate_series(1, 10000000000)",
    "select value, count(*) from generate_series(1, 10000000000) group by value",
    "select value from generate_series(1, 10000000000) order by value % 7",
    "select value from generate_series(1, 10000000000)",
    "select sum(value) over () from generate_series(1, 10000000000)",
    "select rank() over (order by value % 7) from generate_series(1, 10000000000)",
    "select count(*) from generate_series(1, 1000000000) a join generate_series(1, 1000000000) b on a.value = b.value",
    "with recursive r as (select 'x' as x union all select x || x from r) select max(length(x)) from r",
    "with recursive r as (select 1 as x union all select x + 1 from r) select x from r",
    "with recursive r as (select 1 as x union select x + 1 from r) select count(*) from r",
    "insert into t (id, name) values (1, repeat('x', 2000000000))",
    "insert into t (id, name) select value, repeat('x', 1000000) from generate_series(1, 1000000)",
    "create table d (a varchar default repeat('x', 2000000000))",
    "create materialized view g1 as select id, repeat('x', 2000000000) as r from t",
    "create materialized view g2 as select id, repeat('x', 4000000) as r from t",
];

/// Doubles its input in each of `n` steps.
fn doubled(n: usize, from: &str, twice: &str) -> String {
    let steps = joined(n, ", ", |i| match i {
        0 => format!("c0 as (select {from} as x)"),
        i => format!("c{i} as (select {twice} as x from c{})", i - 1),
    });
    format!("with {steps} select count(x) from c{}", n - 1)
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    peak.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Sets the peak back, so that each statement is judged for itself.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_function_takes_more_memory_than_queries_have() {
    let env = table().await;
    let mut texts: Vec<String> = GREEDY.iter().map(|s| (*s).to_owned()).collect();
    for twice in [
        "x || x",
        "concat(x, x)",
        "concat_ws('', x, x)",
        "replace(x, 'a', 'aa')",
        "overlay(x placing x from 1 for 1)",
        "regexp_replace(x, 'a', 'aa', 'g')",
    ] {
        texts.push(doubled(60, "repeat('a', 1000)", twice));
        texts.push(doubled(60, "name", twice).replacen("as x)", "as x from t)", 1));
    }
    for twice in [
        "array_concat(x, x)",
        "make_array(x, x)",
        "named_struct('a', x, 'b', x)",
        "struct(x, x)",
        "row(x, x)",
        "arrays_zip(x, x)",
        "map(make_array('a', 'b'), make_array(x, x))",
        "array_append(make_array(x), x)",
    ] {
        texts.push(doubled(60, "make_array(1)", twice));
        texts.push(doubled(60, "make_array(id)", twice).replacen("as x)", "as x from t)", 1));
    }
    for text in texts {
        forget_peak();
        let begun = Instant::now();
        let result = tokio::time::timeout(Duration::from_secs(100), execute(&env, text.clone())).await.unwrap();
        let (took, peak) = (begun.elapsed(), resident());
        let shown: String = result
            .as_ref()
            .map_or_else(|e| format!("{} {e}", e.code), |()| "ok".to_owned())
            .chars()
            .take(160)
            .collect();
        eprintln!("{peak} MiB {took:?} {shown} <- {}", text.chars().take(110).collect::<String>());
        if let Err(e) = result {
            assert!(is_refusal(&e), "{text}: {} {e}", e.code);
        }
        assert!(peak < 2048, "{text}: {peak} MiB");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_long_statements_work() {
    let env = table().await;
    let statements = [
        format!("insert into t (id, name) values {}", joined(10_000, ",", |i| format!("({i}, 'n{i}')"))),
        format!(
            "insert into t (id, d) values {}",
            joined(10_000, ",", |i| format!("({i}, cast('{i}.5' as decimal(12,2)))"))
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_names_and_values_are_refused_or_answered_but_never_panic() {
    let env = table().await;
    let odd = [
        "select 1/0",
        "select id / 0 from t",
        "select 1.0 / 0",
        "select 1 % 0",
        "select -9223372036854775808 / -1",
        "select abs(-9223372036854775808)",
        "select cast(-32768 as smallint) / cast(-1 as smallint)",
        "select cast(-32768 as smallint) % cast(-1 as smallint)",
        "select factorial(30)",
        "select factorial(-1)",
        "select substr('é', -1, 100)",
        "select substr('é', 9223372036854775807, 9223372036854775807)",
        "select left('é', -9223372036854775808)",
        "select right('é', -9223372036854775808)",
        "select repeat('x', -1)",
        "select lpad('é', -1, '')",
        "select split_part('a', '', 0)",
        "select split_part('a', ',', -9223372036854775808)",
        "select chr(-1), chr(1114112)",
        "select chr(0)",
        "select overlay('é' placing 'x' from -5 for 100)",
        "select date '9999999-01-01'",
        "select date '0000-00-00'",
        "select timestamp '1970-01-01' + interval '999999999 years'",
        "select timestamp '1970-01-01' - interval '999999999 days'",
        "select date '1970-01-01' + interval '2147483647 months'",
        "select interval '99999999999999999999 years'",
        "select date_trunc('century', timestamp '0001-01-01')",
        "select date_trunc('nothing', now())",
        "select date_part('nothing', now())",
        "select to_timestamp(9223372036854775807)",
        "select to_timestamp_seconds(9223372036854775807)",
        "select from_unixtime(9223372036854775807)",
        "select make_date(2147483647, 13, 99)",
        "select date_bin(interval '0 days', now(), now())",
        "select date_bin(interval '1 month', timestamp '0001-01-01', timestamp '9999-01-01')",
        "select to_char(date '2020-01-01', '%Q%')",
        "select to_char(timestamp '2020-01-01', '%9999999999c')",
        "select cast('x' as int)",
        "select cast(1e300 as int)",
        "select cast('9'::varchar as decimal(76,0))",
        "select cast(99999999999999999999999999999999999999 as decimal(38,0)) * 10",
        "select 9e9999",
        "select 1e-9999",
        "select power(10, 1000)",
        "select round(1.5, 2147483647)",
        "select round(1.5, -2147483648)",
        "select trunc(1.5, 400)",
        "select log(0), ln(-1), sqrt(-1)",
        "select gcd(-9223372036854775808, 0)",
        "select lcm(9223372036854775807, 9223372036854775806)",
        "select array_element(make_array(1), -9223372036854775808)",
        "select array_slice(make_array(1), -9223372036854775808, 9223372036854775807)",
        "select array_slice(make_array(1, 2), 1, 2, 0)",
        "select array_resize(make_array(1), -5)",
        "select array_repeat(1, -9223372036854775808)",
        "select range(9223372036854775807, -9223372036854775808, -9223372036854775808)",
        "select range(0, 10, 0)",
        "select generate_series(9223372036854775806, 9223372036854775807)",
        "select value from generate_series(9223372036854775806, 9223372036854775807)",
        "select value from generate_series(1, 10, 0)",
        "select value from range(5, 1)",
        "select array_position(make_array(1), 1, 9223372036854775807)",
        "select make_array()",
        "select make_array(null)[1]",
        "select regexp_replace('a', '(', 'b')",
        "select regexp_match('a', '(?P<n>a){1000}{1000}{1000}')",
        "select regexp_replace('a', 'a', '\\99999999999999999999')",
        "select regexp_count('aaa', '', 9223372036854775807)",
        "select 'a' like '\\'",
        "select 'a' like 'a' escape ''",
        "select * from \"\"",
        "select \"\"",
        "select * from \"a\0b\"",
        "select 'a\0b' as \"c\0d\"",
        "insert into t (id, name) values (9, 'a\0b')",
        "select * from \"💥\"",
        "select 1 as \"💥\"",
        "select * from public.\"T\"",
        "select * from a.b.c.d",
        "select t.t.t.t from t",
        "select * from t limit -1",
        "select * from t limit 99999999999999999999",
        "select * from t offset 9223372036854775807",
        "select * from t limit 9223372036854775807 offset 9223372036854775807",
        "select * from t order by 99999999999",
        "select * from t order by 0",
        "select id from t group by 9",
        "select $1",
        "select $99999999999999999999",
        "select ?",
        "select @x",
        "select ntile(0) over () from t",
        "select ntile(-1) over () from t",
        "select nth_value(id, 0) over () from t",
        "select nth_value(id, -9223372036854775808) over () from t",
        "select lag(id, 9223372036854775807) over () from t",
        "select lag(id, -9223372036854775808) over () from t",
        "select sum(id) over (rows between 9223372036854775807 preceding and 9223372036854775807 following) from t",
        "select sum(id) over (order by id range between 9223372036854775807 preceding and 9223372036854775807 following) from t",
        "select percentile_cont(2.0) within group (order by id) from t",
        "select approx_percentile_cont(id, -1) from t",
        "select string_agg(name, null) from t",
        "select nth_value(id, 0) from t",
        "select sum(9223372036854775807) from t",
        "select sum(id * 9223372036854775807) from t",
        "select avg(d) from t",
        "select stddev(id), var(id), corr(id, id) from t where false",
        "select array_agg(id) from t where false",
        "select unnest(make_array())",
        "select unnest(null)",
        "select unnest(1)",
        "select get_field(named_struct('a', 1), 'b')",
        "select arrow_cast(1, 'nothing')",
        "select arrow_cast(1, 'Dictionary(Int32, Utf8)')",
        "select arrow_cast('x', 'FixedSizeBinary(2147483647)')",
        "select arrow_cast(make_array(1), 'FixedSizeList(2147483647, Int64)')",
        "select cast('a' as char(1000000000))",
        "select * from information_schema.columns",
        "select * from information_schema.df_settings",
        "select * from information_schema.routines",
        "select * from information_schema.views",
        "values (1, 2), (3)",
        "values (null), (1), ('x')",
        "select map(make_array(1, 1), make_array(2, 3))",
        "select map(make_array(null), make_array(2))",
        "create table \"\" (a int)",
        "create table e (\"\" int)",
        "create table e ()",
        "create table e (a decimal(77,0))",
        "create table e (a decimal(99999999999,0))",
        "create table e (a int, a int)",
        "create table e (a int default 1/0)",
        "create table e (a int default 99999999999)",
        "create table e (a timestamp default '999999-01-01')",
        "create table e (a int default (select 1))",
        "create table e (a int) with (partitions = 99999999999999999999)",
        "create materialized view e as select 1/0 as x from t",
        "create materialized view e2 as select id / 0 as x, id from t",
        "create materialized view e3 as select cast('x' as int) as x, id from t",
        "alter materialized view e3 set (backfill_rate_limit = 99999999999999999999)",
        "explain analyze select 1",
        "explain select id from t where 1/0 = 1",
        "wait for nothing",
        "\0",
        "/*",
        "'",
        "\"",
        "$$",
        "e'\\",
        "u&'\\",
        "x'0",
        "b'2'",
        ";;;",
        "select",
        "\u{feff}select 1",
        "select 1 \u{2028} ; ",
        "select '\u{202e}'",
    ];
    let mut panicked = Vec::new();
    for text in odd {
        let result = tokio::time::timeout(Duration::from_secs(20), execute(&env, text.to_owned())).await;
        let Ok(result) = result else { panic!("{text}: no answer") };
        match result {
            Err(e) if e.code == "QUERY_PANICKED" => panicked.push(text),
            Err(e) if !is_refusal(&e) => eprintln!("{text:?}: {:?} {} {e}", e.kind(), e.code),
            _ => {}
        }
    }
    assert!(panicked.is_empty(), "{panicked:#?}");
}
