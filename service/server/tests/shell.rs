//! `millstream sql`: the shell at a terminal, and the same commands in a script.

use serde_json::{Value, json};

use crate::{command_line::millstream, fake_service::FakeService, terminal::Terminal};

fn rows(columns: &[(&str, &str)], rows: Value) -> Option<(u16, Value)> {
    let columns: Vec<Value> = columns.iter().map(|(n, t)| json!({"name": n, "type": t})).collect();
    Some((200, json!({"results": [{"columns": columns, "rows": rows, "notices": []}]})))
}

fn script(statement: &str) -> Option<(u16, Value)> {
    match statement {
        s if s.contains("information_schema") => rows(
            &[("table_schema", "VARCHAR"), ("table_name", "VARCHAR"), ("column_name", "VARCHAR")],
            json!([["public", "orders", "order_id"], ["public", "orders", "amount"]]),
        ),
        s if s.contains("missing") => Some((
            422,
            json!({"error_code": "NO_SUCH_COLUMN", "message": "there is no column missing", "retryable": false,
                "details": {"line": 2, "column": 3, "hint": "did you mean amount?"}}),
        )),
        s if s.contains("slow") => None,
        s if s.starts_with("CREATE") => {
            Some((200, json!({"results": [{"command": "CREATE TABLE", "notices": ["retention: none"]}]})))
        }
        s if s.starts_with("SHOW CREATE") => {
            rows(&[("name", "VARCHAR"), ("statement", "VARCHAR")], json!([["orders", "CREATE TABLE orders (..)"]]))
        }
        s if s.starts_with("DESCRIBE") => {
            rows(&[("column", "VARCHAR"), ("type", "VARCHAR")], json!([["order_id", "BIGINT"], ["amount", "DECIMAL"]]))
        }
        _ => rows(&[("id", "BIGINT"), ("note", "VARCHAR")], json!([[1, "one"], [20, null]])),
    }
}

const PROMPT: &str = "millstream=> ";

fn shell(service: &FakeService, history: &std::path::Path) -> Terminal {
    let mut t = Terminal::start(&["sql", "--url", &service.url, "--history", history.to_str().unwrap()]);
    t.expect(PROMPT);
    t
}

#[test]
fn a_person_types_statements_of_many_lines_and_sees_tables() {
    let (service, dir) = (FakeService::start(script), tempfile::tempdir().unwrap());
    let history = dir.path().join("history");
    let mut t = shell(&service, &history);
    t.send("SELECT *\r");
    t.send("FROM orders;\r");
    t.expect(" id | note\r\n----+------\r\n  1 | one\r\n 20 |\r\n(2 rows)");
    t.expect(PROMPT);
    t.send("\\x\r");
    t.expect("expanded display is on");
    t.expect(PROMPT);
    t.send("SELECT 2; SELECT 3;\r");
    t.expect("-[ row 1 ]");
    t.expect("note | one");
    t.expect("-[ row 1 ]");
    t.expect(PROMPT);
    t.send("\\x off\r");
    t.expect("expanded display is off");
    t.expect(PROMPT);
    t.send("\\timing\r");
    t.expect("timing is on");
    t.expect(PROMPT);
    t.send("CREATE TABLE t;\r");
    t.expect("notice: retention: none");
    t.expect("CREATE TABLE");
    t.expect("Time: ");
    t.expect(PROMPT);
    t.send("\\d orders\r");
    t.expect(" order_id | BIGINT");
    t.expect("made by: CREATE TABLE orders (..)");
    t.expect(PROMPT);
    t.send("\\?\r");
    t.expect("\\watch [SECONDS]");
    t.expect(PROMPT);
    t.send("\\q\r");
    assert_eq!(t.wait().code(), Some(0));
    assert_eq!(service.seen()[..3], ["SELECT *\nFROM orders", "SELECT 2", "SELECT 3"]);
    // The next shell knows what was typed; the newest is one step up.
    let mut t = shell(&service, &history);
    t.send("\u{1b}[A");
    t.expect("\\q");
    t.send("\u{1b}[A\u{1b}[A\u{1b}[A");
    t.expect("CREATE TABLE t;");
    t.send("\r");
    t.expect("notice: retention: none");
    t.expect(PROMPT);
    t.send("\u{4}");
    assert_eq!(t.wait().code(), Some(0));
}

#[test]
fn an_error_marks_the_place_and_the_shell_goes_on() {
    let (service, dir) = (FakeService::start(script), tempfile::tempdir().unwrap());
    let mut t = shell(&service, &dir.path().join("history"));
    t.send("SELECT 1,\r  missing;\r");
    t.expect("error: there is no column missing (NO_SUCH_COLUMN)\r\nLINE 2:   missing\r\n          ^\r\nhint: did you mean amount?");
    t.expect(PROMPT);
    t.send("\\nonsense\r");
    t.expect("there is no command \\nonsense");
    t.expect(PROMPT);
    t.send("\\watch 99999999\r");
    t.expect("write \\watch");
    t.expect(PROMPT);
    t.send("exit\r");
    assert_eq!(t.wait().code(), Some(0));
}

#[test]
fn ctrl_c_drops_the_line_or_the_running_query_and_ctrl_d_leaves() {
    let (service, dir) = (FakeService::start(script), tempfile::tempdir().unwrap());
    let mut t = shell(&service, &dir.path().join("history"));
    t.send("SELECT 'never\u{3}");
    t.expect(PROMPT);
    t.send("SELECT slow;\r");
    while !service.seen().contains(&"SELECT slow".to_owned()) {
        std::thread::yield_now();
    }
    t.interrupt();
    t.expect("cancelled");
    t.expect(PROMPT);
    t.send("SELECT 1;\r");
    t.expect("(2 rows)");
    t.expect(PROMPT);
    t.send("\\watch 0.1\r");
    t.expect("every 0.1 s");
    t.expect("(2 rows)");
    t.expect("(2 rows)");
    t.interrupt();
    t.expect(PROMPT);
    t.send("\u{4}");
    assert_eq!(t.wait().code(), Some(0));
}

#[test]
fn tab_completes_keywords_tables_and_columns() {
    let (service, dir) = (FakeService::start(script), tempfile::tempdir().unwrap());
    let mut t = shell(&service, &dir.path().join("history"));
    t.send("SEL\t amo\t FR\t ord\t;\r");
    t.expect("(2 rows)");
    t.expect(PROMPT);
    assert_eq!(service.seen(), ["SELECT amount FROM orders"]);
    t.send("\u{4}");
    assert_eq!(t.wait().code(), Some(0));
}

#[test]
fn a_script_knows_the_commands_and_stops_at_the_first_failure_with_its_line() {
    let (service, dir) = (FakeService::start(script), tempfile::tempdir().unwrap());
    let file = dir.path().join("more.sql");
    std::fs::write(&file, "SELECT 7;\n").unwrap();
    let input = format!("\\d orders\n\\i {}\nSELECT 1,\n  missing;\nSELECT 8;", file.display());
    let (code, out, err) = millstream(&["sql", "--url", &service.url, "--output", "csv"], &input);
    assert_eq!(code, 1);
    assert!(out.contains("order_id,BIGINT\n") && out.ends_with("id,note\n1,one\n20,\n"), "{out}");
    assert!(err.contains("LINE 4:   missing\n          ^\n"), "{err}");
    assert_eq!(service.seen().last().unwrap(), "SELECT 1,\n  missing");
    let (code, out, _) = millstream(&["sql", "--url", &service.url, "-c", "SELECT 1\\q\nSELECT 2"], "");
    assert_eq!((code, out.matches("(2 rows)").count()), (0, 1));
    std::fs::write(&file, format!("\\i {}", file.display())).unwrap();
    let (code, _, err) = millstream(&["sql", "--url", &service.url, "-f", file.to_str().unwrap()], "");
    assert_eq!((code, err.contains("do they call each other")), (1, true), "{err}");
}
