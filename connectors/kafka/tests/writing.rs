//! The idempotent producer, and transactions that go well or fail before their end.

use millstream_kafka::KafkaCluster;
use millstream_types::{CommitOutcome, ErrorKind, LogSystem, OutBatch};

use crate::broker::{Kind, batch, broker, cluster, committed, options, read_all, topic, topic_with, unique};

async fn a_commit_gives_the_offsets_that_were_asked_for(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let (a, b) = (topic(&c, "offsets-a", 2).await, topic(&c, "offsets-b", 1).await);
    let mut writer = c.epoch_writer(&unique("offsets"));
    writer.init().await.unwrap();
    let mut spread = OutBatch::new(a.clone(), 1);
    for i in 0..6 {
        spread.push(i % 2, Some(b"k"), Some(b"v"));
    }
    spread.want_offsets = true;
    let not_wanted = batch(&b, 0..3);
    let mut wanted = batch(&b, 3..5);
    wanted.want_offsets = true;
    let offsets = committed(writer.commit(&[spread.clone(), not_wanted, wanted]).await);
    assert_eq!(offsets, [vec![0, 0, 1, 1, 2, 2], vec![], vec![3, 4]]);
    // The next transaction comes after the marker of this one.
    assert_eq!(committed(writer.commit(&[spread]).await), [[4, 4, 5, 5, 6, 6]]);
    assert_eq!(read_all(&c, &b).await.keys(), ["0", "1", "2", "3", "4"]);
}

async fn an_empty_transaction_commits(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let mut writer = c.epoch_writer(&unique("nothing"));
    writer.init().await.unwrap();
    assert!(committed(writer.commit(&[]).await).is_empty());
    let t = topic(&c, "nothing", 1).await;
    assert_eq!(committed(writer.commit(&[OutBatch::new(t.clone(), 1)]).await), [Vec::<i64>::new()]);
    committed(writer.commit(&[batch(&t, 0..1)]).await);
    assert_eq!(read_all(&c, &t).await.keys(), ["0"]);
}

async fn a_record_that_the_topic_refuses_aborts_and_the_next_transaction_commits(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic_with(&c, &unique("small"), 1, &[("max.message.bytes", "2000")]).await;
    let mut writer = c.epoch_writer(&unique("small"));
    writer.init().await.unwrap();
    let mut big = batch(&t, 0..3);
    // Random bytes: they do not compress.
    let noise: Vec<u8> = (0..20_000).map(|_| rand::random()).collect();
    big.push(0, Some(b"big"), Some(&noise));
    match writer.commit(&[big]).await {
        CommitOutcome::Aborted(e) => assert_eq!(e.kind, ErrorKind::Invalid, "{e}"),
        other => panic!("{other:?}"),
    }
    committed(writer.commit(&[batch(&t, 10..12)]).await);
    assert_eq!(read_all(&c, &t).await.keys(), ["10", "11"]);
}

async fn a_topic_that_is_not_there_aborts(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "there", 1).await;
    let mut writer = c.epoch_writer(&unique("not-there"));
    writer.init().await.unwrap();
    match writer.commit(&[batch(&t, 0..2), batch(&unique("not-there").into(), 0..2)]).await {
        CommitOutcome::Aborted(e) => assert_eq!(e.kind, ErrorKind::NotFound, "{e}"),
        other => panic!("{other:?}"),
    }
    committed(writer.commit(&[batch(&t, 2..3)]).await);
    assert_eq!(read_all(&c, &t).await.keys(), ["2"]);
}

async fn queue_full_is_back_pressure(kind: Kind) {
    let broker = broker(kind);
    let mut o = options(broker.bootstrap());
    o.passthrough.insert("queue.buffering.max.messages".into(), "500".into());
    let c = KafkaCluster::connect(o).unwrap();
    let t = topic(&c, "full", 1).await;
    let mut writer = c.epoch_writer(&unique("full"));
    writer.init().await.unwrap();
    committed(writer.commit(&[batch(&t, 0..20_000)]).await);
    assert_eq!(c.producer().produce(&batch(&t, 0..20_000)).await.unwrap().len(), 20_000);
    assert_eq!(read_all(&c, &t).await.offsets().len(), 40_000);
}

async fn a_produce_call_gives_each_offset(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "produce", 2).await;
    let mut b = OutBatch::new(t.clone(), 1);
    for i in 0..1000 {
        b.push(i % 2, None, Some(b"v"));
    }
    let expected: Vec<i64> = (0..1000).map(|i| i / 2).collect();
    assert_eq!(c.producer().produce(&b).await.unwrap(), expected);
    assert!(c.producer().produce(&OutBatch::new(t, 1)).await.unwrap().is_empty());
}

async fn concurrent_produce_calls_do_not_mix_their_offsets(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "mixed", 1).await;
    let calls = (0..16).map(|n| {
        let (producer, b) = (c.producer(), batch(&t, n * 100..n * 100 + 100));
        tokio::spawn(async move { (n, producer.produce(&b).await.unwrap()) })
    });
    let calls = futures::future::join_all(calls).await;
    let read = read_all(&c, &t).await;
    let keys = read.keys();
    for call in calls {
        let (n, offsets) = call.unwrap();
        for (i, offset) in offsets.iter().enumerate() {
            assert_eq!(keys[*offset as usize], (n as usize * 100 + i).to_string());
        }
    }
}

async fn a_produce_error_tells_whether_something_may_be_there(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let missing = c.producer().produce(&batch(&unique("nowhere").into(), 0..2)).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound, "{missing}");
    let t = topic_with(&c, &unique("limits"), 2, &[("max.message.bytes", "2000")]).await;
    let noise: Vec<u8> = (0..20_000).map(|_| rand::random()).collect();
    let mut big = OutBatch::new(t.clone(), 1);
    big.push(0, None, Some(&noise));
    let error = c.producer().produce(&big).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "nothing was written: {error}");
    big.push(1, None, Some(b"fits"));
    let error = c.producer().produce(&big).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown, "one was written: {error}");
    assert_eq!(c.producer().produce(&batch(&t, 0..1)).await.unwrap(), [0], "the producer is well afterwards");
}

millstream_e2e::on_each_broker!(
    a_commit_gives_the_offsets_that_were_asked_for,
    an_empty_transaction_commits,
    a_record_that_the_topic_refuses_aborts_and_the_next_transaction_commits,
    a_topic_that_is_not_there_aborts,
    queue_full_is_back_pressure,
    a_produce_call_gives_each_offset,
    concurrent_produce_calls_do_not_mix_their_offsets,
    a_produce_error_tells_whether_something_may_be_there,
);
