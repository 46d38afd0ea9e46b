//! `millstream topic` when something goes wrong on the way: records that are refused, brokers and topics that go away, output that nobody takes.

use std::{
    io::{BufRead, BufReader, Read},
    process::Stdio,
    time::{Duration, Instant},
};

use millstream_types::{CommitOutcome, LogSystem, OutBatch};

use crate::{
    cluster::{Cluster, finish, noise},
    output::{closed_pipe, full_disk},
};

#[test]
fn a_record_that_is_refused_is_told_by_its_line_and_the_others_are_counted() {
    let c = Cluster::start();
    c.good(&["create", "mix"], "");
    let file = c.dir.path().join("lines");
    std::fs::write(&file, format!("one\n{}three\n", noise(1, 2 << 20))).unwrap();
    let (code, out, err) = c.run(&["produce", "mix", "--acks", file.to_str().unwrap()], "");
    assert_eq!((code, out.as_str()), (1, "0\t0\n0\t1\n"), "{err}");
    assert!(err.starts_with("2 records delivered to mix (by partition 0: 2)\nerror: line 2: not delivered: "), "{err}");
    assert!(err.contains("MessageSizeTooLarge") && err.contains("after line 3 was not sent"), "{err}");
    assert_eq!(c.good(&["consume", "mix", "--output", "value"], ""), "one\nthree\n");
}

#[test]
fn acknowledgements_that_nobody_takes_stop_no_records() {
    let c = Cluster::start();
    let lines: String = (0..50_000).map(|i| format!("{i}\n")).collect();
    let file = c.dir.path().join("lines");
    std::fs::write(&file, lines).unwrap();
    for (topic, out, expected) in [("a", closed_pipe(), 0), ("b", full_disk(), 1)] {
        c.good(&["create", topic], "");
        let child = c.command(&["produce", topic, "--acks", file.to_str().unwrap()]).stdout(out).spawn().unwrap();
        let (code, _, err) = finish(child);
        assert_eq!(code, expected, "{err}");
        assert!(err.starts_with(&format!("50000 records delivered to {topic}")), "{err}");
        assert_eq!(err.contains("acknowledgements from there on are missing"), expected == 1, "{err}");
        let listed = c.good(&["list", topic, "--output", "csv"], "");
        assert!(listed.contains(&format!("{topic},0,0,50000,50000")), "{listed}");
    }
}

#[test]
fn lists_and_new_topics_that_cannot_be_told_are_an_error() {
    let c = Cluster::start();
    for args in [&["create", "t"][..], &["list"], &["list", "--output", "csv"], &["list", "t", "--output", "json"]] {
        let (code, _, err) = finish(c.command(args).stdout(full_disk()).spawn().unwrap());
        assert_eq!((code, err.contains("the output cannot be written")), (1, true), "{args:?} {err}");
    }
    let (code, _, err) = finish(c.command(&["list"]).stdout(closed_pipe()).spawn().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn the_last_records_are_counted_as_records_also_where_transactions_have_markers() {
    let c = Cluster::start();
    c.good(&["create", "t", "-p", "2"], "");
    let client = c.client();
    c.block_on(async {
        let mut writer = client.epoch_writer("test");
        writer.init().await.unwrap();
        for i in 0..300 {
            let mut batch = OutBatch::new("t", 1);
            for p in 0..2 {
                batch.push(p, None, Some(format!("{p}:{i}").as_bytes()));
            }
            assert!(matches!(writer.commit(&[batch]).await, CommitOutcome::Committed { .. }));
        }
    });
    for isolation in ["read_committed", "read_uncommitted"] {
        for n in [1, 5, 200, 299, 9999] {
            let from = format!("-{n}");
            let out = c.good(&["consume", "t", "--from", &from, "--isolation", isolation, "--output", "value"], "");
            let mut expected: Vec<String> =
                (0..2).flat_map(|p| (300 - n.min(300)..300).map(move |i| format!("{p}:{i}"))).collect();
            let mut found: Vec<&str> = out.lines().collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "the last {n}");
        }
    }
}

#[test]
fn a_broker_that_goes_away_ends_reading_after_the_time_limit_with_an_error() {
    let mut c = Cluster::start();
    c.good(&["create", "t"], "");
    let file = c.dir.path().join("lines");
    std::fs::write(&file, noise(300, 100_000)).unwrap();
    c.good(&["produce", "t", file.to_str().unwrap()], "");
    let args = ["consume", "t", "--output", "value", "--timeout", "2"];
    let mut child = c.command(&args).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    // It cannot have read all: its queue is smaller than the topic, and its output waits for this test.
    c.stop_broker();
    out.read_to_string(&mut text).unwrap();
    let (code, _, err) = finish(child);
    assert_eq!(code, 1, "{err}");
    assert!(text.lines().count() < 300);
    assert!(err.contains("gave up after 2 s without an answer") && err.contains("--timeout"), "{err}");
}

#[test]
fn a_topic_that_is_deleted_under_a_follower_is_told_as_that() {
    let c = Cluster::start();
    c.good(&["create", "t"], "");
    c.good(&["produce", "t"], "one\ntwo\n");
    let mut child = c.command(&["consume", "t", "--follow", "--output", "value"]).stdin(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let client = c.client();
    c.block_on(async { client.admin().delete("t").await.unwrap() });
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it does not notice");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, _, err) = finish(child);
    assert_eq!((code, err.contains("topic \"t\" was deleted while it was read")), (1, true), "{err}");
}
