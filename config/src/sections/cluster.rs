//! Section `cluster`: what all replicas of one Millstream share.

use crate::section::{between, section};

section! {
    /// What all replicas of one Millstream share.
    pub struct Cluster {
        /// Partitions of the write-ahead log topic `<kafka.prefix>.wal` when it is made. Kept in the catalog from then on: a later change of this key has
        /// no effect on an existing Millstream.
        ///
        /// More: more regions can commit side by side. Fewer: each transaction touches fewer partitions and costs less.
        shards: u32 = 16, between(1, 1024);
    }
}
