//! Arguments of `millstream dev`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct DevArgs {
    /// Folder for everything: topics, tables, log. The next start finds it again.
    #[arg(long, value_name = "DIR", default_value = "millstream-data")]
    pub(crate) data: PathBuf,
    /// Port of the Kafka broker on 127.0.0.1; 0 takes a free one. Default: that of `broker.listen`, which is 9092.
    #[arg(long, value_name = "N")]
    pub(crate) kafka_port: Option<u16>,
    /// Port of REST on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8080)]
    pub(crate) rest_port: u16,
    /// Port of the probes and metrics on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8081)]
    pub(crate) probe_port: u16,
    /// Make a busy topic `orders`, a table and two views of it, and show them at work.
    #[arg(long)]
    pub(crate) demo: bool,
    /// End the demo after so many seconds of live rows, when the views were found equal to the batch result. Default: it stays until Ctrl-C.
    #[arg(long, value_name = "N", requires = "demo", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) demo_seconds: Option<u64>,
}
