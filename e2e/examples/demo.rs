//! The main job on screen: Apache Kafka, the service, a busy topic, a table, a view that is backfilled while the topic goes on, and its derived topic.
//!
//! `cargo run -p millstream-e2e --example demo` runs for about half a minute; `-- --keep` leaves everything running until Ctrl-C.
#![expect(clippy::print_stdout, reason = "a demo talks to a person")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use millstream_e2e::{
    broker::{Broker, Kind},
    client::Client,
    oracle,
    orders::{self, Orders},
    sandbox::{Options, Sandbox, binary},
    seed, topic,
};
use serde_json::Value;

fn table(title: &str, columns: &[String], rows: &[Vec<Value>]) {
    let text = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    let width = |c: usize| rows.iter().map(|r| text(&r[c]).len()).chain([columns[c].len()]).max().unwrap_or(0);
    println!("\n{title}");
    let line = |cells: Vec<String>| {
        println!(
            "  {}",
            cells.iter().enumerate().map(|(c, t)| format!("{t:>w$}", w = width(c))).collect::<Vec<_>>().join("  ")
        )
    };
    line(columns.to_vec());
    for r in rows {
        line(r.iter().map(text).collect());
    }
}

async fn show_backfills(client: &Client) -> bool {
    let mut running = true;
    for view in ["big", "by_customer"] {
        let Ok(job) = client.job(view).await else { return false };
        let done = job["backfills"].as_array().cloned().unwrap_or_default();
        let fraction = done.iter().filter_map(|b| b["fraction"].as_f64()).sum::<f64>() / done.len().max(1) as f64;
        let bar = (fraction * 30.0) as usize;
        println!(
            "  backfill {view:<12} [{}{}] {:>5.1} %  {}",
            "#".repeat(bar),
            ".".repeat(30 - bar.min(30)),
            fraction * 100.0,
            job["state"].as_str().unwrap_or("?")
        );
        running &= job["state"] == "running";
    }
    running
}

#[tokio::main]
async fn main() {
    let keep = std::env::args().any(|a| a == "--keep");
    println!("building the service ...");
    binary();
    println!("starting Apache Kafka 4.4.0 (the first start fetches its jars with Maven) ...");
    let broker = Broker::own(Kind::Kafka);
    let b = broker.bootstrap().to_owned();
    topic::create(&b, "orders", 4, &[]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "demo"));
    let client = sandbox.start().await;
    println!("Kafka at {b}, Millstream at {}", client.rest);

    println!("\n{}", orders::table(""));
    client.sql(&orders::table("")).await;
    let mut orders = Orders::new("", 4, 100_000, 1_000, seed());
    let feed = topic::Feed::new(&b);
    orders.many(&feed, 200_000);
    println!("200000 records of history are in the topic; the producer goes on");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let producer = tokio::task::spawn_blocking(move || {
        while !stopped.load(Ordering::Relaxed) {
            orders.many(&feed, 500);
            std::thread::sleep(Duration::from_millis(100));
        }
        orders
    });

    for view in orders::views("") {
        println!("\n{view}");
        client.sql(&view).await;
    }
    println!();
    while !show_backfills(&client).await {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let top =
            client.rows("SELECT customer_id, total, n, lo, hi FROM by_customer ORDER BY total DESC LIMIT 5").await;
        table("view by_customer, five best customers, now:", &top.columns, &top.rows);
    }
    let records = topic::read_committed(&b, "by_customer");
    println!(
        "\nderived topic by_customer: {} records, the last five of partition 0 as a read_committed consumer sees them:",
        records.len()
    );
    for r in records.iter().filter(|r| r.partition == 0).rev().take(5).collect::<Vec<_>>().into_iter().rev() {
        let text = |v: &Option<Vec<u8>>| v.as_ref().map_or("null".into(), |v| String::from_utf8_lossy(v).into_owned());
        println!("  epoch {} key {} value {}", r.epoch.unwrap_or(0), text(&r.key), text(&r.value));
    }
    if keep {
        println!(
            "\nTry: {} sql --url {} -c 'SELECT count(*) FROM big'\n     curl {}/v1/jobs\nCtrl-C ends it.",
            binary().display(),
            client.rest,
            client.rest
        );
        tokio::signal::ctrl_c().await.expect("Ctrl-C can be waited for");
    }
    stop.store(true, Ordering::Relaxed);
    let orders = producer.await.expect("the generator does not panic");
    oracle::check(&client, &b, &orders, Duration::from_secs(60)).await;
    println!(
        "\n{} records produced; both views and both derived topics equal the batch result, exactly.",
        orders.produced
    );
    sandbox.terminate(Duration::from_secs(30));
}
