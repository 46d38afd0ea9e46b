//! Looks at Kafka and the bucket while the node runs, so that `/readyz` and a metric say what fails and since when.

use std::{future::Future, time::Duration};

use millstream_types::error::chain;

use super::start::{Base, Parts};

/// Often enough for a person who looks at the page, rare enough to cost nothing.
const INTERVAL: Duration = Duration::from_secs(5);
/// An object that need not exist: the answer "not there" is an answer.
const PROBE_PATH: &str = "probe/health";

/// Returns when `stop` is ready.
pub(crate) async fn until(base: &Base, parts: &Parts, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => return,
            () = look(base, parts) => {}
        }
        tokio::select! {
            () = &mut stop => return,
            () = base.clock.sleep(INTERVAL) => {}
        }
    }
}

async fn look(base: &Base, parts: &Parts) {
    let timeout = base.config.kafka.request_timeout;
    let kafka = async {
        match parts.logs.admin().ping(timeout).await {
            Ok(_) => None,
            Err(e) => Some(chain(&e)),
        }
    };
    let bucket = async {
        tokio::select! {
            result = parts.bucket.head(PROBE_PATH) => result.err().map(|e| chain(&e)),
            () = base.clock.sleep(timeout) => Some(format!("no answer within {} ms", timeout.as_millis())),
        }
    };
    let (kafka, bucket) = tokio::join!(kafka, bucket);
    report(base, "kafka", kafka);
    report(base, "bucket", bucket);
}

fn report(base: &Base, part: &'static str, cause: Option<String>) {
    if base.health.report(part, cause.clone(), base.clock.now_ms()) {
        match cause {
            Some(cause) => tracing::warn!(part, error = %cause, "does not answer; reads go on with what was committed"),
            None => tracing::info!(part, "answers"),
        }
    }
}
