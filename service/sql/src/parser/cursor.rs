//! Walks the tokens of one statement. The library's tokens and expression parser, our grammar around them.

use datafusion::sql::sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::Parser,
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer},
};

use super::statement::Name;
use crate::SqlError;

pub(crate) const DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// Tokens without white space and comments.
pub(crate) fn tokenize(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .map_err(|e| SqlError::syntax(e.message.clone()).at(e.location))?;
    Ok(tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect())
}

/// Finds byte offsets of locations, which count lines and characters.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    /// Byte offset of each line.
    lines: Vec<usize>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { text, lines }
    }

    fn offset(&self, at: Location) -> usize {
        let line = self.lines.get((at.line as usize).saturating_sub(1)).copied().unwrap_or(self.text.len());
        let rest = &self.text[line..];
        line + rest.char_indices().nth((at.column as usize).saturating_sub(1)).map_or(rest.len(), |(i, _)| i)
    }

    /// The words from the first to the last of `tokens`.
    pub(crate) fn slice(&self, tokens: &[TokenWithSpan]) -> &'a str {
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) => &self.text[self.offset(first.span.start)..self.offset(last.span.end)],
            _ => "",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) source: &'a Source<'a>,
    tokens: &'a [TokenWithSpan],
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(source: &'a Source<'a>, tokens: &'a [TokenWithSpan]) -> Self {
        Self { source, tokens, next: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.next
    }

    pub(crate) fn rewind(&mut self, position: usize) {
        self.next = position;
    }

    pub(crate) fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.next).map(|t| &t.token)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<&'a Token> {
        self.tokens.get(self.next + ahead).map(|t| &t.token)
    }

    pub(crate) fn advance(&mut self) -> Option<&'a TokenWithSpan> {
        let token = self.tokens.get(self.next)?;
        self.next += 1;
        Some(token)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    pub(crate) fn tokens(&self, from: usize, to: usize) -> &'a [TokenWithSpan] {
        &self.tokens[from..to]
    }

    /// Place of the next token, or of the end of the statement.
    pub(crate) fn location(&self) -> Location {
        match self.tokens.get(self.next) {
            Some(t) => t.span.start,
            None => self.tokens.last().map_or(Location::new(1, 1), |t| t.span.end),
        }
    }

    /// An unquoted word, whatever its case.
    pub(crate) fn peek_word(&self, word: &str) -> bool {
        self.peek_word_at(0, word)
    }

    pub(crate) fn peek_word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead),
            Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    pub(crate) fn word(&mut self, word: &str) -> bool {
        let found = self.peek_word(word);
        self.next += usize::from(found);
        found
    }

    /// All of them, or none.
    pub(crate) fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, w)| self.peek_word_at(i, w));
        if found {
            self.next += words.len();
        }
        found
    }

    pub(crate) fn symbol(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.next += usize::from(found);
        found
    }

    pub(crate) fn expect_word(&mut self, word: &str) -> Result<(), SqlError> {
        if self.word(word) { Ok(()) } else { Err(self.expected(word)) }
    }

    pub(crate) fn expect_symbol(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.symbol(token) { Ok(()) } else { Err(self.expected(&token.to_string())) }
    }

    pub(crate) fn expected(&self, what: &str) -> SqlError {
        let found = self.peek().map_or("the end of the statement".to_owned(), ToString::to_string);
        SqlError::syntax(format!("expected {what}, found {found}")).at(self.location())
    }

    pub(crate) fn expect_end(&self) -> Result<(), SqlError> {
        if self.at_end() { Ok(()) } else { Err(self.expected("the end of the statement")) }
    }

    /// A name, folded to lower case unless quoted.
    pub(crate) fn name(&mut self, what: &str) -> Result<Name, SqlError> {
        let at = self.location();
        match self.peek() {
            Some(Token::Word(w)) if !w.value.is_empty() => {
                self.next += 1;
                let value = if w.quote_style.is_some() { w.value.clone() } else { w.value.to_lowercase() };
                Ok(Name { value, at })
            }
            _ => Err(self.expected(what)),
        }
    }

    /// Name of a table, view or sink; a leading `public.` is dropped.
    pub(crate) fn object_name(&mut self) -> Result<Name, SqlError> {
        let name = self.name("a name")?;
        if !self.symbol(&Token::Period) {
            return Ok(name);
        }
        let object = self.name("a name after the dot")?;
        if name.value == "public" {
            return Ok(Name { value: object.value, at: name.at });
        }
        Err(SqlError::unsupported(
            format!("there is no schema {}", name.value),
            "write the name without a schema; all objects are in schema public",
        )
        .at(name.at))
    }

    pub(crate) fn string(&mut self) -> Option<String> {
        let text = match self.peek()? {
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => s.clone(),
            Token::DollarQuotedString(s) => s.value.clone(),
            _ => return None,
        };
        self.next += 1;
        Some(text)
    }

    /// Takes tokens up to a comma or closing bracket of the surrounding list, or up to one of `stops` after the first token.
    pub(crate) fn take_until(&mut self, stops: &[&str]) -> &'a [TokenWithSpan] {
        let from = self.next;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::Comma if depth == 0 => break,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                _ if depth == 0 && self.next > from && stops.iter().any(|s| self.peek_word(s)) => break,
                _ => {}
            }
            self.next += 1;
        }
        self.tokens(from, self.next)
    }

    /// The library's parser over the rest of the statement.
    pub(crate) fn rest_query(&mut self) -> Result<Box<ast::Query>, SqlError> {
        let at_end = self.tokens.last().map_or(Location::new(1, 1), |t| t.span.end);
        let mut parser = parser_over(self.tokens(self.next, self.tokens.len()));
        let query = parser.parse_query().map_err(|e| SqlError::from(e).at(at_end))?;
        self.finish(&mut parser)?;
        Ok(query)
    }

    pub(crate) fn rest_statement(&mut self) -> Result<ast::Statement, SqlError> {
        let at_end = self.tokens.last().map_or(Location::new(1, 1), |t| t.span.end);
        let mut parser = parser_over(self.tokens(self.next, self.tokens.len()));
        let statement = parser.parse_statement().map_err(|e| SqlError::from(e).at(at_end))?;
        self.finish(&mut parser)?;
        Ok(statement)
    }

    fn finish(&mut self, parser: &mut Parser<'_>) -> Result<(), SqlError> {
        let left = parser.peek_token();
        if left.token != Token::EOF {
            return Err(SqlError::syntax(format!("expected the end of the statement, found {}", left.token))
                .at(left.span.start));
        }
        self.next = self.tokens.len();
        Ok(())
    }
}

/// One expression that uses all of `tokens`.
pub(crate) fn expression(tokens: &[TokenWithSpan]) -> Result<ast::Expr, SqlError> {
    let at_end = tokens.last().map_or(Location::new(1, 1), |t| t.span.end);
    let mut parser = parser_over(tokens);
    let expr = parser.parse_expr().map_err(|e| SqlError::from(e).at(at_end))?;
    let left = parser.peek_token();
    if left.token == Token::EOF {
        Ok(expr)
    } else {
        Err(SqlError::syntax(format!("unexpected {}", left.token)).at(left.span.start))
    }
}

fn parser_over(tokens: &[TokenWithSpan]) -> Parser<'static> {
    Parser::new(&DIALECT).with_tokens_with_locations(tokens.to_vec())
}
