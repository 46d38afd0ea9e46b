//! Arguments of `millstream topic`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct TopicArgs {
    #[command(subcommand)]
    pub(crate) command: TopicCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Topics with partitions and records; with a name its partitions and offsets.
    List(ListArgs),
    /// Create a topic.
    Create(CreateArgs),
    /// Write a record per line of a file or of standard input.
    Produce(ProduceArgs),
    /// Print the records of a topic, up to its end or as they come.
    Consume(ConsumeArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Brokers to ask first, parted by commas. Default: those of --config, else localhost:9092.
    #[arg(short = 'b', long, value_name = "HOST:PORT", global = true)]
    pub(crate) bootstrap: Option<String>,
    /// Configuration file of the service: its section `kafka` is used.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// A client property by its librdkafka name, such as `security.protocol=ssl`. May be repeated.
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE", value_parser = pair, global = true)]
    pub(crate) properties: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// These topics only, one line for each partition.
    #[arg(value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// The topics' configuration too.
    #[arg(long)]
    pub(crate) configs: bool,
    /// Topics that belong to Kafka (`__..`) too.
    #[arg(long)]
    pub(crate) internal: bool,
    /// How the list is printed.
    #[arg(long, value_enum, default_value_t = crate::cli::Output::Table)]
    pub(crate) output: crate::cli::Output,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Name of the topic.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Number of partitions.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=100_000))]
    pub(crate) partitions: i32,
    /// Replicas of each partition; -1 is the cluster's default.
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-1..=32_767))]
    pub(crate) replicas: i32,
    /// Configuration of the topic, such as `retention.ms=86400000`. May be repeated.
    #[arg(short = 'c', long = "topic-config", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) topic_config: Vec<(String, String)>,
    /// Succeed if there is such a topic already.
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ProduceArgs {
    /// Name of the topic.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: String,
    /// File with a record per line. Default: standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// What stands between key and value in a line; `\t` is a tab. Without it a line is a value without a key.
    #[arg(short = 'K', long, value_name = "TEXT")]
    pub(crate) key_separator: Option<String>,
    /// Key of all records.
    #[arg(short = 'k', long, value_name = "TEXT", conflicts_with = "key_separator")]
    pub(crate) key: Option<String>,
    /// An empty value is a tombstone: it deletes the key.
    #[arg(short = 'Z', long)]
    pub(crate) tombstones: bool,
    /// Header of all records. May be repeated.
    #[arg(short = 'H', long = "header", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) headers: Vec<(String, String)>,
    /// Partition of all records. Default: by the key, as Java clients do; without a key one after the other.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Option<i32>,
    /// Print partition and offset of each record once all in-sync replicas have it. (They are awaited in any case, and if nobody reads the output any more.)
    #[arg(long)]
    pub(crate) acks: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConsumeArgs {
    /// Name of the topic.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: String,
    /// Where to begin: beginning, end, an offset, -N (the last N records of each partition) or a time as `2026-11-30T10:00:00Z`.
    #[arg(short = 'o', long, value_name = "PLACE", default_value = "beginning", allow_hyphen_values = true, value_parser = crate::command::topic::place::parse)]
    pub(crate) from: crate::command::topic::place::Place,
    /// This partition only. May be repeated.
    #[arg(short, long = "partition", value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partitions: Vec<i32>,
    /// End after so many records.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Go on at the end of the topic and wait for more.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Fail when nothing was heard from the cluster for so many seconds before the end is reached.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, conflicts_with = "follow", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,
    /// Whether records of open and aborted transactions are shown.
    #[arg(long, value_enum, default_value_t = Isolation::Committed)]
    pub(crate) isolation: Isolation,
    /// How a record is printed.
    #[arg(long, value_enum, default_value_t = RecordOutput::Text)]
    pub(crate) output: RecordOutput,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// Only what is committed.
    #[value(name = "read_committed")]
    Committed,
    /// Everything that was written.
    #[value(name = "read_uncommitted")]
    Uncommitted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordOutput {
    /// Partition, offset, time, key, value and headers, parted by tabs.
    Text,
    /// An object per line; what is not UTF-8 is {"base64": ".."}.
    Json,
    /// The value alone, as it is except on a terminal; tombstones are left out.
    Value,
}

/// `NAME=VALUE`.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}
