//! Readers: exact positions over markers, aborted and compacted records (K1), errors by kind, speed that does not depend on luck.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use millstream_kafka::KafkaCluster;
use millstream_types::{ErrorKind, LogEvent, LogSystem, Offset, OutBatch};

use crate::broker::{
    BrokerOptions, End, Kind, ZERO, batch, broker, cluster, eventually, log, next, options, own_broker,
    raw_transaction, read_all, read_to, settled, topic, topic_with, unique,
};

async fn a_topic_that_ends_in_a_commit_marker_is_read_to_its_end(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "commit-marker", 1).await;
    raw_transaction(broker.bootstrap(), &t, 0..3, End::Commit);
    let ends = settled(&c, &t).await;
    assert_eq!((ends.start.0, ends.stable.0, ends.high_watermark.0), (0, 4, 4));
    let read = read_all(&c, &t).await;
    assert_eq!(read.offsets(), [0, 1, 2]);
    assert_eq!(read.position, 4, "the marker at 3 was passed");
}

async fn a_topic_that_ends_in_an_aborted_transaction_is_read_to_its_end(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "abort-marker", 1).await;
    c.producer().produce(&batch(&t, 0..2)).await.unwrap();
    raw_transaction(broker.bootstrap(), &t, 10..15, End::Abort);
    let read = read_all(&c, &t).await;
    assert_eq!(read.offsets(), [0, 1]);
    assert_eq!(read.position, 8);
    // Opened inside the aborted part: no record, but the position moves all the same.
    let mut reader = log(&c, &t, 0).read(Offset(4)).await.unwrap();
    let read = read_to(reader.as_mut(), 8).await;
    assert!(read.batches.is_empty());
}

async fn an_empty_partition_reports_its_end(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "empty", 1).await;
    let mut reader = log(&c, &t, 0).read(ZERO).await.unwrap();
    let read = read_to(reader.as_mut(), 0).await;
    assert_eq!(read.ends, [0]);
}

async fn records_after_the_end_come_with_a_new_end(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "tail", 1).await;
    let mut reader = log(&c, &t, 0).read(ZERO).await.unwrap();
    for n in 1..=3 {
        c.producer().produce(&batch(&t, n..n + 1)).await.unwrap();
        let read = read_to(reader.as_mut(), i64::from(n)).await;
        assert_eq!(read.offsets(), [i64::from(n) - 1]);
    }
}

async fn an_open_transaction_holds_its_records_back(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "open", 1).await;
    c.producer().produce(&batch(&t, 0..2)).await.unwrap();
    let producer = raw_transaction(broker.bootstrap(), &t, 10..12, End::LeaveOpen);
    c.producer().produce(&batch(&t, 2..4)).await.unwrap();
    let ends = log(&c, &t, 0).offsets().await.unwrap();
    assert_eq!((ends.stable.0, ends.high_watermark.0), (2, 6));
    let mut reader = log(&c, &t, 0).read(ZERO).await.unwrap();
    assert_eq!(read_to(reader.as_mut(), 2).await.keys(), ["0", "1"]);
    rdkafka::producer::Producer::commit_transaction(&producer, Duration::from_secs(10)).unwrap();
    assert_eq!(read_to(reader.as_mut(), 7).await.keys(), ["10", "11", "2", "3"]);
}

async fn a_compacted_topic_is_read_over_its_gaps(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let config = [
        ("cleanup.policy", "compact"),
        ("segment.ms", "200"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("min.compaction.lag.ms", "0"),
        ("max.compaction.lag.ms", "200"),
    ];
    let t = topic_with(&c, &unique("compacted"), 1, &config).await;
    let mut same = OutBatch::new(t.clone(), 1_700_000_000_000);
    for i in 0..500 {
        same.push(0, Some(b"k"), Some(format!("{i}").as_bytes()));
    }
    c.producer().produce(&same).await.unwrap();
    // Segments are closed by a later write; the last one is never compacted.
    let mut last = 0;
    eventually("compaction leaves few of the records", async || {
        let mut b = batch(&t, 0..1);
        b.timestamp_ms = 1_700_000_100_000 + last;
        last = c.producer().produce(&b).await.unwrap()[0];
        read_all(&c, &t).await.offsets().len() < 100
    })
    .await;
    let read = read_all(&c, &t).await;
    assert!(read.position > last, "position {} is behind the last record {last}", read.position);
    // From inside a gap: offset 5 is gone, the reader finds the next record there is.
    let mut reader = log(&c, &t, 0).read(Offset(5)).await.unwrap();
    let read = read_to(reader.as_mut(), last + 1).await;
    assert!(read.offsets()[0] > 5);
}

async fn a_position_outside_the_log_is_reported_with_both_ends(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic_with(&c, &format!("{}.wal", unique("trimmed")), 1, &[]).await;
    c.producer().produce(&batch(&t, 0..10)).await.unwrap();
    let log = log(&c, &t, 0);
    log.truncate_to(Offset(5)).await.unwrap();
    log.truncate_to(Offset(3)).await.expect("below the log start is fine");
    for wanted in [2, 11, 1000] {
        let mut reader = log.read(Offset(wanted)).await.unwrap();
        match next(reader.as_mut()).await {
            LogEvent::OutOfRange { wanted: w, start, end } => assert_eq!((w.0, start.0, end.0), (wanted, 5, 10)),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    let mut reader = log.read(Offset(5)).await.unwrap();
    assert_eq!(read_to(reader.as_mut(), 10).await.offsets(), [5, 6, 7, 8, 9]);
    // Trimmed to the end: an empty log that does not begin at 0.
    log.truncate_to(Offset(10)).await.unwrap();
    let mut reader = log.read(Offset(10)).await.unwrap();
    assert!(
        matches!(next(reader.as_mut()).await, LogEvent::EndReached { end } if end.0 == 10)
            || read_to(reader.as_mut(), 10).await.batches.is_empty()
    );
}

async fn only_wal_topics_are_trimmed(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "orders", 1).await;
    let error = log(&c, &t, 0).truncate_to(Offset(0)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid);
}

async fn a_topic_that_is_not_there_is_a_final_failure(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let name = unique("nowhere").into();
    let mut reader = log(&c, &name, 0).read(ZERO).await.unwrap();
    match next(reader.as_mut()).await {
        LogEvent::Failed(e) => assert_eq!(e.kind, ErrorKind::NotFound, "{e}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(log(&c, &name, 0).offsets().await.unwrap_err().kind, ErrorKind::NotFound);
    let t = topic(&c, "one-partition", 1).await;
    let mut reader = log(&c, &t, 7).read(ZERO).await.unwrap();
    match next(reader.as_mut()).await {
        LogEvent::Failed(e) => assert_eq!(e.kind, ErrorKind::NotFound, "{e}"),
        other => panic!("{other:?}"),
    }
}

async fn a_record_comes_back_as_it_was_sent(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "bytes", 1).await;
    let mut plain = OutBatch::new(t.clone(), 1_600_000_000_001);
    plain.push(0, None, Some(b"value"));
    plain.push(0, Some(b""), Some(b""));
    plain.push(0, Some(b"gone"), None);
    let mut with_headers = OutBatch::new(t.clone(), 1_600_000_000_002);
    with_headers.headers = vec![("a".into(), Bytes::from_static(b"1")), ("b".into(), Bytes::new())];
    with_headers.push(0, Some(b"k"), Some(b"v"));
    assert_eq!(c.producer().produce(&plain).await.unwrap(), [0, 1, 2]);
    assert_eq!(c.producer().produce(&with_headers).await.unwrap(), [3]);
    let read = read_all(&c, &t).await;
    let rows: Vec<_> = read
        .batches
        .iter()
        .flat_map(|b| {
            (0..b.len()).map(|i| {
                let bytes = |v: Option<&[u8]>| v.map(<[u8]>::to_vec);
                (
                    bytes(b.keys.get(i)),
                    bytes(b.values.get(i)),
                    b.timestamps[i],
                    b.headers.get(i).cloned().unwrap_or_default(),
                )
            })
        })
        .collect();
    assert_eq!(rows[0], (None, Some(b"value".to_vec()), 1_600_000_000_001, vec![]));
    assert_eq!(rows[1], (Some(vec![]), Some(vec![]), 1_600_000_000_001, vec![]));
    assert_eq!(rows[2], (Some(b"gone".to_vec()), None, 1_600_000_000_001, vec![]));
    let headers = vec![("a".to_owned(), Some(Bytes::from_static(b"1"))), ("b".to_owned(), Some(Bytes::new()))];
    assert_eq!(rows[3], (Some(b"k".to_vec()), Some(b"v".to_vec()), 1_600_000_000_002, headers));
}

async fn two_hundred_thousand_records_of_three_partitions_are_read_once_each(kind: Kind) {
    let broker = broker(kind);
    const RECORDS: usize = 200_000;
    let c = cluster(&broker);
    let t = topic(&c, "many", 3).await;
    let value = [b'x'; 144];
    let mut writer = c.epoch_writer(&unique("many"));
    writer.init().await.unwrap();
    let mut b = OutBatch::new(t.clone(), 1_700_000_000_000);
    for i in 0..RECORDS {
        b.push((i % 3) as i32, Some(&(i as u64).to_be_bytes()), Some(&value));
    }
    let begun = std::time::Instant::now();
    crate::broker::committed(writer.commit(&[b]).await);
    tracing::info!(records = RECORDS, elapsed = ?begun.elapsed(), "written in one transaction");
    let begun = std::time::Instant::now();
    let mut seen = HashSet::new();
    let reads = (0..3).map(|p| {
        let log = log(&c, &t, p);
        tokio::spawn(async move {
            // The marker follows at the high watermark: the reader waits for it.
            let end = log.offsets().await.unwrap().high_watermark.0;
            let mut reader = log.read(ZERO).await.unwrap();
            read_to(reader.as_mut(), end).await
        })
    });
    for read in futures::future::join_all(reads).await {
        let read = read.unwrap();
        for b in &read.batches {
            assert!(b.len() <= 4096 && b.size_bytes() <= (1 << 20) + 300);
            assert!(b.headers.is_empty());
            for k in b.keys.iter() {
                assert!(seen.insert(u64::from_be_bytes(k.unwrap().try_into().unwrap())));
            }
        }
    }
    tracing::info!(records = seen.len(), elapsed = ?begun.elapsed(), "read");
    assert_eq!(seen.len(), RECORDS);
}

async fn a_partition_can_be_read_twice_at_a_time_and_again_at_once(kind: Kind) {
    let broker = broker(kind);
    let c = cluster(&broker);
    let t = topic(&c, "twice", 1).await;
    c.producer().produce(&batch(&t, 0..100)).await.unwrap();
    let log = log(&c, &t, 0);
    let mut one = log.read(ZERO).await.unwrap();
    let mut other = log.read(Offset(50)).await.unwrap();
    assert_eq!(read_to(one.as_mut(), 100).await.offsets().len(), 100);
    assert_eq!(read_to(other.as_mut(), 100).await.offsets().len(), 50);
    for from in 0..20 {
        // The old reader is dropped by the assignment, after the new one was opened and before.
        one = log.read(Offset(from)).await.unwrap();
        assert_eq!(read_to(one.as_mut(), 100).await.offsets()[0], from);
        drop(one);
        one = log.read(Offset(from + 30)).await.unwrap();
    }
    assert_eq!(read_to(one.as_mut(), 100).await.offsets()[0], 49);
}

async fn a_reader_that_is_not_asked_does_not_run_ahead(kind: Kind) {
    let broker = broker(kind);
    let mut o = options(broker.bootstrap());
    o.prefetch_bytes = 1 << 20;
    let c = KafkaCluster::connect(o).unwrap();
    let t = topic(&c, "paused", 1).await;
    let value = vec![b'x'; 10_000];
    for _ in 0..20 {
        let mut b = OutBatch::new(t.clone(), 1);
        (0..100).for_each(|_| b.push(0, None, Some(&value)));
        c.producer().produce(&b).await.unwrap();
    }
    let mut reader = log(&c, &t, 0).read(ZERO).await.unwrap();
    let first = next(reader.as_mut()).await;
    assert!(matches!(first, LogEvent::Records(_)));
    // A pause long enough for the client to fetch all 20 MB, were it not bounded. Then the rest is there, in order.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let LogEvent::Records(b) = first else { unreachable!() };
    assert!(b.size_bytes() <= (1 << 20) + 20_000, "{} bytes in one batch", b.size_bytes());
    let read = read_to(reader.as_mut(), 2000).await;
    assert_eq!(b.len() + read.offsets().len(), 2000);
}

async fn a_reader_survives_its_broker(kind: Kind) {
    let broker = own_broker(kind, BrokerOptions::default()).await;
    let c = KafkaCluster::connect(options(broker.bootstrap())).unwrap();
    let t = topic(&c, "outage", 1).await;
    c.producer().produce(&batch(&t, 0..5)).await.unwrap();
    let mut reader = log(&c, &t, 0).read(ZERO).await.unwrap();
    read_to(reader.as_mut(), 5).await;
    broker.kill();
    let mut failures = 0;
    while failures == 0 {
        match next(reader.as_mut()).await {
            LogEvent::Failed(e) => {
                assert_eq!(e.kind, ErrorKind::Unavailable, "{e}");
                failures += 1;
            }
            LogEvent::EndReached { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let broker = tokio::task::spawn_blocking(move || {
        broker.restart();
        broker
    })
    .await
    .unwrap();
    c.producer().produce(&batch(&t, 5..7)).await.unwrap();
    assert_eq!(read_to(reader.as_mut(), 7).await.keys(), ["5", "6"]);
    drop(broker);
}

millstream_e2e::on_each_broker!(
    a_topic_that_ends_in_a_commit_marker_is_read_to_its_end,
    a_topic_that_ends_in_an_aborted_transaction_is_read_to_its_end,
    an_empty_partition_reports_its_end,
    records_after_the_end_come_with_a_new_end,
    an_open_transaction_holds_its_records_back,
    a_compacted_topic_is_read_over_its_gaps,
    a_position_outside_the_log_is_reported_with_both_ends,
    only_wal_topics_are_trimmed,
    a_topic_that_is_not_there_is_a_final_failure,
    a_record_comes_back_as_it_was_sent,
    two_hundred_thousand_records_of_three_partitions_are_read_once_each,
    a_partition_can_be_read_twice_at_a_time_and_again_at_once,
    a_reader_that_is_not_asked_does_not_run_ahead,
    a_reader_survives_its_broker,
);
