//! A pull reader over one JSON text: RFC 8259 to the letter, values as slices of the input.
//!
//! Numbers stay text until their column reads them, so none ever passes through a double. Nothing is allocated; a string is unescaped into a buffer of
//! the caller only if it has escapes. Nesting is limited to 64 and a text to 10,000 object members.

use millstream_types::BadReason;

use crate::fail::{Fail, Result};

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

/// Place of the first quote, backslash or control character at or after `at`. Eight bytes at a time (bit tricks from Bit Twiddling Hacks, S. E. Anderson).
#[inline]
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let x = u64::from_le_bytes(*eight);
        let quote = x ^ (ONES * b'"' as u64);
        let slash = x ^ (ONES * b'\\' as u64);
        let zero = |v: u64| v.wrapping_sub(ONES) & !v;
        let control = x.wrapping_sub(ONES * 0x20) & !x;
        let hit = (zero(quote) | zero(slash) | control) & HIGHS;
        if hit != 0 {
            // Borrows only make false hits above the first true one.
            return at + (hit.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(b) = bytes.get(at) {
        if *b == b'"' || *b == b'\\' || *b < 0x20 {
            break;
        }
        at += 1;
    }
    at
}

/// Escapes were checked by [`Cursor::string`].
fn unescape(raw: &str, out: &mut String) -> Result<()> {
    out.clear();
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest.as_bytes()[at + 1];
        let mut used = at + 2;
        let c = match code {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let (c, length) = unicode(&rest[at..])
                    .ok_or_else(|| Fail::new(BadReason::InvalidUtf8, "a surrogate without its partner in an escape"))?;
                used = at + length;
                c
            }
            other => char::from(other),
        };
        out.push(c);
        rest = &rest[used..];
    }
    out.push_str(rest);
    Ok(())
}

/// The character of `\uXXXX` or of a surrogate pair, and the length of its text.
fn unicode(text: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u32::from_str_radix(text.get(at + 2..at + 6)?, 16).ok();
    let high = unit(0)?;
    if !(0xd800..0xe000).contains(&high) {
        return Some((char::from_u32(high)?, 6));
    }
    let low = if text.get(6..8) == Some("\\u") { unit(6)? } else { return None };
    if high >= 0xdc00 || !(0xdc00..0xe000).contains(&low) {
        return None;
    }
    Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00))?, 12))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(text: &str) -> bool {
        let mut c = Cursor::new(text);
        c.skip().is_ok() && c.end().is_ok()
    }

    #[test]
    fn the_grammar_is_that_of_json() {
        for good in [
            "0",
            "-0",
            "1.5e+10",
            "[]",
            "{}",
            " [1 , 2] ",
            r#"{"a":{"b":[null,true,false]}}"#,
            r#""\u0041\n\/""#,
            "\"\u{7f}é\"",
        ] {
            assert!(accepts(good), "{good}");
        }
        for bad in [
            "",
            " ",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "[1,]",
            "[,1]",
            "{,}",
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            r#"{a:1}"#,
            "[1 2]",
            "nul",
            "truex",
            "\"\n\"",
            r#""\x""#,
            r#""\u12g4""#,
            "\"",
            "1 2",
            "{}{}",
            "\u{feff}{}",
            "'a'",
            "NaN",
            "[1}",
            "{\"a\":1]",
            "\"\u{0}\"",
        ] {
            assert!(!accepts(bad), "{bad}");
        }
    }

    #[test]
    fn nesting_and_members_are_limited() {
        assert!(accepts(&format!("{}{}", "[".repeat(64), "]".repeat(64))));
        for text in ["[".repeat(10_000), "{\"a\":".repeat(10_000), format!("{}{}", "[".repeat(65), "]".repeat(65))] {
            assert_eq!(Cursor::new(&text).skip().unwrap_err().reason(), BadReason::LimitExceeded);
        }
        let members = |n: usize| format!("{{{}}}", (0..n).map(|i| format!("\"{i}\":0")).collect::<Vec<_>>().join(","));
        assert!(accepts(&members(10_000)));
        assert_eq!(Cursor::new(&members(10_001)).skip().unwrap_err().reason(), BadReason::LimitExceeded);
    }

    #[test]
    fn strings_are_unescaped_and_surrogates_are_paired() {
        let get = |text: &str| {
            let mut c = Cursor::new(text);
            c.kind().unwrap();
            let mut s = String::new();
            c.string().unwrap().get(&mut s).map(str::to_owned)
        };
        assert_eq!(get(r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z""#).unwrap(), "a\"\\/\u{8}\u{c}\n\r\té😀z");
        for lone in [r#""\ud83d""#, r#""\ud83dx""#, r#""\ude00""#, r#""\ud83d\ud83d""#, r#""\ud83d\n""#] {
            assert_eq!(get(lone).unwrap_err().reason(), BadReason::InvalidUtf8, "{lone}");
        }
    }

    proptest! {
        #[test]
        fn it_accepts_what_serde_json_accepts(text in r#"([\[\]{},:" \\ntrue0-9.eE+-]|"[a-z\\"]*"|null|true|[0-9]{1,3}){0,12}"#) {
            let theirs = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(accepts(&text), theirs, "{}", text);
        }

        #[test]
        fn short_integers_are_exact_or_left_alone(text in "-?[0-9]{1,20}[.e]?[0-9]{0,2}") {
            let mut c = Cursor::new(&text);
            if let Some(v) = c.short_integer() {
                prop_assert_eq!(v.to_string().parse::<i64>().unwrap(), text.parse::<i64>().unwrap());
            } else {
                prop_assert_eq!(c.at, 0);
            }
        }

        #[test]
        fn the_end_of_plain_text_is_found(text in "\\PC{0,30}[\\x00-\\x22\\\\]\\PC{0,10}", from in 0_usize..5) {
            let bytes = text.as_bytes();
            let slow = (from.min(bytes.len())..bytes.len()).find(|i| matches!(bytes[*i], b'"' | b'\\') || bytes[*i] < 0x20);
            prop_assert_eq!(plain_until(bytes, from.min(bytes.len())), slow.unwrap_or(bytes.len()));
        }
    }
}
