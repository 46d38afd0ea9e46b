//! SIGTERM and Ctrl-C: the first asks for a graceful stop, the second ends the process at once.

use millstream_types::runtime::Tasks;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that a signal ended, as shells count it.
const INTERRUPTED: i32 = 130;

/// The token is cancelled by the first signal.
pub(crate) fn stop_token(tasks: &Tasks) -> std::io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = CancellationToken::new();
    let stop = token.clone();
    drop(tasks.io("signals", async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let first = next().await;
        tracing::info!(signal = first, "stopping; a second signal ends the process at once");
        stop.cancel();
        let second = next().await;
        tracing::warn!(signal = second, "stopped by a second signal, the next start recovers");
        std::process::exit(INTERRUPTED);
    }));
    Ok(token)
}
