//! `millstream check`: is everything outside there, permitted and sane? One line each, with the remedy; exit code 1 if anything failed.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use millstream_config::Config;
use millstream_kafka::KafkaCluster;
use millstream_storage::{
    StorageError,
    object_store::{probe, remedy},
};
use millstream_types::{LogSystem, error::chain};

use super::{FAILED, complain, load, mention};
use crate::{cli::CheckArgs, node::wal_topic, settings};

/// One try of each check; a broker or bucket that is down must be told, not waited for.
const LIMIT: Duration = Duration::from_secs(30);

/// A bucket that fails for as long as this is told with its last error; longer than a hiccup, shorter than `LIMIT`.
const BUCKET_PATIENCE: Duration = Duration::from_secs(5);

/// What a check found: a fact, or what is wrong with the way out.
type Finding = Result<String, String>;

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    let config = match load(&args.config) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let told = tell("config", &Ok(format!("{} is valid", args.config.display())));
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            tell("runtime", &Err(e.to_string()));
            return ExitCode::from(FAILED);
        }
    };
    let good = runtime.block_on(all(&config));
    // librdkafka's threads may still wait for a broker that is not there.
    runtime.shutdown_background();
    if good && told { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

/// Whether it is good, and could be told: the exit code says the same as the lines, also to one who reads only the first.
fn tell(what: &str, finding: &Finding) -> bool {
    let told = match finding {
        Ok(fact) => mention(format_args!("ok      {what}: {fact}")),
        Err(wrong) => mention(format_args!("FAILED  {what}: {wrong}")),
    };
    if let Err(e) = &told {
        complain(format_args!("millstream check: {e}"));
    }
    finding.is_ok() && told.is_ok()
}

async fn limited(check: impl Future<Output = Finding>) -> Finding {
    tokio::time::timeout(LIMIT, check).await.unwrap_or_else(|_| {
        Err(format!("no answer within {} s; is the address right, and reachable from here?", LIMIT.as_secs()))
    })
}

async fn all(config: &Config) -> bool {
    let ports = tell("ports", &ports(config));
    let kafka = kafka(config).await;
    let bucket = limited(bucket(config)).await;
    tell("bucket", &bucket) && kafka && ports
}

/// Both are bound at the same time, as `serve` does it, and given back at once.
fn ports(config: &Config) -> Finding {
    let wanted = [("server.listen", config.server.listen), ("server.probe_listen", config.server.probe_listen)];
    let (mut held, mut wrong) = (Vec::new(), Vec::new());
    for (key, address) in wanted {
        match TcpListener::bind(address) {
            Ok(listener) => held.push(listener),
            Err(e) => wrong.push(format!("`{key}` {address}: {e}; {}", port_remedy(&e, address))),
        }
    }
    if wrong.is_empty() {
        Ok(format!("{} and {} are free", config.server.listen, config.server.probe_listen))
    } else {
        Err(wrong.join("; "))
    }
}

fn port_remedy(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another process has it, perhaps a Millstream that runs already (`ss -ltnp 'sport = :{}'` tells which): stop it or choose another port",
            address.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address: use one of its own, or 0.0.0.0 for all".to_owned()
        }
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose a higher one".to_owned(),
        _ => "choose another address".to_owned(),
    }
}

async fn kafka(config: &Config) -> bool {
    let cluster = match settings::kafka(config).and_then(KafkaCluster::connect) {
        Ok(cluster) => cluster as Arc<dyn LogSystem>,
        Err(e) => return tell("kafka", &Err(format!("{}; correct section `kafka`", chain(&e)))),
    };
    let answer = limited(reachable(cluster.as_ref(), config)).await;
    if !tell("kafka", &answer) {
        return false;
    }
    let replicas = answer.ok().and_then(|answer| too_many_replicas(&answer, config.kafka.replicas));
    let replicas = replicas.is_none_or(|wrong| tell("replicas", &Err(wrong)));
    // Both are told, also when the first one fails.
    let transactions = tell("transactions", &limited(transactions(cluster.as_ref(), config)).await);
    let wal = tell("write-ahead log", &limited(wal(cluster.as_ref(), config)).await);
    transactions && wal && replicas
}

async fn reachable(cluster: &dyn LogSystem, config: &Config) -> Finding {
    let servers = &config.kafka.bootstrap_servers;
    let answer = cluster.admin().ping(config.kafka.request_timeout).await;
    answer.map_err(|e| {
        format!("{}; is {servers} the right address (`kafka.bootstrap_servers`), reachable from here, and does `kafka.security_protocol` fit it?", chain(&e))
    })
}

/// The answer to a ping names the brokers that are up. More replicas than that: no topic can be created.
fn too_many_replicas(answer: &str, replicas: i32) -> Option<String> {
    let brokers = answer.split_once("brokers ")?.1.split(',').filter(|b| !b.trim().is_empty()).count();
    (brokers > 0 && replicas > brokers as i32).then(|| {
        format!(
            "`kafka.replicas` is {replicas}, but only {brokers} {} up, so that topics cannot be created; set `kafka.replicas: {brokers}`, or start more brokers",
            if brokers == 1 { "broker is" } else { "brokers are" }
        )
    })
}

/// A transactional id of its own: fencing the service's would stop it.
async fn transactions(cluster: &dyn LogSystem, config: &Config) -> Finding {
    let id = format!("{}.check", config.kafka.prefix);
    let mut writer = cluster.epoch_writer(&id);
    match writer.init().await {
        Ok(()) => Ok(format!("transactional id {id} can be initialised")),
        Err(e) => Err(format!(
            "{}; the user needs Write and Describe on transactional ids with prefix {}, and the cluster enough replicas for __transaction_state",
            chain(&e),
            config.kafka.prefix
        )),
    }
}

async fn wal(cluster: &dyn LogSystem, config: &Config) -> Finding {
    let topic = settings::wal_topic(config);
    match cluster.admin().describe(&topic).await {
        Ok(Some(info)) => match wal_topic::verify(&info, config.cluster.shards) {
            Ok(()) => Ok(format!("topic {topic} has {} partitions and keeps its records", info.partitions)),
            Err(wrong) => Err(format!("topic {topic}: {wrong}")),
        },
        Ok(None) => Ok(format!("topic {topic} does not exist yet, the first `millstream serve` creates it")),
        Err(e) => Err(format!("{}; the user needs Describe and DescribeConfigs on {topic}", chain(&e))),
    }
}

async fn bucket(config: &Config) -> Finding {
    let wrong = |e: &StorageError| format!("{}; {}", chain(e), remedy(e));
    let bucket = settings::bucket_within(config, BUCKET_PATIENCE).map_err(|e| wrong(e.as_ref()))?;
    match probe(&bucket).await {
        Ok(()) => Ok(format!(
            "{} can be read, written, listed and deleted from, and of several writers of one object only one wins",
            bucket.name()
        )),
        Err(e) => Err(wrong(&e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_replicas_than_brokers_are_told_with_the_number_that_works() {
        let answer = "cluster abc, brokers a:9092, b:9092";
        assert_eq!(too_many_replicas(answer, 2), None);
        let wrong = too_many_replicas(answer, 3).unwrap();
        assert!(wrong.contains("set `kafka.replicas: 2`"), "{wrong}");
        assert_eq!(too_many_replicas("a cluster that names no one", 3), None);
    }

    #[test]
    fn a_port_that_is_taken_is_told_with_its_key() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = Config::default();
        config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.server.probe_listen = config.server.listen;
        assert!(ports(&config).is_ok());
        config.server.probe_listen = taken.local_addr().unwrap();
        let wrong = ports(&config).unwrap_err();
        assert!(wrong.contains("server.probe_listen") && wrong.contains("another process has it"), "{wrong}");
        // one port for both is found, too
        drop(taken);
        config.server.listen = config.server.probe_listen;
        assert!(ports(&config).is_err());
    }
}
