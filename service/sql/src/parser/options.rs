//! `WITH (topic = 'orders', 'value.format' = 'json', partitions = 6)`: keys and values as text, with their places.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{
    cursor::Cursor,
    statement::{Name, OptionEntry},
};
use crate::SqlError;

const MOST_OPTIONS: usize = 200;

/// Nothing if there is no WITH.
pub(super) fn with_clause(c: &mut Cursor<'_>) -> Result<Vec<OptionEntry>, SqlError> {
    if !c.word("WITH") {
        return Ok(Vec::new());
    }
    c.expect_symbol(&Token::LParen)?;
    let mut entries: Vec<OptionEntry> = Vec::new();
    loop {
        if entries.len() == MOST_OPTIONS {
            return Err(SqlError::option(format!("more than {MOST_OPTIONS} options")).at(c.location()));
        }
        let key = key(c)?;
        if entries.iter().any(|e| e.key.value == key.value) {
            return Err(SqlError::option(format!("option {} is given twice", key.value)).at(key.at));
        }
        c.expect_symbol(&Token::Eq)?;
        let value_at = c.location();
        let value = value(c)?;
        entries.push(OptionEntry { key, value, value_at });
        if !c.symbol(&Token::Comma) {
            break;
        }
    }
    c.expect_symbol(&Token::RParen)?;
    Ok(entries)
}

fn key(c: &mut Cursor<'_>) -> Result<Name, SqlError> {
    let at = c.location();
    if let Some(text) = c.string() {
        return Ok(Name { value: text, at });
    }
    let mut name = c.name("an option name")?;
    while c.symbol(&Token::Period) {
        name.value.push('.');
        name.value.push_str(&c.name("an option name after the dot")?.value);
    }
    Ok(name)
}

fn value(c: &mut Cursor<'_>) -> Result<String, SqlError> {
    if let Some(text) = c.string() {
        return Ok(text);
    }
    let sign = if c.symbol(&Token::Minus) { "-" } else { "" };
    match c.peek() {
        Some(Token::Number(n, _)) => {
            c.advance();
            Ok(format!("{sign}{n}"))
        }
        Some(Token::Word(w)) if sign.is_empty() && w.quote_style.is_none() => {
            c.advance();
            Ok(w.value.to_lowercase())
        }
        _ => Err(c.expected("a value: 'text', a number, true or false")),
    }
}
