//! Why a record, or a value in it, cannot be read. Made only for bad records, so it may allocate.

use std::fmt;

use millstream_types::BadReason;

/// The bound that `BadRecord::message` promises, with room for a multi-byte character.
const MESSAGE_BYTES: usize = 1_020;
/// Of a value, so many bytes are shown in a message.
const SHOWN_BYTES: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fail(Box<Inner>);

#[derive(Debug, PartialEq, Eq)]
struct Inner {
    reason: BadReason,
    /// From the column inwards: `address.lines[3]`.
    path: String,
    message: String,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

impl Fail {
    #[cold]
    pub(crate) fn new(reason: BadReason, message: impl fmt::Display) -> Self {
        let mut message = message.to_string();
        cut(&mut message, MESSAGE_BYTES);
        Fail(Box::new(Inner { reason, path: String::new(), message }))
    }

    #[cold]
    pub(crate) fn malformed(at: usize, what: &str) -> Self {
        Fail::new(BadReason::Malformed, format_args!("{what} at byte {at}"))
    }

    #[cold]
    pub(crate) fn mismatch(expected: &str, found: &str) -> Self {
        Fail::new(BadReason::TypeMismatch, format_args!("expected {expected}, found {}", shown(found)))
    }

    #[cold]
    pub(crate) fn range(what: &str, found: &str) -> Self {
        Fail::new(BadReason::OutOfRange, format_args!("{} {what}", shown(found)))
    }

    /// Adds an outer part of the path.
    #[cold]
    pub(crate) fn inside(mut self, part: &str) -> Self {
        let joint = if self.0.path.is_empty() || self.0.path.starts_with('[') { "" } else { "." };
        self.0.path = format!("{part}{joint}{}", self.0.path);
        self
    }

    #[cfg(test)]
    pub(crate) fn reason(&self) -> BadReason {
        self.0.reason
    }

    pub(crate) fn into_parts(self) -> (BadReason, String, String) {
        (self.0.reason, self.0.path, self.0.message)
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
}

fn shown(text: &str) -> String {
    let mut text = text.to_owned();
    cut(&mut text, SHOWN_BYTES);
    text
}
