//! The graceful stop: no new requests, a last checkpoint, the flushes that fit, all within `server.shutdown_grace`. Whatever is cut off here is a crash that
//! the next start recovers from.

use std::time::Duration;

use millstream_admin::Phase;
use tokio::task::JoinHandle;

use super::start::{Base, Parts};

pub(crate) async fn stop(base: &Base, parts: &Parts, rest: JoinHandle<Option<()>>) {
    base.health.set_phase(Phase::Stopping);
    let begun = base.clock.now_ms();
    let grace = base.config.server.shutdown_grace;
    let left = || grace.saturating_sub(Duration::from_millis(base.clock.now_ms().saturating_sub(begun)));
    // Half of the grace for the commits in flight: they save the most work. Requests end meanwhile.
    let streams = parts.stream.shutdown(grace / 2);
    let requests = bounded("requests", grace / 2, rest);
    tokio::join!(streams, requests);
    // A flush saves only replay time: it gets what is left, short of the time that closing takes.
    let flush_time = left().saturating_sub(Duration::from_secs(1));
    bounded("flush", flush_time, parts.engine.flush_all()).await;
    bounded("storage", left().max(Duration::from_secs(1)), parts.engine.stop()).await;
}

/// Waits at most `limit`. What does not end by then is no loss: it is as if the process had crashed.
pub(crate) async fn bounded<T>(what: &'static str, limit: Duration, work: impl Future<Output = T>) {
    if tokio::time::timeout(limit, work).await.is_err() {
        tracing::info!(
            what,
            limit_ms = limit.as_millis() as u64,
            "did not end within the grace, the next start recovers"
        );
    }
}
