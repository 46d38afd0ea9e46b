//! When no more records come: both views equal the batch result over the table, and the derived topic, folded by key, equals its view.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use millstream_types::{LogEvent, LogSystem, TopicPartition, error::chain};
use serde_json::Value;

use super::{DERIVED, PARTITIONS, patient, rows};
use crate::command::sql::client::Client;

const LOOK: Duration = Duration::from_millis(200);

/// Query over the view, query over the table.
const PAIRS: [(&str, &str, &str); 2] = [
    (
        "big_orders",
        "SELECT count(*), sum(amount), sum(order_id) FROM big_orders",
        "SELECT count(*), sum(amount), sum(order_id) FROM orders WHERE amount > 900",
    ),
    (
        "by_customer",
        "SELECT count(*), sum(n), sum(total) FROM by_customer",
        "SELECT count(DISTINCT customer_id), count(*), sum(amount) FROM orders",
    ),
];

/// The sentence to show; an error if something differs for too long.
pub(crate) async fn run(client: &Client, logs: &dyn LogSystem) -> Result<String, String> {
    for (view, of_view, of_table) in PAIRS {
        let begun = Instant::now();
        loop {
            let (is, should) = (rows(client, of_view).await?, rows(client, of_table).await?);
            if is == should {
                break;
            }
            patient(begun, &format!("view {view} has {is:?}, the table says {should:?}; they were not equal"))?;
            tokio::time::sleep(LOOK).await;
        }
    }
    let view = rows(client, "SELECT customer_id, n FROM by_customer").await?;
    let view: HashMap<i64, i64> =
        view.iter().filter_map(|r| Some((r.first()?.as_i64()?, r.get(1)?.as_i64()?))).collect();
    let (records, folded) = fold(logs).await?;
    if view != folded {
        return Err(format!("the derived topic has {} keys that differ from the view's {}", folded.len(), view.len()));
    }
    let all = rows(client, "SELECT count(*) FROM orders").await?;
    let all = all.first().and_then(|r| r.first()).map(Value::to_string).unwrap_or_default();
    Ok(format!(
        "\nChecked: both views equal the batch result over {all} orders, and the {records} records of topic {DERIVED} fold to the view."
    ))
}

/// Number of records, and `n` by customer after the last record of each key.
async fn fold(logs: &dyn LogSystem) -> Result<(u64, HashMap<i64, i64>), String> {
    let (mut records, mut folded) = (0, HashMap::new());
    for partition in 0..PARTITIONS {
        let log = logs.log(&TopicPartition::new(DERIVED, partition));
        let offsets = log.offsets().await.map_err(|e| chain(&e))?;
        let mut reader = log.read(offsets.start).await.map_err(|e| chain(&e))?;
        let mut position = offsets.start;
        while position < offsets.stable {
            match reader.next().await {
                LogEvent::Records(batch) => {
                    records += batch.len() as u64;
                    for (key, value) in batch.keys.iter().zip(batch.values.iter()) {
                        let field = |bytes: Option<&[u8]>, name: &str| {
                            serde_json::from_slice::<Value>(bytes?).ok()?.get(name)?.as_i64()
                        };
                        let key = field(key, "customer_id").ok_or("a key of the derived topic has no customer_id")?;
                        match field(value, "n") {
                            Some(n) => folded.insert(key, n),
                            None => folded.remove(&key),
                        };
                    }
                    position = batch.next;
                }
                LogEvent::Position { next } => position = next,
                LogEvent::EndReached { end } => position = end,
                LogEvent::OutOfRange { wanted, .. } => {
                    return Err(format!("offset {wanted} of topic {DERIVED} is gone"));
                }
                LogEvent::Failed(e) => return Err(chain(&e)),
            }
        }
    }
    Ok((records, folded))
}
