//! Goal: two processes on the same regions by force. The older one is fenced by the manifest and by the transaction; nothing it wrote later is visible.

use std::time::Duration;

use millstream_e2e::{
    broker::{Broker, Kind},
    eventually::eventually,
    oracle,
    orders::Orders,
    sandbox::{Options, Sandbox},
    seed, topic,
};

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill")
        .args([&format!("-{name}"), &pid.to_string()])
        .status()
        .expect("kill is there");
    assert!(sent.success());
}

async fn an_older_process_is_fenced_and_writes_nothing(kind: Kind) {
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let mut orders = Orders::new(broker.prefix(), 4, 20_000, 200, seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let bucket = tempfile::tempdir().expect("a temporary folder can be made");
    let mut options = Options::new(&broker, "fence").extra("stream:\n  barrier_interval: 200ms\n");
    options.object_store = format!("file://{}", bucket.path().display());
    let old = Sandbox::new(&options);
    let client = old.start().await;
    client.sql(&orders.table()).await;
    orders.make_views(&client).await;
    let feed = topic::Feed::new(&b);
    orders.many(&feed, 30_000);
    oracle::check(&client, &b, &orders, Duration::from_secs(120)).await;

    // Freeze the old one with work in its hands, start a new one on the same regions, then wake the old one.
    orders.many(&feed, 5_000);
    signal(old.pid(), "STOP");
    let new = Sandbox::new(&options);
    let new_client = new.start().await;
    orders.many(&feed, 5_000);
    oracle::check(&new_client, &b, &orders, Duration::from_secs(120)).await;
    signal(old.pid(), "CONT");
    orders.many(&feed, 20_000);
    eventually(Duration::from_secs(60), "the old process says that it is fenced", || async {
        let log = old.log_tail(2000);
        if log.contains("fenced") { Ok(()) } else { Err(log.lines().last().unwrap_or_default().to_owned()) }
    })
    .await;
    // A manual flush at the old one must be refused by the manifest.
    let refused = client.try_sql("FLUSH TABLE orders").await;
    assert!(refused.is_err(), "a fenced process must not flush: {refused:?}");
    oracle::check(&new_client, &b, &orders, Duration::from_secs(120)).await;
    new_client.sql("FLUSH TABLE orders").await;
    new.kill();
    old.kill();
    let last = new.start().await;
    oracle::check(&last, &b, &orders, Duration::from_secs(120)).await;
}

millstream_e2e::on_each_broker!(
    alone:
    an_older_process_is_fenced_and_writes_nothing,
);
