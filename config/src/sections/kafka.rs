//! Section `kafka`: the main connection. Not here: which librdkafka options a user may pass (`connectors/kafka` refuses what it owns).

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use crate::{
    secret::Secret,
    section::{at_least, between, choice, section},
    units::ByteSize,
};

choice! {
    /// How the brokers are spoken to.
    pub enum SecurityProtocol {
        /// Neither encrypted nor authenticated.
        Plaintext = "plaintext",
        /// TLS; with `ssl_certificate` and `ssl_key` the client proves who it is.
        Ssl = "ssl",
        /// SASL login over an open connection.
        SaslPlaintext = "sasl_plaintext",
        /// SASL login inside TLS.
        SaslSsl = "sasl_ssl",
    }
}

impl SecurityProtocol {
    pub const fn uses_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }

    pub const fn uses_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }
}

choice! {
    /// How a SASL login proves the password.
    pub enum SaslMechanism {
        /// The password itself: only sensible inside TLS.
        Plain = "PLAIN",
        /// Challenge and response with SHA-256.
        ScramSha256 = "SCRAM-SHA-256",
        /// Challenge and response with SHA-512.
        ScramSha512 = "SCRAM-SHA-512",
    }
}

section! {
    /// The Kafka cluster that holds the source topics, the write-ahead log and the derived topics.
    pub struct Kafka {
        /// Brokers to ask first, `host:port`, parted by commas. Required to serve.
        bootstrap_servers: String = String::new();

        /// First part of the names of everything Millstream makes in Kafka: `<prefix>.wal`, transactional ids. Two Millstreams on one cluster need two
        /// prefixes. Never change it for an existing one.
        prefix: String = "millstream".to_owned();

        /// Client id seen in broker logs and quotas. `null`: `millstream-<replica id>`.
        client_id: Option<String> = None;

        /// One of plaintext, ssl, sasl_plaintext, sasl_ssl.
        security_protocol: SecurityProtocol = SecurityProtocol::Plaintext;

        /// One of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; needed with a sasl protocol.
        sasl_mechanism: Option<SaslMechanism> = None;

        /// User of the SASL login.
        sasl_username: Option<String> = None;

        /// Password of the SASL login; write it as `${NAME}` or `${file:/path}`.
        sasl_password: Option<Secret<String>> = None;

        /// PEM file with the certificate authorities to trust. `null`: those of the system.
        ssl_ca: Option<PathBuf> = None;

        /// PEM file with the client's certificate chain, together with `kafka.ssl_key`.
        ssl_certificate: Option<PathBuf> = None;

        /// PEM file with the client's private key.
        ssl_key: Option<PathBuf> = None;

        /// Password of the private key; write it as `${NAME}` or `${file:/path}`.
        ssl_key_password: Option<Secret<String>> = None;

        /// Limit of one admin or metadata request.
        request_timeout: Duration = Duration::from_secs(5), between(Duration::from_millis(100), Duration::from_secs(300));

        /// Memory for records fetched ahead of their use, shared by all partitions of the connection.
        ///
        /// More: a slow moment of the broker is bridged. Less: less memory, and replays are slower.
        prefetch_bytes: ByteSize = ByteSize::mib(64), at_least(ByteSize::mib(1));

        /// Replicas of the topics Millstream makes; -1 is the broker's default (`default.replication.factor`).
        replicas: i32 = -1, between(-1, 32_767);

        /// librdkafka options handed on as they are, such as `fetch.wait.max.ms: 50`. Options that exactly-once depends on are refused with the reason.
        /// A name may be written with underscores instead of dots.
        passthrough: BTreeMap<String, String> = BTreeMap::new();
    }
}

impl Kafka {
    /// The configured client id, else `millstream-<replica id>`.
    pub fn client_id(&self, replica_id: &str) -> String {
        self.client_id.clone().unwrap_or_else(|| format!("millstream-{replica_id}"))
    }

    /// [`Kafka::passthrough`] with the names librdkafka knows: dots, also where the file or an environment variable has underscores.
    pub fn passthrough_options(&self) -> impl Iterator<Item = (String, &str)> {
        self.passthrough.iter().map(|(name, value)| (name.replace('_', "."), value.as_str()))
    }
}
