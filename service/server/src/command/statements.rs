//! Text -> statements and backslash commands, so that each one's result is shown before the next runs. Only quotes, comments, semicolons and backslashes are
//! understood here.

/// What a text is made of, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Without its semicolon and without white space around it. `line` counts from 1.
    Statement { text: &'a str, line: usize },
    /// A command to the shell, without its backslash, up to the end of the line.
    Command(&'a str),
}

/// The pieces of `text`, and the rest after the last one that was ended.
pub(crate) fn split(text: &str) -> (Vec<Piece<'_>>, &str) {
    let bytes = text.as_bytes();
    let (mut pieces, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b';', ..] => {
                pieces.extend(statement(text, from, at));
                at += 1;
                from = at;
            }
            // SQL has no backslash outside of quotes; what stands before it is a statement without a semicolon.
            [b'\\', ..] => {
                pieces.extend(statement(text, from, at));
                let end = text[at..].find('\n').map_or(bytes.len(), |n| at + n);
                pieces.push(Piece::Command(text[at + 1..end].trim()));
                (at, from) = (end, end);
            }
            [quote @ (b'\'' | b'"'), ..] => at = after(text, at + 1, &(*quote as char).to_string()),
            [b'-', b'-', ..] => at = text[at..].find('\n').map_or(bytes.len(), |n| at + n),
            [b'/', b'*', ..] => at = after_comment(bytes, at).unwrap_or(bytes.len()),
            [b'$', ..] => at = after_dollar(text, at),
            _ => at += 1,
        }
    }
    (pieces, &text[from..])
}

/// All pieces of `text`; the last statement needs no semicolon.
pub(crate) fn all(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, rest) = split(text);
    pieces.extend(statement(text, text.len() - rest.len(), text.len()));
    pieces
}

fn statement(text: &str, from: usize, to: usize) -> Option<Piece<'_>> {
    let found = &text[from..to];
    if is_blank(found) {
        return None;
    }
    let start = from + (found.len() - found.trim_start().len());
    Some(Piece::Statement { text: found.trim(), line: 1 + text[..start].matches('\n').count() })
}

/// Only white space and comments; an open comment is not blank, because it is an error or goes on.
pub(crate) fn is_blank(text: &str) -> bool {
    let mut rest = text.trim_start();
    loop {
        rest = match rest.as_bytes() {
            [] => return true,
            [b'-', b'-', ..] => rest.split_once('\n').map_or("", |(_, after)| after),
            [b'/', b'*', ..] => match after_comment(rest.as_bytes(), 0) {
                Some(end) => &rest[end..],
                None => return false,
            },
            _ => return false,
        }
        .trim_start();
    }
}

/// The place after the next `end` at or after `at`, or the end of the text.
fn after(text: &str, at: usize, end: &str) -> usize {
    text[at..].find(end).map_or(text.len(), |n| at + n + end.len())
}

/// The place after the comment that begins at `at`, if it ends. Comments nest.
fn after_comment(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0u32;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
    None
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

    fn statements(text: &str) -> Vec<&str> {
        let of = |p| match p {
            Piece::Statement { text, .. } => text,
            Piece::Command(text) => text,
        };
        split(text).0.into_iter().map(of).collect()
    }

    #[test]
    fn semicolons_in_quotes_and_comments_end_nothing() {
        let text = "SELECT ';' ; -- a;b\nSELECT \";\" /* ; /* ; */ ; */; $q$ ; $q$; rest";
        let found = statements(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], "SELECT ';'");
        assert!(found[1].ends_with("*/"));
        assert_eq!(split(text).1, " rest");
    }

    #[test]
    fn an_open_quote_is_no_statement_yet_and_blank_ones_are_left_out() {
        assert_eq!(split("SELECT 'a;"), (vec![], "SELECT 'a;"));
        assert_eq!(split(";; -- x\n;"), (vec![], ""));
        assert!(is_blank(" /* a */ -- b"));
        assert!(!is_blank("-- a\nb"));
        assert!(!is_blank("/* a"));
        assert_eq!(all("/* a /* b */;"), [Piece::Statement { text: "/* a /* b */;", line: 1 }]);
    }

    #[test]
    fn a_backslash_ends_a_statement_and_begins_a_command_to_the_end_of_the_line() {
        let text = "\\d orders\nSELECT '\\n'\\watch 2\nSELECT 1";
        let found = all(text);
        assert_eq!(
            found,
            [
                Piece::Command("d orders"),
                Piece::Statement { text: "SELECT '\\n'", line: 2 },
                Piece::Command("watch 2"),
                Piece::Statement { text: "SELECT 1", line: 3 },
            ]
        );
    }

    #[test]
    fn a_statement_knows_its_line() {
        let found = all("SELECT 1;\n\n  -- note\n  SELECT 2");
        assert_eq!(found[1], Piece::Statement { text: "-- note\n  SELECT 2", line: 3 });
    }
}
