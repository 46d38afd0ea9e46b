//! Results of the service as text: a table for people, CSV and JSON for programs.

use std::{
    borrow::Cow,
    io::{self, IsTerminal},
};

use serde::Deserialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use super::escape;
use crate::cli::Output;

/// One result of `POST /v1/sql`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StatementResult {
    #[serde(default)]
    pub(crate) columns: Vec<Column>,
    #[serde(default)]
    pub(crate) rows: Option<Vec<Vec<Value>>>,
    #[serde(default)]
    pub(crate) command: Option<String>,
    #[serde(default)]
    pub(crate) notices: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Column {
    name: String,
    #[serde(rename = "type")]
    sql_type: String,
}

impl StatementResult {
    /// Rows that no statement answered; `columns` are names and SQL types.
    pub(crate) fn of_rows(columns: &[(&str, &str)], rows: Vec<Vec<Value>>) -> Self {
        let column = |(name, sql_type): &(&str, &str)| Column { name: (*name).into(), sql_type: (*sql_type).into() };
        let columns = columns.iter().map(column).collect();
        Self { columns, rows: Some(rows), command: None, notices: Vec::new() }
    }
}

/// Who reads what is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Control characters are escaped in every format.
    Terminal,
    /// A pipe or a file: CSV holds the data as it is. A table is for people wherever it goes first.
    Program,
}

impl Reader {
    pub(crate) fn of_stdout() -> Self {
        if io::stdout().is_terminal() { Reader::Terminal } else { Reader::Program }
    }
}

/// What goes to standard output, without the last line end; `None` = nothing.
pub(crate) fn render(result: &StatementResult, output: Output, reader: Reader) -> Option<String> {
    match (&result.rows, output) {
        (Some(rows), Output::Table) => Some(table(&result.columns, rows)),
        (Some(rows), Output::Csv) => {
            let text = csv(&result.columns, rows);
            Some(if reader == Reader::Terminal { escape::lines(&text).into_owned() } else { text })
        }
        (Some(rows), Output::Json) => Some(json(&result.columns, rows)),
        // In the two formats for programs a command has no rows to print.
        (None, Output::Table) => result.command.as_deref().map(|c| escape::lines(c).into_owned()),
        (None, Output::Csv | Output::Json) => None,
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

/// Numbers stand at the right.
fn is_number(column: &Column) -> bool {
    let number = ["SMALLINT", "INT", "BIGINT", "REAL", "DOUBLE", "DECIMAL"];
    number.iter().any(|t| column.sql_type.strip_prefix(t).is_some_and(|rest| rest.is_empty() || rest.starts_with('(')))
}

/// A quoted name may hold anything.
fn names(columns: &[Column]) -> Vec<Cow<'_, str>> {
    columns.iter().map(|c| escape::line(&c.name)).collect()
}

fn table(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let shown = |v: &Value| escape::line(&cell(v).replace(['\n', '\r', '\t'], " ")).into_owned();
    let cells: Vec<Vec<String>> = rows.iter().map(|r| r.iter().map(shown).collect()).collect();
    let names = names(columns);
    let width = |i: usize| {
        let longest = cells.iter().filter_map(|r| r.get(i)).map(|c| c.width()).max().unwrap_or(0);
        longest.max(names[i].width())
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut out = String::new();
    let line = |out: &mut String, cells: &mut dyn Iterator<Item = (usize, &str)>| {
        let start = out.len();
        for (i, text) in cells {
            let pad = " ".repeat(widths[i].saturating_sub(text.width()));
            out.push_str(if i > 0 { " | " } else { " " });
            if is_number(&columns[i]) {
                out.push_str(&pad);
                out.push_str(text);
            } else {
                out.push_str(text);
                out.push_str(&pad);
            }
        }
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    };
    line(&mut out, &mut names.iter().map(AsRef::as_ref).enumerate());
    out.push_str(&widths.iter().map(|w| "-".repeat(w + 2)).collect::<Vec<_>>().join("+"));
    out.push('\n');
    for row in &cells {
        line(&mut out, &mut row.iter().map(String::as_str).enumerate());
    }
    out.push_str(&format!("({} row{})", rows.len(), if rows.len() == 1 { "" } else { "s" }));
    out
}

/// A line for each value, for rows that are wider than the terminal.
pub(crate) fn expanded(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let names = names(columns);
    let width = names.iter().map(|n| n.width()).max().unwrap_or(0);
    let mut out = String::new();
    for (n, row) in rows.iter().enumerate() {
        out.push_str(&format!("-[ row {} ]{}\n", n + 1, "-".repeat(width)));
        for (name, value) in names.iter().zip(row) {
            let pad = " ".repeat(width - name.width());
            // A value of many lines goes on under its first one.
            let text = escape::lines(&cell(value)).replace('\n', &format!("\n{}| ", " ".repeat(width + 1)));
            out.push_str(format!("{name}{pad} | {text}").trim_end());
            out.push('\n');
        }
    }
    out.push_str(&format!("({} row{})", rows.len(), if rows.len() == 1 { "" } else { "s" }));
    out
}

fn csv(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let quoted = |text: &str, force: bool| {
        if force || text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let mut lines = vec![columns.iter().map(|c| quoted(&c.name, false)).collect::<Vec<_>>().join(",")];
    for row in rows {
        // Null is an empty cell, an empty text is "".
        let cells = row.iter().map(|v| quoted(&cell(v), v.as_str() == Some("")));
        lines.push(cells.collect::<Vec<_>>().join(","));
    }
    lines.join("\n")
}

/// One object per row and line; a line holds what one row is, so that `head` and `jq` work. Columns keep their order.
fn json(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let object = |row: &Vec<Value>| {
        let field = |(c, v): (&Column, &Value)| format!("{}:{v}", Value::from(c.name.as_str()));
        format!("{{{}}}", columns.iter().zip(row).map(field).collect::<Vec<_>>().join(","))
    };
    escape::json(&rows.iter().map(object).collect::<Vec<_>>().join("\n")).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn result() -> StatementResult {
        serde_json::from_value(json!({
            "columns": [{"name": "id", "type": "BIGINT"}, {"name": "note", "type": "VARCHAR"}],
            "rows": [[1, "a,\"b\""], [20, null], [3, ""]],
            "notices": []
        }))
        .unwrap()
    }

    #[test]
    fn a_table_aligns_and_counts() {
        let text = render(&result(), Output::Table, Reader::Program).unwrap();
        assert_eq!(text, " id | note\n----+-------\n  1 | a,\"b\"\n 20 |\n  3 |\n(3 rows)");
    }

    #[test]
    fn an_expanded_row_has_a_line_for_each_value() {
        let result = result();
        let text = expanded(&result.columns, result.rows.as_ref().unwrap());
        assert!(
            text.starts_with("-[ row 1 ]----\nid   | 1\nnote | a,\"b\"\n-[ row 2 ]----\nid   | 20\nnote |\n"),
            "{text}"
        );
        assert!(text.ends_with("(3 rows)"));
    }

    #[test]
    fn wide_characters_keep_the_columns_straight() {
        let rows = vec![vec![Value::from("日本"), Value::from(1)], vec![Value::from("abcd"), Value::from(2)]];
        let text =
            render(&StatementResult::of_rows(&[("a", "VARCHAR"), ("n", "INT")], rows), Output::Table, Reader::Program)
                .unwrap();
        assert_eq!(text, " a    | n\n------+---\n 日本 | 1\n abcd | 2\n(2 rows)");
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(render(&result(), Output::Csv, Reader::Program).unwrap(), "id,note\n1,\"a,\"\"b\"\"\"\n20,\n3,\"\"");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = render(&result(), Output::Json, Reader::Program).unwrap();
        assert_eq!(text.lines().next(), Some("{\"id\":1,\"note\":\"a,\\\"b\\\"\"}"));
    }

    #[test]
    fn control_characters_reach_no_person_and_csv_for_programs_is_exact() {
        let rows = vec![vec![json!("\u{1b}[31mred\r"), json!("\u{9b}2J")]];
        let result = StatementResult::of_rows(&[("a\u{7}", "VARCHAR"), ("b", "VARCHAR")], rows.clone());
        let shown = |output, reader| render(&result, output, reader).unwrap();
        let unsafe_in = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        let expected = " a\\u{7}         | b\n----------------+----------\n \\u{1b}[31mred  | \\u{9b}2J\n(1 row)";
        assert_eq!(shown(Output::Table, Reader::Program), expected);
        assert_eq!(
            expanded(&result.columns, &rows),
            "-[ row 1 ]------\na\\u{7} | \\u{1b}[31mred\\r\nb      | \\u{9b}2J\n(1 row)"
        );
        assert!(!unsafe_in(&shown(Output::Json, Reader::Program)));
        assert!(!unsafe_in(&shown(Output::Csv, Reader::Terminal)));
        assert_eq!(shown(Output::Csv, Reader::Program), "a\u{7},b\n\"\u{1b}[31mred\r\",\u{9b}2J");
    }
}
