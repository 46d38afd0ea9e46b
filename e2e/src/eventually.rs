//! Waiting for a condition with a deadline; the failure prints the last value seen.

use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

/// Calls `probe` until it answers `Ok(T)`; `Err(seen)` is what it saw instead.
///
/// # Panics
/// After `deadline`, with `what` and the last value seen.
pub async fn eventually<T, E: Debug, F>(deadline: Duration, what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match probe().await {
            Ok(v) => return v,
            Err(seen) if start.elapsed() > deadline => panic!("not within {deadline:?}: {what}; last seen: {seen:?}"),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
