//! An embedded Kafka broker: one node, file-backed, for `millstream dev`, tests and fault injection. **Not for production**: no replication, no
//! authentication, no encryption.
//!
//! ```no_run
//! # async fn example() -> Result<(), millstream_broker::BrokerError> {
//! let broker = millstream_broker::Broker::start(millstream_broker::BrokerConfig::new("data/broker")).await?;
//! println!("bootstrap.servers={}", broker.bootstrap());
//! broker.stop().await
//! # }
//! ```
//!
//! In the order a request meets them: `connection` (a client), `protocol` (frames, versions, lengths), `handle` (one API a file), then `topics` with
//! their `log`s, `group` (consumer groups), `txn` (transactions). `journal` keeps what is not a record; `node` does what is periodic; `faults` breaks things.
//!
//! # Differences from Apache Kafka
//! * One node, replication factor 1; the high watermark is the log end. `min.insync.replicas` is kept and shown, and changes nothing.
//! * Not served: ACLs, quotas, TLS, SASL, the new consumer group protocol, share groups, transactions v2, delegation tokens, log directories, KRaft APIs.
//!   A request of an API or version that is not served closes the connection and is logged.
//! * No fetch sessions: every fetch is a full one. Fetches are never answered with a partial batch at the end.
//! * Group offsets and transactions are journals, not the topics `__consumer_offsets` and `__transaction_state`. Group offsets do not expire; the initial
//!   rebalance delay is 0.
//! * Batches are stored as sent and never recompressed: `compression.type` of a topic is kept and shown, and changes nothing. Records inside a batch are
//!   looked at only in compacted topics (a key must be there) and for timestamps; others are checked by length and CRC.
//! * `segment.bytes` is 128 MiB by default. `file.delete.delay.ms`, `flush.*`, `min.compaction.lag.ms` and the like are kept, and change nothing.
//! * Compaction is off unless switched on; it keeps aborted records and control batches, and holds the lock of the partition. A tombstone's
//!   `delete.retention.ms` counts from the first run that met its segment, as in Kafka, but that time is kept beside the segment and not in its batches.
//! * `InitProducerId` with the epoch of another than the newest producer is fenced also while the newest has a transaction open (Kafka aborts that one first).
//! * Damage is told and never cut away: a journal with a bad entry that is no unfinished write, or a missing one, stops the start with the file, the byte and
//!   what can be done; so does a segment whose batches cannot be told apart. A batch whose checksum is wrong stays where it is, readers refuse it. Folders that the
//!   topic journal does not know go to `set-aside/`. Kafka cuts a log at the first bad batch.
//! * `InitProducerId` waits up to 200 ms for the end of the transaction before, so clients see `CONCURRENT_TRANSACTIONS` less often.
//! * A fetch does not look at `last_fetched_epoch`: clients that lost records to an unclean election learn it from `OffsetForLeaderEpoch` or their offset.
//! * With `Fsync::Interval`, a power loss takes up to 100 ms of records. A transaction whose records were left without their marker ends at the next start as the
//!   journal says, and is aborted if the journal knows nothing of it.
//! * Broker configs are those of the start and cannot be altered.
//! * Requests other than Produce have at most 16 MiB, and CreateTopics names at most as many topics as the broker may have partitions. What a request names
//!   twice is answered once, where the answer is larger than the question.

mod clock;
mod config;
mod connection;
mod error;
pub mod faults;
mod group;
mod handle;
mod journal;
mod log;
mod node;
mod protocol;
#[cfg(test)]
mod tests;
mod topics;
mod txn;

use std::{
    fs::{File, TryLockError},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    sync::{Semaphore, oneshot},
};

use self::node::{Node, stopped};
pub use self::{
    config::{BrokerConfig, Fsync, Listener},
    error::BrokerError,
};

/// A running broker. Dropping it ends it like a kill, which loses nothing; `stop` makes the next start quicker.
#[derive(Debug)]
pub struct Broker {
    node: Arc<Node>,
    addrs: Vec<SocketAddr>,
    /// Its own threads: file I/O does not disturb the one who started it, nor the other way round.
    runtime: Option<Runtime>,
    /// Held until the last thread has ended, so that a new broker never meets the old one in the folder.
    lock: Option<File>,
}

impl Broker {
    /// Opens the folder, recovers what a crash left, and listens. Clients may come when this returns.
    pub async fn start(config: BrokerConfig) -> Result<Self, BrokerError> {
        let threads = config.threads.max(1);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("broker")
            .enable_all()
            .build()
            .map_err(BrokerError::Runtime)?;
        for l in &config.listeners {
            if !l.listen.ip().is_loopback() && !config.allow_remote {
                return Err(BrokerError::Remote { addr: l.listen });
            }
        }
        let opened = runtime.spawn(open(config)).await;
        let opened = opened.map_err(|e| BrokerError::Runtime(std::io::Error::other(e))).and_then(|o| o);
        let (node, addrs, lock) = match opened {
            Ok(opened) => opened,
            Err(e) => {
                runtime.shutdown_background();
                return Err(e);
            }
        };
        tracing::warn!(address = ?addrs, data = %node.config.data_dir.display(), "embedded broker started: for development and tests, not for production");
        Ok(Self { node, addrs, runtime: Some(runtime), lock: Some(lock) })
    }

    /// The address of the first listener.
    pub fn addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// The addresses of all listeners, as configured.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// For `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.addr().to_string()
    }

    /// What to do wrong on request.
    #[cfg(feature = "faults")]
    pub fn faults(&self) -> faults::FaultHandle {
        faults::FaultHandle::new(Arc::clone(&self.node))
    }

    /// Ends all connections, writes everything to disk. The folder may be used again when this returns.
    pub async fn stop(mut self) -> Result<(), BrokerError> {
        self.node.stopping.send_replace(true);
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let node = Arc::clone(&self.node);
        let closed = runtime.spawn_blocking(move || node.close()).await;
        // An error means that the thread has ended, too.
        self.end().await.unwrap_or_default();
        let path = self.node.config.data_dir.clone();
        closed.map_err(std::io::Error::other).and_then(|c| c).map_err(|source| BrokerError::Data { path, source })
    }

    /// Ends the threads. Waiting for them blocks, so a thread does it.
    fn end(&mut self) -> oneshot::Receiver<()> {
        self.node.stopping.send_replace(true);
        let (ended, wait) = oneshot::channel();
        let (runtime, lock) = (self.runtime.take(), self.lock.take());
        std::thread::spawn(move || {
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(END);
            }
            drop(lock);
            // Nobody waits after a drop.
            ended.send(()).unwrap_or_default();
        });
        wait
    }
}

/// Requests in progress get so long to come to an end.
const END: Duration = Duration::from_secs(10);

impl Drop for Broker {
    fn drop(&mut self) {
        if self.runtime.is_some() {
            drop(self.end());
        }
    }
}

async fn open(config: BrokerConfig) -> Result<(Arc<Node>, Vec<SocketAddr>, File), BrokerError> {
    let lock = lock(&config.data_dir)?;
    let mut listening = Vec::new();
    for l in &config.listeners {
        let listener =
            TcpListener::bind(l.listen).await.map_err(|source| BrokerError::Listen { addr: l.listen, source })?;
        listening.push((listener, l.advertised.clone()));
    }
    let path = config.data_dir.clone();
    let addrs: Result<Vec<_>, _> = listening.iter().map(|(l, _)| l.local_addr()).collect();
    let addrs = addrs.map_err(BrokerError::Runtime)?;
    let node = tokio::task::spawn_blocking(move || Node::open(config)).await;
    let node =
        node.map_err(std::io::Error::other).and_then(|n| n).map_err(|source| BrokerError::Data { path, source })?;
    let node = Arc::new(node);
    node.start_periodic();
    #[cfg(feature = "faults")]
    if let Some(path) = node.config.fault_socket.clone() {
        let handle = faults::FaultHandle::new(Arc::clone(&node));
        let stopping = node.stopping.subscribe();
        tokio::spawn(async move {
            if let Err(e) = faults::serve(handle, &path, stopping).await {
                tracing::error!(socket = %path.display(), error = %e, "fault commands cannot be served");
            }
        });
    }
    let places = Arc::new(Semaphore::new(node.config.max_connections));
    for (listener, advertised) in listening {
        tokio::spawn(accept(Arc::clone(&node), listener, advertised, Arc::clone(&places)));
    }
    Ok((node, addrs, lock))
}

/// One broker at a time in a folder.
fn lock(dir: &Path) -> Result<File, BrokerError> {
    let fault = |source| BrokerError::Data { path: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(fault)?;
    let file = File::options().create(true).truncate(false).write(true).open(dir.join("lock")).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BrokerError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(fault(e)),
    }
}

/// Takes clients until the node stops. Over the limit they are closed at once, so that they know.
async fn accept(node: Arc<Node>, listener: TcpListener, advertised: Option<(String, u16)>, places: Arc<Semaphore>) {
    let mut stopping = node.stopping.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of file descriptors, mostly: others have to go first.
                tracing::warn!(error = %e, "a connection cannot be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            tracing::warn!(%peer, limit = node.config.max_connections, "too many connections");
            continue;
        };
        let (node, advertised) = (Arc::clone(&node), advertised.clone());
        tokio::spawn(async move {
            connection::run(node, stream, peer, advertised).await;
            drop(place);
        });
    }
}
