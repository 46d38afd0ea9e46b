//! Goal: completion is judged by position (K1). Topics that end in markers, are empty, compacted or trimmed neither hang anything nor lose rows in silence.

use std::{collections::BTreeMap, time::Duration};

use millstream_e2e::{
    broker::{Broker, Kind},
    client::Client,
    eventually::eventually,
    sandbox::{Options, Sandbox},
    topic::{self, Feed},
};

fn record(id: i64, v: i64) -> (Vec<u8>, Vec<u8>) {
    (format!("{{\"id\":{id}}}").into_bytes(), format!("{{\"id\":{id},\"v\":{v}}}").into_bytes())
}

async fn table_and_view(client: &Client, broker: &Broker, name: &str) {
    let (topic, derived) = (broker.name(name), broker.name(&format!("{name}_out")));
    client
        .sql(&format!(
            "CREATE TABLE {name} (id BIGINT NOT NULL, v BIGINT, PRIMARY KEY (id)) WITH (topic = '{topic}', 'value.format' = 'json', 'key.format' = 'json')"
        ))
        .await;
    client.sql(&format!("CREATE MATERIALIZED VIEW {name}_v WITH (topic = '{derived}', partitions = 1) AS SELECT id, v FROM {name} WHERE v >= 0")).await;
}

async fn expect_rows(client: &Client, broker: &Broker, name: &str, want: &[(i64, i64)]) {
    // The topic's end counts markers and compacted offsets: the job's position must reach it.
    let ends: BTreeMap<i32, i64> = topic::ends(broker.bootstrap(), &broker.name(name));
    client.wait_caught_up(&format!("{name}_v"), &ends, Duration::from_secs(60)).await;
    let rows = client.rows(&format!("SELECT id, v FROM {name}_v ORDER BY id")).await;
    let got: Vec<(i64, i64)> =
        rows.rows.iter().map(|r| (r[0].as_i64().expect("id"), r[1].as_i64().expect("v"))).collect();
    assert_eq!(got, want, "{name}");
}

async fn odd_topic_tails_finish_or_report_the_loss(kind: Kind) {
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let sandbox = Sandbox::new(&Options::new(&broker, "tails").extra("stream:\n  barrier_interval: 200ms\n"));

    // Ends in a commit marker; ends in an abort marker behind aborted records; one partition stays empty.
    topic::create(&b, &broker.name("committed"), 2, &[]).await;
    topic::create(&b, &broker.name("aborted"), 1, &[]).await;
    let feed = Feed::transactional(&b, &broker.name("tails-producer"));
    feed.begin();
    for i in 0..100 {
        let (k, v) = record(i, i);
        feed.send(&broker.name("committed"), 0, Some(&k), Some(&v));
        feed.send(&broker.name("aborted"), 0, Some(&k), Some(&v));
    }
    feed.commit();
    feed.begin();
    for i in 0..100 {
        let (k, v) = record(i, -1000);
        feed.send(&broker.name("aborted"), 0, Some(&k), Some(&v));
    }
    feed.abort();
    let hundred: Vec<(i64, i64)> = (0..100).map(|i| (i, i)).collect();

    // Compacted: the tail of the partition and its first offsets are gone.
    topic::create(
        &b,
        &broker.name("compacted"),
        1,
        &[
            ("cleanup.policy", "compact"),
            ("segment.ms", "100"),
            ("min.cleanable.dirty.ratio", "0.001"),
            ("min.compaction.lag.ms", "0"),
            ("max.compaction.lag.ms", "200"),
            ("delete.retention.ms", "600000"),
        ],
    )
    .await;
    let plain = Feed::new(&b);
    for round in 0..20 {
        for i in 0..50 {
            let (k, v) = record(i, round * 100 + i);
            plain.send(&broker.name("compacted"), 0, Some(&k), Some(&v));
        }
        plain.flush();
        tokio::time::sleep(Duration::from_millis(120)).await; // lets the segment roll: the broker's clock is the input here
    }
    eventually(Duration::from_secs(90), "the broker has compacted the topic", || {
        let (b, compacted) = (b.clone(), broker.name("compacted"));
        async move {
            let n = tokio::task::spawn_blocking(move || topic::read_committed(&b, &compacted).len())
                .await
                .expect("no panic");
            if n < 500 { Ok(()) } else { Err(n) }
        }
    })
    .await;

    // Trimmed before the table exists: the log start is the valid earliest.
    topic::create(&b, &broker.name("trimmed"), 1, &[]).await;
    for i in 0..100 {
        let (k, v) = record(i, i);
        plain.send(&broker.name("trimmed"), 0, Some(&k), Some(&v));
    }
    plain.flush();
    topic::delete_records(&b, &broker.name("trimmed"), 0, 60).await;

    let client = sandbox.start().await;
    for name in ["committed", "aborted", "compacted", "trimmed"] {
        table_and_view(&client, &broker, name).await;
    }
    expect_rows(&client, &broker, "committed", &hundred).await;
    expect_rows(&client, &broker, "aborted", &hundred).await;
    expect_rows(&client, &broker, "compacted", &(0..50).map(|i| (i, 1900 + i)).collect::<Vec<_>>()).await;
    expect_rows(&client, &broker, "trimmed", &(60..100).map(|i| (i, i)).collect::<Vec<_>>()).await;

    // The same after a restart: replay ends at the markers too.
    sandbox.kill();
    let client = sandbox.start().await;
    for (name, want) in [("committed", &hundred), ("aborted", &hundred)] {
        expect_rows(&client, &broker, name, want).await;
    }
}

async fn retention_that_passes_the_position_is_reported_or_skipped_as_configured(kind: Kind) {
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let sandbox = Sandbox::new(&Options::new(&broker, "loss").extra("stream:\n  barrier_interval: 200ms\n"));
    let client = sandbox.start().await;
    let feed = Feed::new(&b);
    for (name, policy) in [("strict", "fail"), ("lenient", "continue")] {
        let topic = broker.name(name);
        topic::create(&b, &topic, 1, &[]).await;
        client
            .sql(&format!(
                "CREATE TABLE {name} (id BIGINT NOT NULL, v BIGINT, PRIMARY KEY (id)) WITH (topic = '{topic}', 'value.format' = 'json', 'key.format' = 'json', on_data_loss = '{policy}')"
            ))
            .await;
        for i in 0..10 {
            let (k, v) = record(i, i);
            feed.send(&broker.name(name), 0, Some(&k), Some(&v));
        }
        feed.flush();
        eventually(Duration::from_secs(60), "ten rows", || async {
            let n = client.number(&format!("SELECT count(*) FROM {name}")).await;
            if n == 10 { Ok(()) } else { Err(n) }
        })
        .await;
        client.sql(&format!("FLUSH TABLE {name}")).await;
    }
    // While the service is away, records come and go.
    sandbox.kill();
    for name in ["strict", "lenient"] {
        for i in 10..40 {
            let (k, v) = record(i, i);
            feed.send(&broker.name(name), 0, Some(&k), Some(&v));
        }
        feed.flush();
        topic::delete_records(&b, &broker.name(name), 0, 30).await;
    }
    let client = sandbox.start().await;
    eventually(Duration::from_secs(60), "lenient goes on behind the gap", || async {
        let n = client.number("SELECT count(*) FROM lenient").await;
        if n == 20 { Ok(()) } else { Err(n) }
    })
    .await;
    let regions = client.get("/v1/tables/lenient/regions").await.expect("regions are listed").to_string();
    assert!(
        regions.contains("10") && regions.contains("30") && regions.contains("gap"),
        "the gap [10, 30) is named: {regions}"
    );
    let regions = client.get("/v1/tables/strict/regions").await.expect("regions are listed").to_string();
    assert!(
        regions.contains("quarantined") && regions.contains("[10, 30)"),
        "strict is quarantined and names the range: {regions}"
    );
    assert_eq!(client.number("SELECT count(*) FROM strict").await, 10, "what was flushed stays readable");
}

millstream_e2e::on_each_broker!(
    alone:
    odd_topic_tails_finish_or_report_the_loss,
    retention_that_passes_the_position_is_reported_or_skipped_as_configured,
);
