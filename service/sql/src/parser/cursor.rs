//! Walks the tokens of one statement. The library's tokens and expression parser, our grammar around them.

use datafusion::sql::sqlparser::{
    ast,
    dialect::PostgreSqlDialect,
    parser::{Parser, ParserError},
    tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer},
};

use super::{depth, dialect::BoundedDialect, statement::Name};
use crate::SqlError;

pub(crate) const DIALECT: PostgreSqlDialect = PostgreSqlDialect {};

/// Bytes of text that are made into tokens in one go, white space and comments included.
const STEP: usize = 64 << 10;

/// Tokens without white space and comments, up to one more than `most`.
///
/// The library can only make all tokens of a text at once, about a hundred bytes for each sign of it. So it gets the text in steps: what it makes of one is
/// thinned out before the next one. A step ends where a token may end; one that does not (a long string, a comment) is read again with a longer step.
pub(crate) fn tokenize(source: &Source<'_>, most: usize) -> Result<Vec<TokenWithSpan>, SqlError> {
    tokens_in_steps(source, most, STEP)
}

fn tokens_in_steps(source: &Source<'_>, most: usize, shortest: usize) -> Result<Vec<TokenWithSpan>, SqlError> {
    let text = source.text;
    let mut kept: Vec<TokenWithSpan> = Vec::new();
    // the tokens of one step, behind the last one of the step before: a dot means something else behind a name
    let mut step: Vec<TokenWithSpan> = Vec::new();
    let (mut from, mut begins, mut length) = (0, Location::new(1, 1), shortest);
    while from < text.len() && kept.len() <= most {
        let to = end_of_step(text, from.saturating_add(length));
        let whole = to == text.len();
        step.drain(..step.len().saturating_sub(1));
        let before = step.len();
        let made = Tokenizer::new(&DIALECT, &text[from..to]).tokenize_with_location_into_buf(&mut step);
        match made {
            Err(e) if whole => return Err(SqlError::syntax(e.message.clone()).at(moved(e.location, begins))),
            // the last token may go on behind the step
            Ok(()) if !whole => step.truncate(step.len().saturating_sub(1).max(before)),
            _ => {}
        }
        let Some(last) = step[before..].last() else {
            if whole {
                break;
            }
            // not twice as much: what is behind its end is made into tokens, too
            length = length.saturating_add(length / 8 + 1);
            continue;
        };
        let ends = moved(last.span.end, begins);
        for token in &step[before..] {
            if !matches!(token.token, Token::Whitespace(_) | Token::EOF) {
                let span = Span::new(moved(token.span.start, begins), moved(token.span.end, begins));
                kept.push(TokenWithSpan::new(token.token.clone(), span));
            }
        }
        if whole {
            break;
        }
        (from, begins, length) = (source.offset(ends), ends, shortest);
    }
    Ok(kept)
}

/// The next place where a token may end: before a blank or a comma.
fn end_of_step(text: &str, from: usize) -> usize {
    let rest = text.as_bytes().get(from..).unwrap_or_default();
    rest.iter().position(|b| matches!(b, b' ' | b'\t' | b'\n' | b',')).map_or(text.len(), |i| from + i)
}

/// A place in a step that begins at `begins`, as a place in the text.
fn moved(place: Location, begins: Location) -> Location {
    match place.line {
        0 => place,
        1 => Location::new(begins.line, begins.column + place.column - 1),
        line => Location::new(begins.line + line - 1, place.column),
    }
}

/// Finds byte offsets of locations, which count lines and characters.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    /// Line, column and byte offset of each `STRIDE`th character: neither a long line nor many lines are walked for each place in them.
    marks: Vec<(u64, u64, usize)>,
}

const STRIDE: usize = 64;

/// Characters of a name in our grammar.
const MOST_NAME: usize = 255;

impl<'a> Source<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let mut marks = Vec::with_capacity(text.len() / STRIDE + 1);
        let (mut line, mut column) = (1, 1);
        for (i, (at, c)) in text.char_indices().enumerate() {
            if i % STRIDE == 0 {
                marks.push((line, column, at));
            }
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        Self { text, marks }
    }

    fn offset(&self, at: Location) -> usize {
        let behind = self.marks.partition_point(|(line, column, _)| (*line, *column) <= (at.line, at.column));
        let Some((mut line, mut column, from)) = behind.checked_sub(1).and_then(|i| self.marks.get(i).copied()) else {
            return 0;
        };
        for (i, c) in self.text[from..].char_indices() {
            if (line, column) >= (at.line, at.column) {
                return from + i;
            }
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        self.text.len()
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What the library makes of the whole text.
    fn at_once(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
        let tokens = Tokenizer::new(&DIALECT, text).tokenize_with_location();
        let tokens = tokens.map_err(|e| SqlError::syntax(e.message.clone()).at(e.location))?;
        Ok(tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF)).collect())
    }

    #[test]
    fn steps_of_any_length_make_the_tokens_of_the_whole_text() {
        let texts = [
            "select a.b, \"a, b\".c , 'it''s, , \n x' || E'\\', ' from t -- a, comment\nwhere x >= 1.5e-3",
            "select $$ a, 'b' $$, $tag$ , $$ $tag$, $1 , :x , a::int , 1 . 2 , .5 , t. a , 'é, ü' , \"é ü\"  ,\r\n\t x",
            "/* a, /* nested, */ , */ select N'a b', B'10 1', X'ab , cd', U&'d\\0061t , a', a->>'b , c', '' , ''' , '''",
            "select 1; ; -- last, one",
            " , ",
            "",
            "   ",
            "'open, string",
            "select /* open , comment",
            "select $x$ open, $y$",
            "select \"open , name",
        ];
        for text in texts {
            let source = Source::new(text);
            let expected = at_once(text);
            for step in 1..=text.len() + 1 {
                match (tokens_in_steps(&source, usize::MAX, step), &expected) {
                    (Ok(tokens), Ok(expected)) => {
                        // equality of tokens leaves out their places
                        assert_eq!(format!("{tokens:?}"), format!("{expected:?}"), "{text} in steps of {step}");
                    }
                    (Err(e), Err(expected)) => {
                        assert_eq!(e.to_string(), expected.to_string(), "{text} in steps of {step}")
                    }
                    (got, expected) => panic!("{text} in steps of {step}: {got:?}, not {expected:?}"),
                }
            }
        }
    }

    #[test]
    fn no_more_tokens_are_made_than_are_asked_for_and_those_of_one_step() {
        let text = ",".repeat(1 << 20);
        let tokens = tokens_in_steps(&Source::new(&text), 1_000, 4 << 10).unwrap();
        assert!((1_001..=1_000 + (8 << 10)).contains(&tokens.len()), "{}", tokens.len());
    }

    #[test]
    fn offsets_are_found_in_long_lines_and_in_many_lines() {
        let text = format!("{}é{}\nend", "\n".repeat(1_000), "ü".repeat(1_000));
        let source = Source::new(&text);
        assert_eq!(source.offset(Location::new(1, 1)), 0);
        assert_eq!(source.offset(Location::new(700, 1)), 699);
        assert_eq!(source.offset(Location::new(1_001, 1)), 1_000);
        assert_eq!(source.offset(Location::new(1_001, 2)), 1_002);
        assert_eq!(source.offset(Location::new(1_002, 1)), text.len() - 3);
        assert_eq!(source.offset(Location::new(1_002, 4)), text.len());
    }
}
