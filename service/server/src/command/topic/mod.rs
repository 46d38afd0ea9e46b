//! `millstream topic`: a Kafka tool for people who have none at hand. Owns: which cluster. Each command is a file; results go to standard output, everything
//! else to standard error.

mod consume;
mod create;
mod delivery;
mod last;
mod list;
pub(crate) mod place;
mod produce;
mod record;

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc};

use millstream_config::Config;
use millstream_kafka::{KafkaCluster, KafkaError, KafkaOptions, Secret};
use millstream_types::{Classified, ErrorKind, LogError, LogSystem, error::chain};

use super::{FAILED, complain, escape};
use crate::{
    cli::{
        TopicArgs,
        topic::{ClusterArgs, Isolation, TopicCommand},
    },
    settings,
};

const DEFAULT_BOOTSTRAP: &str = "localhost:9092";

pub(crate) fn run(args: &TopicArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            complain(format_args!("millstream topic: {e}"));
            return ExitCode::from(FAILED);
        }
    };
    let done = runtime.block_on(Box::pin(command(args)));
    // librdkafka's threads may still wait for a broker that is not there.
    runtime.shutdown_background();
    done.unwrap_or_else(|e| {
        complain(format_args!("error: {}", escape::lines(&e)));
        ExitCode::from(FAILED)
    })
}

/// The cluster that a command works on.
struct Cluster {
    logs: Arc<dyn LogSystem>,
    /// Where it was looked for.
    bootstrap: String,
    /// Properties of the client that the user has set.
    properties: BTreeMap<String, String>,
}

impl Cluster {
    /// A failed call as a sentence: what was tried, why it failed, and, if nobody answered, where and what to look at.
    fn failed(&self, e: &LogError) -> String {
        match e.kind() {
            ErrorKind::Unavailable => self.unreachable(&chain(e)),
            _ => chain(e),
        }
    }

    fn unreachable(&self, what: &str) -> String {
        format!(
            "{what}; asked at {}: is that the right address (--bootstrap HOST:PORT or --config FILE), does a broker listen there, and do the security properties (-X) fit it?",
            self.bootstrap
        )
    }
}

async fn command(args: &TopicArgs) -> Result<ExitCode, String> {
    match &args.command {
        TopicCommand::List(args) => list::run(&connect(&args.cluster, false)?, args).await,
        TopicCommand::Create(args) => create::run(&connect(&args.cluster, false)?, args).await,
        TopicCommand::Produce(args) => produce::run(&connect(&args.cluster, false)?, args).await,
        TopicCommand::Consume(args) => {
            consume::run(&connect(&args.cluster, args.isolation == Isolation::Uncommitted)?, args).await
        }
    }
}

fn connect(args: &ClusterArgs, read_uncommitted: bool) -> Result<Cluster, String> {
    let options = options(args, read_uncommitted)?;
    let (bootstrap, properties) = (options.bootstrap_servers.clone(), options.passthrough.clone());
    Ok(Cluster { logs: KafkaCluster::connect(options).map_err(|e| chain(&e))?, bootstrap, properties })
}

fn options(args: &ClusterArgs, read_uncommitted: bool) -> Result<KafkaOptions, String> {
    let mut options = match &args.config {
        Some(path) => of_config(path)?,
        None => KafkaOptions { client_id: "millstream-topic".to_owned(), ..KafkaOptions::new(DEFAULT_BOOTSTRAP) },
    };
    if let Some(bootstrap) = &args.bootstrap {
        options.bootstrap_servers.clone_from(bootstrap);
    }
    options.read_uncommitted = read_uncommitted;
    for (name, value) in &args.properties {
        set(&mut options, name, value).map_err(|e| chain(&e))?;
    }
    Ok(options)
}

fn of_config(path: &Path) -> Result<KafkaOptions, String> {
    let config = Config::load(path).map_err(|e| chain(&e))?;
    let options = settings::kafka(&config).map_err(|e| chain(&e))?;
    if options.bootstrap_servers.is_empty() {
        return Err(format!("{} has no `kafka.bootstrap_servers`", path.display()));
    }
    Ok(options)
}

/// A librdkafka property. Those of the connection have fields of their own; the others are checked when the client is made.
fn set(options: &mut KafkaOptions, name: &str, value: &str) -> Result<(), KafkaError> {
    let security = &mut options.security;
    let text = || Some(value.to_owned());
    match name {
        "bootstrap.servers" | "metadata.broker.list" => options.bootstrap_servers = value.to_owned(),
        "client.id" => options.client_id = value.to_owned(),
        "client.rack" => options.client_rack = text(),
        "security.protocol" => security.protocol = value.parse()?,
        "sasl.mechanism" | "sasl.mechanisms" => security.sasl_mechanism = text(),
        "sasl.username" => security.sasl_username = text(),
        "sasl.password" => security.sasl_password = Some(Secret::new(value)),
        "ssl.ca.location" | "ssl.ca.pem" => security.ssl_ca = text(),
        "ssl.certificate.location" | "ssl.certificate.pem" => security.ssl_certificate = text(),
        "ssl.key.location" | "ssl.key.pem" => security.ssl_key = Some(Secret::new(value)),
        "ssl.key.password" => security.ssl_key_password = Some(Secret::new(value)),
        "ssl.endpoint.identification.algorithm" => security.ssl_verify_hostname = value != "none",
        _ => {
            options.passthrough.insert(name.to_owned(), value.to_owned());
        }
    }
    Ok(())
}

/// What a missing topic needs.
fn missing(topic: &str) -> String {
    format!(
        "there is no topic {topic:?}: `millstream topic list` shows those that are there, `millstream topic create {topic}` makes it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(properties: &[(&str, &str)]) -> ClusterArgs {
        ClusterArgs {
            bootstrap: None,
            config: None,
            properties: properties.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        }
    }

    #[test]
    fn properties_reach_the_field_or_the_client_that_knows_them() {
        let found = options(
            &args(&[
                ("security.protocol", "sasl_ssl"),
                ("sasl.mechanism", "PLAIN"),
                ("sasl.username", "me"),
                ("sasl.password", "secret"),
                ("ssl.endpoint.identification.algorithm", "none"),
                ("linger.ms", "7"),
            ]),
            false,
        )
        .unwrap();
        found.validate().unwrap();
        assert_eq!(found.bootstrap_servers, DEFAULT_BOOTSTRAP);
        assert_eq!(found.passthrough.get("linger.ms").map(String::as_str), Some("7"));
        assert!(!found.security.ssl_verify_hostname);
        assert!(!format!("{found:?}").contains("secret"));
    }

    #[test]
    fn wrong_properties_are_refused_with_a_reason() {
        let refused = |name, value| match options(&args(&[(name, value)]), false) {
            Ok(options) => options.validate().map_err(|e| chain(&e)).unwrap_err(),
            Err(e) => e,
        };
        assert!(refused("lingr.ms", "1").contains("did you mean linger.ms"));
        assert!(refused("acks", "0").contains("always all"));
        assert!(refused("security.protocol", "tls").contains("plaintext, ssl"));
    }

    #[test]
    fn the_configuration_names_the_cluster_and_bootstrap_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.yaml");
        std::fs::write(&file, "kafka:\n  bootstrap_servers: one:1\n").unwrap();
        let mut args = ClusterArgs { config: Some(file.clone()), ..args(&[]) };
        assert_eq!(options(&args, true).unwrap().bootstrap_servers, "one:1");
        args.bootstrap = Some("two:2".to_owned());
        assert_eq!(options(&args, true).unwrap().bootstrap_servers, "two:2");
        std::fs::write(&file, "version: 1\n").unwrap();
        args.bootstrap = None;
        assert!(options(&args, true).unwrap_err().contains("kafka.bootstrap_servers"));
    }
}
