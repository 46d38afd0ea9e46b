//! Results that nobody takes: a closed pipe is the reader's wish, a full disk is an error.

use std::{
    fs::File,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{command_line::dead_port, fake_service::FakeService, terminal::Terminal};

/// Takes nothing, as a disk without space.
pub(crate) fn full_disk() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// What `head` leaves behind when it has enough.
pub(crate) fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Exit code and complaints.
fn millstream(args: &[&str], out: Stdio) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    let done = command.args(args).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).output().unwrap();
    (done.status.code().unwrap(), String::from_utf8(done.stderr).unwrap())
}

fn service() -> FakeService {
    FakeService::start(|statement| {
        let value = if statement.contains("esc") { "\u{1b}[31mred\u{9b}2J" } else { "one" };
        let columns = json!([{"name": "note", "type": "VARCHAR"}]);
        Some((200, json!({"results": [{"columns": columns, "rows": [[value]], "notices": []}]})))
    })
}

#[test]
fn results_on_a_full_disk_are_an_error_in_every_format() {
    let service = service();
    for args in [
        &["--output", "table", "-c", "SELECT 1"][..],
        &["--output", "csv", "-c", "SELECT 1"],
        &["--output", "json", "-c", "SELECT 1"],
        &["-c", "\\x\nSELECT 1"],
        &["-c", "\\?"],
    ] {
        let (code, err) = millstream(&[&["sql", "--url", &service.url], args].concat(), full_disk());
        assert_eq!((code, err.contains("the output cannot be written: No space left")), (1, true), "{args:?} {err}");
    }
}

#[test]
fn a_closed_pipe_ends_a_script_quietly_only_if_nothing_was_left_to_run() {
    let service = service();
    let sql = |script: &str| millstream(&["sql", "--url", &service.url, "-c", script], closed_pipe());
    assert_eq!(sql("SELECT 1"), (0, String::new()));
    assert_eq!(sql("SELECT 1; \\q"), (0, String::new()));
    let (code, err) = sql("SELECT 1;\nINSERT 2;\nINSERT 3");
    assert_eq!((code, err.contains("the statements from line 2 on were not run")), (1, true), "{err}");
    assert!(!service.seen().iter().any(|s| s.starts_with("INSERT")));
}

#[test]
fn a_check_answers_the_same_to_one_who_reads_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("m.yaml");
    let (port, bucket) = (dead_port(), dir.path().join("bucket"));
    let yaml = format!(
        "server:\n  listen: 127.0.0.1:0\n  probe_listen: 127.0.0.1:0\nkafka:\n  bootstrap_servers: 127.0.0.1:{port}\n  request_timeout: 500ms\nobject_store:\n  url: file://{}\n",
        bucket.display()
    );
    std::fs::write(&file, yaml).unwrap();
    for out in [closed_pipe(), full_disk()] {
        assert_eq!(millstream(&["check", "--config", file.to_str().unwrap()], out).0, 1);
    }
}

#[test]
fn control_characters_in_values_do_not_reach_a_terminal() {
    let service = service();
    let pipe = |output| {
        let args = ["sql", "--url", &service.url, "--output", output, "-c", "SELECT esc"];
        let (code, out, err) = crate::command_line::millstream(&args, "");
        assert_eq!(code, 0, "{err}");
        out
    };
    let harmful = |text: &str| text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r'));
    assert!(!harmful(&pipe("table")) && !harmful(&pipe("json")));
    assert_eq!(pipe("csv"), "note\n\u{1b}[31mred\u{9b}2J\n", "data for a program is as it is");
    for args in [&["--output", "csv", "-c", "SELECT esc"][..], &["-c", "SELECT esc"], &["-c", "\\x\nSELECT esc"]] {
        let mut t = Terminal::start(&[&["sql", "--url", &service.url], args].concat());
        let shown = t.expect("\\u{1b}[31mred\\u{9b}2J");
        assert!(!harmful(&shown), "{shown:?}");
        assert_eq!(t.wait().code(), Some(0));
    }
}
