//! Text -> statements. [`cursor`] walks tokens, [`ddl`] and [`verbs`] know our grammar, the library parses queries and expressions, [`options`]
//! and [`column_type`] the parts of CREATE. Everything is parsed before anything runs, so a typing error in the last statement changes nothing.

mod column_type;
pub(crate) mod cursor;
mod ddl;
mod options;
pub mod statement;
mod verbs;

use cursor::{Cursor, Source};
use datafusion::sql::sqlparser::tokenizer::Token;
use statement::Parsed;

use crate::SqlError;

/// Parses all statements of a text.
pub fn parse(text: &str) -> Result<Vec<Parsed>, SqlError> {
    let tokens = cursor::tokenize(text)?;
    let source = Source::new(text);
    let mut parsed = Vec::new();
    for tokens in tokens.split(|t| t.token == Token::SemiColon) {
        let Some(first) = tokens.first() else { continue };
        let mut cursor = Cursor::new(&source, tokens);
        let statement = verbs::statement(&mut cursor)?;
        cursor.expect_end()?;
        parsed.push(Parsed { statement, text: source.slice(tokens).to_owned(), at: first.span.start });
    }
    if parsed.is_empty() {
        return Err(SqlError::syntax("there is no statement"));
    }
    Ok(parsed)
}

/// Parses a text that must be one statement, as the catalog keeps it.
pub fn parse_one(text: &str) -> Result<Parsed, SqlError> {
    let mut all = parse(text)?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        _ => Err(SqlError::syntax("expected one statement")),
    }
}
