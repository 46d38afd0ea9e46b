//! The embedded broker as a process of its own: for tests that kill it, and for clients of other languages.
//!
//! `embedded-broker --data DIR [--port N] [--proxied LISTEN:ADVERTISED] [--fsync interval|always|never] [--compaction]
//! [--retention-interval-ms N] [--transaction-max-timeout-ms N] [--max-connections N] [--fault-socket PATH]` prints `bootstrap=127.0.0.1:PORT pid=PID` when it serves, and ends with SIGTERM or SIGINT.

use std::{io::Write, net::SocketAddr, process::ExitCode, time::Duration};

use millstream_broker::{Broker, BrokerConfig, Fsync, Listener};
use tokio::signal::unix::{SignalKind, signal};

fn parse(mut args: impl Iterator<Item = String>) -> Result<BrokerConfig, String> {
    let mut config = BrokerConfig::new("");
    while let Some(name) = args.next() {
        if name == "--compaction" {
            config.compaction = true;
            continue;
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
            _ => return Err(format!("unknown option {name}")),
        }
    }
    if config.data_dir.as_os_str().is_empty() { Err("--data DIR is missing".to_owned()) } else { Ok(config) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("embedded-broker: {e}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let config = parse(std::env::args().skip(1))?;
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
