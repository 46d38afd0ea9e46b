//! Repeats requests that had no effect or may be repeated; maps errors to kinds.

use std::{future::Future, time::Duration};

use ::object_store::Error;
use millstream_types::ErrorKind;
use rand::Rng;

use crate::StorageError;

/// Back-off with jitter.
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    pub first: Duration,
    pub longest: Duration,
    /// No new attempt starts after this.
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
        let mut waited = Duration::ZERO;
        for attempt in 0.. {
            let source = match call().await {
                Ok(v) => return Ok(v),
                Err(e) => e,
            };
            let kind = kind_of(&source);
            let wait = self.wait(attempt);
            if kind != ErrorKind::Unavailable || waited + wait > self.total {
                return Err(StorageError::Bucket { op, path: path.to_owned(), kind, source });
            }
            tracing::debug!(op, path, attempt, error = %source, "object store request failed, repeating");
            tokio::time::sleep(wait).await;
            waited += wait;
        }
        unreachable!("the loop ends by return")
    }
}

/// What a caller can do about it.
pub(super) fn kind_of(e: &Error) -> ErrorKind {
    match e {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. } => ErrorKind::Conflict,
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::UnknownConfigurationKey { .. } => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}
