//! Standard output that is drawn again and again on a terminal, and goes on line by line elsewhere.

use std::io::{self, IsTerminal, Write};

use unicode_width::UnicodeWidthChar;

use crate::command::say;

/// Columns of a terminal that does not tell.
const WIDTH: usize = 80;

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
    pub(crate) fn frame(&mut self, lines: &[String]) {
        let width = width();
        let mut text = String::new();
        if self.terminal && self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\x1b[J", self.drawn));
        }
        for line in lines {
            // A line that wraps would count twice.
            text.push_str(&if self.terminal { cut(line, width) } else { line.clone() });
            text.push('\n');
        }
        let mut out = io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            // As for `say`: nobody looks any more.
            std::process::exit(0);
        }
        self.drawn = lines.len();
    }

    /// What was drawn stays; the next frame comes below it.
    pub(crate) fn keep(&mut self) {
        self.drawn = 0;
    }

    /// Text that stays.
    pub(crate) fn text(&mut self, text: &str) {
        say(text);
        self.keep();
    }
}

fn width() -> usize {
    rustix::termios::tcgetwinsize(io::stdout()).map_or(WIDTH, |size| match usize::from(size.ws_col) {
        0 => WIDTH,
        width => width,
    })
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
}
