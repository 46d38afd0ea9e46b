//! Walks the tokens of one statement. The library's tokens and expression parser, our grammar around them.

use datafusion::sql::sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::{Location, Token, TokenWithSpan, Tokenizer},
};

use super::{depth, dialect::BoundedDialect, statement::Name};
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
    /// For each line the byte offset of its first character, and of each `STRIDE`th after it: a long line is not walked for each place in it.
    lines: Vec<Vec<usize>>,
}

const STRIDE: usize = 64;

/// Characters of a name in our grammar.
const MOST_NAME: usize = 255;

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut lines = vec![vec![0]];
        let mut in_line = 0;
        for (at, c) in text.char_indices() {
            in_line += 1;
            if c == '\n' {
                lines.push(vec![at + 1]);
                in_line = 0;
            } else if in_line % STRIDE == 0 {
                lines.last_mut().expect("there is a first line").push(at + c.len_utf8());
            }
        }
        Self { text, lines }
    }

    fn offset(&self, at: Location) -> usize {
        let Some(line) = self.lines.get((at.line as usize).saturating_sub(1)) else { return self.text.len() };
        let column = (at.column as usize).saturating_sub(1);
        let Some(mark) = line.get(column / STRIDE) else { return self.text.len() };
        let rest = &self.text[*mark..];
        mark + rest.char_indices().nth(column % STRIDE).map_or(rest.len(), |(i, _)| i)
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
                let chars = w.value.chars().take(MOST_NAME + 1).count();
                if chars > MOST_NAME {
                    return Err(SqlError::invalid(format!("{what} has more than {MOST_NAME} characters")).at(at));
                }
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
        let tokens = self.tokens(self.next, self.tokens.len());
        let dialect = BoundedDialect::of(tokens.len());
        let mut parser = parser_over(&dialect, tokens);
        let query = parser.parse_query().map_err(|e| self.failed(e, &parser))?;
        self.finish(&mut parser)?;
        depth::check_tree(&query)?;
        Ok(query)
    }

    pub(crate) fn rest_statement(&mut self) -> Result<ast::Statement, SqlError> {
        let tokens = self.tokens(self.next, self.tokens.len());
        let dialect = BoundedDialect::of(tokens.len());
        let mut parser = parser_over(&dialect, tokens);
        let statement = parser.parse_statement().map_err(|e| self.failed(e, &parser))?;
        self.finish(&mut parser)?;
        depth::check_tree(&statement)?;
        Ok(statement)
    }

    fn failed(&self, error: ParserError, parser: &Parser<'_>) -> SqlError {
        placed(error, parser, self.tokens)
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
    let dialect = BoundedDialect::of(tokens.len());
    let mut parser = parser_over(&dialect, tokens);
    let expr = parser.parse_expr().map_err(|e| placed(e, &parser, tokens))?;
    let left = parser.peek_token();
    if left.token == Token::EOF {
        depth::check_tree(&expr)?;
        Ok(expr)
    } else {
        Err(SqlError::syntax(format!("unexpected {}", left.token)).at(left.span.start))
    }
}

/// Where the parser stopped, if it does not tell itself.
fn placed(error: ParserError, parser: &Parser<'_>, tokens: &[TokenWithSpan]) -> SqlError {
    let at_end = tokens.last().map_or(Location::new(1, 1), |t| t.span.end);
    let stopped = parser.peek_token();
    SqlError::from(error).at(if stopped.token == Token::EOF { at_end } else { stopped.span.start })
}

fn parser_over<'d>(dialect: &'d BoundedDialect, tokens: &[TokenWithSpan]) -> Parser<'d> {
    Parser::new(dialect).with_tokens_with_locations(tokens.to_vec())
}
