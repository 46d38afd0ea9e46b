//! Section `broker`: the embedded Kafka broker of `millstream dev`.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::section::{choice, section};

choice! {
    /// When the embedded broker forces its files to the disk. They differ for a power loss: killing the process loses nothing with any of them.
    pub enum BrokerFsync {
        /// Records every 100 ms; transactions, group offsets and topics before they are answered.
        Interval = "interval",
        /// Records before they are answered, too.
        Always = "always",
        /// When the operating system likes.
        Never = "never",
    }
}

section! {
    /// The embedded Kafka broker of `millstream dev`, which is not for production. `millstream serve` has none and refuses the section.
    pub struct Broker {
        /// Address of the broker, IP and port; port 0 takes a free one. `--kafka-port` replaces the port. Any address but loopback needs
        /// `broker.allow_remote`.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 9092));

        /// Listen on an address that others can reach: the broker has no login and no encryption, so the network has to keep others out.
        allow_remote: bool = false;

        /// Folder of topics, groups and transactions. One broker at a time. `null`: `broker` in the folder of `--data`.
        data_dir: Option<PathBuf> = None;

        /// When files are forced to the disk: `interval` (records every 100 ms, all else before the answer), `always` (records before the answer, too:
        /// slower), `never` (fastest). Killing the process loses nothing with any of them; they differ for a power loss.
        fsync: BrokerFsync = BrokerFsync::Interval;

        /// Compact topics with `cleanup.policy=compact` every 30 s. Without it they keep all records, and every version of a key can still be read.
        compaction: bool = false;
    }
}

impl Broker {
    /// The configured folder, else `broker` in `data`.
    pub fn data_dir(&self, data: &Path) -> PathBuf {
        self.data_dir.clone().unwrap_or_else(|| data.join("broker"))
    }
}
