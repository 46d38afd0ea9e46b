//! `millstream dev`: a first and a second start on the same folder, and the demo to its end.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    output::{closed_pipe, full_disk},
    terminal::Terminal,
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
        let mut child = command(data, &[]).stderr(Stdio::piped()).spawn().unwrap();
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
        let (mut rest, mut said) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
        assert_eq!(said, "", "Ctrl-C ends it without a word");
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
    // So large that the next start moves it aside, but only one that has the folder.
    let (file, aside) = (data.join("millstream.log"), data.join("millstream.log.1"));
    std::fs::File::options().append(true).open(&file).unwrap().set_len(65 << 20).unwrap();
    let second = command(&data, &[]).stderr(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!((second.status.code(), text.contains("--data DIR")), (Some(1), true), "{text}");
    assert!(!aside.exists(), "the log of the running process was moved");
    dev.stop();
    assert!(std::fs::metadata(&file).unwrap().len() > 65 << 20, "its last lines are in its log");

    let dev = Dev::start(&data);
    assert!(aside.exists());
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

/// Waits for a line of the log.
fn wait_for_log(data: &Path, text: &str) {
    let begun = Instant::now();
    while !log(data).contains(text) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no {text:?} in {}", log(data));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_welcome_that_nobody_reads_stops_nothing_and_one_that_is_lost_stops_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let child = command(&data, &[]).stdout(closed_pipe()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_log(&data, " ready ");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let done = child.wait_with_output().unwrap();
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));

    let done = command(&data, &[]).stdout(full_disk()).stderr(Stdio::piped()).output().unwrap();
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{err}");
    assert!(err.starts_with("millstream dev: the output cannot be written: No space left"), "{err}");
}

#[test]
fn the_frames_of_the_demo_fit_into_a_low_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let args = [&["dev", "--data", data.to_str().unwrap(), "--demo", "--demo-seconds", "2"][..], &ANY_PORTS].concat();
    let mut t = Terminal::start_sized(&args, 14, 80);
    let shown = t.expect_within("Checked: both views equal", Duration::from_secs(120));
    assert_eq!(t.wait().code(), Some(0));
    let ups: Vec<usize> = shown.split("\u{1b}[").skip(1).filter_map(|s| s.split_once('A')?.0.parse().ok()).collect();
    assert_eq!(ups.iter().max(), Some(&13), "one row is the cursor's: {ups:?}");
}
