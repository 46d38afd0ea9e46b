//! Text of others, made safe to look at. A control character in a value could move the cursor, hide what stands there, or make the terminal type an answer.
//!
//! Written as Rust writes them: `\u{1b}`, `\r`.

use std::borrow::Cow;

/// For one line: every control character is escaped, line ends too.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// For text of many lines: line ends and tabs stay.
pub(crate) fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && !stays(c);
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if harmful(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// As [`line`], for bytes: those that are no text are `\xff`.
pub(crate) fn bytes(bytes: &[u8]) -> String {
    of_bytes(bytes, line)
}

/// As [`lines`], for bytes.
pub(crate) fn bytes_of_lines(bytes: &[u8]) -> String {
    of_bytes(bytes, lines)
}

fn of_bytes(bytes: &[u8], of_text: fn(&str) -> Cow<'_, str>) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(&of_text(chunk.valid()));
        out.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    out
}

/// JSON text that means the same: what its writer leaves as it is (DEL and the C1 characters, which stand in strings only) is `\u009b`.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_c1) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_c1(c) { out.push_str(&format!("\\u{:04x}", c as u32)) } else { out.push(c) }
    }
    Cow::Owned(out)
}

fn is_c1(c: char) -> bool {
    ('\u{7f}'..='\u{9f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_and_not_sent() {
        assert_eq!(line("a\u{1b}[31mb\r\n\u{9b}2J\u{7f}é日"), "a\\u{1b}[31mb\\r\\n\\u{9b}2J\\u{7f}é日");
        assert_eq!(lines("a\n\tb\u{7}\r"), "a\n\tb\\u{7}\\r");
        assert!(matches!(line("plain"), Cow::Borrowed(_)));
        assert_eq!(bytes(b"k\n\xff"), "k\\n\\xff");
        assert_eq!(bytes_of_lines(b"k\n\xff\x1b"), "k\n\\xff\\u{1b}");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!("\u{1b}\u{7f}\u{9b}x");
        let text = value.to_string();
        let safe = json(&text);
        assert!(!safe.contains(char::is_control), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
