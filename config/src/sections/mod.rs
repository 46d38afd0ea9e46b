//! The keys of the configuration file, one file per section.
//!
//! A key is here only if the service acts on it today. Its doc comment says meaning, unit and trade-off and becomes `config/reference.yaml`
//! (`just gen` after a change). Keys whose default depends on the machine are `null` and have a method of the same name that resolves them.

mod broker;
mod cluster;
mod kafka;
mod object_store;
mod server;
mod sql;
mod storage;
mod stream;
mod telemetry;

pub use broker::{Broker, BrokerFsync};
pub use cluster::Cluster;
pub use kafka::{Kafka, SaslMechanism, SecurityProtocol};
pub use object_store::{BucketUrl, ObjectStore};
pub use server::{Auth, Server};
pub use sql::Sql;
pub use storage::{Cache, Compaction, Flush, Gc, Pins, Sst, Storage, Wal};
pub use stream::{Backfill, Checkpoint, State, Stream};
pub use telemetry::{LogFormat, Telemetry};

use crate::section::{between, section};

section! {
    /// Everything a Millstream process can be told.
    pub struct Config {
        /// Version of this file's format. Files of an older version keep loading.
        version: u32 = 1, between(1, 1);

        /// Addresses, data folder and identity of this process.
        server: Server = Server::default();

        /// The Kafka cluster that holds the source topics, the write-ahead log and the derived topics.
        kafka: Kafka = Kafka::default();

        /// The bucket that holds tables, views and the catalog.
        object_store: ObjectStore = ObjectStore::default();

        /// What all replicas of one Millstream share.
        cluster: Cluster = Cluster::default();

        /// The region engine: memory, write-ahead log, files, compaction, clean-up.
        storage: Storage = Storage::default();

        /// The stream engine: barriers, checkpoints, state, backfill.
        stream: Stream = Stream::default();

        /// Limits of queries.
        sql: Sql = Sql::default();

        /// Logs.
        telemetry: Telemetry = Telemetry::default();

        /// The embedded Kafka broker of `millstream dev`.
        broker: Broker = Broker::default();
    }
}

/// Processors this process may use; 1 if the system does not say.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
