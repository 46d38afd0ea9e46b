//! Values from JSON as SQL literals, names as quoted identifiers, `$n` in statements: the only place of admin where SQL text is written.

use millstream_types::SqlType;
use serde_json::{Value, value::RawValue};

use crate::error::ApiError;

/// `"name"` with quotes doubled.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `'text'` with quotes doubled. PostgreSQL's standard strings: a backslash is a backslash.
pub(crate) fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// A JSON value, as it was written, as text, or NULL: [`cast`] makes the column's type of it, so that decimals keep their digits.
pub(crate) fn value(value: &RawValue, sql_type: &SqlType) -> Result<String, ApiError> {
    let raw = match value.get() {
        "null" => return Ok("NULL".to_owned()),
        s if s.starts_with('"') && *sql_type != SqlType::Jsonb => {
            serde_json::from_str::<String>(s).map_err(|e| ApiError::invalid("BODY_INVALID", e.to_string()))?
        }
        other => other.to_owned(),
    };
    Ok(text(&raw))
}

/// `expression` in the type of a column.
pub(crate) fn cast(expression: &str, sql_type: &SqlType) -> Result<String, ApiError> {
    let cast = cast_type(sql_type).ok_or_else(|| {
        ApiError::invalid("TYPE_UNSUPPORTED", format!("rows of type {sql_type} cannot be inserted here; use INSERT"))
    })?;
    Ok(format!("CAST({expression} AS {cast})"))
}

/// JSONB is text to the planner. Nested types have no text form in SQL.
fn cast_type(sql_type: &SqlType) -> Option<String> {
    match sql_type {
        SqlType::Jsonb => Some("VARCHAR".to_owned()),
        SqlType::Array(_) | SqlType::Struct(_) | SqlType::Map(..) => None,
        other => Some(other.to_string()),
    }
}

/// A parameter, whose type is that of the JSON value.
fn untyped(value: &Value) -> Result<String, ApiError> {
    match value {
        Value::Null => Ok("NULL".to_owned()),
        Value::Bool(b) => Ok(b.to_string().to_ascii_uppercase()),
        // A sign would join an operator before it: `1 -$1` must not become `1 --5`, a comment.
        Value::Number(n) => Ok(format!("({n})")),
        Value::String(s) => Ok(text(s)),
        Value::Array(_) | Value::Object(_) => {
            Err(ApiError::invalid("PARAM_INVALID", "a parameter is a string, a number, a boolean or null").sql())
        }
    }
}

/// Puts `params` in place of `$1`, `$2`, .. outside of strings, quoted names, dollar-quoted text and comments.
pub(crate) fn bind(query: &str, params: &[Value]) -> Result<String, ApiError> {
    if params.is_empty() {
        return Ok(query.to_owned());
    }
    let mut out = String::with_capacity(query.len() + 32);
    let mut rest = query;
    while let Some(at) = rest.find(['\'', '"', '$', '-', '/']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let len = match rest.as_bytes() {
            [b'\'', ..] => quoted_len(rest, '\''),
            [b'"', ..] => quoted_len(rest, '"'),
            [b'-', b'-', ..] => rest.find('\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => comment_len(rest),
            [b'$', digit, ..] if digit.is_ascii_digit() => {
                let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
                let number: usize = rest[1..=digits].parse().unwrap_or(usize::MAX);
                let value = number.checked_sub(1).and_then(|i| params.get(i)).ok_or_else(|| {
                    ApiError::invalid(
                        "PARAM_MISSING",
                        format!("parameter ${number} is not in params, which has {}", params.len()),
                    )
                    .sql()
                })?;
                out.push_str(&untyped(value)?);
                rest = &rest[1 + digits..];
                continue;
            }
            [b'$', ..] => dollar_len(rest),
            _ => 1,
        };
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out.push_str(rest);
    Ok(out)
}

/// A doubled quote ends one part and begins the next, which needs no special case.
fn quoted_len(text: &str, quote: char) -> usize {
    text[1..].find(quote).map_or(text.len(), |end| end + 2)
}

/// Comments nest.
fn comment_len(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0usize);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// `$tag$ .. $tag$`, or one `$` if it is not the start of such a text.
fn dollar_len(text: &str) -> usize {
    let tag = text[1..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    if text.as_bytes().get(1 + tag) != Some(&b'$') {
        return 1;
    }
    let mark = &text[..tag + 2];
    text[mark.len()..].find(mark).map_or(text.len(), |end| mark.len() + end + mark.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_bound_outside_of_quotes_and_comments_only() {
        let params = [json!("it's"), json!(-5), json!(null)];
        assert_eq!(bind("SELECT $1, 1 -$2, $3", &params).unwrap(), "SELECT 'it''s', 1 -(-5), NULL");
        for untouched in [
            "'$1'",
            "'it''s $1'",
            "\"$1\"",
            "-- $1\n",
            "/* /* $1 */ $1 */",
            "$$ $1 $$",
            "$a$ $1 $a$",
            "'$1",
            "/* $1",
            "$x",
        ] {
            assert_eq!(bind(untouched, &params).unwrap(), untouched);
        }
        assert_eq!(bind("$1--$1\n$1", &[json!(1)]).unwrap(), "(1)--$1\n(1)");
        assert_eq!(bind("SELECT $4", &params).unwrap_err().code, "PARAM_MISSING");
        assert_eq!(bind("SELECT $0", &params).unwrap_err().code, "PARAM_MISSING");
        assert_eq!(bind("SELECT $1", &[json!([1])]).unwrap_err().code, "PARAM_INVALID");
    }

    #[test]
    fn names_and_values_cannot_leave_their_quotes() {
        assert_eq!(identifier("a\"; DROP TABLE x; --"), "\"a\"\"; DROP TABLE x; --\"");
        let value = |json: &str, t| super::value(&RawValue::from_string(json.to_owned()).unwrap(), &t).unwrap();
        assert_eq!(value("\"a' OR '1'='1\"", SqlType::Varchar), "'a'' OR ''1''=''1'");
        assert_eq!(value("12.30", SqlType::Decimal(12, 2)), "'12.30'");
        assert_eq!(value("{\"a\":1}", SqlType::Jsonb), "'{\"a\":1}'");
        assert_eq!(value("null", SqlType::BigInt), "NULL");
        assert_eq!(cast("v.c0", &SqlType::Decimal(12, 2)).unwrap(), "CAST(v.c0 AS DECIMAL(12,2))");
        assert_eq!(cast("v.c0", &SqlType::Jsonb).unwrap(), "CAST(v.c0 AS VARCHAR)");
    }
}
