//! Every fault does what it says, clients see what they would see of a real cluster, and clearing it heals.

use std::{
    io::{BufRead, BufReader, Write},
    time::Duration,
};

use futures::executor::block_on;
use millstream_broker::faults::Filter;
use rdkafka::{
    Offset,
    consumer::{BaseConsumer, Consumer},
    producer::Producer,
};

use crate::support::*;

fn with_topic() -> Running {
    let b = Running::start();
    create(&b.bootstrap, "t", 1, &[]);
    b
}

#[test]
fn a_lost_answer_to_produce_makes_no_duplicate() {
    let b = with_topic();
    let p = producer(&b.bootstrap, &[("enable.idempotence", "true")]);
    send(&p, "t", 0..5);
    let of_topic = Filter { topic: Some("t".to_owned()), ..Filter::api("Produce") };
    let fault = b.faults().drop_response_after_apply(of_topic, 2);
    send(&p, "t", 5..10);
    assert_eq!(b.faults().hits(fault), 2);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), (0..10).collect::<Vec<_>>());
    let other = Filter { topic: Some("other".to_owned()), ..Filter::api("Produce") };
    let fault = b.faults().drop_request(other, 1);
    send(&p, "t", 10..11);
    assert_eq!(b.faults().hits(fault), 0);
    assert_eq!(b.faults().list().len(), 2);
}

#[test]
fn a_lost_answer_to_end_txn_is_committed_once() {
    let b = with_topic();
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    let fault = b.faults().drop_response_after_apply(Filter::api("EndTxn"), 1);
    p.commit_transaction(DEADLINE).unwrap();
    assert_eq!(b.faults().hits(fault), 1);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [0, 1, 2]);
    assert_eq!(ends(&b.bootstrap, "t").1, 4, "one marker");
}

#[test]
fn errors_and_lost_requests_are_retried() {
    let b = with_topic();
    let p = producer(&b.bootstrap, &[("enable.idempotence", "true")]);
    send(&p, "t", 0..1);
    // NOT_LEADER_OR_FOLLOWER
    b.faults().fail_next(Filter::api("produce"), 2, 6);
    b.faults().drop_request(Filter::api("Produce"), 2);
    send(&p, "t", 1..5);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [0, 1, 2, 3, 4]);
    assert!(b.faults().list().iter().all(|h| h.hits == 2));
    let delay = b.faults().delay_response(Filter::api("Produce"), Duration::from_millis(300));
    let before = std::time::Instant::now();
    send(&p, "t", 5..6);
    assert!(before.elapsed() >= Duration::from_millis(300));
    b.faults().clear(delay);
}

#[test]
fn held_markers_hold_readers_and_the_next_init() {
    let b = with_topic();
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    b.faults().hold_markers("x");
    p.commit_transaction(DEADLINE).unwrap();
    assert_eq!(read(&b.bootstrap, "t", Offset::Beginning, "read_committed"), []);
    let second = transactional(&b.bootstrap, "x", &[]);
    assert!(second.init_transactions(Duration::from_millis(700)).is_err());
    b.faults().release_markers("x");
    eventually("the markers are written", || {
        keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")) == [0, 1, 2]
    });
    second.init_transactions(DEADLINE).unwrap();
}

#[test]
fn a_hung_transaction_stays_open_until_it_is_released() {
    let b = with_topic();
    let p = transactional(&b.bootstrap, "x", &[("transaction.timeout.ms", "1500"), ("message.timeout.ms", "1400")]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    b.faults().hang_transaction("x");
    assert!(p.commit_transaction(Duration::from_millis(2500)).is_err());
    assert_eq!(read(&b.bootstrap, "t", Offset::Beginning, "read_committed"), []);
    b.faults().release_transaction("x");
    eventually("the timeout ends it", || {
        send(&producer(&b.bootstrap, &[]), "t", [9]);
        keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")).first() == Some(&9)
    });
}

#[test]
fn an_expired_transaction_fences_its_producer() {
    let b = with_topic();
    let p = transactional(&b.bootstrap, "x", &[]);
    p.init_transactions(DEADLINE).unwrap();
    p.begin_transaction().unwrap();
    send(&p, "t", 0..3);
    block_on(b.faults().expire_transaction("x")).unwrap();
    assert!(p.commit_transaction(DEADLINE).is_err());
    assert_eq!(read(&b.bootstrap, "t", Offset::Beginning, "read_committed"), []);
}

#[test]
fn a_frozen_partition_waits_and_thaws() {
    let b = with_topic();
    let p = producer(&b.bootstrap, &[]);
    send(&p, "t", 0..2);
    b.faults().freeze("t", 0);
    queue(&p, "t", [2]);
    assert!(p.flush(Duration::from_millis(500)).is_err());
    assert_eq!(ends(&b.bootstrap, "t"), (0, 2));
    let marks = b.faults().marks();
    assert_eq!((marks[0].kind.as_str(), marks[0].name.as_str()), ("frozen", "t-0"));
    assert!(marks[0].hits > 0);
    b.faults().thaw("t", 0);
    p.flush(DEADLINE).unwrap();
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [0, 1, 2]);
}

#[test]
fn trim_truncate_and_recreate_change_the_log() {
    let mut b = with_topic();
    let p = producer(&b.bootstrap, &[("batch.num.messages", "1")]);
    send(&p, "t", 0..10);
    assert_eq!(b.faults().trim("t", 0, 4).unwrap(), 4);
    assert_eq!(ends(&b.bootstrap, "t"), (4, 10));
    assert_eq!(b.faults().truncate("t", 0, 7).unwrap(), 7);
    assert_eq!(ends(&b.bootstrap, "t"), (4, 7));
    send(&producer(&b.bootstrap, &[]), "t", 20..22);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [4, 5, 6, 20, 21]);
    let epoch = b.faults().move_leader_epoch("t", 0).unwrap();
    assert_eq!(epoch, 2);
    send(&producer(&b.bootstrap, &[]), "t", 22..23);
    b.restart(false);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [4, 5, 6, 20, 21, 22]);
    assert_eq!(b.faults().move_leader_epoch("t", 0).unwrap(), 3, "epochs are kept");
    b.faults().recreate_topic("t").unwrap();
    assert_eq!(ends(&b.bootstrap, "t"), (0, 0));
    b.faults().grow("t", 3).unwrap();
    let c: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
    assert_eq!(c.fetch_metadata(Some("t"), DEADLINE).unwrap().topics()[0].partitions().len(), 3);
}

#[test]
fn a_reader_follows_a_new_leader_epoch() {
    let b = with_topic();
    let p = producer(&b.bootstrap, &[]);
    send(&p, "t", 0..5);
    let c: BaseConsumer = client(&b.bootstrap, &[("group.id", "g")]).create().unwrap();
    let mut assignment = rdkafka::TopicPartitionList::new();
    assignment.add_partition_offset("t", 0, Offset::Beginning).unwrap();
    c.assign(&assignment).unwrap();
    for _ in 0..5 {
        c.poll(DEADLINE).unwrap().unwrap();
    }
    b.faults().move_leader_epoch("t", 0).unwrap();
    send(&p, "t", 5..10);
    let mut found = 0;
    eventually("the rest is read", || {
        found += usize::from(matches!(c.poll(Duration::from_millis(100)), Some(Ok(_))));
        found == 5
    });
}

#[test]
fn a_full_disk_heals() {
    let b = with_topic();
    let p = producer(&b.bootstrap, &[("enable.idempotence", "true")]);
    send(&p, "t", 0..2);
    b.faults().disk_full(true);
    queue(&p, "t", [2]);
    assert!(p.flush(Duration::from_millis(500)).is_err());
    b.faults().disk_full(false);
    p.flush(DEADLINE).unwrap();
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [0, 1, 2]);
}

#[test]
fn the_clock_moves_and_a_client_is_disconnected() {
    let b = with_topic();
    b.faults().set_clock(5_000_000_000_000);
    assert!(b.faults().clock_ms() >= 5_000_000_000_000);
    let p = producer(&b.bootstrap, &[("client.id", "victim")]);
    send(&p, "t", 0..2);
    b.faults().disconnect("victim");
    send(&p, "t", 2..4);
    assert_eq!(keys(&read(&b.bootstrap, "t", Offset::Beginning, "read_committed")), [0, 1, 2, 3]);
}

#[test]
fn another_process_commands_through_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("faults.sock");
    let b = Running::with(|c| c.fault_socket = Some(path.clone()));
    create(&b.bootstrap, "t", 1, &[]);
    let mut stream = None;
    eventually("the socket is there", || {
        stream = std::os::unix::net::UnixStream::connect(&path).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut say = |command: &str| {
        stream.write_all(format!("{command}\n").as_bytes()).unwrap();
        lines.next().unwrap().unwrap()
    };
    let arm = r#"{"arm":{"filter":{"api":"Produce"},"action":{"drop_response_after_apply":{"times":1}}}}"#;
    assert_eq!(say(arm), r#"{"ok":1}"#);
    send(&producer(&b.bootstrap, &[("enable.idempotence", "true")]), "t", 0..3);
    assert!(say(r#""list""#).contains(r#""hits":1"#));
    assert_eq!(say(r#"{"move_leader_epoch":["t",0]}"#), r#"{"ok":1}"#);
    assert!(say(r#"{"arm":{"filter":{"api":"Nope"},"action":{"drop_request":{"times":1}}}}"#).contains("error"));
    assert!(say("nonsense").contains("error"));
    assert_eq!(say(r#""clear_all""#), r#"{"ok":null}"#);
}
