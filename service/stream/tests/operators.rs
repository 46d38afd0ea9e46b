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

#[tokio::test]
async fn two_regions_with_one_key_leave_one_row_per_epoch() {
    let t = table("k bigint, v bigint", 1);
    let mut h = harness(with_view(plan(&t, 2), t.columns.clone(), vec![0]));
    let s = literal::schema("k bigint, v bigint");
    let out = epoch(&mut h, &s, &["+ 1 1 | + 2 2", "- 1 1 | + 3 3", "+ 2 20"]).await;
    assert_eq!(out, "+ 1 1\n+ 3 3\n+ 2 20", "an insert wins over a delete, a later insert over an earlier");
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
    // n, s, lo, hi, then the hidden number of non-null arguments
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + a 5 | + NULL 2"]).await, "+ a 2 6 1 5 2 | + NULL 1 2 2 2 1");
    h.commit();
    assert_eq!(epoch(&mut h, &s, &["U- a 5 | U+ a 3 | + b NULL"]).await, "U+ a 2 4 1 3 2 | + b 1 NULL NULL NULL 0");
    assert_eq!(epoch(&mut h, &s, &["- a 1 | + a 1"]).await, "", "the net change is nothing");
    assert_eq!(epoch(&mut h, &s, &["- a 1 | - a 3", "+ c 9 | - c 9"]).await, "- a 2 4 1 3 2");
    h.commit();
    assert_eq!(h.view(), "NULL 1 2 2 2 1 | b 1 NULL NULL NULL 0");
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
        assert_eq!(h.view(), "a 1 1 1 1 1 | b 2 5 2 3 2");
    }
}

#[tokio::test]
async fn append_only_needs_no_counts_and_refuses_deletes() {
    let s = literal::schema("g varchar, v bigint");
    let mut h = counted(true, Where::View);
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + b 2 | + a 4"]).await, "+ a 2 5 1 4 2 | + b 1 2 2 2 1");
    h.commit();
    assert_eq!(epoch(&mut h, &s, &["+ a 0"]).await, "U+ a 3 5 0 4 3");
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
    // hidden: non-null count, sum
    assert_eq!(epoch(&mut h, &s, &[]).await, "+ 0 0 NULL NULL 0 NULL");
    h.commit();
    assert_eq!(epoch(&mut h, &s, &[]).await, "");
    assert_eq!(epoch(&mut h, &s, &["+ a 1 | + b 2"]).await, "U+ 0 2 1.5 2 2 3");
    h.commit();
    h.restart().unwrap();
    assert_eq!(epoch(&mut h, &s, &["- a 1 | - b 2"]).await, "U+ 0 0 NULL NULL 0 NULL");
}

#[tokio::test]
async fn a_sum_out_of_range_is_null_until_its_arguments_have_left_or_fails_the_job() {
    let t = table("g varchar, v bigint", 0);
    let p = |on| {
        let calls = vec![call(Sum, Some(1), "s", "BIGINT")];
        let mut p = with_agg(plan(&t, 1), &group_columns(), vec![0], calls, false, Where::View);
        p.options.on_eval_error = on;
        p
    };
    let s = literal::schema("g varchar, v bigint");
    let mut h = harness(p(OnEvalError::Null));
    assert_eq!(epoch(&mut h, &s, &["+ a 9223372036854775807 | + a 1"]).await, "+ a NULL 2 2");
    h.commit();
    h.restart().unwrap();
    assert_eq!(epoch(&mut h, &s, &["- a 1"]).await, "U+ a NULL 1 1");
    assert_eq!(epoch(&mut h, &s, &["U- a 9223372036854775807 | U+ a NULL"]).await, "U+ a NULL 1 0");
    assert_eq!(epoch(&mut h, &s, &["+ a 5"]).await, "U+ a 5 2 1");
    let mut h = harness(p(OnEvalError::Fail));
    h.chunk(literal::chunk(&s, "+ a 9223372036854775807 | + a 1")).await.unwrap();
    assert!(matches!(h.barrier().await, Err(StreamError::OutOfRange { .. })));
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
