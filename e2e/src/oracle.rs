//! The oracle: a view equals its query over the truth, the folded derived topic equals the view, and each epoch came once, whole, in order.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use crate::{
    client::Client,
    orders::Orders,
    topic::{self, Record},
};

/// A decimal of scale 2 as cents, from a JSON number or text.
pub fn cents(v: &Value) -> i64 {
    let text = match v {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part = format!("{part:0<2}");
    assert!(part.len() == 2, "{text} is no decimal of scale 2");
    let sign = if whole.starts_with('-') { -1 } else { 1 };
    whole.parse::<i64>().unwrap_or_else(|_| panic!("{text} is no decimal")) * 100
        + sign * part.parse::<i64>().expect("digits")
}

pub fn int(v: &Value) -> i64 {
    v.as_i64().or_else(|| v.as_str().and_then(|s| s.parse().ok())).unwrap_or_else(|| panic!("{v} is no integer"))
}

type Big = BTreeMap<i64, (i64, i64, String)>;
type ByCustomer = BTreeMap<i64, (i64, i64, i64, i64)>;

fn big_of(cell: impl Fn(&str) -> Value) -> (i64, i64, String) {
    (int(&cell("customer_id")), cents(&cell("amount")), cell("status").as_str().expect("status is text").to_owned())
}

fn by_customer_of(cell: impl Fn(&str) -> Value) -> (i64, i64, i64, i64) {
    (cents(&cell("total")), int(&cell("n")), cents(&cell("lo")), cents(&cell("hi")))
}

/// Rows of one answer: below the largest result that the service gives.
const PAGE: usize = 100_000;

/// Rows of a view by its key column, page after page; a key twice is a failure.
async fn view<T>(
    client: &Client,
    columns: &str,
    view: &str,
    key: &str,
    row: impl Fn(&dyn Fn(&str) -> Value) -> T,
) -> BTreeMap<i64, T> {
    let mut map = BTreeMap::new();
    let mut last = None;
    loop {
        let after = last.map_or(String::new(), |k| format!("WHERE {key} > {k} "));
        let query = format!("SELECT {columns} FROM {view} {after}ORDER BY {key} LIMIT {PAGE}");
        let rows = client.rows(&query).await;
        let place = |name: &str| {
            let found = rows.columns.iter().position(|c| c == name);
            found.unwrap_or_else(|| panic!("no column {name} in {:?}", rows.columns))
        };
        for r in &rows.rows {
            let cell = |name: &str| r[place(name)].clone();
            let k = int(&cell(key));
            assert!(map.insert(k, row(&cell)).is_none(), "{query}: key {k} twice");
            last = Some(k);
        }
        if rows.rows.len() < PAGE {
            return map;
        }
    }
}

/// Folds an upsert topic by key.
fn fold<T>(records: &[Record], key: &str, row: impl Fn(&dyn Fn(&str) -> Value) -> T) -> BTreeMap<i64, T> {
    let mut map = BTreeMap::new();
    for r in records {
        let k: Value =
            serde_json::from_slice(r.key.as_ref().expect("an upsert record has a key")).expect("the key is JSON");
        let k = int(if k.is_object() { &k[key] } else { &k });
        match &r.value {
            None => {
                map.remove(&k);
            }
            Some(v) => {
                let v: Value = serde_json::from_slice(v).expect("the value is JSON");
                let with_key = |name: &str| v.get(name).cloned().unwrap_or(Value::Null);
                map.insert(k, row(&with_key));
            }
        }
    }
    map
}

/// S3: within a partition epochs never fall, and a key has at most one record per epoch. Answers the number of epochs seen.
pub fn epochs_once_in_order(topic: &str, records: &[Record]) -> usize {
    let mut last: BTreeMap<i32, u64> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut epochs = HashSet::new();
    for r in records {
        let epoch = r
            .epoch
            .unwrap_or_else(|| panic!("{topic}-{} offset {}: no header millstream-epoch", r.partition, r.offset));
        let before = last.insert(r.partition, epoch).unwrap_or(0);
        assert!(before <= epoch, "{topic}-{} offset {}: epoch {epoch} after {before}", r.partition, r.offset);
        assert!(
            seen.insert((epoch, r.key.clone())),
            "{topic}-{} offset {}: key twice in epoch {epoch}",
            r.partition,
            r.offset
        );
        epochs.insert(epoch);
    }
    epochs.len()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &BTreeMap<i64, T>, want: &BTreeMap<i64, T>) {
    if got == want {
        return;
    }
    let missing: Vec<_> = want.iter().filter(|(k, _)| !got.contains_key(k)).take(5).collect();
    let extra: Vec<_> = got.iter().filter(|(k, _)| !want.contains_key(k)).take(5).collect();
    let wrong: Vec<_> =
        want.iter().filter_map(|(k, v)| got.get(k).filter(|g| *g != v).map(|g| (k, g, v))).take(5).collect();
    panic!(
        "{what}: {} rows, the truth has {}; missing {missing:?}; too many {extra:?}; (key, got, want) {wrong:?}",
        got.len(),
        want.len()
    );
}

/// Checks both views and both topics against the truth, once the jobs have committed everything produced so far.
pub async fn check(client: &Client, bootstrap: &str, orders: &Orders, deadline: std::time::Duration) {
    let ends = topic::ends(bootstrap, &orders.topic);
    check_big(client, bootstrap, orders, &ends, deadline).await;
    check_by_customer(client, bootstrap, orders, &ends, deadline).await;
}

pub async fn check_big(
    client: &Client,
    bootstrap: &str,
    orders: &Orders,
    ends: &BTreeMap<i32, i64>,
    deadline: std::time::Duration,
) {
    client.wait_caught_up("big", ends, deadline).await;
    let want: Big = orders.big();
    let got: Big = view(client, "order_id, customer_id, amount, status", "big", "order_id", |c| big_of(c)).await;
    same("view big", &got, &want);
    let topic = orders.derived("big");
    let records = topic::read_committed(bootstrap, &topic);
    epochs_once_in_order(&topic, &records);
    same("topic big", &fold(&records, "order_id", |c| big_of(c)), &want);
}

pub async fn check_by_customer(
    client: &Client,
    bootstrap: &str,
    orders: &Orders,
    ends: &BTreeMap<i32, i64>,
    deadline: std::time::Duration,
) {
    client.wait_caught_up("by_customer", ends, deadline).await;
    let want: ByCustomer = orders.by_customer();
    let got: ByCustomer = view(client, "*", "by_customer", "customer_id", |c| by_customer_of(c)).await;
    same("view by_customer", &got, &want);
    let topic = orders.derived("by_customer");
    let records = topic::read_committed(bootstrap, &topic);
    epochs_once_in_order(&topic, &records);
    same("topic by_customer", &fold(&records, "customer_id", |c| by_customer_of(c)), &want);
}
