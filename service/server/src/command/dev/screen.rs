//! Standard output that is drawn again and again on a terminal, and goes on line by line elsewhere. A reader who went away is no reason to stop: what is shown
//! goes on without.

use std::{
    borrow::Cow,
    io::{self, IsTerminal},
};

use unicode_width::UnicodeWidthChar;

use crate::command::{mention, unless_closed, write_out};

/// Columns and rows of a terminal that does not tell.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

pub(crate) struct Screen {
    terminal: bool,
    /// Lines of the frame that the next one replaces.
    drawn: usize,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal(), drawn: 0 }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Replaces the frame before it on a terminal.
    pub(crate) fn frame(&mut self, lines: &[String]) -> Result<(), String> {
        let (width, height) = size();
        let mut text = String::new();
        let mut drawn = 0;
        if self.terminal && self.drawn > 0 {
            // The window may be lower by now: what went above it cannot be reached.
            text.push_str(&format!("\x1b[{}A\x1b[J", self.drawn.min(height - 1)));
        }
        // The cursor stands below the frame, in a row of its own.
        for line in lines_that_fit(lines, if self.terminal { height - 1 } else { usize::MAX }) {
            // A line that wraps would count twice.
            text.push_str(&if self.terminal { Cow::Owned(cut(line, width)) } else { Cow::Borrowed(line) });
            text.push('\n');
            drawn += 1;
        }
        self.drawn = drawn;
        unless_closed(write_out(text.as_bytes()))
    }

    /// What was drawn stays; the next frame comes below it.
    pub(crate) fn keep(&mut self) {
        self.drawn = 0;
    }

    /// Text that stays.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), String> {
        self.keep();
        mention(text)
    }
}

/// Columns and rows, of which there are two at least.
fn size() -> (usize, usize) {
    let known = |n: u16, default: usize| if n == 0 { default } else { usize::from(n) };
    rustix::termios::tcgetwinsize(io::stdout())
        .map_or((WIDTH, HEIGHT), |size| (known(size.ws_col, WIDTH), known(size.ws_row, HEIGHT).max(2)))
}

/// Of a frame that is too high the blank lines go, then the last ones.
fn lines_that_fit(lines: &[String], height: usize) -> impl Iterator<Item = &str> {
    let mut to_go = lines.len().saturating_sub(height);
    let stays = move |line: &&String| {
        let goes = to_go > 0 && line.is_empty();
        to_go -= usize::from(goes);
        !goes
    };
    lines.iter().filter(stays).map(String::as_str).take(height)
}

fn cut(line: &str, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < width
    };
    line.chars().take_while(fits).collect()
}

/// `[#####.....]  50 %`; `fraction` is clamped.
pub(crate) fn bar(fraction: f64) -> String {
    const CELLS: usize = 30;
    let fraction = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
    let full = (fraction * CELLS as f64) as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), ".".repeat(CELLS - full), fraction * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_lines_fit() {
        assert_eq!(bar(0.5), format!("[{}{}]  50 %", "#".repeat(15), ".".repeat(15)));
        assert!(bar(f64::NAN).ends_with("  0 %") && bar(7.0).ends_with("100 %"));
        assert_eq!(cut("日本語", 5), "日本");
        assert_eq!(cut("abc", 80), "abc");
    }

    #[test]
    fn a_frame_is_not_higher_than_the_window() {
        let lines = ["", "a", "", "b", "c"].map(str::to_owned);
        let fit = |height| lines_that_fit(&lines, height).collect::<Vec<_>>();
        assert_eq!(fit(9), ["", "a", "", "b", "c"]);
        assert_eq!(fit(4), ["a", "", "b", "c"]);
        assert_eq!(fit(3), ["a", "b", "c"]);
        assert_eq!(fit(2), ["a", "b"]);
    }
}
