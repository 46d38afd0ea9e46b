//! Repeats requests that had no effect or may be repeated; maps errors to kinds.

use std::{error::Error as StdError, future::Future, io, time::Duration};

use ::object_store::Error;
use millstream_types::{ErrorKind, error::chain};
use rand::Rng;
use tokio::time::Instant;

use crate::StorageError;

/// Back-off with jitter.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    pub first: Duration,
    pub longest: Duration,
    /// No new attempt starts when this has passed since the first one began.
    pub total: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(10), total: Duration::from_secs(60) }
    }
}

impl RetryPolicy {
    /// The wait before attempt `n` + 1: doubled each time, of which a random half, so that many callers do not come back at once.
    pub fn wait(&self, n: u32) -> Duration {
        let full = self.first.saturating_mul(1 << n.min(16)).min(self.longest);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }

    pub(super) async fn run<T, F>(
        &self,
        op: &'static str,
        path: &str,
        mut call: impl FnMut() -> F,
    ) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let start = Instant::now();
        for attempt in 0.. {
            let source = match call().await {
                Ok(v) => return Ok(v),
                Err(e) => e,
            };
            let kind = kind_of(&source);
            let wait = self.wait(attempt);
            if kind != ErrorKind::Unavailable || start.elapsed() + wait > self.total {
                return Err(StorageError::Bucket { op, path: path.to_owned(), kind, source });
            }
            tracing::debug!(op, path, attempt, error = %source, "object store request failed, repeating");
            tokio::time::sleep(wait).await;
        }
        unreachable!("the loop ends by return")
    }
}

/// What a caller can do about it.
pub(super) fn kind_of(e: &Error) -> ErrorKind {
    match e {
        // "No such object" is an answer. Whatever else is not there (the bucket, the user) must never be taken for it: everything would look dropped.
        Error::NotFound { source, .. } if !names_an_object(&source.to_string()) => ErrorKind::Invalid,
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => ErrorKind::Conflict,
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        Error::Generic { source, .. } if refused(source.as_ref()) => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}

/// An answer without a code (to HEAD, or of a folder) is believed.
fn names_an_object(text: &str) -> bool {
    const OBJECT: [&str; 4] = ["NoSuchKey", "NoSuchVersion", "NoSuchUpload", "BlobNotFound"];
    !text.contains("<Code>") || OBJECT.iter().any(|code| text.contains(code))
}

/// Answers that will be the same the next time. The client gives status and code only as text.
fn refused(source: &(dyn StdError + 'static)) -> bool {
    const PASSING: [&str; 3] = ["RequestTimeout", "ExpiredToken", "RequestTimeTooSkewed"];
    // The library tells some causes only further down.
    let text = chain(source);
    match status(&text) {
        // Too early, conflict, time-out, too many: all pass. So do some that come with 400.
        Some(408 | 409 | 425 | 429) => false,
        Some(300..=499) => !PASSING.iter().any(|code| text.contains(code)),
        Some(_) => false,
        // A wrong region, plain HTTP where it is not allowed, a refusal inside the answer to a bulk delete, a folder that is not ours.
        None => {
            text.contains("Received redirect without LOCATION")
                || text.contains("URL scheme is not allowed")
                || text.contains("(code: AccessDenied)")
                || not_permitted(source)
        }
    }
}

fn status(text: &str) -> Option<u16> {
    let (_, after) = text.split_once("non-2xx status code: ")?;
    after.get(..3)?.parse().ok()
}

fn not_permitted(source: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(source);
    while let Some(e) = next {
        if let Some(io) = e.downcast_ref::<io::Error>()
            && matches!(
                io.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory
            )
        {
            return true;
        }
        next = e.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Error {
        Error::Generic { store: "S3", source: format!("Error performing PUT http://x/y - {text}").into() }
    }

    #[test]
    fn what_will_be_refused_again_is_not_repeated() {
        let kind = |text: &str| kind_of(&answer(text));
        let status = |code: &str| kind(&format!("Server returned non-2xx status code: {code}"));
        assert_eq!(status("400 Bad Request: <Code>AuthorizationHeaderMalformed</Code>"), ErrorKind::Invalid);
        assert_eq!(status("301 Moved Permanently: "), ErrorKind::Invalid);
        assert_eq!(kind("Received redirect without LOCATION, this normally .."), ErrorKind::Invalid);
        assert_eq!(status("400 Bad Request: <Code>RequestTimeout</Code>"), ErrorKind::Unavailable);
        assert_eq!(status("429 Too Many Requests: "), ErrorKind::Unavailable);
        assert_eq!(status("503 Service Unavailable: <Code>SlowDown</Code>"), ErrorKind::Unavailable);
        assert_eq!(kind("HTTP error: error sending request"), ErrorKind::Unavailable);
        let missing = |source: &str| Error::NotFound { path: "x".to_owned(), source: source.to_owned().into() };
        assert_eq!(kind_of(&missing("<Code>NoSuchKey</Code>")), ErrorKind::NotFound);
        assert_eq!(kind_of(&missing("404 Not Found: ")), ErrorKind::NotFound);
        for other in ["<Code>NoSuchBucket</Code>", "<Code>XAdminUserNotFound</Code>"] {
            assert_eq!(kind_of(&missing(other)), ErrorKind::Invalid);
        }
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(kind_of(&Error::Generic { store: "LocalFileSystem", source: denied.into() }), ErrorKind::Invalid);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(kind_of(&Error::Generic { store: "LocalFileSystem", source: full.into() }), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn slow_attempts_count_against_the_total() {
        let ms = Duration::from_millis;
        let policy = RetryPolicy { first: ms(1), longest: ms(1), total: ms(100) };
        let mut attempts = 0;
        let slow = || {
            attempts += 1;
            async move {
                tokio::time::sleep(ms(60)).await;
                Err::<(), _>(answer("HTTP error: operation timed out"))
            }
        };
        policy.run("get", "x", slow).await.unwrap_err();
        assert!(attempts <= 2, "{attempts} attempts of 60 ms within 100 ms");
    }
}
