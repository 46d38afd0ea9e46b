//! The input: orders with updates and deletes per key, and the truth that they leave behind.

use std::{collections::BTreeMap, sync::Arc};

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{client::Client, topic::Feed};

/// What the table must hold for one order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub customer_id: i64,
    pub cents: i64,
    pub status: &'static str,
}

/// The table over topic `<prefix>orders`.
pub fn table(prefix: &str) -> String {
    format!(
        "CREATE TABLE orders (order_id BIGINT NOT NULL, customer_id BIGINT, amount DECIMAL(12,2), status VARCHAR, placed_at TIMESTAMPTZ, note VARCHAR, PRIMARY KEY (order_id)) WITH (topic = '{prefix}orders', 'value.format' = 'json', 'key.format' = 'json')"
    )
}

/// The views `big` and `by_customer`, each with a derived topic of its name behind the prefix.
pub fn views(prefix: &str) -> [String; 2] {
    [
        ("big", "order_id, customer_id, amount, status FROM orders WHERE amount > 500"),
        (
            "by_customer",
            "customer_id, sum(amount) AS total, count(*) AS n, min(amount) AS lo, max(amount) AS hi FROM orders GROUP BY customer_id",
        ),
    ]
    .map(|(name, query)| {
        format!("CREATE MATERIALIZED VIEW {name} WITH (topic = '{prefix}{name}', partitions = 4) AS SELECT {query}")
    })
}

const STATUS: [&str; 4] = ["new", "paid", "sent", "done"];

/// Produces orders into a topic and keeps the fold of all that was produced: index = order id.
#[derive(Debug)]
pub struct Orders {
    prefix: String,
    pub topic: Arc<str>,
    pub partitions: i32,
    pub keys: u64,
    pub customers: u64,
    /// Percent of records that are tombstones.
    pub tombstones: u32,
    rng: StdRng,
    pub truth: Vec<Option<Order>>,
    pub produced: u64,
    text: Vec<u8>,
}

impl Orders {
    /// `prefix` goes before the names of all topics.
    pub fn new(prefix: &str, partitions: i32, keys: u64, customers: u64, seed: u64) -> Self {
        Self {
            prefix: prefix.to_owned(),
            topic: format!("{prefix}orders").into(),
            partitions,
            keys,
            customers,
            tombstones: 8,
            rng: StdRng::seed_from_u64(seed),
            truth: vec![None; keys as usize],
            produced: 0,
            text: Vec::with_capacity(256),
        }
    }

    /// The table over the topic.
    pub fn table(&self) -> String {
        table(&self.prefix)
    }

    /// Creates both views.
    pub async fn make_views(&self, client: &Client) {
        for view in views(&self.prefix) {
            client.sql(&view).await;
        }
    }

    /// The derived topic of a view.
    pub fn derived(&self, view: &str) -> String {
        format!("{}{view}", self.prefix)
    }

    pub fn partition_of(&self, order_id: u64) -> i32 {
        (order_id % self.partitions as u64) as i32
    }

    /// One random change: about 144 bytes of JSON, or a tombstone.
    pub fn one(&mut self, feed: &Feed) {
        let id = self.rng.random_range(0..self.keys);
        self.change(feed, id);
    }

    /// A change of this order.
    pub fn change(&mut self, feed: &Feed, id: u64) {
        use std::io::Write;
        let key = format!("{{\"order_id\":{id}}}");
        let partition = self.partition_of(id);
        self.produced += 1;
        if self.rng.random_range(0..100) < self.tombstones {
            self.truth[id as usize] = None;
            feed.send(&self.topic, partition, Some(key.as_bytes()), None);
            return;
        }
        let order = Order {
            customer_id: self.rng.random_range(0..self.customers) as i64,
            cents: self.rng.random_range(1..100_000),
            status: STATUS[self.rng.random_range(0..STATUS.len())],
        };
        self.truth[id as usize] = Some(order);
        self.text.clear();
        write!(
            self.text,
            "{{\"order_id\":{id},\"customer_id\":{},\"amount\":\"{}.{:02}\",\"status\":\"{}\",\"placed_at\":\"2026-11-{:02}T10:{:02}:00Z\",\"note\":\"order number {id}\"}}",
            order.customer_id,
            order.cents / 100,
            order.cents % 100,
            order.status,
            1 + self.produced % 30,
            self.produced % 60,
        )
        .expect("a Vec can be written to");
        feed.send(&self.topic, partition, Some(key.as_bytes()), Some(&self.text));
    }

    pub fn many(&mut self, feed: &Feed, n: u64) {
        for _ in 0..n {
            self.one(feed);
        }
        feed.flush();
    }

    /// Truth of `SELECT order_id, customer_id, amount, status FROM orders WHERE amount > 500`.
    pub fn big(&self) -> BTreeMap<i64, (i64, i64, String)> {
        self.live()
            .filter(|(_, o)| o.cents > 50_000)
            .map(|(id, o)| (id, (o.customer_id, o.cents, o.status.to_owned())))
            .collect()
    }

    /// Truth of `SELECT customer_id, sum(amount), count(*), min(amount), max(amount) FROM orders GROUP BY customer_id`.
    pub fn by_customer(&self) -> BTreeMap<i64, (i64, i64, i64, i64)> {
        let mut groups = BTreeMap::new();
        for (_, o) in self.live() {
            let g = groups.entry(o.customer_id).or_insert((0, 0, i64::MAX, i64::MIN));
            *g = (g.0 + o.cents, g.1 + 1, g.2.min(o.cents), g.3.max(o.cents));
        }
        groups
    }

    pub fn live(&self) -> impl Iterator<Item = (i64, Order)> + '_ {
        self.truth.iter().enumerate().filter_map(|(id, o)| o.map(|o| (id as i64, o)))
    }
}
