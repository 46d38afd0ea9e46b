//! Goal: exactly once on a broker that misbehaves. Each fault hook of the embedded broker strikes at random moments while records come in, views are filled
//! and kept up to date, and the service is killed in between; at the end everything is healed, and the oracle is exact (S2, S3).
//!
//! `MILLSTREAM_SEED=n` repeats the same strikes (the moments within an epoch differ), `MILLSTREAM_STRIKES=n` makes a storm longer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use millstream_broker::faults::{FaultHandle, Filter};
use millstream_e2e::{
    broker::{Broker, Kind},
    oracle,
    orders::Orders,
    sandbox::{Options, Sandbox},
    seed, topic,
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Flushes, commits and compactions all the time; limits so short that a fault can outlast them.
const HASTY: &str = "cluster:\n  shards: 4\nstorage:\n  write_buffer_bytes: 16MiB\n  region_buffer_bytes: 8MiB\n  flush:\n    interval: 2s\n  wal:\n    append_deadline: 2s\nstream:\n  barrier_interval: 100ms\n  checkpoint:\n    commit_timeout: 2s\n    transaction_timeout: 4s\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hook {
    /// Records are stored, the answer is lost.
    LostProduce,
    /// The transaction is decided, the answer is lost.
    LostEndTxn,
    /// Requests of any kind are lost before they are done.
    LostRequest,
    /// Neither its client nor its timeout ends the transaction of a job, for less or more time than a commit may take.
    HungTransaction,
    /// Decided, but neither visible nor over.
    HeldMarkers,
    /// The broker takes the job for gone, aborts its transaction and fences it.
    ExpiredTransaction,
    /// Produce waits, fetches find nothing.
    FrozenPartition,
    /// The leader has changed.
    LeaderEpoch,
    SlowFetch,
    FullDisk,
    /// Retention takes what is in files already.
    Trim,
}

use Hook::*;

const ALL: [Hook; 11] = [
    LostProduce,
    LostEndTxn,
    LostRequest,
    HungTransaction,
    HeldMarkers,
    ExpiredTransaction,
    FrozenPartition,
    LeaderEpoch,
    SlowFetch,
    FullDisk,
    Trim,
];

/// Orders that come in as long as the storm lasts, about 2,500 a second.
fn load(mut orders: Orders, feed: topic::Feed, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<Orders> {
    tokio::task::spawn_blocking(move || {
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..50 {
                orders.one(&feed);
            }
            // Paces the load; nothing waits for it.
            std::thread::sleep(Duration::from_millis(20));
        }
        feed.flush();
        orders
    })
}

struct Storm {
    rng: StdRng,
    faults: FaultHandle,
    bootstrap: String,
    sandbox: Sandbox,
    orders: Arc<str>,
    /// Partitions of the input, of derived topics, and of the WAL.
    partitions: Vec<(String, i32)>,
    /// Transactional ids of the jobs.
    ids: Vec<String>,
    /// How often each hook met a request, or was used where nothing is counted.
    met: BTreeMap<Hook, u64>,
}

impl Storm {
    async fn strike(&mut self, hook: Hook, kill: bool) {
        let (id, at) = (self.pick_id(), self.pick_partition());
        let times = self.rng.random_range(1..=3);
        let ms = self.rng.random_range(100..1500);
        println!("  {hook:?} {at:?} {id} x {times}, {ms} ms, kill {kill}");
        let faults = self.faults.clone();
        let armed = match hook {
            LostProduce => Some(faults.drop_response_after_apply(Filter::api("Produce"), times)),
            LostEndTxn => Some(faults.drop_response_after_apply(Filter::api("EndTxn"), times)),
            LostRequest => {
                let apis =
                    ["Produce", "EndTxn", "InitProducerId", "AddPartitionsToTxn", "Fetch", "Metadata", "ListOffsets"];
                Some(faults.drop_request(Filter::api(apis.choose(&mut self.rng).expect("not empty")), times))
            }
            SlowFetch => Some(faults.delay_response(Filter::api("Fetch"), Duration::from_millis(ms / 2))),
            HungTransaction => {
                faults.hang_transaction(&id);
                None
            }
            HeldMarkers => {
                faults.hold_markers(&id);
                None
            }
            FrozenPartition => {
                faults.freeze(&at.0, at.1);
                None
            }
            FullDisk => {
                faults.disk_full(true);
                None
            }
            LeaderEpoch => {
                for _ in 0..times {
                    faults.move_leader_epoch(&at.0, at.1).expect("the partition is there");
                }
                None
            }
            ExpiredTransaction => {
                // Held up in its end, so that there is one to expire.
                faults.hang_transaction(&id);
                for _ in 0..100 {
                    if faults.marks().iter().any(|m| m.hits > 0) {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                faults.expire_transaction(&id).await.expect("the journal can be written");
                faults.release_transaction(&id);
                None
            }
            Trim => {
                self.trim_flushed().await;
                None
            }
        };
        // These block a job until they end: some end sooner than its patience, some later.
        let patient = matches!(hook, HungTransaction | HeldMarkers | FrozenPartition);
        let length = Duration::from_millis(if patient && self.rng.random_bool(0.4) { ms * 4 } else { ms });
        // How long a fault lasts is the test's input, and so is the moment of the kill.
        if kill {
            tokio::time::sleep(length / 2).await;
            self.sandbox.kill();
            self.sandbox.launch();
            tokio::time::sleep(length / 2).await;
        } else {
            tokio::time::sleep(length).await;
        }
        let met = match armed {
            Some(fault) => faults.hits(fault),
            None if patient => faults.marks().iter().map(|m| m.hits).sum(),
            None => 1,
        };
        *self.met.entry(hook).or_default() += met;
        // All of them: in a storm a fault of the strike before may still be on.
        faults.clear_all();
    }

    fn pick_id(&mut self) -> String {
        self.ids.choose(&mut self.rng).expect("there are jobs").clone()
    }

    fn pick_partition(&mut self) -> (String, i32) {
        self.partitions.choose(&mut self.rng).expect("there are partitions").clone()
    }

    /// As retention would: below what the regions of the table have in files. Skipped while the service does not answer.
    async fn trim_flushed(&self) {
        let client = self.sandbox.client();
        let Ok(regions) = client.get("/v1/tables/orders/regions").await else { return };
        for region in regions.as_array().into_iter().flatten() {
            let partition = region["region"].as_str().and_then(|r| r.rsplit('-').next()?.parse().ok());
            let (Some(partition), Some(flushed)) = (partition, region["flushed"].as_i64()) else { continue };
            self.faults.trim(&self.orders, partition, flushed).expect("the partition is there");
        }
    }
}

/// A service with both views under a storm of these hooks.
async fn storm(hooks: &[Hook], strikes: usize) {
    let seed = seed();
    let strikes = std::env::var("MILLSTREAM_STRIKES").ok().and_then(|s| s.parse().ok()).unwrap_or(strikes);
    println!("seed {seed}");
    let broker = Broker::own(Kind::Embedded);
    let b = broker.bootstrap().to_owned();
    let n = Kind::Embedded.scaled(400_000);
    let mut orders = Orders::new(broker.prefix(), 4, n, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let options = Options::new(&broker, "storm").extra(HASTY);
    let prefix = options.prefix.clone();
    let sandbox = Sandbox::new(&options);
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;
    let feed = topic::Feed::new(&b);
    orders.many(&feed, n);
    orders.make_views(&client).await;

    let names =
        [orders.topic.to_string(), orders.derived("big"), orders.derived("by_customer"), format!("{prefix}.wal")];
    let partitions = names.iter().flat_map(|t| (0..4).map(|p| (t.clone(), p))).collect();
    let mut ids = Vec::new();
    for view in ["big", "by_customer"] {
        ids.push(format!("{prefix}.{}", client.job(view).await.expect("the view has a job")["job"]));
    }
    let mut storm = Storm {
        rng: StdRng::seed_from_u64(seed),
        faults: broker.faults(),
        bootstrap: b.clone(),
        sandbox,
        orders: Arc::clone(&orders.topic),
        partitions,
        ids,
        met: BTreeMap::new(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(orders, feed, Arc::clone(&stop));
    for i in 0..strikes {
        let hook = if hooks.len() == 1 { hooks[0] } else { *hooks.choose(&mut storm.rng).expect("not empty") };
        storm.strike(hook, i % 3 == 1).await;
    }
    stop.store(true, Ordering::Relaxed);
    let orders = load.await.expect("the generator does not panic");
    assert!(storm.sandbox.is_running(), "the service outlives all of it");
    let client = storm.sandbox.client();
    client.wait_ready(Duration::from_secs(60)).await;
    oracle::check(&client, &storm.bootstrap, &orders, Duration::from_secs(120)).await;
    println!("{} records, met {:?}: oracle exact", orders.produced, storm.met);
    if let [hook] = hooks {
        assert!(storm.met[hook] > 0, "{hook:?} never met a request");
    }
    // And from what is stored.
    storm.sandbox.kill();
    let client = storm.sandbox.start().await;
    oracle::check(&client, &storm.bootstrap, &orders, Duration::from_secs(60)).await;
}

macro_rules! storms {
    ($($name:ident: $hooks:expr, $strikes:expr;)+) => {
        $(
            async fn $name(_: Kind) {
                storm(&$hooks, $strikes).await;
            }
        )+
        millstream_e2e::on_each_broker!(embedded alone: $($name),+);
    };
}

storms! {
    lost_answers_to_produce: [LostProduce], 3;
    lost_answers_to_end_txn: [LostEndTxn], 3;
    lost_requests: [LostRequest], 5;
    a_transaction_that_hangs: [HungTransaction], 3;
    markers_that_are_late: [HeldMarkers], 3;
    a_transaction_that_expires: [ExpiredTransaction], 3;
    a_partition_that_freezes: [FrozenPartition], 3;
    a_leader_that_changes: [LeaderEpoch], 3;
    a_slow_fetch: [SlowFetch], 3;
    a_full_disk: [FullDisk], 3;
    a_trim_of_what_is_in_files: [Trim], 3;
    all_faults_mixed: ALL, 15;
}
