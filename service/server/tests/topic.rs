//! `millstream topic` against the embedded broker: what goes in comes out, and each end is clean.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::Value;

use crate::cluster::{Cluster, finish, interrupt};

#[test]
fn a_topic_is_created_listed_and_not_created_twice() {
    let c = Cluster::start();
    let out = c.good(&["create", "t", "-p", "3", "-c", "retention.ms=86400000"], "");
    assert_eq!(out, "created topic t with 3 partitions\n");
    let (code, _, err) = c.run(&["create", "t"], "");
    assert_eq!((code, err.as_str()), (1, "error: topic \"t\" is there already\n"));
    c.good(&["create", "t", "--if-not-exists"], "");
    let (code, _, err) = c.run(&["create", "u", "-c", "retention.ms=soon"], "");
    assert_eq!((code, err.starts_with("error: the topic could not be created")), (1, true), "{err}");
    assert!(err.contains("asked for --partitions 1") && err.contains("-c retention.ms=soon"), "{err}");
    let (code, _, err) = c.run(&["create", "no name"], "");
    assert_eq!((code, err.contains("' ' is not allowed")), (1, true), "{err}");
    c.good(&["produce", "t", "--partition", "1"], "a\nb\n");
    let out = c.good(&["list", "--output", "json"], "");
    let line: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&line["topic"], &line["partitions"], &line["offsets"]), (&"t".into(), &3.into(), &2.into()));
    let out = c.good(&["list", "t", "--configs", "--output", "csv"], "");
    assert!(out.contains("\nt,1,0,2,2\n"), "{out}");
    assert!(out.contains("\nt,retention.ms,86400000\n"), "{out}");
    let (code, _, err) = c.run(&["list", "nothing"], "");
    assert_eq!((code, err.contains("there is no topic \"nothing\"")), (1, true), "{err}");
}

#[test]
fn records_come_back_as_they_went_in() {
    let c = Cluster::start();
    c.good(&["create", "t", "-p", "2"], "");
    let (code, out, err) =
        c.run(&["produce", "t", "-K", "\\t", "-Z", "-H", "source=test", "--acks"], "a\t1\nb\t2\na\t\n");
    assert_eq!((code, out.lines().count()), (0, 3), "{err}");
    assert!(err.starts_with("3 records delivered to t (by partition"), "{err}");
    let out = c.good(&["consume", "t", "--output", "json"], "");
    let mut records: Vec<Value> = out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    records.sort_by_key(|r| (r["key"].as_str().unwrap().to_owned(), r["offset"].as_i64().unwrap()));
    let pairs: Vec<_> = records.iter().map(|r| (r["key"].as_str().unwrap(), r["value"].as_str())).collect();
    assert_eq!(pairs, [("a", Some("1")), ("a", None), ("b", Some("2"))]);
    assert!(records.iter().all(|r| r["headers"] == serde_json::json!([["source", "test"]])));
    assert_eq!(records[0]["partition"], records[1]["partition"]);
    let text = c.good(&["consume", "t"], "");
    assert!(text.lines().any(|l| l.ends_with("\ta\t(null)\tsource=test")), "{text}");
    assert_eq!(c.good(&["consume", "t", "--output", "value"], "").lines().count(), 2);
}

#[test]
fn reading_begins_and_ends_where_it_is_told() {
    let c = Cluster::start();
    c.good(&["create", "t"], "");
    let lines: String = (0..1000).map(|i| format!("{i}\n")).collect();
    let file = c.dir.path().join("lines");
    std::fs::write(&file, lines).unwrap();
    c.good(&["produce", "t", file.to_str().unwrap()], "");
    let read = |args: &[&str]| {
        let out = c.good(&[&["consume", "t", "--output", "value"], args].concat(), "");
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(read(&[]).len(), 1000);
    assert_eq!(read(&["--from", "997"]), ["997", "998", "999"]);
    assert_eq!(read(&["--from", "-2"]), ["998", "999"]);
    assert_eq!(read(&["--from", "10", "--count", "2"]), ["10", "11"]);
    assert_eq!(read(&["--from", "2020-01-01"]).len(), 1000);
    assert_eq!(read(&["--from", "2199-01-01T00:00:00Z"]), [""; 0]);
    assert_eq!(read(&["--from", "end"]), [""; 0]);
    let (code, _, err) = c.run(&["consume", "t", "--from", "5000"], "");
    assert_eq!((code, err.contains("offset 5000 is outside of 0..1000 in partition 0")), (1, true), "{err}");
    let (code, _, err) = c.run(&["consume", "t", "--partition", "7"], "");
    assert_eq!((code, err.contains("no partition 7")), (1, true), "{err}");
}

#[test]
fn following_shows_new_records_and_ends_cleanly_with_ctrl_c_and_with_a_closed_pipe() {
    let c = Cluster::start();
    c.good(&["create", "t"], "");
    c.good(&["produce", "t"], "old\n");
    let args = ["consume", "t", "--follow", "--output", "value"];
    let mut child = c.command(&args).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "old\n");
    c.good(&["produce", "t"], "new\n");
    line.clear();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "new\n");
    interrupt(&child);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("", Some(0)));

    let mut child = c.command(&args).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    line.clear();
    out.read_line(&mut line).unwrap();
    drop(out);
    // The next record finds nobody who reads.
    c.good(&["produce", "t"], "more\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_produced_is_told_with_what_was_delivered() {
    let c = Cluster::start();
    c.good(&["create", "t"], "");
    let (code, _, err) = c.run(&["produce", "t", "--key-separator", "="], "a=1\nnonsense\n");
    assert_eq!(code, 1);
    assert!(err.contains("1 record delivered to t") && err.contains("error: line 2 has no \"=\""), "{err}");
    let (code, _, err) = c.run(&["produce", "t", "--tombstones"], "");
    assert_eq!((code, err.contains("needs a key")), (1, true), "{err}");
    let (code, _, err) = c.run(&["produce", "gone"], "x\n");
    assert_eq!((code, err.contains("millstream topic create gone")), (1, true), "{err}");
}

#[test]
fn records_that_are_typed_go_out_before_the_input_ends() {
    let c = Cluster::start();
    c.good(&["create", "t"], "");
    let mut child = c.command(&["produce", "t", "--acks"]).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for offset in 0..2 {
        writeln!(input, "line {offset}").unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, format!("0\t{offset}\n"));
    }
    drop(input);
    assert_eq!(finish(child).0, 0);
}
