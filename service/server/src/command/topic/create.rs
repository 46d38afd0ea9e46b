//! `millstream topic create`. Owns: what is said when the cluster refuses.

use std::process::ExitCode;

use millstream_types::{Classified, Created, ErrorKind, LogError, TopicSpec, error::chain};

use super::Cluster;
use crate::{cli::topic::CreateArgs, command::answer};

/// As brokers have it.
const LONGEST_NAME: usize = 249;

pub(crate) async fn run(cluster: &Cluster, args: &CreateArgs) -> Result<ExitCode, String> {
    if let Some(wrong) = wrong_name(&args.topic) {
        return Err(format!("{:?} is no name for a topic: {wrong}", args.topic));
    }
    let spec = TopicSpec {
        name: args.topic.clone(),
        partitions: args.partitions,
        replicas: args.replicas,
        config: args.topic_config.iter().cloned().collect(),
    };
    match cluster.logs.admin().create(&spec).await.map_err(|e| refused(cluster, &spec, &e))? {
        Created::New => {
            let plural = if args.partitions == 1 { "" } else { "s" };
            answer(format_args!("created topic {} with {} partition{plural}", args.topic, args.partitions))
        }
        Created::Existed if args.if_not_exists => answer(format_args!("topic {} is there already", args.topic)),
        Created::Existed => Err(format!("topic {:?} is there already", args.topic)),
    }
}

/// Brokers answer a wrong name with a bare code.
fn wrong_name(name: &str) -> Option<String> {
    let strange = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')));
    match (name, strange) {
        ("", _) => Some("it is empty".to_owned()),
        ("." | "..", _) => Some("it is reserved".to_owned()),
        (_, Some(c)) => Some(format!("{c:?} is not allowed, only letters of ASCII, digits, '.', '_' and '-'")),
        (_, None) if name.len() > LONGEST_NAME => {
            Some(format!("it has {} characters, {LONGEST_NAME} is the limit", name.len()))
        }
        (_, None) => None,
    }
}

/// The client hands on the code of the answer and not its text, so what was asked for stands beside it.
fn refused(cluster: &Cluster, spec: &TopicSpec, e: &LogError) -> String {
    if e.kind() != ErrorKind::Invalid {
        return cluster.failed(e);
    }
    let config: Vec<String> = spec.config.iter().map(|(name, value)| format!("-c {name}={value}")).collect();
    let replicas = if spec.replicas < 0 { "the default".to_owned() } else { spec.replicas.to_string() };
    let asked = format!(
        "--partitions {}, --replicas {replicas}, {}",
        spec.partitions,
        if config.is_empty() { "no -c".to_owned() } else { config.join(" ") }
    );
    let text = chain(e);
    let remedy = if text.contains("InvalidConfig") {
        "is each -c a setting of topics, with a value that it can have?"
    } else if text.contains("InvalidPartitions") {
        "the cluster does not allow so many partitions"
    } else if text.contains("InvalidReplicationFactor") {
        "there cannot be more replicas than brokers that are up"
    } else if text.contains("Authorization") {
        "the user needs Create on the topic or the cluster"
    } else {
        "the broker's log tells more"
    };
    format!("{text}; asked for {asked}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_broker_takes_is_told_with_the_reason() {
        for good in ["orders", "a.b_c-1", &"x".repeat(LONGEST_NAME)] {
            assert_eq!(wrong_name(good), None);
        }
        assert!(wrong_name("or ders").unwrap().starts_with("' ' is not allowed"));
        assert!(wrong_name("über").unwrap().contains("'ü'"));
        assert!(wrong_name("..").is_some() && wrong_name("").is_some());
        assert!(wrong_name(&"x".repeat(250)).unwrap().contains("249"));
    }
}
