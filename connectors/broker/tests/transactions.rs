//! Transactions: commit, abort, isolation, fencing, offsets, timeouts.

use std::{
    io::{Read, Write},
    time::Duration,
};

use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
    producer::Producer,
};

use crate::support::*;

#[test]
fn commits_are_seen_and_aborts_are_not() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    for round in 0..6 {
        p.begin_transaction().unwrap();
        send(&p, "t", round * 10..round * 10 + 10);
        if round % 2 == 0 { p.commit_transaction(DEADLINE).unwrap() } else { p.abort_transaction(DEADLINE).unwrap() }
    }
    let committed: Vec<u32> = [0, 2, 4].into_iter().flat_map(|r| r * 10..r * 10 + 10).collect();
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), committed);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_uncommitted")), (0..60).collect::<Vec<_>>());
    assert_eq!(ends(&b.bootstrap, "t").1, 66, "a marker for each transaction");
    // From the middle of an aborted one.
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Offset(15), "read_committed")).first(), Some(&20));
}

#[test]
fn an_open_transaction_holds_readers_back() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    send(&producer(&b.bootstrap, &[]), "t", 0..5);
    p.begin_transaction().unwrap();
    send(&p, "t", 5..8);
    send(&producer(&b.bootstrap, &[]), "t", 8..10);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), (0..5).collect::<Vec<_>>());
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_uncommitted")), (0..10).collect::<Vec<_>>());
    p.commit_transaction(DEADLINE).unwrap();
    eventually("the marker is written", || {
        keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")) == (0..10).collect::<Vec<_>>()
    });
}

#[test]
fn a_time_does_not_lead_into_an_open_transaction() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    let first = |committed: bool| first_since_ever(&b, committed);
    assert_eq!(first(false), 0);
    assert_eq!(first(true), -1, "the first record of the transaction is not stable");
    p.commit_transaction(DEADLINE).unwrap();
    eventually("the marker is written", || first(true) == 0);
}

/// ListOffsets version 2 for time 1 in partition 0 of `t`. librdkafka does not send its isolation level with a time.
fn first_since_ever(b: &Running, committed: bool) -> i64 {
    let mut frame = vec![0, 0, 0, 41, 0, 2, 0, 2, 0, 0, 0, 7, 0xff, 0xff];
    frame.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, u8::from(committed), 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1]);
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&1i64.to_be_bytes());
    let length = (frame.len() - 4) as u32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    let mut stream = b.connect();
    stream.write_all(&frame).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    // .. error code, timestamp, offset
    let (rest, offset) = answer.split_last_chunk::<8>().unwrap();
    assert_eq!(rest[rest.len() - 10..rest.len() - 8], [0, 0]);
    i64::from_be_bytes(*offset)
}

#[test]
fn a_zombie_is_fenced() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let zombie = transactional(&b.bootstrap, "x", &[]);
    zombie.init_transactions(DEADLINE).unwrap();
    zombie.begin_transaction().unwrap();
    send(&zombie, "t", 0..3);
    let second = transactional(&b.bootstrap, "x", &[]);
    second.init_transactions(DEADLINE).unwrap();
    let error = zombie.commit_transaction(DEADLINE).unwrap_err();
    assert!(matches!(code(&error), Some(RDKafkaErrorCode::Fenced | RDKafkaErrorCode::ProducerFenced)), "{error:?}");
    second.begin_transaction().unwrap();
    send(&second, "t", 3..6);
    second.commit_transaction(DEADLINE).unwrap();
    eventually("the marker is written", || {
        keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")) == [3, 4, 5]
    });
}

fn committed(bootstrap: &str, group: &str) -> Offset {
    let options = [("group.id", group), ("isolation.level", "read_committed")];
    let consumer: BaseConsumer = client(bootstrap, &options).create().unwrap();
    let mut asked = TopicPartitionList::new();
    asked.add_partition("t", 0);
    consumer.committed_offsets(asked, DEADLINE).unwrap().elements()[0].offset()
}

#[test]
fn offsets_count_when_their_transaction_commits() {
    let mut b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    let consumer: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
    let group = consumer.group_metadata().unwrap();
    for (offset, commit) in [(5, true), (9, false), (12, true), (20, false)] {
        let before = committed(&b.bootstrap, "g");
        p.begin_transaction().unwrap();
        send(&p, "t", [1]);
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset("t", 0, Offset::Offset(offset)).unwrap();
        p.send_offsets_to_transaction(&offsets, &group, DEADLINE).unwrap();
        if commit {
            p.commit_transaction(DEADLINE).unwrap();
            eventually("the offset counts", || committed(&b.bootstrap, "g") == Offset::Offset(offset));
        } else {
            p.abort_transaction(DEADLINE).unwrap();
            eventually("nothing changed", || committed(&b.bootstrap, "g") == before);
        }
    }
    b.restart(false);
    assert_eq!(committed(&b.bootstrap, "g"), Offset::Offset(12));
}

#[test]
fn a_transaction_past_its_timeout_is_aborted() {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[("transaction.timeout.ms", "1500"), ("message.timeout.ms", "1400")]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    send(&producer(&b.bootstrap, &[]), "t", 3..4);
    eventually("it is aborted", || keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")) == [3]);
    let error = p.commit_transaction(DEADLINE).unwrap_err();
    assert!(code(&error).is_some(), "{error:?}");
}

#[test]
fn a_timeout_above_the_brokers_limit_is_refused() {
    let b = Running::with(|c| c.transaction_max_timeout = Duration::from_secs(10));
    let p = transactional(&b.bootstrap, "x", &[("transaction.timeout.ms", "20000")]);
    let error = p.init_transactions(DEADLINE).unwrap_err();
    assert_eq!(code(&error), Some(RDKafkaErrorCode::InvalidTransactionTimeout), "{error:?}");
}

#[test]
fn an_open_transaction_survives_a_restart() {
    let mut b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    for (i, clean) in (0u32..).zip([true, false]) {
        p.begin_transaction().unwrap();
        send(&p, "t", i * 10..i * 10 + 2);
        b.restart(clean);
        send(&p, "t", i * 10 + 2..i * 10 + 4);
        p.commit_transaction(DEADLINE).unwrap();
    }
    eventually("all of both are there", || {
        keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")) == [0, 1, 2, 3, 10, 11, 12, 13]
    });
}
