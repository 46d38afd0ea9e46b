//! Goal: each operator does what its line in the design says, on chunks as text.
//! Method: a plan with one operator, chunks in, the net rows of the epoch out.

use arrow::datatypes::SchemaRef;
use datafusion_expr::Operator;
use millstream_stream::{
    AggFunc::{Avg, Count, CountStar, Max, Min, Sum},
    JobPlan, Node, OnEvalError, StreamConfig, StreamError,
    testing::Harness,
};
use millstream_types::{Column, testing::literal};

use crate::support::{Where, binary, call, column, int, plan, small, table, with_agg, with_view};

/// Runs chunks as one epoch.
async fn epoch(h: &mut Harness, schema: &SchemaRef, chunks: &[&str]) -> String {
    for text in chunks {
        h.chunk(literal::chunk(schema, text)).await.unwrap();
    }
    h.barrier().await.unwrap()
}

fn harness(plan: JobPlan) -> Harness {
    Harness::new(plan, small()).unwrap()
}

#[tokio::test]
async fn a_filter_rewrites_pairs_that_cross_it() {
    let t = table("k bigint, v bigint", 1);
    let mut p = plan(&t, 1);
    p.nodes.push(Node::Filter { predicate: binary(column("v", 1), Operator::Gt, int(10)) });
    let mut h = harness(with_view(p, t.columns.clone(), vec![0]));
    let s = literal::schema("k bigint, v bigint");
    let text = "+ 1 11 | + 2 5 | + 3 NULL | U- 4 11 | U+ 4 12 | U- 5 11 | U+ 5 3 | U- 6 3 | U+ 6 11 | U- 7 1 | U+ 7 2 | - 8 20 | - 9 2";
    assert_eq!(epoch(&mut h, &s, &[text]).await, "+ 1 11 | U+ 4 12 | - 5 11 | + 6 11 | - 8 20");
    assert_eq!(epoch(&mut h, &s, &["+ 2 5"]).await, "", "an epoch without rows");
}

#[tokio::test]
async fn a_project_drops_pairs_that_come_out_equal() {
    let t = table("k bigint, v bigint", 1);
    let out = table("k bigint, w bigint", 1);
    let mut p = plan(&t, 1);
    let double = binary(column("v", 1), Operator::Divide, int(10));
    p.nodes.push(Node::Project {
        exprs: vec![(column("k", 0), out.columns[0].clone()), (double, out.columns[1].clone())],
    });
    let mut h = harness(with_view(p, out.columns.clone(), vec![0]));
    let s = literal::schema("k bigint, v bigint");
    let text = "U- 1 11 | U+ 1 12 | U- 2 11 | U+ 2 25 | + 3 NULL";
    assert_eq!(epoch(&mut h, &s, &[text]).await, "U+ 2 2 | + 3 NULL");
}

fn division(on_error: OnEvalError) -> Harness {
    let t = table("k bigint, v bigint", 1);
    let out = table("k bigint, w bigint", 1);
    let mut p = plan(&t, 1);
    p.options.on_eval_error = on_error;
    let quotient = binary(int(100), Operator::Divide, column("v", 1));
    p.nodes.push(Node::Project {
        exprs: vec![(column("k", 0), out.columns[0].clone()), (quotient, out.columns[1].clone())],
    });
    harness(with_view(p, out.columns.clone(), vec![0]))
}

#[tokio::test]
async fn a_failed_expression_is_null_for_its_row_only_or_fails_the_job() {
    let s = literal::schema("k bigint, v bigint");
    let text = "+ 1 10 | + 2 0 | + 3 50 | + 4 0 | + 5 1";
    let mut h = division(OnEvalError::Null);
    assert_eq!(epoch(&mut h, &s, &[text]).await, "+ 1 10 | + 2 NULL | + 3 2 | + 4 NULL | + 5 100");
    let mut h = division(OnEvalError::Fail);
    assert!(matches!(h.chunk(literal::chunk(&s, text)).await, Err(StreamError::Eval { .. })));
}

fn group_columns() -> Vec<Column> {
    table("g varchar, v bigint", 0).columns
}

fn counted(append: bool, at: Where) -> Harness {
    let calls = vec![
        call(CountStar, None, "n", "BIGINT"),
        call(Sum, Some(1), "s", "BIGINT"),
        call(Min, Some(1), "lo", "BIGINT"),
        call(Max, Some(1), "hi", "BIGINT"),
    ];
    let t = table("g varchar, v bigint", 0);
    harness(with_agg(plan(&t, 1), &group_columns(), vec![0], calls, append, at))
}

#[tokio::test]
async fn a_group_appears_changes_and_disappears() {
    let s = literal::schema("g varchar, v bigint");
    let mut h = counted(false, Where::Own);
    // n, s, lo, hi, then hidden: the number of non-null arguments, and what a sum out of range would be
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + a 5 | + NULL 2"]).await, "+ a 2 6 1 5 2 NULL | + NULL 1 2 2 2 1 NULL");
    h.commit();
    assert_eq!(
        epoch(&mut h, &s, &["U- a 5 | U+ a 3 | + b NULL"]).await,
        "U+ a 2 4 1 3 2 NULL | + b 1 NULL NULL NULL 0 NULL"
    );
    assert_eq!(epoch(&mut h, &s, &["- a 1 | + a 1"]).await, "", "the net change is nothing");
    assert_eq!(epoch(&mut h, &s, &["- a 1 | - a 3", "+ c 9 | - c 9"]).await, "- a 2 4 1 3 2 NULL");
    h.commit();
    assert_eq!(h.view(), "NULL 1 2 2 2 1 NULL | b 1 NULL NULL NULL 0 NULL");
}

#[tokio::test]
async fn a_restart_in_the_middle_of_an_epoch_goes_on_from_what_was_committed() {
    let s = literal::schema("g varchar, v bigint");
    for at in [Where::View, Where::Own] {
        let mut h = counted(false, at);
        epoch(&mut h, &s, &["+ a 1 | + a 5 | + b 2"]).await;
        h.commit();
        epoch(&mut h, &s, &["+ a 7"]).await;
        h.chunk(literal::chunk(&s, "+ a 100 | - b 2")).await.unwrap();
        assert_eq!(h.restart().unwrap(), 1);
        epoch(&mut h, &s, &["- a 5 | + b 3"]).await;
        h.commit();
        assert_eq!(h.view(), "a 1 1 1 1 1 NULL | b 2 5 2 3 2 NULL");
    }
}

#[tokio::test]
async fn append_only_needs_no_counts_and_refuses_deletes() {
    let s = literal::schema("g varchar, v bigint");
    let mut h = counted(true, Where::View);
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + b 2 | + a 4"]).await, "+ a 2 5 1 4 2 NULL | + b 1 2 2 2 1 NULL");
    h.commit();
    assert_eq!(epoch(&mut h, &s, &["+ a 0"]).await, "U+ a 3 5 0 4 3 NULL");
    let deleted = h.chunk(literal::chunk(&s, "- a 1")).await;
    assert!(matches!(deleted, Err(StreamError::Inconsistent { .. })));
}

#[tokio::test]
async fn a_group_with_fewer_rows_than_none_is_inconsistent() {
    let s = literal::schema("g varchar, v bigint");
    let mut h = counted(false, Where::Own);
    h.chunk(literal::chunk(&s, "- a NULL")).await.unwrap();
    assert!(matches!(h.barrier().await, Err(StreamError::Inconsistent { .. })));
}

#[tokio::test]
async fn without_group_by_there_is_always_one_row() {
    let t = table("g varchar, v bigint", 0);
    let calls = vec![
        call(CountStar, None, "n", "BIGINT"),
        call(Avg, Some(1), "a", "DOUBLE"),
        call(Max, Some(1), "m", "BIGINT"),
    ];
    let p = with_agg(plan(&t, 1), &group_columns(), vec![], calls, false, Where::View);
    let mut h = harness(p);
    let s = literal::schema("g varchar, v bigint");
    // hidden: non-null count, sum, what is out of its range
    assert_eq!(epoch(&mut h, &s, &[]).await, "+ 0 0 NULL NULL 0 NULL NULL");
    h.commit();
    assert_eq!(epoch(&mut h, &s, &[]).await, "");
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + b 2"]).await, "U+ 0 2 1.5 2 2 3 NULL");
    h.commit();
    h.restart().unwrap();
    assert_eq!(epoch(&mut h, &s, &["- a 1 | - b 2"]).await, "U+ 0 0 NULL NULL 0 NULL NULL");
}

/// Columns of the only row of an epoch.
fn shown(out: &str, places: std::ops::Range<usize>) -> String {
    out.split(' ').skip(1 + places.start).take(places.len()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_sum_out_of_range_is_null_while_it_is_or_fails_the_job() {
    let t = table("g varchar, v bigint", 0);
    let p = |on| {
        let calls = vec![call(Sum, Some(1), "s", "BIGINT")];
        let mut p = with_agg(plan(&t, 1), &group_columns(), vec![0], calls, false, Where::View);
        p.options.on_eval_error = on;
        p
    };
    let s = literal::schema("g varchar, v bigint");
    let mut h = harness(p(OnEvalError::Null));
    let step = async |h: &mut Harness, text: &str| {
        let out = epoch(h, &s, &[text]).await;
        h.commit();
        // what is known must survive a restart and an eviction
        h.restart().unwrap();
        shown(&out, 0..3)
    };
    assert_eq!(step(&mut h, "+ a 9223372036854775807 | + a 1").await, "a NULL 2");
    assert_eq!(step(&mut h, "- a 1").await, "a 9223372036854775807 1", "it is back in range");
    assert_eq!(step(&mut h, "+ a 9223372036854775807 | + a -3").await, "a NULL 3");
    assert_eq!(step(&mut h, "+ a -9223372036854775807").await, "a 9223372036854775804 4");
    assert_eq!(step(&mut h, "U- a 9223372036854775807 | U+ a NULL").await, "a -3 4");
    let mut h = harness(p(OnEvalError::Fail));
    h.chunk(literal::chunk(&s, "+ a 9223372036854775807 | + a 1")).await.unwrap();
    assert!(matches!(h.barrier().await, Err(StreamError::OutOfRange { .. })));
    let mut h = harness(p(OnEvalError::Fail));
    let there_and_back = "+ a 9223372036854775807 | + a 1 | - a 1";
    assert_eq!(
        shown(&epoch(&mut h, &s, &[there_and_back]).await, 0..2),
        "a 9223372036854775807",
        "only the end counts"
    );
}

#[tokio::test]
async fn a_decimal_sum_beyond_128_bits_comes_back_and_its_average_is_exact() {
    let t = table("g varchar, v decimal(38,0)", 0);
    let calls = vec![call(Sum, Some(1), "s", "DECIMAL(38,0)"), call(Avg, Some(1), "a", "DECIMAL(38,4)")];
    let mut h = harness(with_agg(plan(&t, 1), &t.columns, vec![0], calls, false, Where::Own));
    let s = literal::schema("g varchar, v decimal(38,0)");
    let big = "9".repeat(37);
    let many = vec![format!("+ a {big}"); 60].join(" | ");
    let step = async |h: &mut Harness, text: &str| {
        let out = epoch(h, &s, &[text]).await;
        h.commit();
        h.restart().unwrap();
        shown(&out, 1..3)
    };
    assert_eq!(
        step(&mut h, &many).await,
        "NULL NULL",
        "600 digits' worth: 6e38 is above 2^128 and the average has 41 digits"
    );
    let down = vec![format!("+ a -{big}"); 60].join(" | ");
    assert_eq!(step(&mut h, &down).await, "0 0.0000");
    assert_eq!(step(&mut h, "+ a 7").await, "7 0.0578");
}

#[tokio::test]
async fn a_float_sum_beyond_the_range_comes_back() {
    let t = table("g varchar, v double", 0);
    let calls = vec![call(Sum, Some(1), "s", "DOUBLE"), call(Avg, Some(1), "a", "DOUBLE")];
    let mut h = harness(with_agg(plan(&t, 1), &t.columns, vec![0], calls, false, Where::View));
    let s = literal::schema("g varchar, v double");
    let step = async |h: &mut Harness, text: &str| {
        let out = epoch(h, &s, &[text]).await;
        h.commit();
        h.restart().unwrap();
        shown(&out, 1..3)
    };
    assert_eq!(step(&mut h, "+ a 1.5e308 | + a 1.5e308 | + a 2").await, "inf inf");
    assert_eq!(step(&mut h, "- a 1.5e308").await, "1.5e308 7.5e307");
    assert_eq!(step(&mut h, "- a 1.5e308").await, "2.0 2.0");
}

#[tokio::test]
async fn min_and_max_of_floats_follow_the_total_order_however_the_rows_come() {
    let t = table("k bigint, g varchar, v double", 1);
    let calls = || vec![call(Min, Some(2), "lo", "DOUBLE"), call(Max, Some(2), "hi", "DOUBLE")];
    let s = literal::schema("k bigint, g varchar, v double");
    for append in [true, false] {
        for rows in [["+ 1 a -0.0", "+ 2 a 0.0"], ["+ 2 a 0.0", "+ 1 a -0.0"]] {
            let mut p = plan(&t, 1);
            p.input.schema = std::sync::Arc::new(t.clone());
            let mut h = harness(with_agg(p, &t.columns, vec![1], calls(), append, Where::View));
            let step = async |h: &mut Harness, texts: &[&str]| {
                let out = epoch(h, &s, texts).await;
                h.commit();
                h.restart().unwrap();
                shown(&out, 1..3)
            };
            assert_eq!(step(&mut h, &rows).await, "-0.0 0.0", "append {append}: {rows:?}");
            assert_eq!(step(&mut h, &["+ 3 a NaN | + 4 a -inf"]).await, "-inf NaN");
            assert_eq!(step(&mut h, &["+ 5 b -inf"]).await, "-inf -inf");
            assert_eq!(step(&mut h, &["+ 6 c NaN"]).await, "NaN NaN");
            if !append {
                assert_eq!(step(&mut h, &["- 3 a NaN | - 4 a -inf | + 7 a inf"]).await, "-0.0 inf");
                assert_eq!(step(&mut h, &["- 1 a -0.0 | - 7 a inf"]).await, "0.0 0.0");
            }
        }
    }
}

#[tokio::test]
async fn an_eviction_takes_no_more_groups_than_it_must() {
    let t = table("g bigint, v bigint", 0);
    let calls = vec![call(CountStar, None, "n", "BIGINT")];
    let p = with_agg(plan(&t, 1), &t.columns, vec![0], calls, false, Where::View);
    let view = p.output.view.as_ref().unwrap().region.id;
    // about 60 bytes a group: a few more than the cache holds, all of one epoch
    let mut h = Harness::new(p, StreamConfig { state_cache_bytes: 100_000, ..small() }).unwrap();
    let s = literal::schema("g bigint, v bigint");
    let all = (0..2_000).map(|g| format!("+ {g} 1")).collect::<Vec<_>>().join(" | ");
    epoch(&mut h, &s, &[&all]).await;
    h.commit();
    // an epoch without rows: the groups are in the region now and may go
    epoch(&mut h, &s, &[]).await;
    let before = h.region(view).read_keys();
    epoch(&mut h, &s, &[&all]).await;
    let read = h.region(view).read_keys() - before;
    assert!((1..1_500).contains(&read), "{read} of 2000 groups were forgotten");
}

#[tokio::test]
async fn groups_whose_extreme_leaves_are_read_together() {
    let t = table("k bigint, g bigint, v bigint", 1);
    let calls = vec![call(Min, Some(2), "lo", "BIGINT")];
    let p = with_agg(plan(&t, 1), &t.columns, vec![1], calls, false, Where::View);
    let set = p.state[0].id;
    let mut h = Harness::new(p, StreamConfig::default()).unwrap();
    let s = literal::schema("k bigint, g bigint, v bigint");
    let rows = |sign: &str, v: i64| {
        let row = |g: i64| format!("{sign} {} {g} {v}", g * 100 + v);
        (0..1_000).map(row).collect::<Vec<_>>().join(" | ")
    };
    for v in 0..12 {
        epoch(&mut h, &s, &[&rows("+", v)]).await;
    }
    h.commit();
    h.restart().unwrap();
    let (scans, lookups) = h.region(set).reads();
    let out = epoch(&mut h, &s, &[&rows("-", 0)]).await;
    assert!(out.starts_with("U+ 0 1 "), "{}", &out[..40]);
    let (scans, lookups) = (h.region(set).reads().0 - scans, h.region(set).reads().1 - lookups);
    assert!(scans == 0 && lookups <= 2, "{scans} scans and {lookups} look-ups for 1000 groups");
}

#[tokio::test]
async fn float_sums_come_back_from_nan_infinity_and_cancellation() {
    let t = table("g varchar, v double", 0);
    let calls = vec![call(Count, Some(1), "n", "BIGINT"), call(Sum, Some(1), "s", "DOUBLE")];
    let columns = t.columns.clone();
    let mut h =
        Harness::new(with_agg(plan(&t, 1), &columns, vec![0], calls, false, Where::View), StreamConfig::default())
            .unwrap();
    let s = literal::schema("g varchar, v double");
    let shown = async |h: &mut Harness, text: &str| {
        let out = epoch(h, &s, &[text]).await;
        out.split(' ').nth(3).unwrap().to_owned()
    };
    assert_eq!(shown(&mut h, "+ a 1e100 | + a 1").await, "1e100");
    assert_eq!(shown(&mut h, "- a 1e100").await, "1.0", "the small part is not lost");
    assert_eq!(shown(&mut h, "+ a NaN | + a inf").await, "NaN");
    assert_eq!(shown(&mut h, "- a NaN").await, "inf");
    assert_eq!(shown(&mut h, "- a inf").await, "1.0");
    assert_eq!(shown(&mut h, "U- a 1 | U+ a 0.1").await, "0.1");
}
