//! `millstream serve`: log, then the node until it is told to stop.

use std::process::ExitCode;

use millstream_types::error::chain;

use super::{FAILED, complain, load, mention};
use crate::{
    cli::ServeArgs,
    node::{self, Addresses, Stage},
    runtimes, telemetry,
};

pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let mut config = match load(&args.config) {
        Ok(config) => config,
        Err(code) => return code,
    };
    config.stream.start_paused |= args.paused;
    if let Err(e) = telemetry::init(&config.telemetry) {
        complain(format_args!("millstream: {}", chain(&e)));
        return ExitCode::from(FAILED);
    }
    match runtimes::run(async |tasks, stop| Box::pin(node::run(config, tasks, stop, announce)).await) {
        Ok(Ok(())) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Ok(Err(e)) => {
            tracing::error!(error = %chain(&e), "the node failed");
            ExitCode::from(FAILED)
        }
        Err(e) => {
            tracing::error!(error = %e, "cannot start threads or listen for signals");
            ExitCode::from(FAILED)
        }
    }
}

/// Standard output holds these lines only: a script waits for them. Nobody reading them is no reason to stop.
fn announce(stage: Stage, addresses: Addresses) {
    let word = match stage {
        Stage::Starting => "starting",
        Stage::Ready => "ready",
    };
    let line = format_args!("millstream {word} rest=http://{} probes=http://{}", addresses.rest, addresses.probes);
    if let Err(error) = mention(line) {
        tracing::warn!(error, stage = word, "a script that waits for this stage will not hear of it");
    }
}
