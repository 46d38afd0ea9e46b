//! Few error kinds, each with a next step for the caller. Crates keep their own enums and classify them through [`Classified`].

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};

pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// What a caller can do about an error. REST and SQL map each kind to one status in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is wrong: fix it, never retry.
    Invalid,
    /// No such object: look it up again.
    NotFound,
    /// It exists already or has moved on: re-read, then decide.
    Conflict,
    /// A newer leader epoch or producer exists; nothing was written. Close the region or job.
    Fenced,
    /// Down or slow; nothing happened. Retry with back-off.
    Unavailable,
    /// It may have happened: read back, then decide. Neither success nor failure.
    Unknown,
    /// A limit was reached: slow down, retry later.
    Exhausted,
    /// Stored bytes fail a check: quarantine that object, never the service.
    Corrupt,
    /// Our bug or a broken invariant: report it.
    Internal,
}

impl ErrorKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Fenced => "fenced",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unknown => "unknown",
            ErrorKind::Exhausted => "exhausted",
            ErrorKind::Corrupt => "corrupt",
            ErrorKind::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a caller may do the same call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    Never,
    /// Nothing happened: the same call is safe, after a back-off.
    Safe,
    /// Read back first: the call may have had its effect.
    AfterReadBack,
}

/// An error that tells its caller what to do.
pub trait Classified: Error {
    fn kind(&self) -> ErrorKind;

    fn retry(&self) -> Retry {
        match self.kind() {
            ErrorKind::Unavailable | ErrorKind::Exhausted | ErrorKind::Fenced => Retry::Safe,
            ErrorKind::Unknown => Retry::AfterReadBack,
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::Corrupt
            | ErrorKind::Internal => Retry::Never,
        }
    }
}

/// `error: cause: cause`, for the one log line at the place that handles the error. What a library repeats from its cause is told once.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let told = cause.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        next = cause.source();
    }
    // A server's answer may stand in it as it came.
    if text.contains('\n') || text.contains("<Error>") { on_one_line(&text) } else { text }
}

/// An XML error document, as S3 and its likes answer with, is reduced to its code and message; line breaks go.
fn on_one_line(text: &str) -> String {
    let tag = |name: &str| {
        let (_, after) = text.split_once(&format!("<{name}>"))?;
        after.split_once(&format!("</{name}>")).map(|(inner, _)| inner)
    };
    let document = text.find("<?xml").or_else(|| text.find("<Error>")).zip(text.rfind("</Error>"));
    let text = match (document, tag("Code"), tag("Message")) {
        (Some((start, end)), Some(code), Some(message)) if start < end => {
            format!("{}{code}: {message}{}", &text[..start], &text[end + "</Error>".len()..])
        }
        _ => text.to_owned(),
    };
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Told(&'static str, #[source] Option<Box<Told>>);

    #[test]
    fn a_chain_is_one_line_and_says_nothing_twice() {
        let cause = Told(
            "404: <?xml version=\"1.0\"?>\n<Error><Code>NoSuchBucket</Code><Message>no\nbucket</Message><Id>x</Id></Error>",
            None,
        );
        assert_eq!(chain(&Told("get x", Some(Box::new(cause)))), "get x: 404: NoSuchBucket: no bucket");
        let cause = Told("connection refused", None);
        assert_eq!(chain(&Told("get x: connection refused", Some(Box::new(cause)))), "get x: connection refused");
    }
}
