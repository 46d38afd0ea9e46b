//! Command line. `--help` texts are the doc comments.

#[cfg(feature = "dev")]
pub(crate) mod dev;
pub(crate) mod topic;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use topic::TopicArgs;

/// Durable tables and exactly-once views over Apache Kafka.
#[derive(Debug, Parser)]
#[command(name = "millstream", version = concat!(env!("CARGO_PKG_VERSION")), arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the service until SIGTERM or Ctrl-C.
    Serve(ServeArgs),
    /// Run statements: -c, -f, or a shell; without a terminal those of standard input.
    Sql(SqlArgs),
    /// Check the configuration, Kafka and the bucket; one line each.
    Check(CheckArgs),
    /// Everything in one process: an embedded Kafka broker, a bucket in a folder, the service. For a laptop, not for production.
    #[cfg(feature = "dev")]
    Dev(dev::DevArgs),
    /// List, create, fill and read topics of any Kafka cluster.
    Topic(TopicArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Start with all jobs paused: the way out of a crash loop.
    #[arg(long)]
    pub(crate) paused: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Statements to run.
    #[arg(short = 'c', long = "command", value_name = "QUERY", conflicts_with = "file")]
    pub(crate) query: Option<String>,
    /// File with statements and backslash commands to run; `-` is standard input.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// REST address of the service; HOST:PORT is enough.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// How rows are printed. Control characters are escaped, except in CSV that does not go to a terminal.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
    /// History of the shell. Default: `.millstream_history` in the home folder.
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Csv,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
