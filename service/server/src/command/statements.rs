//! Text -> statements, so that each one's result is shown before the next runs. Only quotes, comments and semicolons are understood here.

/// Statements of `text`, without their semicolons, and the rest after the last one.
pub(crate) fn split(text: &str) -> (Vec<&str>, &str) {
    let bytes = text.as_bytes();
    let (mut statements, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b';', ..] => {
                statements.push(&text[from..at]);
                at += 1;
                from = at;
            }
            [quote @ (b'\'' | b'"'), ..] => at = after(text, at + 1, &(*quote as char).to_string()),
            [b'-', b'-', ..] => at = text[at..].find('\n').map_or(bytes.len(), |n| at + n),
            [b'/', b'*', ..] => at = after_comment(bytes, at),
            [b'$', ..] => at = after_dollar(text, at),
            _ => at += 1,
        }
    }
    statements.retain(|s| !is_blank(s));
    (statements, &text[from..])
}

/// Only white space and comments.
pub(crate) fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        rest = match rest.as_bytes() {
            [] => return true,
            [b'-', b'-', ..] => rest.split_once('\n').map_or("", |(_, after)| after),
            [b'/', b'*', ..] => &rest[after_comment(rest.as_bytes(), 0)..],
            _ => return false,
        }
        .trim_start();
    }
}

/// The place after the next `end` at or after `at`, or the end of the text.
fn after(text: &str, at: usize, end: &str) -> usize {
    text[at..].find(end).map_or(text.len(), |n| at + n + end.len())
}

/// Comments nest.
fn after_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0u32;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// After `$tag$ .. $tag$`, or after the one `$`.
fn after_dollar(text: &str, at: usize) -> usize {
    let tag = text[at + 1..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let open = at + 1 + tag;
    if text.as_bytes().get(open) != Some(&b'$') {
        return at + 1;
    }
    after(text, open + 1, &text[at..=open])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        let text = "SELECT ';' ; -- a;b\nSELECT \";\" /* ; /* ; */ ; */; $q$ ; $q$; rest";
        let (statements, rest) = split(text);
        assert_eq!(statements.len(), 3);
        assert_eq!(statements[0].trim(), "SELECT ';'");
        assert!(statements[1].ends_with("*/"));
        assert_eq!(rest, " rest");
    }

    #[test]
    fn an_open_quote_is_no_statement_yet_and_blank_ones_are_left_out() {
        assert_eq!(split("SELECT 'a;"), (vec![], "SELECT 'a;"));
        assert_eq!(split(";; -- x\n;"), (vec![], ""));
        assert!(is_blank(" /* a */ -- b"));
        assert!(!is_blank("-- a\nb"));
    }
}
