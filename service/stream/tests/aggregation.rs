//! Goal: after any inserts, deletes and updates, crashes and evictions, an aggregation equals its recomputation from the rows that are left.
//! Method: random multisets of rows with nulls in every column; caches of one group; commits that lag, are lost, or come at once. Seeds are printed.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};
use millstream_stream::{
    AggCall,
    AggFunc::{Avg, Count, CountStar, Max, Min, Sum},
    testing::Harness,
};
use millstream_types::{Chunk, Column, Op, testing::literal};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::support::{Where, call, plan, small, table, with_agg};

/// g, v, d (eighths, so that float sums are exact), s, n (cents), id
type Row = (Option<u8>, Option<i64>, Option<i64>, Option<u8>, Option<i64>, i64);

const COLUMNS: &str = "g varchar, v bigint, d double, s varchar, n decimal(10,2), id bigint";

fn input() -> Vec<Column> {
    table(COLUMNS, 0).columns
}

fn calls() -> Vec<AggCall> {
    vec![
        call(CountStar, None, "n", "BIGINT"),
        call(Count, Some(1), "nv", "BIGINT"),
        call(Sum, Some(1), "sv", "BIGINT"),
        call(Avg, Some(1), "av", "DOUBLE"),
        call(Min, Some(1), "lo", "BIGINT"),
        call(Max, Some(1), "hi", "BIGINT"),
        call(Sum, Some(2), "sd", "DOUBLE"),
        call(Avg, Some(2), "ad", "DOUBLE"),
        call(Max, Some(2), "md", "DOUBLE"),
        call(Min, Some(3), "los", "VARCHAR"),
        call(Max, Some(3), "his", "VARCHAR"),
        call(Sum, Some(4), "sn", "DECIMAL(20,2)"),
        call(Avg, Some(4), "an", "DECIMAL(14,6)"),
    ]
}

fn batch(rows: &[Row]) -> RecordBatch {
    let s = literal::schema(COLUMNS);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|r| r.0.map(|g| format!("g{g}"))).collect::<StringArray>()),
        Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|r| r.2.map(|d| d as f64 / 8.0)).collect::<Float64Array>()),
        Arc::new(rows.iter().map(|r| r.3.map(|s| "x".repeat(s as usize))).collect::<StringArray>()),
        Arc::new(
            rows.iter()
                .map(|r| r.4.map(i128::from))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(10, 2)
                .unwrap(),
        ),
        Arc::new(rows.iter().map(|r| Some(r.5)).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(s, columns).unwrap()
}

/// The view's visible columns, computed from the rows alone.
fn recompute(rows: &[Row]) -> String {
    let mut groups: BTreeMap<Option<u8>, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|r| groups.entry(r.0).or_default().push(r));
    let mut lines: Vec<String> = groups.iter().map(|(g, rows)| line(*g, rows)).collect();
    lines.sort();
    lines.join(" | ")
}

fn line(g: Option<u8>, rows: &[&Row]) -> String {
    let text = |v: Option<String>| v.unwrap_or_else(|| "NULL".into());
    let v: Vec<i64> = rows.iter().filter_map(|r| r.1).collect();
    let d: Vec<f64> = rows.iter().filter_map(|r| r.2).map(|d| d as f64 / 8.0).collect();
    let s: Vec<u8> = rows.iter().filter_map(|r| r.3).collect();
    let n: Vec<i128> = rows.iter().filter_map(|r| r.4).map(i128::from).collect();
    let has = |empty: bool| (!empty).then_some(());
    let float = |v: f64| {
        literal::print_rows(
            &RecordBatch::try_new(literal::schema("d double"), vec![Arc::new(Float64Array::from(vec![v]))]).unwrap(),
        )
    };
    let decimal = |v: i128, p: u8, scale: i8| {
        let a = Decimal128Array::from(vec![v]).with_precision_and_scale(p, scale).unwrap();
        literal::print_rows(
            &RecordBatch::try_new(literal::schema(&format!("n decimal({p},{scale})")), vec![Arc::new(a)]).unwrap(),
        )
    };
    let xs = |n: &u8| if *n == 0 { "''".to_owned() } else { "x".repeat(*n as usize) };
    [
        text(g.map(|g| format!("g{g}"))),
        rows.len().to_string(),
        v.len().to_string(),
        text(has(v.is_empty()).map(|()| v.iter().sum::<i64>().to_string())),
        text(has(v.is_empty()).map(|()| float(v.iter().sum::<i64>() as f64 / v.len() as f64))),
        text(v.iter().min().map(i64::to_string)),
        text(v.iter().max().map(i64::to_string)),
        text(has(d.is_empty()).map(|()| float(d.iter().sum::<f64>()))),
        text(has(d.is_empty()).map(|()| float(d.iter().sum::<f64>() / d.len() as f64))),
        text(d.iter().copied().reduce(f64::max).map(float)),
        text(s.iter().min().map(xs)),
        text(s.iter().max().map(xs)),
        text(has(n.is_empty()).map(|()| decimal(n.iter().sum(), 20, 2))),
        text(has(n.is_empty()).map(|()| decimal(n.iter().sum::<i128>() * 10_000 / n.len() as i128, 14, 6))),
    ]
    .join(" ")
}

fn random_row(rng: &mut StdRng) -> Row {
    let null = |rng: &mut StdRng| rng.random_bool(0.2);
    (
        (!null(rng)).then(|| rng.random_range(0..6)),
        (!null(rng)).then(|| rng.random_range(-50..50)),
        (!null(rng)).then(|| rng.random_range(-80..80)),
        (!null(rng)).then(|| rng.random_range(0..5)),
        (!null(rng)).then(|| rng.random_range(-9_999..9_999)),
        rng.random_range(0..i64::MAX),
    )
}

/// Changes `live` at random and returns the chunk that says so.
fn random_chunk(rng: &mut StdRng, live: &mut Vec<Row>, append: bool) -> Chunk {
    let (mut rows, mut ops) = (Vec::new(), Vec::new());
    for _ in 0..rng.random_range(1..8) {
        // more come than leave: groups outgrow what is cached of their values
        let kind = if append || live.is_empty() { 0 } else { rng.random_range(0..5) % 3 };
        let mut new = random_row(rng);
        if kind == 0 {
            rows.push(new);
            ops.push(Op::Insert);
            live.push(new);
            continue;
        }
        let old = live.swap_remove(rng.random_range(0..live.len()));
        rows.push(old);
        if kind == 1 {
            ops.push(Op::Delete);
        } else {
            new.5 = old.5;
            rows.push(new);
            ops.extend([Op::UpdateDelete, Op::UpdateInsert]);
            live.push(new);
        }
    }
    Chunk::new(batch(&rows), ops)
}

async fn matches_recomputation(seed: u64, append: bool, at: Where) {
    let mut rng = StdRng::seed_from_u64(seed);
    let t = table(COLUMNS, 0);
    let p = with_agg(plan(&t, 1), &input(), vec![0], calls(), append, at);
    let view = p.output.view.as_ref().unwrap().region.id;
    let visible = p.output.view.as_ref().unwrap().region.schema.visible();
    let mut h = Harness::new(p, small()).unwrap();
    let (mut live, mut committed) = (Vec::new(), Vec::new());
    for step in 0..60 {
        for _ in 0..rng.random_range(0..4) {
            let chunk = random_chunk(&mut rng, &mut live, append);
            h.chunk(chunk).await.unwrap();
        }
        if rng.random_bool(0.15) {
            h.restart().unwrap();
            live = committed.clone();
            continue;
        }
        h.barrier().await.unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}"));
        if rng.random_bool(0.6) {
            h.commit();
            committed = live.clone();
            let region = h.region(view);
            let rows = region.rows_at(millstream_storage::Region::applied(region.as_ref())).project(&visible).unwrap();
            assert_eq!(literal::print_sorted(&rows), recompute(&live), "seed {seed} step {step}");
        }
    }
}

#[tokio::test]
async fn an_aggregation_equals_its_recomputation_with_a_cache_of_one_group() {
    for seed in 0..40 {
        matches_recomputation(seed, false, Where::View).await;
        matches_recomputation(seed, false, Where::Own).await;
        matches_recomputation(seed, true, Where::View).await;
    }
}

/// `cargo test -p millstream-stream --release -- --ignored --nocapture count_by_key`: prints ns per input row and per changed group.
#[tokio::test]
#[ignore = "a measurement"]
async fn count_by_key_costs_little_per_row() {
    let t = table("g bigint, v bigint", 0);
    let calls = vec![call(CountStar, None, "n", "BIGINT"), call(Sum, Some(1), "s", "BIGINT")];
    let p = with_agg(plan(&t, 1), &t.columns, vec![0], calls, true, Where::View);
    let mut h = Harness::new(p, millstream_stream::StreamConfig::default()).unwrap();
    let mut rng = StdRng::seed_from_u64(1);
    let schema = literal::schema("g bigint, v bigint");
    let chunks: Vec<Chunk> = (0..100)
        .map(|_| {
            let g: Int64Array = (0..8192).map(|_| Some(rng.random_range(0..200_000))).collect();
            let v = Int64Array::from_iter_values(0..8192);
            Chunk::inserts(RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(g), Arc::new(v)]).unwrap())
        })
        .collect();
    for round in 0..3 {
        let start = std::time::Instant::now();
        for c in &chunks {
            h.chunk(c.clone()).await.unwrap();
        }
        let rows = start.elapsed().as_nanos() / (100 * 8192);
        let start = std::time::Instant::now();
        let out = h.pass().await.unwrap();
        let groups = start.elapsed().as_nanos() / out.max(1) as u128;
        eprintln!("round {round}: {rows} ns per row, {groups} ns per changed group ({out} groups)");
    }
}
