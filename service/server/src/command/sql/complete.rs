//! What Tab offers: keywords, tables, columns, commands. Owns: the names that are known, where in a statement which of them fit.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{meta, session::Session};

const NAMES: &str = "SELECT table_schema, table_name, column_name FROM information_schema.columns \
    WHERE table_schema IN ('public', 'millstream') ORDER BY table_schema, table_name, ordinal_position";

const KEYWORDS: &str = "ALTER AND AS ASC BETWEEN BIGINT BOOLEAN BY CASCADE CASE CAST CHECKPOINT COMPACT COUNT CREATE CROSS DATE DECIMAL DEFAULT DELETE \
    DESC DESCRIBE DISTINCT DOUBLE DROP ELSE END EXISTS EXPLAIN FALSE FLUSH FROM GROUP HAVING IF IN INNER INSERT INT INTERVAL INTO IS JOIN KEY LEFT LIKE \
    LIMIT MATERIALIZED MAX METADATA MIN NOT NULL OFFSET ON OR ORDER OUTER OVER PAUSE PRIMARY REPLACE RESUME RIGHT SELECT SET SHOW SINK SUM TABLE THEN \
    TIMESTAMPTZ TRUE UNION UPDATE USING VALUES VARCHAR VIEW WAIT WHEN WHERE WITH BACKFILLS JOBS REGIONS SINKS TABLES TOPICS VIEWS AVG FOR VERBOSE";

/// Words after which a table follows.
const BEFORE_TABLE: [&str; 8] = ["FROM", "JOIN", "INTO", "TABLE", "UPDATE", "DESCRIBE", "VIEW", "FOR"];

/// Tables as they are written in a statement, with their columns.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<String, Vec<String>>);

impl Names {
    pub(crate) fn load(session: &Session, limit: Duration) -> Option<Self> {
        let results = session.ask_within(NAMES, limit)?;
        let rows = results.into_iter().next()?.rows?;
        Some(Self::of(rows.iter().filter_map(|r| Some((text(r, 0)?, text(r, 1)?, text(r, 2)?)))))
    }

    fn of<'a>(rows: impl Iterator<Item = (&'a str, &'a str, &'a str)>) -> Self {
        let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (schema, table, column) in rows {
            let table = if schema == "public" { quoted(table) } else { format!("{schema}.{}", quoted(table)) };
            tables.entry(table).or_default().push(quoted(column));
        }
        Self(tables)
    }
}

fn text(row: &[Value], i: usize) -> Option<&str> {
    row.get(i)?.as_str()
}

/// A name as it must be written: quoted unless it is lower case and plain.
fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Where the word under the cursor begins, and what it can become.
pub(crate) fn candidates(names: &Names, line: &str, at: usize) -> (usize, Vec<String>) {
    let part_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '\\' | '?');
    let start = line[..at].char_indices().rev().take_while(|(_, c)| part_of_word(*c)).last().map_or(at, |(i, _)| i);
    let (before, word) = (&line[..start], &line[start..at]);
    let mut found: Vec<String> = if word.starts_with('\\') {
        matching(meta::NAMES.iter().map(|n| (*n).to_owned()), word)
    } else if before.trim_end().ends_with("\\d") || follows_table_word(before) {
        matching(names.0.keys().cloned(), word)
    } else if let Some((table, _)) = word.rsplit_once('.') {
        let columns = names.0.get(table).into_iter().flatten().map(|c| format!("{table}.{c}"));
        matching(columns.chain(names.0.keys().cloned()), word)
    } else {
        of_statement(names, line, word)
    };
    found.dedup();
    (start, found)
}

fn follows_table_word(before: &str) -> bool {
    let last = before.trim_end().rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    BEFORE_TABLE.iter().any(|w| last.eq_ignore_ascii_case(w))
}

/// Columns of the tables that the statement names come first; of all tables if it names none yet.
fn of_statement(names: &Names, line: &str, word: &str) -> Vec<String> {
    if word.is_empty() {
        return Vec::new();
    }
    let named =
        |table: &str| line.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '"'))).any(|w| w == table);
    let any = names.0.keys().any(|t| named(t));
    let columns =
        names.0.iter().filter(|(t, _)| if any { named(t) } else { !t.contains('.') }).flat_map(|(_, c)| c.clone());
    let mut columns = matching(columns, word);
    columns.sort_unstable();
    columns.dedup();
    let lower = word.chars().any(char::is_lowercase);
    let keyword = |k: &str| if lower { k.to_lowercase() } else { k.to_owned() };
    let keywords = matching(KEYWORDS.split_whitespace().map(keyword), word);
    let tables = matching(names.0.keys().cloned(), word);
    columns.into_iter().chain(tables).chain(keywords).collect()
}

fn matching(words: impl Iterator<Item = String>, prefix: &str) -> Vec<String> {
    let fits = |w: &String| w.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
    words.filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let rows = [
            ("public", "orders", "order_id"),
            ("public", "orders", "amount"),
            ("public", "Big One", "id"),
            ("public", "other", "area"),
            ("millstream", "jobs", "state"),
        ];
        Names::of(rows.into_iter())
    }

    fn offered(line: &str) -> Vec<String> {
        candidates(&names(), line, line.len()).1
    }

    #[test]
    fn tables_follow_from_and_columns_those_tables_that_are_named() {
        assert_eq!(offered("SELECT * FROM o"), ["orders", "other"]);
        assert_eq!(offered("select * from orders join "), ["\"Big One\"", "millstream.jobs", "orders", "other"]);
        let line = "SELECT a FROM orders";
        let (start, found) = candidates(&names(), line, 8);
        assert_eq!((start, found[0].as_str()), (7, "amount"));
        assert!(!found.contains(&"area".to_owned()) && found.contains(&"as".to_owned()));
        assert_eq!(offered("SELECT orders.a"), ["orders.amount"]);
        assert_eq!(offered("SELECT * FROM millstream.j"), ["millstream.jobs"]);
    }

    #[test]
    fn keywords_keep_the_case_of_what_is_typed() {
        assert_eq!(offered("SEL"), ["SELECT"]);
        assert_eq!(offered("sel"), ["select"]);
        assert_eq!(offered("CREATE MATER"), ["MATERIALIZED"]);
        assert!(offered("").is_empty());
    }

    #[test]
    fn commands_and_their_names_complete() {
        assert_eq!(offered("\\t"), ["\\timing"]);
        assert_eq!(offered("\\d or"), ["orders"]);
    }
}
