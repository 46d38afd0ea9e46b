//! Apache Kafka as Millstream's log: the traits of `millstream_types::log` over librdkafka.
//!
//! Owns: connections, readers, transactions, topic admin. Not here: what records mean (`connectors/format`), who owns which partition (`storage`).
//!
//! Records come in through [`reader`] (a thread per partition takes batches from a client that [`client`] shares) and go out through
//! [`txn_writer`] (exactly once, with the outcome told apart) or [`producer`] (idempotent).
//!
//! | path | guarantee |
//! |---|---|
//! | `LogStore::read` | `read_committed`, in offset order, each record once from the given position on; the position moves over markers too (K1) |
//! | `EpochWriter::commit` | all batches or none; one of four outcomes, and only `Committed` means committed |
//! | `Producer::produce` | in order per partition, no duplicates while the client lives; an error of kind `Unknown` may have written some |
//! | `LogStore::truncate_to` | only topics that end in `.wal` |
//!
//! **Why one client for many readers.** librdkafka runs a connection, and so decompression and CRC, on one thread per broker. One client per partition
//! costs three threads and a connection each, and a broker then answers many small fetches instead of few large ones. With the older "simple
//! consumer" calls each partition of a shared client starts, stops and fills its own queue independently of the others, with no group and no
//! rebalance. `readers_per_connection` spreads partitions over more clients where one core of decompression is not enough.

mod client;
mod context;
pub mod error;
mod log_store;
mod metrics;
pub mod options;
mod producer;
mod reader;
mod sys;
mod topic_admin;
mod txn_client;
mod txn_writer;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use millstream_types::{EpochWriter, ErrorKind, LogError, LogStore, LogSystem, Producer, TopicAdmin, TopicPartition};
use tokio::sync::OnceCell;

pub use error::KafkaError;
pub use options::{KafkaOptions, Secret, Security, SecurityProtocol};

use client::{Admin, ReaderPool};

/// A connection to one cluster, the door for storage and stream.
pub struct KafkaCluster {
    /// Handed to the parts, which keep the cluster alive.
    this: Weak<KafkaCluster>,
    options: KafkaOptions,
    admin: Arc<Admin>,
    readers: Arc<ReaderPool>,
    /// Made by the first produce call, replaced after a fatal error.
    producer: producer::SharedClient,
    /// Asked of the broker once.
    transaction_timeout: OnceCell<Duration>,
}

impl std::fmt::Debug for KafkaCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaCluster").field("options", &self.options).finish_non_exhaustive()
    }
}

impl KafkaCluster {
    /// Checks the options, values included, and makes the admin client. No I/O: `admin().ping(..)` tells whether brokers answer.
    pub fn connect(options: KafkaOptions) -> Result<Arc<Self>, KafkaError> {
        options.validate()?;
        // A client of each kind checks the values of its options; no thread of ours and no connection comes of it.
        drop(client::idempotent(&options)?);
        let admin = Arc::new(client::admin(&options)?);
        let readers = Arc::new(ReaderPool::new(options.clone()));
        readers.check()?;
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            options,
            admin,
            readers,
            producer: producer::SharedClient::default(),
            transaction_timeout: OnceCell::new(),
        }))
    }

    pub fn options(&self) -> &KafkaOptions {
        &self.options
    }

    fn me(&self) -> Arc<Self> {
        self.this.upgrade().expect("the cluster lives only inside an Arc")
    }

    pub(crate) fn admin_client(&self) -> &Admin {
        &self.admin
    }

    /// Runs a blocking call of librdkafka outside the async workers.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Admin) -> T + Send + 'static,
    ) -> Result<T, LogError> {
        let admin = Arc::clone(&self.admin);
        tokio::task::spawn_blocking(move || call(&admin))
            .await
            .map_err(|e| LogError::new(ErrorKind::Internal, "an admin call was cut off").caused_by(e))
    }

    /// The transaction timeout in force: the configured one, lowered to the broker's limit. An error names both limits if what is left is too
    /// short for `commit_timeout`. If the broker does not tell, the configured one is tried, and halved by the writer when refused.
    pub async fn transaction_timeout(&self) -> Result<Duration, LogError> {
        let ask = || async {
            match self.broker_transaction_limit().await {
                Ok(limit) if limit >= self.options.transaction_timeout => Ok(self.options.transaction_timeout),
                Ok(limit) if limit >= self.options.commit_timeout * 2 => {
                    let (asked, limit_ms) =
                        (self.options.transaction_timeout.as_millis() as u64, limit.as_millis() as u64);
                    tracing::warn!(asked_ms = asked, limit_ms, "transaction timeout is lowered to the broker's limit");
                    Ok(limit)
                }
                Ok(limit) => Err(LogError::new(
                    ErrorKind::Invalid,
                    format!(
                        "the broker's transaction.max.timeout.ms {} is below twice commit_timeout {} ms: raise it or lower stream.checkpoint.commit_timeout",
                        limit.as_millis(),
                        self.options.commit_timeout.as_millis()
                    ),
                )),
                Err(e) => Err(e),
            }
        };
        match self.transaction_timeout.get_or_try_init(ask).await {
            Ok(timeout) => Ok(*timeout),
            Err(e) if e.kind == ErrorKind::Invalid && e.source.is_none() => Err(e),
            Err(error) => {
                tracing::debug!(%error, "the broker's transaction limit is not known");
                Ok(self.options.transaction_timeout)
            }
        }
    }
}

impl LogSystem for KafkaCluster {
    fn log(&self, partition: &TopicPartition) -> Arc<dyn LogStore> {
        Arc::new(log_store::PartitionLog { cluster: self.me(), partition: partition.clone() })
    }

    fn epoch_writer(&self, transactional_id: &str) -> Box<dyn EpochWriter> {
        Box::new(txn_writer::TxnWriter::new(self.me(), transactional_id))
    }

    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(producer::IdempotentProducer { cluster: self.me() })
    }

    fn admin(&self) -> Arc<dyn TopicAdmin> {
        Arc::new(topic_admin::KafkaAdmin { cluster: self.me() })
    }
}
