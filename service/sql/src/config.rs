//! Settings of SQL as plain values; `config` fills them from sections `sql.` and `cluster.`.

use std::{sync::Arc, time::Duration};

#[derive(Debug, Clone)]
pub struct SqlConfig {
    /// Partitions of the shared WAL. Fixed when a cluster is first started.
    pub shards: u32,
    /// Memory of all queries together; a query that needs more fails, there are no spill files.
    pub query_memory_bytes: usize,
    /// `<prefix>.wal`: no table may read it and no view write it.
    pub wal_topic: Arc<str>,
    /// Of one statement, planning included.
    pub query_timeout: Duration,
    /// Statements that are planned at one time, each on a thread of its own, those included that nobody waits for any more.
    pub plannings: usize,
    /// Largest result of one query: it is held in memory until it is sent.
    pub max_result_rows: usize,
    pub max_result_bytes: usize,
    /// Partitions of a derived topic that does not say `partitions = n`.
    pub topic_partitions: i32,
    /// How long CREATE TABLE waits for its regions to have read the topic; afterwards they go on in the background.
    pub open_wait: Duration,
    /// Longest `WAIT FOR v` and `wait = true`.
    pub wait_timeout: Duration,
}

impl Default for SqlConfig {
    fn default() -> Self {
        Self {
            shards: 16,
            wal_topic: "millstream.wal".into(),
            query_memory_bytes: 256 << 20,
            query_timeout: Duration::from_secs(60),
            plannings: 8,
            max_result_rows: 1_000_000,
            max_result_bytes: 256 << 20,
            topic_partitions: 4,
            open_wait: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(600),
        }
    }
}
