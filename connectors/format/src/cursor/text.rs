//! The inside of JSON strings: where plain text ends, and what escapes stand for.

use millstream_types::BadReason;

use crate::fail::{Fail, Result};

/// Place of the first quote, backslash or control character at or after `at`. Eight bytes at a time (bit tricks from Bit Twiddling Hacks, S. E. Anderson).
#[inline]
pub(super) fn plain_until(bytes: &[u8], mut at: usize) -> usize {
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
pub(super) fn unescape(raw: &str, out: &mut String) -> Result<()> {
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
