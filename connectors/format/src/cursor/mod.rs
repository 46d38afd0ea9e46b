//! A pull reader over one JSON text: RFC 8259 to the letter, values as slices of the input.
//!
//! Numbers stay text until their column reads them, so none ever passes through a double. Nothing is allocated; a string is unescaped into a buffer of
//! the caller only if it has escapes. Nesting is limited to 64 and a text to 10,000 object members.

mod text;

use millstream_types::BadReason;

use crate::fail::{Fail, Result};
use text::{plain_until, unescape};

/// Nesting of arrays and objects.
pub(crate) const MAX_DEPTH: u32 = 64;
/// Object members of one record, nested ones too.
pub(crate) const MAX_FIELDS: u32 = 10_000;

#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    fields: u32,
}

/// A string as it stands between its quotes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawStr<'a> {
    raw: &'a str,
    escaped: bool,
}

/// What the next value begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Object => "an object",
            Kind::Array => "an array",
            Kind::String => "a string",
            Kind::Number => "a number",
            Kind::True | Kind::False => "a boolean",
            Kind::Null => "null",
        }
    }
}

impl<'a> RawStr<'a> {
    /// The text, unescaped into `scratch` if needed. A surrogate without its partner is `invalid_utf8`.
    #[inline]
    pub(crate) fn get<'s>(self, scratch: &'s mut String) -> Result<&'s str>
    where
        'a: 's,
    {
        if !self.escaped {
            return Ok(self.raw);
        }
        unescape(self.raw, scratch)?;
        Ok(scratch)
    }

    /// With its escapes, without its quotes.
    pub(crate) fn as_written(self) -> &'a str {
        self.raw
    }

    /// The text if it has no escapes.
    #[inline]
    pub(crate) fn plain(self) -> Option<&'a str> {
        (!self.escaped).then_some(self.raw)
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0, fields: 0 }
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.byte() {
            self.at += 1;
        }
    }

    #[cold]
    fn malformed(&self, what: &str) -> Fail {
        Fail::malformed(self.at, what)
    }

    /// Looks at the next value; the cursor stands at its first byte afterwards.
    #[inline]
    pub(crate) fn kind(&mut self) -> Result<Kind> {
        self.space();
        Ok(match self.byte() {
            Some(b'"') => Kind::String,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b't') => Kind::True,
            Some(b'f') => Kind::False,
            Some(b'n') => Kind::Null,
            Some(_) => return Err(self.malformed("expected a value")),
            None => return Err(self.malformed("the text ends where a value is expected")),
        })
    }

    /// Takes `true`, `false` or `null`, whose kind was seen.
    pub(crate) fn word(&mut self, kind: Kind) -> Result<()> {
        let word = match kind {
            Kind::True => "true",
            Kind::False => "false",
            _ => "null",
        };
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.malformed("expected true, false or null"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Takes a number, whose kind was seen.
    pub(crate) fn number(&mut self) -> Result<&'a str> {
        let start = self.at;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.malformed("expected a digit")),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        if let Some(b'0'..=b'9') = self.byte() {
            return Err(self.malformed("a number with a leading zero"));
        }
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<()> {
        let start = self.at;
        self.digits();
        if self.at == start { Err(self.malformed("expected a digit")) } else { Ok(()) }
    }

    /// Takes a plain integer of at most 18 digits; `None`, with the cursor unmoved, if the number is not of this form.
    #[inline]
    pub(crate) fn short_integer(&mut self) -> Option<i64> {
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        let negative = bytes[at] == b'-';
        at += usize::from(negative);
        let first = at;
        let mut value = 0_i64;
        while let Some(digit @ b'0'..=b'9') = bytes.get(at).copied() {
            if at - first == 18 {
                return None;
            }
            value = value * 10 + i64::from(digit - b'0');
            at += 1;
        }
        let odd = at == first
            || (bytes[first] == b'0' && at - first > 1)
            || matches!(bytes.get(at), Some(b'.' | b'e' | b'E'));
        if odd {
            return None;
        }
        self.at = at;
        Some(if negative { -value } else { value })
    }

    /// Takes a string, whose kind was seen.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<RawStr<'a>> {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            at = plain_until(bytes, at);
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at = self.escape(at)?;
                }
                Some(_) => return Err(Fail::malformed(at, "a control character in a string")),
                None => return Err(Fail::malformed(at, "a string without end")),
            }
        }
        self.at = at + 1;
        Ok(RawStr { raw: &self.text[start..at], escaped })
    }

    /// Checks the escape at `at` and returns the place after it.
    fn escape(&self, at: usize) -> Result<usize> {
        let bytes = self.text.as_bytes();
        match bytes.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') if bytes.get(at + 2..at + 6).is_some_and(|h| h.iter().all(u8::is_ascii_hexdigit)) => Ok(at + 6),
            _ => Err(Fail::malformed(at, "a wrong escape in a string")),
        }
    }

    /// Takes `{` or `[`, whose kind was seen.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fail::new(
                BadReason::LimitExceeded,
                format_args!("nested deeper than {MAX_DEPTH} at byte {}", self.at),
            ));
        }
        self.at += 1;
        Ok(())
    }

    /// The name of the next member, with the cursor before its value; `None` after the closing brace. `first` is true right after [`Cursor::enter`].
    #[inline]
    pub(crate) fn member(&mut self, first: bool) -> Result<Option<RawStr<'a>>> {
        if !self.element(first, b'}')? {
            return Ok(None);
        }
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err(Fail::new(BadReason::LimitExceeded, format_args!("more than {MAX_FIELDS} fields")));
        }
        if self.byte() != Some(b'"') {
            return Err(self.malformed("expected a field name"));
        }
        let name = self.string()?;
        self.space();
        if self.byte() != Some(b':') {
            return Err(self.malformed("expected a colon"));
        }
        self.at += 1;
        Ok(Some(name))
    }

    /// Whether an array has a next element, with the cursor before it; otherwise the closing bracket was taken.
    pub(crate) fn item(&mut self, first: bool) -> Result<bool> {
        self.element(first, b']')
    }

    #[inline]
    fn element(&mut self, first: bool, close: u8) -> Result<bool> {
        self.space();
        match self.byte() {
            Some(b) if b == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                self.space();
                // `member` and `kind` refuse a closing bracket here, so a comma at the end is malformed.
                Ok(true)
            }
            Some(_) if first => Ok(true),
            Some(_) => Err(self.malformed("expected a comma or the end of an array or object")),
            None => Err(self.malformed("the text ends inside an array or object")),
        }
    }

    /// Takes any value, checking it, and returns its text.
    pub(crate) fn skip(&mut self) -> Result<&'a str> {
        let kind = self.kind()?;
        let start = self.at;
        match kind {
            Kind::String => {
                self.string()?;
            }
            Kind::Number => {
                self.number()?;
            }
            Kind::True | Kind::False | Kind::Null => self.word(kind)?,
            Kind::Object => {
                self.enter()?;
                let mut first = true;
                while self.member(first)?.is_some() {
                    first = false;
                    self.skip()?;
                }
            }
            Kind::Array => {
                self.enter()?;
                let mut first = true;
                while self.item(first)? {
                    first = false;
                    self.skip()?;
                }
            }
        }
        Ok(&self.text[start..self.at])
    }

    /// Fails unless only white space is left: a payload is exactly one value, so two broken halves never pair up.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<()> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.malformed("something after the end of the value")) }
    }

    /// A cursor over a value that was taken from this text, with the depth it was found at.
    pub(crate) fn over(&self, value: &'a str) -> Cursor<'a> {
        Cursor { text: value, at: 0, depth: self.depth, fields: 0 }
    }
}

#[cfg(test)]
mod tests;
