//! Results of the service as text: a table for people, CSV and JSON for programs.

use serde::Deserialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

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

/// What goes to standard output, without the last line end; `None` = nothing.
pub(crate) fn render(result: &StatementResult, output: Output) -> Option<String> {
    match (&result.rows, output) {
        (Some(rows), Output::Table) => Some(table(&result.columns, rows)),
        (Some(rows), Output::Csv) => Some(csv(&result.columns, rows)),
        (Some(rows), Output::Json) => Some(json(&result.columns, rows)),
        // In the two formats for programs a command has no rows to print.
        (None, Output::Table) => result.command.clone(),
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

fn table(columns: &[Column], rows: &[Vec<Value>]) -> String {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|r| r.iter().map(|v| cell(v).replace(['\n', '\r', '\t'], " ")).collect()).collect();
    let width = |i: usize| {
        let longest = cells.iter().filter_map(|r| r.get(i)).map(|c| c.width()).max().unwrap_or(0);
        longest.max(columns[i].name.width())
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
    line(&mut out, &mut columns.iter().map(|c| c.name.as_str()).enumerate());
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
    let width = columns.iter().map(|c| c.name.width()).max().unwrap_or(0);
    let mut out = String::new();
    for (n, row) in rows.iter().enumerate() {
        out.push_str(&format!("-[ row {} ]{}\n", n + 1, "-".repeat(width)));
        for (column, value) in columns.iter().zip(row) {
            let pad = " ".repeat(width - column.name.width());
            // A value of many lines goes on under its first one.
            let text = cell(value).replace('\n', &format!("\n{}| ", " ".repeat(width + 1)));
            out.push_str(format!("{}{pad} | {text}", column.name).trim_end());
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
    rows.iter().map(object).collect::<Vec<_>>().join("\n")
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
        let text = render(&result(), Output::Table).unwrap();
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
        let text = render(&StatementResult::of_rows(&[("a", "VARCHAR"), ("n", "INT")], rows), Output::Table).unwrap();
        assert_eq!(text, " a    | n\n------+---\n 日本 | 1\n abcd | 2\n(2 rows)");
    }

    #[test]
    fn csv_tells_null_from_empty() {
        assert_eq!(render(&result(), Output::Csv).unwrap(), "id,note\n1,\"a,\"\"b\"\"\"\n20,\n3,\"\"");
    }

    #[test]
    fn json_is_one_object_per_line() {
        let text = render(&result(), Output::Json).unwrap();
        assert_eq!(text.lines().next(), Some("{\"id\":1,\"note\":\"a,\\\"b\\\"\"}"));
    }
}
