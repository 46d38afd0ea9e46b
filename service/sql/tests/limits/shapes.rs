//! Long and deep statements: each shape in sizes from ordinary to absurd.

use std::time::{Duration, Instant};

use super::{chain, execute, is_refusal, joined, nested, table};

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
    ("cube", |n| format!("select count(*) from t group by cube({})", joined(n, ",", |i| format!("id + {i}")))),
    ("rollup", |n| format!("select count(*) from t group by rollup({})", joined(n, ",", |i| format!("id + {i}")))),
    ("grouping sets", |n| {
        format!("select count(*) from t group by grouping sets ({})", joined(n, ",", |i| format!("(id + {i})")))
    }),
    ("different windows", |n| {
        format!("select {} from t", joined(n, ",", |i| format!("sum(id) over (order by id + {i})")))
    }),
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

/// From ordinary over what is just allowed to absurd. With SHAPE=name, or SHAPE=all, the sizes between them, too.
const SIZES: [usize; 4] = [24, 300, 1_200, 15_000];
const ALL_SIZES: [usize; 12] = [10, 24, 60, 200, 450, 1_000, 1_500, 6_000, 12_000, 19_000, 30_000, 200_000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_shape_of_any_size_ends_the_process_or_takes_long() {
    let env = table().await;
    let only = std::env::var("SHAPE").ok();
    for (name, shape) in SHAPES {
        if only.as_ref().is_some_and(|o| o != name && o != "all") {
            continue;
        }
        for n in if only.is_some() { &ALL_SIZES[..] } else { &SIZES[..] }.iter().copied() {
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
                // a limit of time would hide a shape that nothing bounds
                assert_ne!(e.code, "QUERY_TIMEOUT", "{name} {n}: {e}");
            }
            assert!(took < Duration::from_secs(30), "{name} {n} took {took:?}");
        }
    }
}
