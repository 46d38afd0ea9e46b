//! Topic admin and connections.

use std::{collections::BTreeMap, time::Duration};

use millstream_kafka::{KafkaCluster, KafkaError};
use millstream_types::{Created, ErrorKind, LogSystem, Offset, OutBatch, TopicSpec};

use crate::broker::{End, Kind, batch, broker, cluster, eventually, options, raw_transaction, topic, unique};

async fn a_topic_is_created_once_and_described_as_it_is(kind: Kind) {
    let broker = broker(kind);
    let admin = cluster(&broker).admin();
    let name = unique("described");
    assert!(admin.describe(&name).await.unwrap().is_none());
    let spec = TopicSpec {
        name: name.clone(),
        partitions: 3,
        replicas: -1,
        config: BTreeMap::from([("cleanup.policy".into(), "compact".into()), ("retention.ms".into(), "-1".into())]),
    };
    assert_eq!(admin.create(&spec).await.unwrap(), Created::New);
    assert_eq!(admin.create(&spec).await.unwrap(), Created::Existed);
    let info = admin.describe(&name).await.unwrap().unwrap();
    assert_eq!((info.name.as_str(), info.partitions), (name.as_str(), 3));
    assert_eq!((info.config["cleanup.policy"].as_str(), info.config["retention.ms"].as_str()), ("compact", "-1"));
    assert_eq!(info.topic_id.len(), 22, "{}", info.topic_id);
    assert!(admin.list().await.unwrap().contains(&name));
    // Made again, it is another topic.
    admin.delete(&name).await.unwrap();
    eventually("the topic is gone", async || admin.describe(&name).await.unwrap().is_none()).await;
    assert_eq!(admin.delete(&name).await.unwrap_err().kind, ErrorKind::NotFound);
    admin.create(&spec).await.unwrap();
    assert_ne!(admin.describe(&name).await.unwrap().unwrap().topic_id, info.topic_id);
}

async fn a_wrong_topic_config_is_refused(kind: Kind) {
    let broker = broker(kind);
    let spec = TopicSpec {
        name: unique("wrong"),
        partitions: 1,
        replicas: -1,
        config: BTreeMap::from([("cleanup.policy".into(), "burn".into())]),
    };
    assert_eq!(cluster(&broker).admin().create(&spec).await.unwrap_err().kind, ErrorKind::Invalid);
}

async fn offsets_tell_start_stable_end_and_high_watermark_of_each_partition(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "ends", 2).await;
    let mut b = OutBatch::new(t.clone(), 1_000);
    b.push(1, None, Some(b"early"));
    c.producer().produce(&b).await.unwrap();
    b.timestamp_ms = 9_000;
    c.producer().produce(&b).await.unwrap();
    let open = raw_transaction(broker.bootstrap(), &t, 0..2, End::LeaveOpen);
    let ends = c.admin().offsets(&t).await.unwrap();
    assert_eq!((ends[0].start.0, ends[0].stable.0, ends[0].high_watermark.0), (0, 0, 2));
    assert_eq!((ends[1].start.0, ends[1].stable.0, ends[1].high_watermark.0), (0, 2, 2));
    assert_eq!(c.admin().offsets_at(&t, 5_000).await.unwrap(), [Offset(0), Offset(1)]);
    assert_eq!(c.admin().offsets_at(&t, 9_001).await.unwrap(), [Offset(0), Offset(2)]);
    drop(open);
    assert_eq!(c.admin().offsets(&unique("nowhere")).await.unwrap_err().kind, ErrorKind::NotFound);
}

async fn ping_names_the_cluster_or_fails_in_time(kind: Kind) {
    let broker = broker(kind);
    let text = cluster(&broker).admin().ping(Duration::from_secs(10)).await.unwrap();
    assert!(text.starts_with("cluster ") && text.contains("127.0.0.1:"), "{text}");
    // A port that nobody listens on.
    let nobody = KafkaCluster::connect(options("127.0.0.1:1")).unwrap();
    let begun = std::time::Instant::now();
    let error = nobody.admin().ping(Duration::from_millis(500)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

async fn a_wrong_option_value_fails_at_connect(kind: Kind) {
    let broker = broker(kind);
    let mut o = options(broker.bootstrap());
    o.passthrough.insert("fetch.wait.max.ms".into(), "soon".into());
    assert!(matches!(KafkaCluster::connect(o).unwrap_err(), KafkaError::Client { .. }));
    let mut o = options(broker.bootstrap());
    o.passthrough.insert("compression.type".into(), "zip".into());
    assert!(matches!(KafkaCluster::connect(o).unwrap_err(), KafkaError::Client { .. }));
}

async fn one_cluster_serves_many_parts_at_once(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "parts", 1).await;
    let all = (0..8).map(|n| {
        let (c, t) = (c.clone(), t.clone());
        tokio::spawn(async move {
            c.producer().produce(&batch(&t, n..n + 1)).await.unwrap();
            c.admin().offsets(&t).await.unwrap()
        })
    });
    for ends in futures::future::join_all(all).await {
        assert_eq!(ends.unwrap().len(), 1);
    }
}

millstream_e2e::on_each_broker!(
    a_topic_is_created_once_and_described_as_it_is,
    a_wrong_topic_config_is_refused,
    offsets_tell_start_stable_end_and_high_watermark_of_each_partition,
    ping_names_the_cluster_or_fails_in_time,
    a_wrong_option_value_fails_at_connect,
    one_cluster_serves_many_parts_at_once,
);
