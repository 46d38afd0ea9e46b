//! Goal: kill -9 of the service and stops of the broker at random moments lose nothing and duplicate nothing (S2, S3, R2).

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
    orders::Orders,
    sandbox::{Options, Sandbox},
    seed, topic,
};
use rand::{Rng, SeedableRng, rngs::StdRng};

/// Small buffers and short intervals: flushes, compactions and commits are under way at any moment.
const BUSY: &str = "storage:\n  write_buffer_bytes: 16MiB\n  region_buffer_bytes: 8MiB\n  flush:\n    interval: 3s\nstream:\n  barrier_interval: 200ms\n";

fn spread(mut orders: Orders, feed: topic::Feed, n: u64, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Orders> {
    tokio::task::spawn_blocking(move || {
        let mut left = n;
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let part = left.min(500);
            for _ in 0..part {
                orders.one(&feed);
            }
            left -= part;
            // Paces the load over the kills; nothing waits for it.
            std::thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..left {
            orders.one(&feed);
        }
        feed.flush();
        orders
    })
}

/// Half of the records in the topic, both views just created, the other half on its way.
struct Busy {
    rng: StdRng,
    broker: Broker,
    sandbox: Sandbox,
    client: Client,
    stop: Arc<AtomicBool>,
    load: tokio::task::JoinHandle<Orders>,
}

impl Busy {
    async fn start(broker: Broker, prefix: &str) -> Busy {
        let seed = seed();
        println!("seed {seed}");
        let b = broker.bootstrap().to_owned();
        let n = broker.kind().scaled(1_000_000);
        let mut orders = Orders::new(broker.prefix(), 4, n * 2 / 5, (n / 100).max(10), seed);
        topic::create(&b, &orders.topic, 4, &[]).await;
        let sandbox = Sandbox::new(&Options::new(&broker, prefix).extra(BUSY));
        let client = sandbox.start().await;
        client.sql(&orders.table()).await;
        let feed = topic::Feed::new(&b);
        orders.many(&feed, n / 2);
        orders.make_views(&client).await;
        let stop = Arc::new(AtomicBool::new(false));
        let load = spread(orders, feed, n / 2, Arc::clone(&stop));
        Busy { rng: StdRng::seed_from_u64(seed), broker, sandbox, client, stop, load }
    }
}

async fn kills_of_the_service_lose_nothing(kind: Kind) {
    let Busy { mut rng, broker, sandbox, stop, load, .. } = Busy::start(Broker::start(kind), "kills").await;
    let unless_set = if kind == Kind::Kafka { 30 } else { 10 };
    let kills: u32 = std::env::var("MILLSTREAM_KILLS").ok().and_then(|k| k.parse().ok()).unwrap_or(unless_set);
    for i in 0..kills {
        // The moment is the test's input: anywhere between the first instruction and some epochs later.
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..3000))).await;
        sandbox.kill();
        let client = sandbox.launch();
        if i % 3 == 0 {
            client.wait_ready(Duration::from_secs(120)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let orders = load.await.expect("the generator does not panic");
    sandbox.kill();
    let client = sandbox.start().await;
    oracle::check(&client, broker.bootstrap(), &orders, Duration::from_secs(300)).await;
    println!("{kills} kills, {} records: oracle exact", orders.produced);
}

async fn restarts_of_the_broker_lose_nothing(kind: Kind) {
    let Busy { mut rng, mut broker, sandbox, client, load, .. } = Busy::start(Broker::own(kind), "restarts").await;
    for i in 0..5 {
        tokio::time::sleep(Duration::from_millis(rng.random_range(500..4000))).await;
        broker = tokio::task::spawn_blocking(move || {
            if i % 2 == 0 {
                broker.stop()
            } else {
                broker.kill()
            }
            broker.restart();
            broker
        })
        .await
        .expect("the broker restarts");
    }
    let orders = load.await.expect("the generator does not panic");
    assert!(sandbox.is_running(), "the service outlives its broker");
    oracle::check(&client, broker.bootstrap(), &orders, Duration::from_secs(300)).await;
    println!("5 broker restarts, {} records: oracle exact", orders.produced);
}

millstream_e2e::on_each_broker!(
    alone:
    kills_of_the_service_lose_nothing,
    restarts_of_the_broker_lose_nothing,
);
