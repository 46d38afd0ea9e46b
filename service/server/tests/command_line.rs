//! What a script that calls `millstream` relies on.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

/// Exit code, output and complaints of one call.
pub(crate) fn millstream(args: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_millstream"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A port that nobody listens on.
pub(crate) fn dead_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn usage_errors_are_2_and_help_is_0() {
    assert_eq!(millstream(&[], "").0, 2);
    assert_eq!(millstream(&["serve"], "").0, 2);
    assert_eq!(millstream(&["sql", "-c", "x", "-f", "y"], "").0, 2);
    let (code, out, _) = millstream(&["--version"], "");
    assert_eq!((code, out.starts_with("millstream ")), (0, true));
    assert_eq!(millstream(&["sql", "--help"], "").0, 0);
}

#[test]
fn sql_without_a_service_says_where_it_looked() {
    let url = format!("http://127.0.0.1:{}", dead_port());
    for (args, input) in [(vec!["-c", "SELECT 1"], ""), (vec![], "SELECT 1;"), (vec!["-f", "-"], "SELECT 1")] {
        let all: Vec<&str> = [vec!["sql", "--url", &url], args].concat();
        let (code, out, err) = millstream(&all, input);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains("millstream serve"), "{err}");
    }
    let (code, _, err) = millstream(&["sql", "--url", &url["http://".len()..], "-c", "SELECT 1"], "");
    assert_eq!((code, err.contains("millstream serve")), (1, true), "HOST:PORT is enough: {err}");
    let (code, _, err) = millstream(&["sql", "--url", "ftp://x", "-c", "SELECT 1"], "");
    assert_eq!((code, err.contains("write http://HOST:PORT")), (1, true), "{err}");
    let (code, _, err) = millstream(&["sql", "-f", "/does/not/exist"], "");
    assert_eq!((code, err.contains("cannot read /does/not/exist")), (1, true), "{err}");
    assert_eq!(millstream(&["sql", "--url", &url], " -- nothing\n").0, 0);
}

#[test]
fn a_wrong_configuration_names_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.yaml");
    std::fs::write(&file, "kafka:\n  bootstrap_server: x:1\n").unwrap();
    for command in ["check", "serve"] {
        let (code, _, err) = millstream(&[command, "--config", file.to_str().unwrap()], "");
        assert_eq!(code, 1);
        assert!(err.contains("bootstrap_server"), "{err}");
    }
    assert_eq!(millstream(&["check", "--config", "/does/not/exist"], "").0, 1);
}

#[test]
fn check_tells_one_line_each_when_kafka_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.yaml");
    let (port, bucket) = (dead_port(), dir.path().join("bucket"));
    let yaml = format!(
        "server:\n  listen: 127.0.0.1:0\n  probe_listen: 127.0.0.1:0\nkafka:\n  bootstrap_servers: 127.0.0.1:{port}\n  request_timeout: 500ms\nobject_store:\n  url: file://{}\n",
        bucket.display()
    );
    std::fs::write(&file, yaml).unwrap();
    let (code, out, err) = millstream(&["check", "--config", file.to_str().unwrap()], "");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines.len()), (1, 4), "{out}{err}");
    assert!(lines[0].starts_with("ok      config:"), "{out}");
    assert!(lines[1].starts_with("ok      ports:"), "{out}");
    assert!(lines[2].starts_with("FAILED  kafka:") && lines[2].contains("kafka.bootstrap_servers"), "{out}");
    assert!(lines[3].starts_with("ok      bucket:"), "{out}");
}
