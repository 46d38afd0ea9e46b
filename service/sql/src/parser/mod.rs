//! Text -> statements. [`cursor`] walks tokens, [`ddl`] and [`verbs`] know our grammar, the library parses queries and expressions, [`options`]
//! and [`column_type`] the parts of CREATE, [`depth`] refuses what is too deep. Everything is parsed before anything runs, so a typing error in the last statement changes nothing.

mod column_type;
pub(crate) mod cursor;
mod ddl;
pub(crate) mod depth;
mod dialect;
mod options;
pub mod statement;
mod verbs;

use cursor::{Cursor, Source};
use datafusion::sql::sqlparser::tokenizer::Token;
use statement::Parsed;

use crate::{SqlError, stack};

/// Statements of one text; what they answer is kept until the last one is done.
const MOST_STATEMENTS: usize = 10_000;

/// Parses all statements of a text.
pub fn parse(text: &str) -> Result<Vec<Parsed>, SqlError> {
    // a tree that is refused as too deep is also dropped in there
    stack::grown(|| parse_all(text))
}

fn parse_all(text: &str) -> Result<Vec<Parsed>, SqlError> {
    let source = Source::new(text);
    let tokens = cursor::tokenize(&source, depth::MOST_TOKENS)?;
    depth::check_length(&tokens)?;
    let mut parsed = Vec::new();
    for tokens in tokens.split(|t| t.token == Token::SemiColon) {
        let Some(first) = tokens.first() else { continue };
        if parsed.len() == MOST_STATEMENTS {
            let error = SqlError::syntax(format!("more than {MOST_STATEMENTS} statements in one text"));
            return Err(error.at(first.span.start).hint("send them in several texts"));
        }
        depth::check_tokens(tokens)?;
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

/// About how many bytes a text needs until it is planned, to bound the texts that are worked on at one time.
pub(crate) fn weight(text: &str) -> usize {
    let mut signs = 0;
    let mut in_word = false;
    for byte in text.bytes() {
        let word = byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        signs += usize::from(!word || !in_word);
        in_word = word;
    }
    text.len() + signs * 300
}
