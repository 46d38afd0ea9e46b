//! Goal: history comes from the bucket. The topic keeps only its tail; a new view still gets every row (the reason the product exists).

use std::time::Duration;

use millstream_e2e::{
    broker::{Broker, Kind},
    oracle,
    orders::Orders,
    sandbox::{Options, Sandbox},
    seed, topic,
};

async fn a_new_view_gets_everything_although_the_topic_was_trimmed(kind: Kind) {
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let n = kind.scaled(5_000_000);
    let mut orders = Orders::new(broker.prefix(), 4, n, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[("retention.ms", "-1")]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "history"));
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;
    orders.tombstones = 2;
    let feed = topic::Feed::new(&b);
    let mut orders = tokio::task::spawn_blocking(move || {
        for id in 0..n {
            orders.change(&feed, id);
        }
        feed.flush();
        orders
    })
    .await
    .expect("the generator does not panic");
    let live = orders.live().count() as i64;
    millstream_e2e::eventually::eventually(Duration::from_secs(300), "the table has every row", || async {
        let seen = client.number("SELECT count(*) FROM orders").await;
        if seen == live { Ok(()) } else { Err((seen, live)) }
    })
    .await;
    client.sql("FLUSH TABLE orders").await;
    for (p, end) in topic::ends(&b, &orders.topic) {
        topic::delete_records(&b, &orders.topic, p, end).await;
    }
    let feed = topic::Feed::new(&b);
    orders.many(&feed, 1000);
    orders.make_views(&client).await;
    orders.many(&feed, 1000);
    oracle::check(&client, &b, &orders, Duration::from_secs(600)).await;
    println!("{} rows, topic trimmed: oracle exact; peak memory {} MiB", orders.live().count(), sandbox.peak_mib());

    // And again from nothing but the bucket and the tail.
    sandbox.kill();
    let client = sandbox.start().await;
    oracle::check(&client, &b, &orders, Duration::from_secs(120)).await;
    sandbox.assert_clean_log();
}

millstream_e2e::on_each_broker!(
    alone:
    a_new_view_gets_everything_although_the_topic_was_trimmed,
);
