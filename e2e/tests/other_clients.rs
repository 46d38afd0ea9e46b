//! Goal: a `read_committed` reader of another client agrees with ours, and an S3-compatible bucket serves as well as a folder.

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use millstream_e2e::{
    broker::{Broker, Kind, jars_for},
    eventually::eventually,
    oracle,
    orders::Orders,
    s3::S3,
    sandbox::{Options, Sandbox},
    seed, topic,
};

/// Apache Kafka's own console consumer: key, tab, value; `null` = tombstone.
fn java_read(jars: &Path, bootstrap: &str, topic: &str, records: usize) -> Vec<(String, Option<String>)> {
    let out = Command::new("java")
        .args(["-Xmx256m", "-cp", &format!("{}/*", jars.display()), "org.apache.kafka.tools.consumer.ConsoleConsumer"])
        .args(["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"])
        .args(["--isolation-level", "read_committed", "--timeout-ms", "15000", "--max-messages", &records.to_string()])
        .args(["--formatter-property", "print.key=true"])
        .output()
        .expect("java is there");
    assert!(out.status.success(), "console consumer: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter_map(|l| l.split_once('\t'))
        .map(|(k, v)| (k.to_owned(), (v != "null").then(|| v.to_owned())))
        .collect()
}

async fn a_java_consumer_reads_the_same_derived_topic(kind: Kind) {
    let Some(jars) = jars_for("a_java_consumer_reads_the_same_derived_topic") else { return };
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let n = kind.scaled(100_000);
    let mut orders = Orders::new(broker.prefix(), 4, n, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let sandbox = Sandbox::new(&Options::new(&broker, "java").extra("stream:\n  barrier_interval: 200ms\n"));
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;
    let feed = topic::Feed::new(&b);
    orders.many(&feed, n / 2);
    orders.make_views(&client).await;
    orders.many(&feed, n / 2);
    sandbox.kill();
    let client = sandbox.start().await;
    orders.many(&feed, n / 10);
    oracle::check(&client, &b, &orders, Duration::from_secs(120)).await;

    let ours = topic::read_committed(&b, &orders.derived("big"));
    let java = java_read(&jars, &b, &orders.derived("big"), ours.len());
    assert_eq!(java.len(), ours.len(), "records of topic big");
    let mut folded = BTreeMap::new();
    for (k, v) in java {
        match v {
            Some(v) => folded.insert(k, v),
            None => folded.remove(&k),
        };
    }
    let mut expected = BTreeMap::new();
    for r in ours {
        let k = String::from_utf8(r.key.expect("a key")).expect("UTF-8");
        match r.value {
            Some(v) => expected.insert(k, String::from_utf8(v).expect("UTF-8")),
            None => expected.remove(&k),
        };
    }
    assert_eq!(folded, expected);
    assert_eq!(folded.len(), orders.big().len());
}

/// Memory is small and intervals short, so that files, manifests and compactions go to the bucket all the time.
const OFTEN: &str = "storage:\n  write_buffer_bytes: 16MiB\n  region_buffer_bytes: 8MiB\n  flush:\n    interval: 2s\nstream:\n  barrier_interval: 200ms\n";

async fn an_s3_bucket_serves_as_well_as_a_folder(kind: Kind) {
    let Some(s3) = S3::start() else { return };
    let seed = seed();
    println!("seed {seed}");
    let broker = Broker::start(kind);
    let b = broker.bootstrap().to_owned();
    let n = kind.scaled(500_000);
    let mut orders = Orders::new(broker.prefix(), 4, n * 2 / 5, (n / 100).max(10), seed);
    topic::create(&b, &orders.topic, 4, &[]).await;
    let mut options = Options::new(&broker, "s3").extra(OFTEN);
    options.object_store = s3.url("some/prefix");
    options.object_store_extra = s3.yaml();
    let sandbox = Sandbox::new(&options);
    let client = sandbox.start().await;
    client.sql(&orders.table()).await;
    let feed = topic::Feed::new(&b);
    orders.many(&feed, n / 2);
    orders.make_views(&client).await;
    orders.many(&feed, n / 4);
    // The input is flushed and the views are being filled: anything may be on its way to the bucket.
    let flushed = || async {
        let found = files(&s3.folder().join("some/prefix/regions"));
        if found.iter().any(|f| f.ends_with(".parquet")) { Ok(()) } else { Err(found) }
    };
    eventually(Duration::from_secs(60), "a Parquet file is in the bucket", flushed).await;
    sandbox.kill();
    let client = sandbox.start().await;
    orders.many(&feed, n / 4);
    oracle::check(&client, &b, &orders, Duration::from_secs(180)).await;
    let found = files(&s3.folder());
    let size = |end: &str| found.iter().filter(|f| f.ends_with(end)).count();
    println!("{} orders, oracle exact; {} objects, {} Parquet", orders.produced, found.len(), size(".parquet"));
    assert!(!sandbox.dir().join("bucket").exists(), "nothing went to a folder");
}

/// Paths of all files below a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] }).collect()
}

millstream_e2e::on_each_broker!(
    alone:
    a_java_consumer_reads_the_same_derived_topic,
    an_s3_bucket_serves_as_well_as_a_folder,
);
