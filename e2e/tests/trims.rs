//! Goal: where records are gone before they were read, nothing is lost in silence: what depends on them stops and names the range, the rest goes on.

use std::time::Duration;

use millstream_e2e::{
    broker::{Broker, Kind},
    client::{Client, position},
    eventually::eventually,
    sandbox::{Options, Sandbox},
    topic::{self, Feed},
};
use serde_json::Value;

const QUICK: &str = "cluster:\n  shards: 2\nstream:\n  barrier_interval: 100ms\n";

fn send(feed: &Feed, topic: &str, partition: i32, ids: std::ops::Range<i64>) {
    for id in ids {
        let (key, value) = (format!("{{\"id\":{id}}}"), format!("{{\"id\":{id},\"v\":{id}}}"));
        feed.send(topic, partition, Some(key.as_bytes()), Some(value.as_bytes()));
    }
    feed.flush();
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill is there").success());
}

async fn regions(client: &Client, table: &str) -> Vec<Value> {
    let found = client.get(&format!("/v1/tables/{table}/regions")).await.expect("regions are listed");
    found.as_array().cloned().unwrap_or_default()
}

/// Ids of a view in order.
async fn ids(client: &Client, view: &str) -> Vec<i64> {
    let rows = client.rows(&format!("SELECT id FROM {view} ORDER BY id")).await;
    rows.rows.iter().map(|r| r[0].as_i64().expect("an id")).collect()
}

/// A table of two partitions is a moment behind when the broker trims one of them: what was not read is gone.
async fn a_trim_of_unread_records_stops_what_depends_on_them_and_nothing_else(_: Kind) {
    let broker = Broker::own(Kind::Embedded);
    let b = broker.bootstrap().to_owned();
    let sandbox = Sandbox::new(&Options::new(&broker, "trim").extra(QUICK));
    let client = sandbox.start().await;
    let feed = Feed::new(&b);
    for (name, policy) in [("strict", "fail"), ("lenient", "continue")] {
        topic::create(&b, name, 2, &[]).await;
        client
            .sql(&format!("CREATE TABLE {name} (id BIGINT NOT NULL, v BIGINT, PRIMARY KEY (id)) WITH (topic = '{name}', 'value.format' = 'json', 'key.format' = 'json', on_data_loss = '{policy}')"))
            .await;
        client
            .sql(&format!("CREATE MATERIALIZED VIEW {name}_v WITH (topic = '{name}_out', partitions = 1) AS SELECT id, v FROM {name} WHERE v >= 0"))
            .await;
        send(&feed, name, 0, 0..100);
        send(&feed, name, 1, 1000..1100);
        client.wait_caught_up(&format!("{name}_v"), &topic::ends(&b, name), Duration::from_secs(60)).await;
    }
    // The service sleeps; a fetch that is under way may still get the first of these.
    signal(sandbox.pid(), "STOP");
    for name in ["strict", "lenient"] {
        for part in 0..10 {
            send(&feed, name, 0, 100 + part * 100..200 + part * 100);
        }
        broker.faults().trim(name, 0, 900).expect("the partition is there");
    }
    signal(sandbox.pid(), "CONT");
    for name in ["strict", "lenient"] {
        send(&feed, name, 1, 1100..1200);
    }
    let stopped = eventually(Duration::from_secs(60), "strict stops and names what it lost", || async {
        let all = regions(&client, "strict").await;
        all.iter().find(|r| r["state"] == "quarantined").cloned().ok_or(all)
    })
    .await;
    let (applied, reason) = (stopped["applied"].as_i64().expect("a position"), stopped["reason"].to_string());
    assert!((100..900).contains(&applied), "stopped at {applied}");
    assert!(reason.contains(&format!("[{applied}, 900)")), "the range is named: {reason}");
    let there: Vec<i64> = (0..applied).chain(1000..1200).collect();
    eventually(Duration::from_secs(60), "the other partition goes on", || async {
        let found = ids(&client, "strict_v").await;
        if found == there { Ok(()) } else { Err(found.len()) }
    })
    .await;
    let job = eventually(Duration::from_secs(60), "a job that cannot go on says why", || async {
        let job = client.job("strict_v").await.map_err(|e| e.body)?;
        let told = job["state"] == "degraded" && job["reason"].to_string().contains("quarantined");
        if told { Ok(job) } else { Err(job) }
    })
    .await;
    assert_eq!(position(&job, 0), Some(applied), "not a step over the gap: {job}");

    let gap = eventually(Duration::from_secs(60), "lenient goes on behind a gap that it names", || async {
        let all = regions(&client, "lenient").await;
        all.iter().find(|r| r["gaps"].as_array().is_some_and(|g| !g.is_empty())).cloned().ok_or(all)
    })
    .await;
    client.wait_caught_up("lenient_v", &topic::ends(&b, "lenient"), Duration::from_secs(60)).await;
    let found = ids(&client, "lenient_v").await;
    let missing: Vec<i64> = (0..1200).filter(|id| !found.contains(id)).collect();
    assert!(!missing.is_empty() && missing.iter().all(|id| (100..900).contains(id)), "{missing:?}, gap {gap}");
    assert!(gap["gaps"].to_string().contains(&missing[0].to_string()), "{gap} names {}", missing[0]);

    // A restart changes none of it.
    sandbox.kill();
    let client = sandbox.start().await;
    let again = eventually(Duration::from_secs(60), "strict is stopped again", || async {
        let all = regions(&client, "strict").await;
        all.iter().find(|r| r["state"] == "quarantined").cloned().ok_or(all)
    })
    .await;
    assert!(again["reason"].to_string().contains("900)"), "{again}");
    assert_eq!(ids(&client, "lenient_v").await, found);
    let records = topic::read_committed(&b, "strict_out");
    assert!(records.iter().all(|r| r.value.is_some()), "nothing was taken back from the derived topic");
}

/// The log of views is trimmed from outside below what is in files: their rows are gone, and no answer may hide that.
async fn a_trim_of_the_shared_log_is_never_served_as_if_nothing_had_happened(_: Kind) {
    let broker = Broker::own(Kind::Embedded);
    let b = broker.bootstrap().to_owned();
    let sandbox = Sandbox::new(&Options::new(&broker, "walloss").extra(QUICK));
    let client = sandbox.start().await;
    let feed = Feed::new(&b);
    topic::create(&b, "input", 1, &[]).await;
    client
        .sql("CREATE TABLE input (id BIGINT NOT NULL, v BIGINT, PRIMARY KEY (id)) WITH (topic = 'input', 'value.format' = 'json', 'key.format' = 'json')")
        .await;
    client.sql("CREATE MATERIALIZED VIEW kept AS SELECT id, v FROM input WHERE v >= 0").await;
    send(&feed, "input", 0, 0..100);
    client.wait_caught_up("kept", &topic::ends(&b, "input"), Duration::from_secs(60)).await;
    sandbox.kill();
    let wal = "walloss.wal";
    for (partition, end) in topic::ends(&b, wal) {
        broker.faults().trim(wal, partition, end).expect("the partition is there");
    }
    let client = sandbox.start().await;
    let view = client.get("/v1/views/kept").await.expect("the view is listed");
    assert!(view["quarantined"].to_string().contains(wal), "the view tells that its log is gone: {view}");
    assert!(
        client.job("kept").await.is_err(),
        "neither a part of it goes on nor a new copy beside what consumers have read: a person decides"
    );
    // The table, which has its own log, is not touched.
    send(&feed, "input", 0, 100..200);
    eventually(Duration::from_secs(60), "the table goes on", || async {
        let n = client.number("SELECT count(*) FROM input").await;
        if n == 200 { Ok(()) } else { Err(n) }
    })
    .await;
}

millstream_e2e::on_each_broker!(embedded alone:
    a_trim_of_unread_records_stops_what_depends_on_them_and_nothing_else,
    a_trim_of_the_shared_log_is_never_served_as_if_nothing_had_happened,
);
