//! Rules over several keys, and what only serving needs. Each message names the keys and the way out.
//!
//! Not here: limits of a single key (`sections`), anything that needs a network (`millstream check`).

use crate::{
    error::{ConfigError, Problem},
    sections::{Broker, Config, Kafka},
    units::format_duration,
};

/// Names of Kafka topics are this long at most; the prefix leaves room for the rest of the name.
const MAX_PREFIX: usize = 100;

/// The characters Kafka allows in names of topics and object stores in names of objects.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        && !matches!(name, "." | "..")
}

impl Config {
    /// Checks the rules over several keys. Loading does this already; call it after changing a [`Config`] in code, such as by flags.
    pub fn validate(&self) -> Result<(), ConfigError> {
        into_result(self.problems())
    }

    /// [`Config::validate`] and the keys that have no default but are needed to serve.
    pub fn validate_serve(&self) -> Result<(), ConfigError> {
        let mut problems = self.problems();
        if self.kafka.bootstrap_servers.is_empty() {
            problems.push(Problem::new(
                "kafka.bootstrap_servers",
                "is required: give the brokers, such as `localhost:9092`",
            ));
        }
        if self.object_store.url.is_none() {
            problems.push(Problem::new("object_store.url", "is required: give a bucket, such as `s3://bucket/prefix`, or a folder, such as `file:millstream-data/bucket`"));
        }
        if self.broker != Broker::default() {
            problems.push(Problem::new(
                "broker",
                "has no effect: only `millstream dev` has an embedded broker; remove the section",
            ));
        }
        into_result(problems)
    }

    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        self.check_server(&mut problems);
        check_kafka(&self.kafka, &mut problems);
        self.check_storage(&mut problems);
        self.check_stream(&mut problems);
        check_broker(&self.broker, &mut problems);
        problems
    }

    fn check_server(&self, problems: &mut Vec<Problem>) {
        let server = &self.server;
        if !server.listen.ip().to_canonical().is_loopback() && !server.auth.allow_anonymous {
            problems.push(Problem::new(
                "server.listen",
                format!(
                    "is {}, which others can reach without a login: listen on 127.0.0.1, or set `server.auth.allow_anonymous: true` where the network keeps others out",
                    server.listen
                ),
            ));
        }
        if server.listen == server.probe_listen && server.listen.port() != 0 {
            problems.push(Problem::new("server.probe_listen", "must differ from `server.listen`"));
        }
        if server.replica_id.as_deref().is_some_and(|id| !is_plain_name(id)) {
            problems.push(Problem::new("server.replica_id", "must consist of letters, digits, `.`, `_` and `-`"));
        }
    }

    fn check_storage(&self, problems: &mut Vec<Problem>) {
        let storage = &self.storage;
        if storage.region_buffer_bytes.0.saturating_mul(2) > storage.write_buffer_bytes.0 {
            problems.push(Problem::new(
                "storage.region_buffer_bytes",
                format!(
                    "({}) must be at most half of `storage.write_buffer_bytes` ({})",
                    storage.region_buffer_bytes, storage.write_buffer_bytes
                ),
            ));
        }
        if storage.wal.max_row_bytes > storage.region_buffer_bytes {
            problems.push(Problem::new(
                "storage.wal.max_row_bytes",
                format!(
                    "({}) must be at most `storage.region_buffer_bytes` ({})",
                    storage.wal.max_row_bytes, storage.region_buffer_bytes
                ),
            ));
        }
        if storage.wal.entry_bytes > storage.wal.max_row_bytes {
            problems.push(Problem::new(
                "storage.wal.entry_bytes",
                format!(
                    "({}) must be at most `storage.wal.max_row_bytes` ({})",
                    storage.wal.entry_bytes, storage.wal.max_row_bytes
                ),
            ));
        }
        if storage.compaction.min_runs > storage.compaction.max_runs {
            problems.push(Problem::new(
                "storage.compaction.min_runs",
                format!(
                    "({}) must be at most `storage.compaction.max_runs` ({})",
                    storage.compaction.min_runs, storage.compaction.max_runs
                ),
            ));
        }
        if storage.gc.orphan_age < storage.gc.file_grace {
            problems.push(Problem::new(
                "storage.gc.orphan_age",
                format!(
                    "({}) must be at least `storage.gc.file_grace` ({})",
                    format_duration(storage.gc.orphan_age),
                    format_duration(storage.gc.file_grace)
                ),
            ));
        }
    }

    fn check_stream(&self, problems: &mut Vec<Problem>) {
        let (stream, checkpoint) = (&self.stream, &self.stream.checkpoint);
        if stream.restart_backoff_min > stream.restart_backoff_max {
            problems.push(Problem::new(
                "stream.restart_backoff_min",
                format!(
                    "({}) must be at most `stream.restart_backoff_max` ({})",
                    format_duration(stream.restart_backoff_min),
                    format_duration(stream.restart_backoff_max)
                ),
            ));
        }
        // The unknown outcome of a commit is read back while the broker still keeps the transaction.
        if checkpoint.transaction_timeout < checkpoint.commit_timeout * 2 {
            problems.push(Problem::new(
                "stream.checkpoint.transaction_timeout",
                format!(
                    "({}) must be at least twice `stream.checkpoint.commit_timeout` ({})",
                    format_duration(checkpoint.transaction_timeout),
                    format_duration(checkpoint.commit_timeout)
                ),
            ));
        }
        // An append that outlives its transaction could be acknowledged after the broker has aborted it.
        if self.storage.wal.append_deadline >= checkpoint.transaction_timeout {
            problems.push(Problem::new(
                "storage.wal.append_deadline",
                format!(
                    "({}) must be less than `stream.checkpoint.transaction_timeout` ({})",
                    format_duration(self.storage.wal.append_deadline),
                    format_duration(checkpoint.transaction_timeout)
                ),
            ));
        }
    }
}

fn check_broker(broker: &Broker, problems: &mut Vec<Problem>) {
    if !broker.listen.ip().to_canonical().is_loopback() && !broker.allow_remote {
        problems.push(Problem::new(
            "broker.listen",
            format!(
                "is {}, which others can reach without a login: listen on 127.0.0.1, or set `broker.allow_remote: true` where the network keeps others out",
                broker.listen
            ),
        ));
    }
}

fn check_kafka(kafka: &Kafka, problems: &mut Vec<Problem>) {
    if kafka.replicas == 0 {
        problems.push(Problem::new("kafka.replicas", "must be at least 1, or -1 for the broker's default"));
    }
    if !is_plain_name(&kafka.prefix) || kafka.prefix.len() > MAX_PREFIX {
        problems.push(Problem::new(
            "kafka.prefix",
            format!("must be 1 to {MAX_PREFIX} letters, digits, `.`, `_` and `-`: it starts names of topics"),
        ));
    }
    let servers = kafka.bootstrap_servers.split(',').map(str::trim);
    if !kafka.bootstrap_servers.is_empty() {
        for server in servers.filter(|server| !is_host_and_port(server)) {
            problems.push(Problem::new("kafka.bootstrap_servers", format!("has `{server}`, which is not `host:port`")));
        }
    }
    check_login(kafka, problems);
}

/// `host:port` or `[v6]:port`. Host names are checked by the resolver, not here.
fn is_host_and_port(server: &str) -> bool {
    server.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(['/', ' ']) && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

/// A login key that the protocol does not use would look as if it protected something.
fn check_login(kafka: &Kafka, problems: &mut Vec<Problem>) {
    let protocol = kafka.security_protocol;
    let sasl = [
        ("kafka.sasl_mechanism", kafka.sasl_mechanism.is_some()),
        ("kafka.sasl_username", kafka.sasl_username.is_some()),
        ("kafka.sasl_password", kafka.sasl_password.is_some()),
    ];
    for (key, given) in sasl {
        if protocol.uses_sasl() && !given {
            problems
                .push(Problem::new(key, format!("is required with `kafka.security_protocol: {}`", protocol.as_str())));
        }
        if !protocol.uses_sasl() && given {
            let wanted = if protocol.uses_tls() { "sasl_ssl" } else { "sasl_ssl (or sasl_plaintext)" };
            problems.push(Problem::new(
                key,
                format!("has no effect with `kafka.security_protocol: {}`; set {wanted}", protocol.as_str()),
            ));
        }
    }
    let tls = [
        ("kafka.ssl_ca", kafka.ssl_ca.is_some()),
        ("kafka.ssl_certificate", kafka.ssl_certificate.is_some()),
        ("kafka.ssl_key", kafka.ssl_key.is_some()),
        ("kafka.ssl_key_password", kafka.ssl_key_password.is_some()),
    ];
    for (key, _) in tls.iter().filter(|(_, given)| *given && !protocol.uses_tls()) {
        problems.push(Problem::new(
            *key,
            format!("has no effect with `kafka.security_protocol: {}`; set ssl or sasl_ssl", protocol.as_str()),
        ));
    }
    if kafka.ssl_certificate.is_some() != kafka.ssl_key.is_some() {
        problems.push(Problem::new("kafka.ssl_certificate", "and `kafka.ssl_key` only work together"));
    }
    if kafka.ssl_key_password.is_some() && kafka.ssl_key.is_none() {
        problems.push(Problem::new("kafka.ssl_key_password", "needs `kafka.ssl_key`"));
    }
}

fn into_result(problems: Vec<Problem>) -> Result<(), ConfigError> {
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid { origin: "config".to_owned(), problems }) }
}
