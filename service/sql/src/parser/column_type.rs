//! Column types: the usual SQL spellings -> `SqlType`, and for types that do not exist here what to use instead.

use datafusion::sql::sqlparser::tokenizer::TokenWithSpan;
use millstream_types::SqlType;

use super::cursor::Cursor;
use crate::SqlError;

/// Words that end the type of a column.
pub(super) const STOPS: &[&str] = &[
    "NOT",
    "NULL",
    "DEFAULT",
    "PRIMARY",
    "METADATA",
    "UNIQUE",
    "CHECK",
    "REFERENCES",
    "CONSTRAINT",
    "GENERATED",
    "COLLATE",
    "AS",
];

/// The type and whether it was `DECIMAL` without digits.
pub(super) fn column_type(c: &mut Cursor<'_>, column: &str) -> Result<(SqlType, bool), SqlError> {
    let at = c.location();
    let tokens: &[TokenWithSpan] = if STOPS.iter().any(|s| c.peek_word(s)) { &[] } else { c.take_until(STOPS) };
    if tokens.is_empty() {
        return Err(SqlError::syntax(format!("column {column} has no type"))
            .at(at)
            .hint(format!("write {column} BIGINT")));
    }
    let written = c.source.slice(tokens);
    let plain = normal(written);
    match plain.parse::<SqlType>() {
        Ok(t) => Ok((t, matches!(plain.as_str(), "DECIMAL" | "NUMERIC"))),
        Err(_) => {
            let error = SqlError::syntax(format!("unknown type {written}")).at(at);
            Err(match instead(&plain) {
                Some(hint) => error.hint(hint),
                None => {
                    let hint = crate::error::nearest(&plain, NAMES.iter().copied());
                    error.hint(hint.unwrap_or_else(|| format!("types are {}", NAMES.join(", "))))
                }
            })
        }
    }
}

const NAMES: &[&str] = &[
    "BOOLEAN",
    "SMALLINT",
    "INT",
    "BIGINT",
    "REAL",
    "DOUBLE",
    "DECIMAL(p,s)",
    "VARCHAR",
    "BYTEA",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "INTERVAL",
    "JSONB",
    "type[]",
    "STRUCT(name type)",
    "MAP(type, type)",
];

/// One spelling for what standard SQL writes in several words.
fn normal(written: &str) -> String {
    let words = written.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.to_uppercase().as_str() {
        "TIMESTAMP WITH TIME ZONE" => "TIMESTAMPTZ".to_owned(),
        "TIMESTAMP WITHOUT TIME ZONE" => "TIMESTAMP".to_owned(),
        "TIME WITHOUT TIME ZONE" => "TIME".to_owned(),
        "CHARACTER VARYING" => "VARCHAR".to_owned(),
        "DECIMAL" => "DECIMAL".to_owned(),
        "NUMERIC" => "NUMERIC".to_owned(),
        _ => words,
    }
}

fn instead(plain: &str) -> Option<&'static str> {
    let upper = plain.to_uppercase();
    let base = upper.split(['(', '<', ' ']).next().unwrap_or_default();
    Some(match base {
        "VARCHAR" | "CHAR" | "CHARACTER" | "NVARCHAR" | "BPCHAR" => "VARCHAR has no length here, write VARCHAR",
        "TIMESTAMP" | "TIMESTAMPTZ" | "TIME" | "DATETIME" => {
            "times have microseconds always, write TIMESTAMP, TIMESTAMPTZ or TIME"
        }
        "TINYINT" | "INT1" | "SMALLSERIAL" => "write SMALLINT",
        "SERIAL" | "BIGSERIAL" => "there are no generated numbers yet, write BIGINT and send the value",
        "UUID" => "UUID is not supported yet, write VARCHAR",
        "BLOB" | "BINARY" | "VARBINARY" => "write BYTEA",
        "DECIMAL" | "NUMERIC" => "DECIMAL(p,s) has 1 to 76 digits and a scale from 0 to p",
        "ARRAY" => "write the element type with brackets: BIGINT[]",
        "STRUCT" | "ROW" => "write STRUCT(name type, name type)",
        "MAP" => "write MAP(key type, value type)",
        _ => return None,
    })
}
