//! `millstream dev`: an embedded Kafka broker, a bucket in a folder and the service in one process. The service reaches the broker over the Kafka protocol like
//! any other cluster. Owns: what is in the data folder and that one process has it, the order of start and stop. Not here: the broker (`connectors/broker`), the node, the demo ([`demo`]).

mod demo;
mod screen;

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    process::ExitCode,
};

use millstream_broker::{Broker, BrokerConfig, BrokerError, Fsync, Listener};
use millstream_config::{BrokerFsync, Config};
use millstream_types::{error::chain, runtime::Tasks};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{FAILED, complain, mention};
use crate::{
    cli::dev::DevArgs,
    node::{self, Addresses, Stage},
    runtimes, telemetry,
};

/// The host name may change between two starts on one folder.
const REPLICA: &str = "dev";
/// The broker says only that it is for development, which [`welcome`] says too.
const SHOWN: &str = "warn,millstream_broker=error";
const SHOWN_IN_DEMO: &str = "error";
/// From the stop of the broker on. The threads of the Kafka clients end a moment after their owners, and find nobody: that is no news for a person who has asked
/// for the end. The log has it all.
const SHOWN_AT_THE_END: &str = "off,millstream::telemetry=error,millstream_broker=error";
/// A log above this is moved aside at the start.
const LOG_LIMIT: u64 = 64 << 20;

pub(crate) fn run(args: &DevArgs) -> ExitCode {
    let done = prepare(args).and_then(|Prepared { config, show, _lock }| {
        let all = runtimes::run(async |tasks, stop| Box::pin(all(args, config, &show, tasks, stop)).await);
        all.unwrap_or_else(|e| Err(format!("cannot start threads or listen for signals: {e}")))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            complain(format_args!("millstream dev: {e}"));
            ExitCode::from(FAILED)
        }
    }
}

struct Prepared {
    config: Config,
    show: telemetry::Show,
    /// Held to the end.
    _lock: File,
}

fn cannot(path: &Path, e: std::io::Error) -> String {
    format!("cannot use {}: {e}", path.display())
}

/// One process at a time in a data folder. The broker has a lock of its own, which is taken too late for the log.
fn lock(data: &Path) -> Result<File, String> {
    let path = data.join("dev.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| cannot(&path, e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(format!("{} is in use by another process; choose another one: --data DIR", data.display()))
        }
        Err(TryLockError::Error(e)) => Err(cannot(&path, e)),
    }
}

/// Makes the data folder, takes it, and then opens the log.
fn prepare(args: &DevArgs) -> Result<Prepared, String> {
    fs::create_dir_all(&args.data).map_err(|e| cannot(&args.data, e))?;
    let lock = lock(&args.data)?;
    let config = config(args)?;
    let log = args.data.join("millstream.log");
    if fs::metadata(&log).is_ok_and(|m| m.len() > LOG_LIMIT) {
        fs::rename(&log, args.data.join("millstream.log.1")).map_err(|e| cannot(&log, e))?;
    }
    let file = File::options().create(true).append(true).open(&log).map_err(|e| cannot(&log, e))?;
    let shown = if args.demo { SHOWN_IN_DEMO } else { SHOWN };
    let show = telemetry::init_file(&config.telemetry, file, shown).map_err(|e| chain(&e))?;
    Ok(Prepared { config, show, _lock: lock })
}

/// Defaults and environment, except for what makes it `dev`.
fn config(args: &DevArgs) -> Result<Config, String> {
    let mut config = Config::from_environment().map_err(|e| chain(&e))?;
    config.server.listen.set_port(args.rest_port);
    config.server.probe_listen.set_port(args.probe_port);
    config.server.data_dir.clone_from(&args.data);
    config.server.replica_id = Some(REPLICA.to_owned());
    let bucket = std::path::absolute(args.data.join("bucket")).map_err(|e| e.to_string())?;
    config.object_store.url = Some(format!("file://{}", bucket.display()).parse()?);
    if let Some(port) = args.kafka_port {
        config.broker.listen.set_port(port);
    }
    Ok(config)
}

/// Takes the broker's section out: the service has no use for it.
fn broker_config(config: &mut Config) -> BrokerConfig {
    let broker = std::mem::take(&mut config.broker);
    BrokerConfig {
        listeners: vec![Listener::new(broker.listen)],
        allow_remote: broker.allow_remote,
        fsync: match broker.fsync {
            BrokerFsync::Interval => Fsync::Interval,
            BrokerFsync::Always => Fsync::Always,
            BrokerFsync::Never => Fsync::Never,
        },
        compaction: broker.compaction,
        ..BrokerConfig::new(broker.data_dir(&config.server.data_dir))
    }
}

async fn all(
    args: &DevArgs,
    mut config: Config,
    show: &telemetry::Show,
    tasks: Tasks,
    stop: CancellationToken,
) -> Result<(), String> {
    let broker = Broker::start(broker_config(&mut config)).await.map_err(|e| broker_failed(&e))?;
    config.kafka.bootstrap_servers = broker.bootstrap();
    let place = Place { kafka: broker.bootstrap(), args };
    let (ready, mut became_ready) = watch::channel(None);
    // The channel closes with the node: whoever waits for it to be ready learns that it failed.
    let node = node::run(config, tasks, stop.clone(), move |stage, addresses| match stage {
        Stage::Starting => {}
        Stage::Ready => {
            ready.send_replace(Some(addresses));
        }
    });
    let person = async {
        let Some(addresses) = wait(&mut became_ready).await else { return Ok(()) };
        let shown = async {
            welcome(&place, addresses)?;
            if args.demo { demo::run(&place, addresses).await } else { Ok(()) }
        };
        let shown = tokio::select! {
            shown = shown => shown,
            () = stop.cancelled() => return Ok(()),
        };
        // The demo was ended by its own clock, or something failed: either way in the order of a stop.
        if args.demo || shown.is_err() {
            stop.cancel();
        }
        shown
    };
    let (node, person) = tokio::join!(Box::pin(node), Box::pin(person));
    show(SHOWN_AT_THE_END);
    let stopped = broker.stop().await.map_err(|e| chain(&e));
    node.map_err(|e| node_failed(&e)).and(person).and(stopped)
}

/// Where things are, for texts.
struct Place<'a> {
    kafka: String,
    args: &'a DevArgs,
}

async fn wait(ready: &mut watch::Receiver<Option<Addresses>>) -> Option<Addresses> {
    ready.wait_for(Option::is_some).await.ok().and_then(|found| *found)
}

fn welcome(place: &Place<'_>, addresses: Addresses) -> Result<(), String> {
    let data = place.args.data.display();
    mention(format_args!(
        "millstream dev: all in one process, for development and not for production. Ctrl-C stops it; the next start finds its data again.\n\n  \
         Kafka   {kafka}\n  REST    http://{rest}\n  probes  http://{probes}\n  data    {data}\n  log     {data}/millstream.log\n",
        kafka = place.kafka,
        rest = addresses.rest,
        probes = addresses.probes,
    ))
}

fn broker_failed(e: &BrokerError) -> String {
    match e {
        BrokerError::Listen { .. } => format!("{}; choose another port: --kafka-port N, 0 takes a free one", chain(e)),
        BrokerError::InUse { .. } => format!("{}; choose another one: --data DIR", chain(e)),
        BrokerError::Remote { .. } | BrokerError::Data { .. } | BrokerError::Runtime(_) => chain(e),
    }
}

fn node_failed(e: &node::NodeError) -> String {
    match e {
        node::NodeError::Bind { key, .. } => {
            let flag = if *key == "server.listen" { "--rest-port" } else { "--probe-port" };
            format!("{}; choose another port: {flag} N, 0 takes a free one", chain(e))
        }
        _ => chain(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_is_what_its_section_says() {
        let yaml =
            "server:\n  data_dir: here\nbroker:\n  listen: 127.0.0.1:7000\n  fsync: always\n  compaction: true\n";
        let mut config = Config::from_yaml(yaml).unwrap();
        let broker = broker_config(&mut config);
        assert_eq!(broker.data_dir, Path::new("here/broker"));
        assert_eq!(broker.listeners, [Listener::new("127.0.0.1:7000".parse().unwrap())]);
        assert_eq!((broker.fsync, broker.compaction, broker.allow_remote), (Fsync::Always, true, false));
        assert_eq!(config.broker, millstream_config::Broker::default(), "the service sees none of it");
    }
}
