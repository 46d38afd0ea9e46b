//! Apache Kafka as Millstream's log: implements the traits of `millstream_types::log` over librdkafka.
//!
//! Placeholder of the public surface while the parts land.

pub mod error;
pub mod options;

pub use error::KafkaError;
pub use options::{KafkaOptions, Secret, Security, SecurityProtocol};

use std::sync::Arc;

/// A connection to one cluster, the door for storage and stream: `impl millstream_types::LogSystem`.
#[derive(Debug)]
pub struct KafkaCluster {
    options: KafkaOptions,
}

impl KafkaCluster {
    /// Checks the options and makes the clients. No I/O: `admin().ping(..)` tells whether brokers answer.
    pub fn connect(options: KafkaOptions) -> Result<Arc<Self>, KafkaError> {
        options.validate()?;
        Ok(Arc::new(Self { options }))
    }

    pub fn options(&self) -> &KafkaOptions {
        &self.options
    }
}
