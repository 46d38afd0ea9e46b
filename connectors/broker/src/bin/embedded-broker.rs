//! The embedded broker as a process of its own: for tests that kill it, and for clients of other languages. `--help` says what it takes.

use std::{io::Write, net::SocketAddr, process::ExitCode, time::Duration};

use millstream_broker::{Broker, BrokerConfig, Fsync, Listener};
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
An embedded Kafka broker of one node, for development and tests. Not for production.

Usage: embedded-broker --data DIR [OPTIONS]

It listens on 127.0.0.1 only, prints `bootstrap=127.0.0.1:PORT pid=PID` when it serves, and ends with SIGTERM or SIGINT.

  --data DIR                       where it keeps everything; one broker at a time
  --port N                         0, the default, takes a free one
  --proxied LISTEN:ADVERTISED      one more port to listen on, and the one that clients are told to come to
  --fsync interval|always|never    when records and journals are forced to the disk (default interval: journals at once, records every 100 ms)
  --compaction                     compact topics that have cleanup.policy=compact
  --retention-interval-ms N        how often retention and compaction look (default 30000)
  --transaction-max-timeout-ms N   upper limit of transaction.timeout.ms (default 900000)
  --max-connections N              (default 1000)
  --fault-socket PATH              a Unix socket for fault commands; only in a build with the feature `faults`
  -h, --help                       this text
";

/// Those with a value.
const OPTIONS: &[&str] = &[
    "--data",
    "--port",
    "--proxied",
    "--fsync",
    "--retention-interval-ms",
    "--transaction-max-timeout-ms",
    "--max-connections",
    #[cfg(feature = "faults")]
    "--fault-socket",
];

/// `None`: the caller only wants to know how.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<BrokerConfig>, String> {
    let mut config = BrokerConfig::new("");
    while let Some(name) = args.next() {
        if name == "--help" || name == "-h" {
            return Ok(None);
        }
        if name == "--compaction" {
            config.compaction = true;
            continue;
        }
        if !OPTIONS.contains(&&*name) {
            return Err(format!("unknown option {name}; --help says more"));
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = |v: &str| v.parse::<u64>().map_err(|_| format!("{name} needs a number"));
        let port = |v: &str| v.parse::<u16>().map_err(|_| format!("{name} needs a port"));
        match name.as_str() {
            "--data" => config.data_dir = value.into(),
            "--port" => config = config.port(port(&value)?),
            "--proxied" => {
                let (listen, advertised) = value.split_once(':').ok_or("--proxied needs LISTEN:ADVERTISED")?;
                let listen = SocketAddr::from(([127, 0, 0, 1], port(listen)?));
                let advertised = Some(("127.0.0.1".to_owned(), port(advertised)?));
                config.listeners.push(Listener { listen, advertised });
            }
            "--fsync" => {
                config.fsync = match value.as_str() {
                    "interval" => Fsync::Interval,
                    "always" => Fsync::Always,
                    "never" => Fsync::Never,
                    _ => return Err("--fsync is interval, always or never".to_owned()),
                }
            }
            "--retention-interval-ms" => config.retention_interval = Duration::from_millis(number(&value)?.max(1)),
            "--transaction-max-timeout-ms" => config.transaction_max_timeout = Duration::from_millis(number(&value)?),
            "--max-connections" => config.max_connections = number(&value)? as usize,
            #[cfg(feature = "faults")]
            "--fault-socket" => config.fault_socket = Some(value.into()),
            _ => return Err(format!("unknown option {name}; --help says more")),
        }
    }
    if config.data_dir.as_os_str().is_empty() {
        Err("--data DIR is missing; --help says more".to_owned())
    } else {
        Ok(Some(config))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprint!("embedded-broker: {e}");
            let mut cause = e.source();
            while let Some(e) = cause {
                eprint!(": {e}");
                cause = e.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let Some(config) = parse(std::env::args().skip(1))? else {
        std::io::stdout().write_all(HELP.as_bytes())?;
        return Ok(());
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let broker = Broker::start(config).await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "bootstrap={} pid={}", broker.bootstrap(), std::process::id())?;
    out.flush()?;
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    broker.stop().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_given_and_every_option_is_in_it() {
        let args = |words: &[&str]| parse(words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>().into_iter());
        for words in [&["--help"][..], &["-h"], &["--data", "d", "--help"]] {
            assert!(matches!(args(words), Ok(None)), "{words:?}");
        }
        for option in OPTIONS {
            assert!(HELP.contains(option), "{option}");
            assert_eq!(args(&[option]).unwrap_err(), format!("{option} needs a value"));
        }
        assert!(args(&["--nope"]).unwrap_err().contains("unknown option --nope"));
        assert!(args(&[]).unwrap_err().contains("--data"));
        assert_eq!(args(&["--data", "d"]).unwrap().unwrap().data_dir, std::path::PathBuf::from("d"));
    }
}
