//! Orders: random changes of random orders, as records of topic `orders`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millstream_format::partition_for_key;
use millstream_types::{
    LogSystem, OutBatch, Producer,
    error::chain,
    runtime::{Clock, SystemClock},
};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_util::sync::CancellationToken;

use super::{PARTITIONS, TOPIC};

/// Different orders, so that most records are updates after a while.
const ORDERS: u64 = 100_000;
const CUSTOMERS: u32 = 1_000;
/// Of a hundred records so many delete their order.
const DELETES: u32 = 8;
const STATUS: [&str; 4] = ["new", "paid", "sent", "done"];
/// Records of a tick, and its length: 1,000 a second.
const TICK_RECORDS: u64 = 100;
const TICK: Duration = Duration::from_millis(100);
/// Records of one produce call while the topic is filled.
const FILL: u64 = 10_000;

pub(crate) struct Generator {
    producer: Arc<dyn Producer>,
    random: StdRng,
    /// Delivered by this process.
    pub(crate) produced: Arc<AtomicU64>,
}

impl Generator {
    pub(crate) fn new(logs: &dyn LogSystem) -> Self {
        Self { producer: logs.producer(), random: StdRng::from_os_rng(), produced: Arc::default() }
    }

    /// Delivers `n` records; `progress` hears how many are done.
    pub(crate) async fn fill(
        &mut self,
        n: u64,
        mut progress: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut done = 0;
        while done < n {
            let step = FILL.min(n - done);
            self.send(step).await?;
            done += step;
            progress(done)?;
        }
        Ok(())
    }

    /// Goes on until `stop`; then everything is delivered.
    pub(crate) async fn run(mut self, stop: CancellationToken) -> Result<(), String> {
        let mut ticks = tokio::time::interval(TICK);
        // A slow broker means fewer records, not a burst afterwards.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.send(TICK_RECORDS).await?,
                () = stop.cancelled() => return Ok(()),
            }
        }
    }

    async fn send(&mut self, n: u64) -> Result<(), String> {
        let batch = Self::batch(&mut self.random, n);
        self.producer.produce(&batch).await.map_err(|e| format!("the generator: {}", chain(&e)))?;
        self.produced.fetch_add(n, Ordering::Relaxed);
        Ok(())
    }

    /// `n` records, each at random.
    fn batch(random: &mut StdRng, n: u64) -> OutBatch {
        let now = SystemClock.now_ms() as i64;
        let mut batch = OutBatch::new(TOPIC, now);
        let time = chrono::DateTime::from_timestamp_millis(now).unwrap_or_default();
        let placed_at = time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        for _ in 0..n {
            let id = random.random_range(0..ORDERS);
            let key = format!("{{\"order_id\":{id}}}");
            let value = (random.random_range(0..100) >= DELETES).then(|| {
                let (customer, cents) = (random.random_range(0..CUSTOMERS), random.random_range(1..100_000));
                let status = STATUS[random.random_range(0..STATUS.len())];
                format!(
                    "{{\"order_id\":{id},\"customer_id\":{customer},\"amount\":\"{}.{:02}\",\"status\":\"{status}\",\"placed_at\":\"{placed_at}\"}}",
                    cents / 100,
                    cents % 100
                )
            });
            let partition = partition_for_key(key.as_bytes(), PARTITIONS);
            batch.push(partition, Some(key.as_bytes()), value.as_deref().map(str::as_bytes));
        }
        batch
    }
}
