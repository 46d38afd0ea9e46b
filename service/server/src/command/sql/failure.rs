//! A failed statement as text: the message, the line with a mark under the place, the way out.

use super::client::{Failure, Refusal};
use crate::command::escape;

/// Characters of a long line that are shown before and after the place.
const BEFORE: usize = 40;
const AFTER: usize = 60;

/// `first_line` is the line of the script that the statement begins at.
pub(crate) fn show(failure: &Failure, statement: &str, first_line: usize) -> String {
    let refusal = match failure {
        Failure::NoAnswer(text) => return format!("error: {}", escape::lines(text)),
        Failure::Refused(refusal) => refusal,
    };
    // Messages quote values.
    let mut text = format!("error: {} ({})", escape::lines(&refusal.message), escape::line(&refusal.error_code));
    if let Some(marked) = marked(refusal, statement, first_line) {
        text.push('\n');
        text.push_str(&marked);
    }
    // A cause that the message holds already says nothing new.
    if let Some(cause) = refusal.details.cause.as_ref().filter(|c| !refusal.message.contains(c.as_str())) {
        text.push_str(&format!("\ncause: {}", escape::lines(cause)));
    }
    if let Some(hint) = &refusal.details.hint {
        text.push_str(&format!("\nhint: {}", escape::lines(hint)));
    }
    text
}

fn marked(refusal: &Refusal, statement: &str, first_line: usize) -> Option<String> {
    let (line, column) = (refusal.details.line?, refusal.details.column?.checked_sub(1)?);
    let shown: Vec<char> = statement.lines().nth(line.checked_sub(1)?)?.chars().map(printable).collect();
    // An error at the end of the text stands behind its last character.
    let column = column.min(shown.len());
    let from = column.saturating_sub(BEFORE);
    let to = shown.len().min(column + AFTER);
    let (head, tail) = (if from > 0 { "…" } else { "" }, if to < shown.len() { "…" } else { "" });
    let label = format!("LINE {}: {head}", first_line + line - 1);
    let before: String = shown[from..column].iter().collect();
    let width = unicode_width::UnicodeWidthStr::width(format!("{label}{before}").as_str());
    let after: String = shown[column..to].iter().collect();
    Some(format!("{label}{before}{after}{tail}\n{}^", " ".repeat(width)))
}

/// A tab has no fixed width.
fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

#[cfg(test)]
mod tests {
    use super::{super::client::Details, *};

    fn refused(line: usize, column: usize) -> Failure {
        Failure::Refused(Box::new(Refusal {
            error_code: "NO_SUCH_COLUMN".to_owned(),
            message: "there is no column x".to_owned(),
            details: Details { line: Some(line), column: Some(column), hint: Some("write y".to_owned()), cause: None },
        }))
    }

    #[test]
    fn the_place_is_marked_in_its_line() {
        let text = show(&refused(2, 8), "SELECT y,\n       x\nFROM t", 5);
        assert_eq!(
            text,
            "error: there is no column x (NO_SUCH_COLUMN)\nLINE 6:        x\n               ^\nhint: write y"
        );
    }

    #[test]
    fn control_characters_in_a_message_are_escaped() {
        let Failure::Refused(mut refusal) = refused(9, 9) else { panic!() };
        refusal.message = "cannot read '\u{1b}[2J'".to_owned();
        let text = show(&Failure::Refused(refusal), "SELECT 1", 1);
        assert!(text.starts_with("error: cannot read '\\u{1b}[2J' (NO_SUCH_COLUMN)"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place_and_a_place_outside_the_text_is_left_out() {
        let statement = format!("SELECT {}x{}", "a,".repeat(100), ",b".repeat(100));
        let text = show(&refused(1, 208), &statement, 1);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("LINE 1: …") && lines[1].ends_with('…') && lines[1].chars().count() < 120);
        let at = lines[2].chars().count() - 1;
        assert_eq!(lines[1].chars().nth(at), Some('x'));
        assert!(!show(&refused(9, 1), "SELECT 1", 1).contains("LINE"));
        assert!(show(&refused(1, 99), "SELECT 1", 1).ends_with("SELECT 1\n                ^\nhint: write y"));
    }
}
