//! What a broker is started with.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// When file contents are forced to the disk. Killing the process loses nothing with any of them; they differ for a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Records every 100 ms, journals (transactions, group offsets, topics) before the answer.
    #[default]
    Interval,
    /// Records and journals before the answer.
    Always,
    /// When the operating system likes.
    Never,
}

/// An address to listen on, and the one that clients are told to come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub listen: SocketAddr,
    /// `None`: the address that the client came to. A fault proxy goes here.
    pub advertised: Option<(String, u16)>,
}

impl Listener {
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, advertised: None }
    }
}

#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Everything that the broker keeps. One broker at a time.
    pub data_dir: PathBuf,
    /// At least one; port 0 takes a free one.
    pub listeners: Vec<Listener>,
    /// Listening on other than loopback addresses needs this: there is no authentication.
    pub allow_remote: bool,
    pub fsync: Fsync,
    /// Partitions of a topic that is created without a number.
    pub default_partitions: i32,
    pub auto_create_topics: bool,
    /// Whether topics with `cleanup.policy=compact` are compacted.
    pub compaction: bool,
    /// How often retention and compaction look.
    pub retention_interval: Duration,
    /// Upper limit of `transaction.timeout.ms`.
    pub transaction_max_timeout: Duration,
    pub max_connections: usize,
    /// All topics together.
    pub max_partitions: usize,
    /// Threads that serve requests, file I/O included.
    pub threads: usize,
    /// A Unix socket for fault commands from other processes.
    #[cfg(feature = "faults")]
    pub fault_socket: Option<PathBuf>,
}

impl BrokerConfig {
    /// Defaults, on `127.0.0.1` and a free port.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listeners: vec![Listener::new(SocketAddr::from(([127, 0, 0, 1], 0)))],
            allow_remote: false,
            fsync: Fsync::default(),
            default_partitions: 1,
            auto_create_topics: false,
            compaction: false,
            retention_interval: Duration::from_secs(30),
            transaction_max_timeout: Duration::from_secs(900),
            max_connections: 1000,
            max_partitions: 4096,
            // File I/O happens on these threads, so there are more than cores.
            threads: 4.max(std::thread::available_parallelism().map_or(2, Into::into)),
            #[cfg(feature = "faults")]
            fault_socket: None,
        }
    }

    /// The same, with the first listener on `port` of `127.0.0.1`.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        if let Some(first) = self.listeners.first_mut() {
            first.listen.set_port(port);
        }
        self
    }
}
