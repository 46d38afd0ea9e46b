//! Benchmarks of the running service, each with its ratio to a limit measured in the same run, CPU-seconds per million records, and peak memory.
//!
//! `cargo bench -p millstream-e2e -- ingest count_by_key` runs those two; without names all of them. `MILLSTREAM_E2E_SCALE=1` is full size (0.2 unless set).
//! Not timed tests: nothing fails when a figure is low. The limits: raw librdkafka batch consume of the same topic, raw Parquet scan and write of the
//! same rows with the same codec.
#![expect(clippy::print_stdout, reason = "figures go to the screen")]

mod raw;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use millstream_e2e::{
    broker::Broker,
    client::{Client, position},
    eventually::eventually,
    orders::{self, Orders},
    sandbox::{Options, Sandbox},
    scaled, topic,
};

const ORDERS_APPEND: &str = "CREATE TABLE orders (order_id BIGINT, customer_id BIGINT, amount DECIMAL(12,2), status VARCHAR, placed_at TIMESTAMPTZ, note VARCHAR) WITH (topic = 'orders', 'value.format' = 'json')";

struct Bench {
    broker: Broker,
    sandbox: Sandbox,
    client: Client,
}

impl Bench {
    async fn start(extra: &str) -> Bench {
        let broker = Broker::start_own();
        let sandbox = Sandbox::new(&Options::new(broker.bootstrap(), "bench").extra(extra));
        topic::create(broker.bootstrap(), "orders", 4, &[]).await;
        let client = sandbox.start().await;
        Bench { broker, sandbox, client }
    }

    /// Fills topic `orders` with `n` records; `keys` orders, `customers` customers, no tombstones.
    async fn fill(&self, n: u64, keys: u64, customers: u64, tombstones: u32) -> Orders {
        let b = self.broker.bootstrap().to_owned();
        tokio::task::spawn_blocking(move || {
            let mut orders = Orders::new("orders", 4, keys, customers, 1);
            orders.tombstones = tombstones;
            orders.many(&topic::Feed::new(&b), n);
            orders
        })
        .await
        .expect("the generator does not panic")
    }

    fn ends(&self) -> BTreeMap<i32, i64> {
        topic::ends(self.broker.bootstrap(), "orders")
    }

    /// Waits until the regions of the table have applied the whole topic.
    async fn applied(&self, table: &str, ends: &BTreeMap<i32, i64>) {
        let path = format!("/v1/tables/{table}/regions");
        loop {
            let regions = self.client.get(&path).await.unwrap_or_else(|e| panic!("{path}: {e:?}"));
            let list = regions
                .as_array()
                .or_else(|| regions["regions"].as_array())
                .or_else(|| regions["items"].as_array())
                .cloned()
                .unwrap_or_default();
            let reached = ends.iter().all(|(p, end)| {
                list.iter().any(|r| {
                    r["region"].as_str().and_then(|t| t.rsplit('-').next()?.parse::<i32>().ok()) == Some(*p)
                        && r["applied"].as_i64() >= Some(*end)
                })
            });
            if reached {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the job has committed the whole topic; finer than `wait_caught_up`.
    async fn committed(&self, job: &str, ends: &BTreeMap<i32, i64>) {
        loop {
            if let Ok(job) = self.client.job(job).await
                && ends.iter().all(|(p, end)| position(&job, *p) >= Some(*end))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn raw_rate(bench: &Bench) -> f64 {
    let (records, seconds) = raw::consume(bench.broker.bootstrap(), "orders");
    println!("  limit: raw librdkafka batch consume {:.0} records/s", records as f64 / seconds);
    records as f64 / seconds
}

async fn ingest() {
    for (what, ddl) in [("append-only", ORDERS_APPEND), ("upsert", orders::TABLE)] {
        let n = scaled(2_000_000);
        let bench = Bench::start("").await;
        bench.fill(n, n / 4, 200_000, 0).await;
        let ends = bench.ends();
        println!("ingest JSON, {what} table, {n} records");
        let limit = raw_rate(&bench);
        let (cpu, start) = (bench.sandbox.cpu_seconds(), Instant::now());
        bench.client.sql(ddl).await;
        bench.applied("orders", &ends).await;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), bench.sandbox.cpu_seconds() - cpu);
        let rate = n as f64 / seconds;
        println!(
            "  {rate:.0} records/s, ratio {:.2} (aim 0.5), {:.2} CPU-s per million, peak {} MiB",
            rate / limit,
            cpu / n as f64 * 1e6,
            bench.sandbox.peak_mib()
        );
    }
}

/// Flush of one full memtable per region with nothing else going on: seconds spent in flush tasks against a raw Parquet write of the rows of the same files.
async fn flush() {
    let n = scaled(2_000_000);
    let bench = Bench::start("storage:\n  write_buffer_bytes: 2GiB\n  region_buffer_bytes: 1GiB\n").await;
    bench.fill(n, n, 200_000, 0).await;
    bench.client.sql(orders::TABLE).await;
    bench.applied("orders", &bench.ends()).await;
    bench.client.sql("FLUSH TABLE orders").await;
    let metrics = bench.client.metrics().await;
    let sum = |name: &str| -> f64 {
        metrics.lines().filter(|l| l.starts_with(name)).filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let seconds = sum("millstream_flush_duration_seconds_sum");
    let raw = raw::rewrite_parquet(&bench.sandbox.dir().join("bucket"));
    println!(
        "flush: {} files, {:.1} MiB Parquet, {} rows\n  flush tasks {seconds:.2} s, raw write of the same rows {:.2} s, ratio {:.2} (aim 0.7)",
        raw.files,
        raw.bytes as f64 / 1048576.0,
        raw.rows,
        raw.write_seconds,
        raw.write_seconds / seconds
    );
}

async fn count_by_key() {
    for (what, sql) in [
        (
            "filter",
            "CREATE SINK out WITH (topic = 'out', partitions = 4, 'value.format' = 'json', envelope = 'append') AS SELECT order_id, customer_id, amount FROM orders WHERE amount > 500",
        ),
        (
            "count-by-key",
            "CREATE MATERIALIZED VIEW out WITH (topic = 'out', partitions = 4, 'value.format' = 'json') AS SELECT customer_id, count(*) AS n FROM orders GROUP BY customer_id",
        ),
    ] {
        // Enough that start and last barrier, a second or two, do not count.
        let n = scaled(5_000_000);
        let bench = Bench::start("").await;
        bench.fill(n, n, 200_000, 0).await;
        let ends = bench.ends();
        println!("{what}, exactly once from topic to derived topic, {n} records, 200000 keys");
        let limit = raw_rate(&bench);
        let (cpu, start) = (bench.sandbox.cpu_seconds(), Instant::now());
        bench.client.sql(ORDERS_APPEND).await;
        bench.client.sql(sql).await;
        bench.committed("out", &ends).await;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), bench.sandbox.cpu_seconds() - cpu);
        let rate = n as f64 / seconds;
        println!(
            "  {rate:.0} records/s, ratio {:.2} (aim 0.25), {:.2} CPU-s per million (aim 8, in the end 4), peak {} MiB",
            rate / limit,
            cpu / n as f64 * 1e6,
            bench.sandbox.peak_mib()
        );
    }
}

async fn backfill() {
    let n = scaled(5_000_000);
    let bench = Bench::start("stream:\n  barrier_interval: 200ms\n").await;
    let b = bench.broker.bootstrap().to_owned();
    let mut orders = tokio::task::spawn_blocking({
        let b = b.clone();
        move || {
            let mut orders = Orders::new("orders", 4, n, 200_000, 1);
            orders.tombstones = 0;
            let feed = topic::Feed::new(&b);
            for id in 0..n {
                orders.change(&feed, id);
            }
            feed.flush();
            orders
        }
    })
    .await
    .expect("the generator does not panic");
    bench.client.sql(orders::TABLE).await;
    bench.applied("orders", &bench.ends()).await;
    bench.client.sql("FLUSH TABLE orders").await;
    bench.client.sql("COMPACT TABLE orders").await;
    println!("backfill of {n} rows into a filter view while the topic goes on");
    let scan = raw::scan_parquet(&bench.sandbox.dir().join("bucket"));
    let limit = scan.rows as f64 / scan.seconds;
    println!("  limit: raw Parquet scan of the same files {limit:.0} rows/s");
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let live = tokio::task::spawn_blocking({
        let (b, stop) = (b.clone(), std::sync::Arc::clone(&stop));
        move || {
            let feed = topic::Feed::new(&b);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                orders.many(&feed, 200);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let start = Instant::now();
    bench
        .client
        .sql("CREATE MATERIALIZED VIEW big WITH (topic = 'big', partitions = 4) AS SELECT order_id, customer_id, amount FROM orders WHERE amount > 950")
        .await;
    eventually(Duration::from_secs(600), "the view runs", || async {
        let job = bench.client.job("big").await.map_err(|e| e.body.to_string())?;
        if job["state"] == "running" { Ok(()) } else { Err(job.to_string()) }
    })
    .await;
    let seconds = start.elapsed().as_secs_f64();
    // A few live epochs behind the splice.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    live.await.expect("the generator does not panic");
    let mut epochs: Vec<u64> = topic::read_committed(&b, "big").iter().filter_map(|r| r.epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    let pause = epochs.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    let rate = n as f64 / seconds;
    println!(
        "  {rate:.0} rows/s, ratio {:.2} (aim 0.3); longest time between two epochs of the derived topic, splice included: {pause} ms; peak {} MiB",
        rate / limit,
        bench.sandbox.peak_mib()
    );
}

async fn restart() {
    let n = scaled(8_000_000);
    let bench = Bench::start("").await;
    bench
        .client
        .sql("CREATE TABLE orders (k VARCHAR, v BIGINT) WITH (topic = 'orders', 'value.format' = 'json')")
        .await;
    bench
        .client
        .sql("CREATE MATERIALIZED VIEW per_key AS SELECT k, count(*) AS n, sum(v) AS s FROM orders GROUP BY k")
        .await;
    let b = bench.broker.bootstrap().to_owned();
    tokio::task::spawn_blocking(move || {
        let feed = topic::Feed::new(&b);
        for i in 0..n {
            // Keys that do not compress: hash bytes as hex, about 100 bytes.
            let mut x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut key = String::with_capacity(96);
            for _ in 0..6 {
                x ^= x >> 33;
                x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
                key.push_str(&format!("{x:016x}"));
            }
            feed.send("orders", (i % 4) as i32, None, Some(format!("{{\"k\":\"{key}\",\"v\":{i}}}").as_bytes()));
        }
        feed.flush();
    })
    .await
    .expect("the generator does not panic");
    let ends = bench.ends();
    bench.committed("per_key", &ends).await;
    bench.client.sql("FLUSH").await;
    println!("restart with the state of {n} groups, peak before {} MiB", bench.sandbox.peak_mib());
    bench.sandbox.kill();
    let start = Instant::now();
    let client = bench.sandbox.start().await;
    let ready = start.elapsed();
    let count = client.number("SELECT count(*) FROM per_key").await;
    println!(
        "  ready after {ready:?}, first consistent answer ({count} of {n} groups counted) after {:?}, peak {} MiB",
        start.elapsed(),
        bench.sandbox.peak_mib()
    );
    let bytes = raw::folder_bytes(&bench.sandbox.dir().join("bucket"));
    println!("  bucket {:.2} GiB", bytes as f64 / (1u64 << 30) as f64);
}

async fn memory() {
    let n = scaled(10_000_000);
    let bench = Bench::start("").await;
    bench.client.sql(orders::TABLE).await;
    bench.fill(n, n / 2, 200_000, 5).await;
    let ends = bench.ends();
    bench.applied("orders", &ends).await;
    println!("memory: {n} rows in with default buffers: peak {} MiB (limit 600)", bench.sandbox.peak_mib());
}

#[tokio::main]
async fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    if wanted("ingest") {
        ingest().await;
    }
    if wanted("flush") {
        flush().await;
    }
    if wanted("count_by_key") {
        count_by_key().await;
    }
    if wanted("backfill") {
        backfill().await;
    }
    if wanted("memory") {
        memory().await;
    }
    if wanted("restart") {
        restart().await;
    }
}
