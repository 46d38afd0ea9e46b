//! Short statements that want more memory than there is.

use std::time::{Duration, Instant};

use super::{MEMORY, execute, is_refusal, joined, table};

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
    let _alone = MEMORY.lock().await;
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
