//! Goal: the main job. A view is created in the middle of a busy topic; snapshot and live rows meet at a barrier without gap or duplicate (S2, S3).

use std::time::{Duration, Instant};

use millstream_e2e::{
    broker::{Broker, Kind},
    oracle,
    orders::Orders,
    sandbox::{Options, Sandbox},
    seed, topic,
};

async fn a_million_orders_half_before_and_half_during_the_view(kind: Kind) {
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let n = kind.scaled(1_000_000);
    let mut orders = Orders::new(broker.prefix(), 4, n * 2 / 5, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "splice"));
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;

    let feed = topic::Feed::new(&b);
    let start = Instant::now();
    orders.many(&feed, n / 2);
    println!("{} records produced in {:?}", orders.produced, start.elapsed());

    orders.make_views(&client).await;
    let start = Instant::now();
    let orders = tokio::task::spawn_blocking(move || {
        orders.many(&feed, n / 2);
        orders
    })
    .await
    .expect("the generator does not panic");
    println!("second half produced in {:?} while the views were made", start.elapsed());

    oracle::check(&client, &b, &orders, Duration::from_secs(300)).await;
    println!("oracle exact after {:?}; peak memory {} MiB", start.elapsed(), sandbox.peak_mib());
    assert_eq!(client.number("SELECT count(*) FROM orders").await, orders.live().count() as i64);

    // A clean stop and a start change nothing.
    assert_eq!(sandbox.terminate(Duration::from_secs(60)), Some(0));
    let client = sandbox.start().await;
    oracle::check(&client, &b, &orders, Duration::from_secs(120)).await;
    sandbox.assert_clean_log();
}

async fn a_paused_job_resumes_with_exactly_the_net_changes(kind: Kind) {
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let n = kind.scaled(1_000_000);
    let mut orders = Orders::new(broker.prefix(), 4, n * 2 / 5, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "pause"));
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;
    orders.make_views(&client).await;
    let feed = topic::Feed::new(&b);
    orders.many(&feed, n / 10);
    oracle::check(&client, &b, &orders, Duration::from_secs(120)).await;

    for view in ["big", "by_customer"] {
        client.put(&format!("/v1/views/{view}/pause")).await.unwrap_or_else(|e| panic!("pause {view}: {e:?}"));
    }
    let before = topic::read_committed(&b, &orders.derived("big")).len();
    let old_big = orders.big();
    orders.many(&feed, n);
    client.sql("FLUSH TABLE orders").await;
    client.sql("COMPACT TABLE orders").await;
    assert_eq!(topic::read_committed(&b, &orders.derived("big")).len(), before, "a paused job writes nothing");
    for view in ["big", "by_customer"] {
        client.put(&format!("/v1/views/{view}/resume")).await.unwrap_or_else(|e| panic!("resume {view}: {e:?}"));
    }
    oracle::check(&client, &b, &orders, Duration::from_secs(300)).await;

    // Net changes only: one record per key whose row differs, whatever happened to it in between.
    let new_big = orders.big();
    let mut expected = old_big.keys().filter(|k| !new_big.contains_key(k)).count();
    expected += new_big.iter().filter(|(k, v)| old_big.get(k) != Some(v)).count();
    let written = topic::read_committed(&b, &orders.derived("big")).len() - before;
    assert_eq!(written, expected, "derived records after the resume");
    sandbox.assert_clean_log();
}

millstream_e2e::on_each_broker!(
    alone:
    a_million_orders_half_before_and_half_during_the_view,
    a_paused_job_resumes_with_exactly_the_net_changes,
);
