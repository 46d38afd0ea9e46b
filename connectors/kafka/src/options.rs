//! What a connection is told: addresses, security, and the librdkafka options that a user may pass through.
//!
//! Owns: which options are ours, refused or passed, and the check of their names. Not here: client objects (`client`).

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::KafkaError;

/// A value that never shows in `Debug`, logs or errors.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    #[default]
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

impl SecurityProtocol {
    pub fn as_str(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "plaintext",
            SecurityProtocol::Ssl => "ssl",
            SecurityProtocol::SaslPlaintext => "sasl_plaintext",
            SecurityProtocol::SaslSsl => "sasl_ssl",
        }
    }

    fn uses_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }

    fn uses_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }
}

impl std::str::FromStr for SecurityProtocol {
    type Err = KafkaError;

    fn from_str(text: &str) -> Result<Self, KafkaError> {
        match text.to_ascii_lowercase().as_str() {
            "plaintext" => Ok(SecurityProtocol::Plaintext),
            "ssl" => Ok(SecurityProtocol::Ssl),
            "sasl_plaintext" => Ok(SecurityProtocol::SaslPlaintext),
            "sasl_ssl" => Ok(SecurityProtocol::SaslSsl),
            _ => Err(KafkaError::option("security.protocol", "must be plaintext, ssl, sasl_plaintext or sasl_ssl")),
        }
    }
}

/// How brokers are authenticated and how they authenticate us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Security {
    pub protocol: SecurityProtocol,
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub sasl_mechanism: Option<String>,
    pub sasl_username: Option<String>,
    pub sasl_password: Option<Secret>,
    /// PEM text or a path. `None`: the CAs of the system.
    pub ssl_ca: Option<String>,
    /// PEM text or a path; with a key this is mutual TLS.
    pub ssl_certificate: Option<String>,
    /// PEM text or a path.
    pub ssl_key: Option<Secret>,
    pub ssl_key_password: Option<Secret>,
    pub ssl_verify_hostname: bool,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            protocol: SecurityProtocol::Plaintext,
            sasl_mechanism: None,
            sasl_username: None,
            sasl_password: None,
            ssl_ca: None,
            ssl_certificate: None,
            ssl_key: None,
            ssl_key_password: None,
            ssl_verify_hostname: true,
        }
    }
}

/// Everything about one connection. [`KafkaOptions::new`] gives the defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Label of metrics and log lines. Default `kafka`.
    pub connection: String,
    /// `host:port`, separated by commas.
    pub bootstrap_servers: String,
    pub client_id: String,
    /// A rack makes reads go to the nearest replica.
    pub client_rack: Option<String>,
    pub security: Security,
    /// Options of librdkafka by their own names, checked by [`KafkaOptions::validate`].
    pub passthrough: BTreeMap<String, String>,
    /// Limit of one admin or metadata call. Default 5 s.
    pub request_timeout: Duration,
    /// Fetch memory of the connection, shared by `expected_partitions`. Default 64 MiB.
    ///
    /// librdkafka limits each partition, not the client, and takes the limit when a client is made: with more partitions than expected
    /// more memory is used. Payload bytes are counted; the client's own overhead (about 400 bytes a record) comes on top.
    pub prefetch_bytes: usize,
    /// Partitions read at once. Default 16.
    pub expected_partitions: usize,
    /// Clients among which the partitions are spread, 1 to 4. Default 1; each takes a core for decompression and CRC.
    pub readers_per_connection: usize,
    /// Readers also see records of open and aborted transactions. For people who look at a topic; the service never does.
    pub read_uncommitted: bool,
    /// The broker aborts a transaction that is open for longer. Default 60 s; lowered to the broker's limit.
    pub transaction_timeout: Duration,
    /// Time after which a slow commit is reported; `transaction_timeout` is at least twice this. Default 30 s.
    pub commit_timeout: Duration,
}

impl KafkaOptions {
    pub fn new(bootstrap_servers: impl Into<String>) -> Self {
        Self {
            connection: "kafka".into(),
            bootstrap_servers: bootstrap_servers.into(),
            client_id: "millstream".into(),
            client_rack: None,
            security: Security::default(),
            passthrough: BTreeMap::new(),
            request_timeout: Duration::from_secs(5),
            prefetch_bytes: 64 << 20,
            expected_partitions: 16,
            readers_per_connection: 1,
            read_uncommitted: false,
            transaction_timeout: Duration::from_secs(60),
            commit_timeout: Duration::from_secs(30),
        }
    }

    /// Bytes that librdkafka may hold for one partition: at least 256 KiB, so that a fetch always fits a few records.
    pub(crate) fn partition_prefetch_bytes(&self) -> usize {
        (self.prefetch_bytes / self.expected_partitions.max(1)).max(256 << 10)
    }

    /// Refuses names that are ours, dangerous or unknown, and combinations that cannot work. No I/O.
    pub fn validate(&self) -> Result<(), KafkaError> {
        if self.bootstrap_servers.trim().is_empty() {
            return Err(KafkaError::option("bootstrap.servers", "is required"));
        }
        if !(1..=4).contains(&self.readers_per_connection) {
            return Err(KafkaError::option("readers_per_connection", "must be 1 to 4"));
        }
        if self.transaction_timeout < self.commit_timeout * 2 {
            return Err(KafkaError::option("transaction_timeout", "must be at least twice commit_timeout"));
        }
        self.validate_security()?;
        self.passthrough.keys().try_for_each(|name| check_passthrough(name))
    }

    fn validate_security(&self) -> Result<(), KafkaError> {
        let s = &self.security;
        if s.protocol.uses_sasl() {
            match s.sasl_mechanism.as_deref() {
                Some("PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512") => {}
                Some("GSSAPI") => {
                    return Err(KafkaError::option("sasl.mechanism", "GSSAPI runs a shell command and is refused"));
                }
                Some("OAUTHBEARER") => {
                    return Err(KafkaError::option(
                        "sasl.mechanism",
                        "OAUTHBEARER is not built in: use PLAIN, SCRAM or mutual TLS",
                    ));
                }
                _ => return Err(KafkaError::option("sasl.mechanism", "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")),
            }
            if s.sasl_username.is_none() || s.sasl_password.is_none() {
                return Err(KafkaError::option("sasl.username", "and sasl.password are required with SASL"));
            }
        } else if s.sasl_mechanism.is_some() || s.sasl_username.is_some() || s.sasl_password.is_some() {
            return Err(KafkaError::option(
                "security.protocol",
                "must be sasl_plaintext or sasl_ssl when sasl options are given",
            ));
        }
        if !s.protocol.uses_tls() && (s.ssl_ca.is_some() || s.ssl_certificate.is_some() || s.ssl_key.is_some()) {
            return Err(KafkaError::option("security.protocol", "must be ssl or sasl_ssl when ssl options are given"));
        }
        if s.ssl_certificate.is_some() != s.ssl_key.is_some() {
            return Err(KafkaError::option("ssl.certificate", "and ssl.key belong together"));
        }
        Ok(())
    }
}

/// The kind of client that knows an option: it is given to no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Any,
    Consumer,
    Producer,
}

/// Passed through; a name that ends in `.*` stands for all names with that beginning.
const PASSED: &[(&str, For)] = &[
    ("fetch.min.bytes", For::Consumer),
    ("fetch.wait.max.ms", For::Consumer),
    ("fetch.max.bytes", For::Consumer),
    ("max.partition.fetch.bytes", For::Consumer),
    ("fetch.message.max.bytes", For::Consumer),
    ("fetch.queue.backoff.ms", For::Consumer),
    ("fetch.error.backoff.ms", For::Consumer),
    ("receive.message.max.bytes", For::Any),
    ("socket.timeout.ms", For::Any),
    ("socket.send.buffer.bytes", For::Any),
    ("socket.receive.buffer.bytes", For::Any),
    ("socket.keepalive.enable", For::Any),
    ("socket.nagle.disable", For::Any),
    ("socket.max.fails", For::Any),
    ("socket.connection.setup.timeout.ms", For::Any),
    ("connections.max.idle.ms", For::Any),
    ("reconnect.backoff.ms", For::Any),
    ("reconnect.backoff.max.ms", For::Any),
    ("retry.backoff.ms", For::Any),
    ("retry.backoff.max.ms", For::Any),
    ("broker.address.ttl", For::Any),
    ("broker.address.family", For::Any),
    ("client.dns.lookup", For::Any),
    ("metadata.max.age.ms", For::Any),
    ("metadata.recovery.strategy", For::Any),
    ("metadata.recovery.rebootstrap.trigger.ms", For::Any),
    ("topic.metadata.refresh.interval.ms", For::Any),
    ("linger.ms", For::Producer),
    ("batch.size", For::Producer),
    ("batch.num.messages", For::Producer),
    ("compression.type", For::Producer),
    ("compression.level", For::Producer),
    ("queue.buffering.max.messages", For::Producer),
    ("queue.buffering.max.kbytes", For::Producer),
    ("ssl.cipher.suites", For::Any),
    ("ssl.curves.list", For::Any),
    ("ssl.sigalgs.list", For::Any),
];

/// Ours, each with the reason a user reads. A name that ends in a dot stands for all names with that beginning.
const OWNED: &[(&str, &str)] = &[
    ("bootstrap.servers", "set kafka.bootstrap_servers"),
    ("metadata.broker.list", "set kafka.bootstrap_servers"),
    ("client.id", "set kafka.client_id"),
    ("client.rack", "set kafka.client_rack"),
    ("security.protocol", "set kafka.security_protocol"),
    ("sasl.mechanism", "set kafka.sasl_mechanism"),
    ("sasl.mechanisms", "set kafka.sasl_mechanism"),
    ("sasl.username", "set kafka.sasl_username"),
    ("sasl.password", "set kafka.sasl_password"),
    ("ssl.ca.", "set kafka.ssl_ca"),
    ("ssl.certificate.", "set kafka.ssl_certificate"),
    ("ssl.key.", "set kafka.ssl_key"),
    ("ssl.keystore.", "set kafka.ssl_certificate and kafka.ssl_key"),
    ("ssl.endpoint.identification.algorithm", "set kafka.ssl_verify_hostname"),
    ("enable.auto.commit", "offsets live in our commits"),
    ("enable.auto.offset.store", "offsets live in our commits"),
    ("auto.commit.interval.ms", "offsets live in our commits"),
    ("isolation.level", "is always read_committed"),
    ("enable.partition.eof", "the end of a partition must be seen"),
    ("auto.offset.reset", "a position out of range is never skipped silently"),
    ("allow.auto.create.topics", "a wrong topic name must fail"),
    ("check.crcs", "is always on"),
    ("statistics.interval.ms", "set by the service's metrics"),
    ("enable.metrics.push", "is always off"),
    ("debug", "set the log level of librdkafka instead"),
    ("log_level", "set the log level of librdkafka instead"),
    ("queued.max.messages.kbytes", "set kafka.prefetch_bytes"),
    ("queued.min.messages", "set kafka.prefetch_bytes"),
    ("enable.idempotence", "is always on"),
    ("acks", "is always all"),
    ("request.required.acks", "is always all"),
    ("max.in.flight", "exactly-once needs at most five"),
    ("max.in.flight.requests.per.connection", "exactly-once needs at most five"),
    ("retries", "exactly-once retries until the message timeout"),
    ("message.send.max.retries", "exactly-once retries until the message timeout"),
    ("transactional.id", "belongs to a job or shard"),
    ("transaction.timeout.ms", "set stream.checkpoint.transaction_timeout"),
    ("message.timeout.ms", "follows stream.checkpoint.transaction_timeout"),
    ("delivery.timeout.ms", "follows stream.checkpoint.transaction_timeout"),
    ("message.max.bytes", "follows the topics' limits"),
    ("partitioner", "partitions are chosen by the encoder"),
    ("group.", "readers are assigned, they join no group"),
    ("partition.assignment.strategy", "readers are assigned, they join no group"),
    ("session.timeout.ms", "readers are assigned, they join no group"),
    ("heartbeat.interval.ms", "readers are assigned, they join no group"),
    ("max.poll.interval.ms", "readers are assigned, they join no group"),
];

/// Never, whatever the reason. Dots as in [`OWNED`].
const REFUSED: &[(&str, &str)] = &[
    ("plugin.library.paths", "loads code"),
    ("ssl.engine.", "loads code"),
    ("ssl.providers", "loads code"),
    ("sasl.kerberos.", "runs a shell command"),
    ("sasl.oauthbearer.", "is not built in"),
    ("enable.ssl.certificate.verification", "brokers are always verified"),
    ("enable.sasl.oauthbearer.unsecure.jwt", "is not safe"),
    ("interceptors", "loads code"),
    ("default_topic_conf", "is a pointer"),
    ("opaque", "is a pointer"),
];

fn listed<'a>(list: &'a [(&str, &'a str)], name: &str) -> Option<&'a str> {
    list.iter().find(|(n, _)| *n == name || (n.ends_with('.') && name.starts_with(n))).map(|(_, why)| *why)
}

/// Which client a passed option goes to; `None` if it is not passed.
pub(crate) fn passed(name: &str) -> Option<For> {
    PASSED.iter().find(|(n, _)| *n == name).map(|(_, kind)| *kind)
}

fn check_passthrough(name: &str) -> Result<(), KafkaError> {
    if let Some(why) = listed(OWNED, name) {
        return Err(KafkaError::option(name, format!("is set by millstream: {why}")));
    }
    if let Some(why) = listed(REFUSED, name).or_else(|| name.ends_with("_cb").then_some("is a callback")) {
        return Err(KafkaError::option(name, format!("is refused: {why}")));
    }
    if passed(name).is_some() {
        return Ok(());
    }
    let nearest = PASSED
        .iter()
        .map(|(n, _)| *n)
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    Err(KafkaError::UnknownOption { name: name.to_owned(), nearest: nearest.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaOptions {
        let mut o = KafkaOptions::new("localhost:9092");
        o.passthrough.insert(name.into(), value.into());
        o
    }

    #[test]
    fn owned_refused_and_unknown_options_say_why() {
        let text = |name| with(name, "1").validate().unwrap_err().to_string();
        assert!(text("isolation.level").contains("always read_committed"));
        assert!(text("group.instance.id").contains("join no group"));
        assert!(text("sasl.kerberos.kinit.cmd").contains("shell command"));
        assert!(text("rebalance_cb").contains("callback"));
        assert_eq!(text("fetch.wait.ms"), "option fetch.wait.ms is unknown: did you mean fetch.wait.max.ms?");
        assert!(with("linger.ms", "20").validate().is_ok());
    }

    #[test]
    fn secrets_never_show() {
        let mut o = KafkaOptions::new("localhost:9092");
        o.security.sasl_password = Some(Secret::new("hunter2"));
        o.security.ssl_key = Some(Secret::new("-----BEGIN PRIVATE KEY-----"));
        let text = format!("{o:?}");
        assert!(!text.contains("hunter2") && !text.contains("PRIVATE"), "{text}");
    }

    #[test]
    fn security_options_must_fit_together() {
        let mut o = KafkaOptions::new("localhost:9092");
        o.security.sasl_username = Some("me".into());
        assert!(o.validate().unwrap_err().to_string().contains("security.protocol"));
        o.security.protocol = SecurityProtocol::SaslSsl;
        o.security.sasl_mechanism = Some("GSSAPI".into());
        assert!(o.validate().unwrap_err().to_string().contains("shell"));
        o.security.sasl_mechanism = Some("SCRAM-SHA-512".into());
        assert!(o.validate().is_err());
        o.security.sasl_password = Some(Secret::new("x"));
        o.validate().unwrap();
        o.transaction_timeout = Duration::from_secs(59);
        assert!(o.validate().unwrap_err().to_string().contains("twice commit_timeout"));
    }

    #[test]
    fn prefetch_is_shared_and_has_a_floor() {
        let mut o = KafkaOptions::new("localhost:9092");
        assert_eq!(o.partition_prefetch_bytes(), 4 << 20);
        o.expected_partitions = 10_000;
        assert_eq!(o.partition_prefetch_bytes(), 256 << 10);
    }
}
