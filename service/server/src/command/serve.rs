//! `millstream serve`: runtimes, log, then the node until it is told to stop.

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

use super::{FAILED, complain, load};
use crate::{cli::ServeArgs, node, telemetry};

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let mut config = match load(&args.config) {
        Ok(config) => config,
        Err(code) => return code,
    };
    config.stream.start_paused |= args.paused;
    if let Err(e) = telemetry::init(&config.telemetry) {
        complain(format_args!("millstream: {}", millstream_types::error::chain(&e)));
        return ExitCode::from(FAILED);
    }
    let (io, compute) = match (runtime("millstream-io"), runtime("millstream-compute")) {
        (Ok(io), Ok(compute)) => (io, compute),
        (Err(e), _) | (_, Err(e)) => {
            tracing::error!(error = %e, "cannot start threads");
            return ExitCode::from(FAILED);
        }
    };
    let tasks = millstream_types::runtime::Tasks::new(io.handle().clone(), compute.handle().clone());
    let result = io.block_on(Box::pin(node::run(config, tasks)));
    // What still runs is either idle or will be recovered; waiting for it would only delay the exit.
    compute.shutdown_background();
    io.shutdown_background();
    match result {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(e) => {
            tracing::error!(error = %millstream_types::error::chain(&e), "the node failed");
            ExitCode::from(FAILED)
        }
    }
}

/// Two runtimes of this kind, so that a core-bound job cannot keep heartbeats, probes and barriers from running.
fn runtime(name: &'static str) -> std::io::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()
}
