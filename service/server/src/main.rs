//! The binary `millstream`: parse, run one command, exit code. 0 = done, 1 = failed, 2 = wrong usage.
//!
//! Not here: what a command does ([`command`]), how the parts of a node are wired ([`node`]).

mod build_info;
mod cli;
mod command;
mod memory;
mod node;
mod ports;
mod runtimes;
mod settings;
mod signal;
mod telemetry;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve(args) => command::serve::run(&args),
        Command::Sql(args) => command::sql::run(&args),
        Command::Check(args) => command::check::run(&args),
        #[cfg(feature = "dev")]
        Command::Dev(args) => command::dev::run(&args),
        Command::Topic(args) => command::topic::run(&args),
    }
}
