//! Column defaults: the SQL text of a constant, checked once and then added like a value.

use millstream_types::Column;

use crate::{
    builder::ColumnBuilder, cursor::Cursor, error::FormatError, fail::Result, options::JsonOptions, read::ValueReader,
};

/// A constant of a column.
#[derive(Debug, Clone)]
pub(crate) enum Constant {
    Null,
    /// Between the quotes of the SQL text.
    Quoted(String),
    /// A number or a boolean, as it stands.
    Bare(String),
}

impl Constant {
    /// The default of `column`, proven to fit it; `None` if it has none.
    pub(crate) fn of(column: &Column, options: JsonOptions) -> Result<Option<Constant>, FormatError> {
        let Some(sql) = &column.default else { return Ok(None) };
        let wrong =
            |what: &str| FormatError::Column { column: column.name.clone(), what: format!("default {sql}: {what}") };
        let constant = parse(sql.trim()).ok_or_else(|| wrong("not a constant"))?;
        let mut trial = ColumnBuilder::new(&column.sql_type);
        constant.push(&mut ValueReader::new(options), &mut trial).map_err(|f| wrong(&f.to_string()))?;
        if matches!(constant, Constant::Null) && !column.nullable {
            return Err(wrong("the column is not null"));
        }
        Ok(Some(constant))
    }

    pub(crate) fn push(&self, reader: &mut ValueReader, column: &mut ColumnBuilder) -> Result<()> {
        match self {
            Constant::Null => {
                column.push_null();
                Ok(())
            }
            Constant::Quoted(text) => reader.text(text, column),
            Constant::Bare(text) => {
                let mut cursor = Cursor::new(text);
                reader.json(&mut cursor, column)?;
                cursor.end()
            }
        }
    }
}

/// `NULL`, `12.5`, `-1`, `true`, `'text'`, `DATE '2024-01-31'`, `'x'::VARCHAR`, `CAST('x' AS VARCHAR)`. The type named is that of the column anyway.
fn parse(sql: &str) -> Option<Constant> {
    if sql.eq_ignore_ascii_case("null") {
        return Some(Constant::Null);
    }
    if sql.eq_ignore_ascii_case("true") || sql.eq_ignore_ascii_case("false") {
        return Some(Constant::Bare(sql.to_ascii_lowercase()));
    }
    if let Some(inner) = strip_cast(sql) {
        return parse(inner);
    }
    let Some(open) = sql.find('\'') else {
        let number = sql.split("::").next()?.trim().trim_start_matches('+');
        return number
            .starts_with(|c: char| c.is_ascii_digit() || c == '-')
            .then(|| Constant::Bare(number.replace("- ", "-")));
    };
    if !sql[..open].chars().all(|c| c.is_ascii_alphanumeric() || c.is_whitespace() || "(),_".contains(c)) {
        return None;
    }
    let mut text = String::new();
    let mut rest = sql[open + 1..].chars();
    loop {
        match rest.next()? {
            '\'' if rest.as_str().starts_with('\'') => {
                rest.next();
                text.push('\'');
            }
            '\'' => break,
            c => text.push(c),
        }
    }
    let rest = rest.as_str().trim();
    (rest.is_empty() || rest.starts_with("::")).then_some(Constant::Quoted(text))
}

fn strip_cast(sql: &str) -> Option<&str> {
    let body = sql.get(..5).filter(|p| p.eq_ignore_ascii_case("cast(")).map(|_| &sql[5..])?.strip_suffix(')')?;
    let at = body.to_ascii_lowercase().rfind(" as ")?;
    Some(body[..at].trim())
}

#[cfg(test)]
mod tests {
    use millstream_types::SqlType;

    use super::*;

    #[test]
    fn constants_of_every_spelling_are_proven_at_definition() {
        let of = |sql: &str, t: SqlType| {
            let mut column = Column::new(1, "c", t);
            column.default = Some(sql.to_owned());
            Constant::of(&column, JsonOptions::default())
        };
        for (sql, t) in [
            ("'it''s'", SqlType::Varchar),
            ("0", SqlType::Int),
            ("-1.50", SqlType::Decimal(5, 2)),
            ("TRUE", SqlType::Boolean),
            ("NULL", SqlType::Date),
            ("DATE '2024-01-31'", SqlType::Date),
            ("'2024-01-31T00:00:00Z'::TIMESTAMPTZ", SqlType::TimestampTz),
            ("CAST('7' AS BIGINT)", SqlType::BigInt),
            ("'{\"a\":1}'", SqlType::Jsonb),
            ("'[1,2]'", SqlType::Array(Box::new(SqlType::Int))),
            ("1.5", SqlType::Double),
        ] {
            assert!(of(sql, t).is_ok_and(|c| c.is_some()), "{sql}");
        }
        for (sql, t) in [
            ("now()", SqlType::TimestampTz),
            ("'x'", SqlType::Int),
            ("99999", SqlType::SmallInt),
            ("'open", SqlType::Varchar),
            ("1 + 1", SqlType::Int),
        ] {
            assert!(of(sql, t).is_err(), "{sql}");
        }
    }
}
