//! The two runtimes of a node, and its stop by a signal.

use millstream_types::runtime::Tasks;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

/// Runs `work` with the tasks it may start and a token that SIGTERM or Ctrl-C cancels. An error means that it was not even begun.
pub(crate) fn run<T>(work: impl AsyncFnOnce(Tasks, CancellationToken) -> T) -> std::io::Result<T> {
    let (io, compute) = (runtime("millstream-io")?, runtime("millstream-compute")?);
    let tasks = Tasks::new(io.handle().clone(), compute.handle().clone());
    let done = io.block_on(Box::pin(async {
        let stop = crate::signal::stop_token(&tasks)?;
        Ok(work(tasks, stop).await)
    }));
    // What still runs is either idle or will be recovered; waiting for it would only delay the exit.
    compute.shutdown_background();
    io.shutdown_background();
    done
}

/// Two runtimes of this kind, so that a core-bound job cannot keep heartbeats, probes and barriers from running.
fn runtime(name: &'static str) -> std::io::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
}
