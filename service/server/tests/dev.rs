//! `millstream dev`: a first and a second start on the same folder, and the demo to its end.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

const ANY_PORTS: [&str; 6] = ["--kafka-port", "0", "--rest-port", "0", "--probe-port", "0"];

struct Dev {
    child: Child,
    out: BufReader<ChildStdout>,
    kafka: String,
    rest: String,
}

impl Dev {
    /// Returns when it says where it is.
    fn start(data: &Path) -> Self {
        let mut child = command(data, &[]).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut kafka, mut rest, mut line) = (String::new(), String::new(), String::new());
        while rest.is_empty() || kafka.is_empty() {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it ended: {}", log(data));
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["Kafka", address] => kafka = address.to_owned(),
                ["REST", address] => rest = address.to_owned(),
                _ => {}
            }
        }
        Self { child, out, kafka, rest }
    }

    fn sql(&self, statement: &str) -> String {
        let args = ["sql", "--url", &self.rest, "--output", "csv", "-c", statement];
        let out = millstream(&args).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// Ctrl-C.
    fn stop(mut self) {
        assert!(Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap().success());
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        drop(self.child.kill());
    }
}

fn millstream(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.args(args);
    command
}

fn command(data: &Path, more: &[&str]) -> Command {
    let mut command = millstream(&["dev", "--data", data.to_str().unwrap()]);
    command.args(ANY_PORTS).args(more).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn log(data: &Path) -> String {
    std::fs::read_to_string(data.join("millstream.log")).unwrap_or_default()
}

#[test]
fn the_second_start_finds_what_the_first_one_left() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let dev = Dev::start(&data);
    let topic = |dev: &Dev, args: &[&str]| {
        let done = millstream(&[&["topic"], args, &["--bootstrap", &dev.kafka]].concat()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    topic(&dev, &["create", "orders", "-p", "2"]);
    let records = dir.path().join("records");
    std::fs::write(&records, "{\"id\":1}\t{\"id\":1,\"v\":\"a\"}\n{\"id\":2}\t{\"id\":2,\"v\":\"b\"}\n").unwrap();
    topic(&dev, &["produce", "orders", "-K", "\\t", records.to_str().unwrap()]);
    dev.sql("CREATE TABLE orders (id BIGINT NOT NULL, v VARCHAR, PRIMARY KEY (id)) WITH (topic = 'orders', 'key.format' = 'json', 'value.format' = 'json')");
    dev.sql("CREATE MATERIALIZED VIEW kept WITH (topic = 'kept', wait = true) AS SELECT id, v FROM orders");
    let rows = "SELECT id, v FROM kept ORDER BY id";
    while dev.sql(rows).lines().count() < 3 {}
    let before = dev.sql(rows);
    let second = command(&data, &[]).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!((second.status.code(), text.contains("--data DIR")), (Some(1), true), "{text}");
    dev.stop();

    let dev = Dev::start(&data);
    assert_eq!(dev.sql(rows), before);
    assert_eq!(before, "id,v\n1,a\n2,b\n");
    let derived = topic(&dev, &["consume", "kept", "--output", "json"]);
    assert_eq!(derived.lines().count(), 2, "{derived}");
    dev.stop();
}

#[test]
fn the_demo_runs_to_its_end_and_again_on_what_it_left() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    for said in ["records produced", "the demo goes on with them"] {
        let done = command(&data, &["--demo", "--demo-seconds", "3"]).stderr(Stdio::piped()).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(0), "{out}\n{err}\n{}", log(&data));
        for text in [
            said,
            "backfill by_customer",
            "running",
            "view by_customer, best customers:",
            "Checked: both views equal",
            "kcat",
        ] {
            assert!(out.contains(text), "no {text:?} in {out}");
        }
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for flag in ["--kafka-port", "--rest-port", "--probe-port"] {
        let mut args: Vec<&str> = ANY_PORTS.to_vec();
        let at = args.iter().position(|a| *a == flag).unwrap();
        args[at + 1] = &port;
        let data = dir.path().join(flag);
        let done = millstream(&["dev", "--data", data.to_str().unwrap()]).args(&args).output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!((done.status.code(), err.contains(flag)), (Some(1), true), "{err}");
    }
}
