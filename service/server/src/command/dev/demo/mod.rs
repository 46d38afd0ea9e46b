//! `--demo`: orders come in, a table is fed by them, two views are backfilled from it and kept up to date, one of them as a derived topic, too. It works through
//! REST and the Kafka protocol as a user would, and finds its topic, table and views again at the next start.

mod derived;
mod generator;
mod verify;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use millstream_kafka::{KafkaCluster, KafkaOptions};
use millstream_types::{LogSystem, TopicSpec, error::chain};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use self::{derived::Derived, generator::Generator};
use super::{
    Place,
    screen::{Screen, bar},
};
use crate::{
    cli::Output,
    command::{
        render::{Reader, StatementResult, render},
        sql::client::{Client, Failure},
    },
    node::Addresses,
};

const TOPIC: &str = "orders";
const DERIVED: &str = "by_customer";
const PARTITIONS: i32 = 4;
/// What the topic holds before the views are made.
const HISTORY: u64 = 200_000;
/// Seconds of live rows before the commands to try are told.
const SHOW_SECONDS: u64 = 20;
const LOOK: Duration = Duration::from_millis(250);
/// Where no frame is redrawn.
const PLAIN_LOOK: Duration = Duration::from_secs(2);
/// For each part of the demo; far above what a slow machine needs.
const PATIENCE: Duration = Duration::from_secs(300);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS orders (
  order_id BIGINT NOT NULL, customer_id BIGINT, amount DECIMAL(12,2), status VARCHAR, placed_at TIMESTAMPTZ,
  PRIMARY KEY (order_id)
) WITH (topic = 'orders', 'key.format' = 'json', 'value.format' = 'json')";

/// The rate limit is there to be watched.
const VIEWS: [(&str, &str); 2] = [
    (
        "big_orders",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS big_orders WITH (backfill_rate_limit = 25000) AS
  SELECT order_id, customer_id, amount, status FROM orders WHERE amount > 900",
    ),
    (
        "by_customer",
        "CREATE MATERIALIZED VIEW IF NOT EXISTS by_customer
  WITH (topic = 'by_customer', partitions = 4, backfill_rate_limit = 25000) AS
  SELECT customer_id, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer_id",
    ),
];

const BEST: &str = "SELECT customer_id, total, n FROM by_customer ORDER BY total DESC LIMIT 5";

struct Demo<'a> {
    place: &'a Place<'a>,
    rest: String,
    client: Client,
    logs: Arc<dyn LogSystem>,
    screen: Screen,
}

/// Returns when its time is over, or never.
pub(crate) async fn run(place: &Place<'_>, addresses: Addresses) -> Result<(), String> {
    let options = KafkaOptions { client_id: "millstream-demo".to_owned(), ..KafkaOptions::new(&place.kafka) };
    let rest = format!("http://{}", addresses.rest);
    let mut demo = Demo {
        place,
        client: Client::new(&rest)?,
        rest,
        logs: KafkaCluster::connect(options).map_err(|e| chain(&e))?,
        screen: Screen::new(),
    };
    let generator = demo.topic().await?;
    demo.statement(TABLE).await?;
    demo.table_has_read_its_topic().await?;
    let (stop, produced) = (CancellationToken::new(), Arc::clone(&generator.produced));
    produced.store(0, Ordering::Relaxed);
    let generating = generator.run(stop.clone());
    tokio::pin!(generating);
    let live_seconds = place.args.demo_seconds.unwrap_or(SHOW_SECONDS);
    // A generator that fails ends the demo.
    tokio::select! {
        ended = &mut generating => return ended,
        shown = demo.views(&produced, Duration::from_secs(live_seconds)) => shown?,
    }
    if place.args.demo_seconds.is_none() {
        demo.commands(true)?;
        return generating.await;
    }
    stop.cancel();
    generating.await?;
    let verdict = verify::run(&demo.client, demo.logs.as_ref()).await?;
    demo.screen.text(&verdict)?;
    demo.commands(false)
}

impl Demo<'_> {
    /// Creates and fills the topic, or finds what an earlier demo left.
    async fn topic(&mut self) -> Result<Generator, String> {
        let admin = self.logs.admin();
        let spec = TopicSpec {
            name: TOPIC.to_owned(),
            partitions: PARTITIONS,
            replicas: 1,
            config: std::iter::once(("retention.ms".to_owned(), "604800000".to_owned())).collect(),
        };
        admin.create(&spec).await.map_err(|e| chain(&e))?;
        let offsets = admin.offsets(TOPIC).await.map_err(|e| chain(&e))?;
        if offsets.len() != PARTITIONS as usize {
            return Err(format!(
                "topic {TOPIC} has {} partitions, so it is not the demo's: use --data with another folder",
                offsets.len()
            ));
        }
        let there = offsets.iter().map(|o| o.high_watermark.0.max(0) as u64).sum::<u64>();
        let mut generator = Generator::new(self.logs.as_ref());
        if there >= HISTORY {
            self.screen.text(&format!("Topic {TOPIC} has {there} records already: the demo goes on with them."))?;
            return Ok(generator);
        }
        let screen = &mut self.screen;
        let mut told = Instant::now();
        let missing = HISTORY - there;
        generator
            .fill(missing, |done| {
                if screen.is_terminal() || done == missing || told.elapsed() > PLAIN_LOOK {
                    told = Instant::now();
                    let fraction = done as f64 / missing as f64;
                    screen.frame(&[format!("topic {TOPIC:<12} {}  {done} records produced", bar(fraction))])?;
                }
                Ok(())
            })
            .await?;
        self.screen.keep();
        Ok(generator)
    }

    /// Shows a statement and runs it.
    async fn statement(&mut self, statement: &str) -> Result<(), String> {
        self.screen.text(&format!("\n{statement};"))?;
        let results = ask(&self.client, statement).await?;
        for result in results {
            if let Some(text) = render(&result, Output::Table, Reader::Terminal) {
                self.screen.text(&format!("=> {text}"))?;
            }
        }
        Ok(())
    }

    /// So that the views have a table to be backfilled from, and not a topic to follow.
    async fn table_has_read_its_topic(&mut self) -> Result<(), String> {
        let admin = self.logs.admin();
        let offsets = admin.offsets(TOPIC).await.map_err(|e| chain(&e))?;
        let end: i64 = offsets.iter().map(|o| o.stable.0).sum();
        let begun = Instant::now();
        loop {
            let rows =
                rows(&self.client, "SELECT sum(applied) FROM millstream.regions WHERE \"table\" = 'orders'").await?;
            let applied = rows.first().and_then(|r| number(r.first()?)).unwrap_or(0.0);
            self.screen.frame(&[format!(
                "table {TOPIC:<12} {}  {applied} of {end} records read",
                bar(applied / end as f64)
            )])?;
            if applied >= end as f64 {
                self.screen.keep();
                return Ok(());
            }
            patient(begun, "the table has not read its topic")?;
            tokio::time::sleep(self.look()).await;
        }
    }

    async fn views(&mut self, produced: &std::sync::atomic::AtomicU64, live: Duration) -> Result<(), String> {
        for (_, statement) in VIEWS {
            self.statement(statement).await?;
        }
        self.backfills().await?;
        let mut derived = Derived::follow(self.logs.as_ref(), DERIVED, PARTITIONS).await?;
        let begun = Instant::now();
        while begun.elapsed() < live {
            let seconds = begun.elapsed().as_secs_f64();
            let left = live.saturating_sub(begun.elapsed()).as_secs();
            let best = ask(&self.client, BEST).await?;
            let mut lines = vec![
                String::new(),
                format!(
                    "live for {left} s more: {} records were added to topic {TOPIC} since the views were made",
                    produced.load(Ordering::Relaxed)
                ),
                String::new(),
                "view by_customer, best customers:".to_owned(),
            ];
            let table = best.first().and_then(|r| render(r, Output::Table, Reader::Terminal)).unwrap_or_default();
            lines.extend(table.lines().filter(|l| !l.starts_with('(')).map(|l| format!("  {l}")));
            lines.push(String::new());
            lines.push(format!("derived topic by_customer, newest of {} records in {seconds:.0} s:", derived.seen()));
            lines.extend(derived.newest().map(|r| format!("  {r}")));
            self.screen.frame(&lines)?;
            derived.listen(self.look()).await?;
        }
        self.screen.keep();
        Ok(())
    }

    /// Draws a bar for each view until both are complete.
    async fn backfills(&mut self) -> Result<(), String> {
        self.screen.text("")?;
        let begun = Instant::now();
        loop {
            let backfills = rows(
                &self.client,
                "SELECT name, sum(\"rows\"), sum(total), avg(fraction) FROM millstream.backfills GROUP BY name",
            )
            .await?;
            let states = rows(&self.client, "SELECT name, state FROM millstream.jobs").await?;
            let state = |view: &str| {
                let row = states.iter().find(|r| r.first().and_then(Value::as_str) == Some(view));
                row.and_then(|r| r.get(1)?.as_str()).unwrap_or("creating").to_owned()
            };
            let line = |view: &str| {
                let row = backfills.iter().find(|r| r.first().and_then(Value::as_str) == Some(view));
                let cell = |i: usize| row.and_then(|r| number(r.get(i)?)).unwrap_or(0.0);
                let state = state(view);
                let fraction = if state == "running" { 1.0 } else { cell(3) };
                format!("backfill {view:<12} {}  {} of {} rows, {state}", bar(fraction), cell(1), cell(2))
            };
            let lines: Vec<String> = VIEWS.iter().map(|(view, _)| line(view)).collect();
            self.screen.frame(&lines)?;
            if VIEWS.iter().all(|(view, _)| state(view) == "running") {
                self.screen.keep();
                return Ok(());
            }
            if let Some((view, _)) = VIEWS.iter().find(|(view, _)| state(view) == "quarantined") {
                return Err(format!("view {view} is quarantined: SHOW JOBS tells why"));
            }
            patient(begun, "the backfill has not ended")?;
            tokio::time::sleep(self.look()).await;
        }
    }

    fn look(&self) -> Duration {
        if self.screen.is_terminal() { LOOK } else { PLAIN_LOOK }
    }

    fn commands(&mut self, running: bool) -> Result<(), String> {
        let me = std::env::args().next().unwrap_or_else(|| "millstream".to_owned());
        let (kafka, rest) = (&self.place.kafka, &self.rest);
        let begin = if running {
            "It goes on until Ctrl-C. Try, in another terminal:".to_owned()
        } else {
            format!(
                "Everything is kept in {0}. Start it again with `{me} dev --data {0}`, and try, in another terminal:",
                self.place.args.data.display()
            )
        };
        self.screen.text(&format!(
            "\n{begin}\n  \
             {me} sql --url {rest}\n  \
             {me} sql --url {rest} -c 'SELECT status, count(*), avg(amount) FROM orders GROUP BY status'\n  \
             curl '{rest}/v1/views/by_customer/rows?key=7'\n  \
             {me} topic consume by_customer --bootstrap {kafka} --from end --follow\n  \
             kcat -b {kafka} -C -t by_customer -o -5 -e"
        ))
    }
}

fn patient(begun: Instant, what: &str) -> Result<(), String> {
    if begun.elapsed() > PATIENCE { Err(format!("{what} within {} s", PATIENCE.as_secs())) } else { Ok(()) }
}

async fn ask(client: &Client, statement: &str) -> Result<Vec<StatementResult>, String> {
    client.execute(statement).await.map_err(|e| match e {
        Failure::Refused(r) => format!("{} ({}) in {statement}", r.message, r.error_code),
        Failure::NoAnswer(text) => text,
    })
}

async fn rows(client: &Client, statement: &str) -> Result<Vec<Vec<Value>>, String> {
    Ok(ask(client, statement).await?.into_iter().next().and_then(|r| r.rows).unwrap_or_default())
}

/// A number of JSON, or one in a text (decimals).
fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}
