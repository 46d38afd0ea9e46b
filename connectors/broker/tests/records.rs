//! Produce, fetch, codecs, ends, times.

use std::time::{Duration, Instant};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, RDKafkaErrorCode},
    producer::{BaseRecord, Producer},
};

use crate::support::*;

#[test]
fn every_codec_comes_back_and_offsets_have_no_gap() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    for (i, codec) in (0u32..).zip(["none", "gzip", "snappy", "lz4", "zstd"]) {
        for idempotent in ["false", "true"] {
            let p = producer(&b.bootstrap, &[("compression.type", codec), ("enable.idempotence", idempotent)]);
            send(&p, "t", i * 1000..i * 1000 + 500);
        }
    }
    let found = read(&b.bootstrap, "t", Offset::Beginning, "read_uncommitted");
    assert_eq!(found.iter().map(|(o, _)| *o).collect::<Vec<_>>(), (0..5000).collect::<Vec<_>>());
    let expected: Vec<u32> = (0..5).flat_map(|i| (0..2).flat_map(move |_| i * 1000..i * 1000 + 500)).collect();
    assert_eq!(keys(&found), expected);
    assert_eq!(read(&b.bootstrap, "t", Offset::Offset(4321), "read_committed").first().unwrap().0, 4321);
    assert_eq!(ends(&b.bootstrap, "t"), (0, 5000));
}

#[test]
fn acks_of_zero_and_one_work() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    for acks in ["0", "1"] {
        send(&producer(&b.bootstrap, &[("acks", acks)]), "t", 0..100);
    }
    eventually("all are there", || ends(&b.bootstrap, "t").1 == 200);
}

#[test]
fn a_waiting_fetch_wakes_at_once() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let options = [("group.id", "g"), ("fetch.wait.max.ms", "20000"), ("socket.timeout.ms", "60000")];
    let consumer: BaseConsumer = client(&b.bootstrap, &options).create().unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("t", 0, Offset::Beginning).unwrap();
    consumer.assign(&assignment).unwrap();
    assert!(consumer.poll(Duration::from_millis(500)).is_none(), "its fetch waits now");
    let p = producer(&b.bootstrap, &[]);
    let before = Instant::now();
    send(&p, "t", [1]);
    consumer.poll(DEADLINE).unwrap().unwrap();
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
}

#[test]
fn a_record_that_is_too_large_is_refused_alone() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[("max.message.bytes", "2000")]);
    let p = producer(&b.bootstrap, &[("batch.num.messages", "1")]);
    let big = vec![b'x'; 5000];
    p.send(BaseRecord::<str, [u8]>::to("t").partition(0).payload(&big)).map_err(|e| e.0).unwrap();
    p.flush(DEADLINE).unwrap();
    assert_eq!(ends(&b.bootstrap, "t"), (0, 0));
    send(&p, "t", [1]);
    assert_eq!(ends(&b.bootstrap, "t"), (0, 1));
}

#[test]
fn timestamps_far_from_now_are_refused() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[("message.timestamp.before.max.ms", "60000"), ("retention.ms", "-1")]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    let p = producer(&b.bootstrap, &[("retries", "0")]);
    // An hour ahead is the default.
    for (shift, stored) in [(0, 1), (7_200_000, 1), (-120_000, 1), (1_800_000, 2), (-30_000, 3)] {
        let record = BaseRecord::<str, str>::to("t").partition(0).payload("v").timestamp(now + shift);
        p.send(record).map_err(|e| e.0).unwrap();
        p.flush(DEADLINE).unwrap();
        assert_eq!(ends(&b.bootstrap, "t").1, stored, "{shift} ms from now");
    }
}

#[test]
fn offsets_are_found_by_time() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[("retention.ms", "-1"), ("segment.bytes", "3000")]);
    for codec in ["none", "lz4"] {
        let p = producer(&b.bootstrap, &[("compression.type", codec)]);
        let base = if codec == "none" { 0 } else { 1000 };
        for i in base..base + 300i64 {
            let value = format!("v{i}");
            let record = BaseRecord::<str, str>::to("t").partition(0).payload(&value).timestamp(1_000_000 + i * 10);
            p.send(record).map_err(|e| e.0).unwrap();
        }
        p.flush(DEADLINE).unwrap();
    }
    let consumer: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
    let at = |time: i64| {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset("t", 0, Offset::Offset(time)).unwrap();
        let found = consumer.offsets_for_times(asked, DEADLINE).unwrap();
        found.elements()[0].offset()
    };
    assert_eq!(at(0), Offset::Offset(0));
    assert_eq!(at(1_000_000 + 1001), Offset::Offset(101));
    assert_eq!(at(1_000_000 + 10_000), Offset::Offset(300));
    assert_eq!(at(1_000_000 + 10_995), Offset::Offset(400));
    assert_eq!(at(9_000_000), Offset::End);
}

#[test]
fn an_offset_outside_of_the_log_is_told() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    send(&producer(&b.bootstrap, &[]), "t", 0..10);
    let options = [("group.id", "g"), ("auto.offset.reset", "error")];
    let consumer: BaseConsumer = client(&b.bootstrap, &options).create().unwrap();
    let mut assignment = TopicPartitionList::new();
    assignment.add_partition_offset("t", 0, Offset::Offset(11)).unwrap();
    consumer.assign(&assignment).unwrap();
    let outcome = consumer.poll(DEADLINE).unwrap();
    let Err(KafkaError::MessageConsumption(code)) = outcome else { panic!("expected an error") };
    assert!(matches!(code, RDKafkaErrorCode::OffsetOutOfRange | RDKafkaErrorCode::AutoOffsetReset), "{code:?}");
}

#[test]
fn the_brokers_time_replaces_the_producers() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[("message.timestamp.type", "LogAppendTime")]);
    let p = producer(&b.bootstrap, &[("compression.type", "zstd")]);
    p.send(BaseRecord::<str, str>::to("t").partition(0).key("1").payload("v1").timestamp(5)).map_err(|e| e.0).unwrap();
    p.flush(DEADLINE).unwrap();
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [1]);
    let consumer: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
    let mut asked = TopicPartitionList::new();
    asked.add_partition_offset("t", 0, Offset::Offset(1_700_000_000_000)).unwrap();
    let found = consumer.offsets_for_times(asked, DEADLINE).unwrap();
    assert_eq!(found.elements()[0].offset(), Offset::Offset(0));
}
