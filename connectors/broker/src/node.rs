//! What all connections share, and the work that goes on beside them: flushing, retention, timeouts.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, interval_at},
};
use uuid::Uuid;

use crate::{
    clock::Clock,
    config::{BrokerConfig, Fsync},
    faults::{DiskFull, Faults},
    group::Groups,
    journal::{self, Ticket},
    topics::{Refused, Topic, Topics, partition::Partition},
    txn::Transactions,
};

/// The only node of the cluster.
pub(crate) const NODE_ID: i32 = 1;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) config: BrokerConfig,
    pub(crate) cluster_id: String,
    pub(crate) clock: Clock,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) transactions: Arc<Transactions>,
    pub(crate) faults: Faults,
    /// Becomes true once.
    pub(crate) stopping: watch::Sender<bool>,
    /// For fault commands, which come from other runtimes or none.
    #[cfg(feature = "faults")]
    pub(crate) runtime: tokio::runtime::Handle,
}

const FLUSH_EVERY: Duration = Duration::from_millis(100);
const GROUPS_EVERY: Duration = Duration::from_millis(100);
const TRANSACTIONS_EVERY: Duration = Duration::from_secs(1);

impl Node {
    /// Opens everything in the data folder, which the caller has locked.
    pub(crate) fn open(config: BrokerConfig) -> io::Result<Self> {
        let (dir, sync) = (&config.data_dir, config.fsync != Fsync::Never);
        let (clock, full) = (Clock::default(), DiskFull::default());
        let has_topics = match std::fs::read_dir(dir.join("topics")) {
            Ok(mut folders) => folders.next().is_some(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(e),
        };
        journal::check_all_there(dir, &["topics", "groups", "transactions"], has_topics)?;
        let cluster_id = cluster_id(dir)?;
        let topics = Topics::open(dir, sync, config.max_partitions, clock.clone(), full.clone())?;
        let topics = Arc::new(topics);
        let groups = Arc::new(Groups::open(dir, sync, clock.clone(), full.clone())?);
        #[cfg(feature = "faults")]
        let faults = Faults::new(clock.clone(), full.clone());
        #[cfg(not(feature = "faults"))]
        let faults = Faults;
        let parts = (Arc::clone(&topics), Arc::clone(&groups), faults.clone(), clock.clone());
        let transactions = Transactions::open(dir, config.fsync, config.transaction_max_timeout, parts, full)?;
        transactions.end_strays()?;
        // A crash between the deletion of a topic and of its offsets.
        groups.forget_topics(|topic| topics.get(topic).is_none());
        let stopping = watch::Sender::new(false);
        Ok(Self {
            cluster_id,
            clock,
            topics,
            groups,
            transactions: Arc::new(transactions),
            faults,
            stopping,
            config,
            #[cfg(feature = "faults")]
            runtime: tokio::runtime::Handle::current(),
        })
    }

    /// Deletes a topic, and what groups have committed for it.
    pub(crate) fn delete_topic(&self, name: &str) -> Result<(Ticket, Ticket), Refused> {
        let mut offsets = Ticket::default();
        let topic = self.topics.delete(name, || offsets = self.groups.forget_topics(|t| t == name))?;
        Ok((topic, offsets))
    }

    /// Starts the periodic work; it ends when the node stops.
    pub(crate) fn start_periodic(self: &Arc<Self>) {
        let node = Arc::clone(self);
        self.every(FLUSH_EVERY, move || {
            let node = Arc::clone(&node);
            async move { node.flush().await }
        });
        let node = Arc::clone(self);
        self.every(GROUPS_EVERY, move || {
            node.groups.tick();
            std::future::ready(())
        });
        let node = Arc::clone(self);
        self.every(TRANSACTIONS_EVERY, move || {
            let node = Arc::clone(&node);
            async move { node.transactions.tick().await }
        });
        let node = Arc::clone(self);
        self.every(self.config.retention_interval, move || {
            let node = Arc::clone(&node);
            async move { node.retain().await }
        });
    }

    fn every<F: Future<Output = ()> + Send + 'static>(
        &self,
        period: Duration,
        mut work: impl FnMut() -> F + Send + 'static,
    ) {
        let mut stopping = self.stopping.subscribe();
        tokio::spawn(async move {
            // Not at once: opening has just done what is due.
            let mut ticks = if period > TRANSACTIONS_EVERY {
                interval_at(Instant::now() + period, period)
            } else {
                interval(period)
            };
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => work().await,
                    () = stopped(&mut stopping) => return,
                }
            }
        });
    }

    fn partitions(&self) -> impl Iterator<Item = (Arc<Topic>, Arc<Partition>)> {
        self.topics.all().into_iter().flat_map(|t| {
            let partitions = t.partitions.clone();
            partitions.into_iter().map(move |p| (Arc::clone(&t), p))
        })
    }

    /// Syncs what was appended since the last time, then writes the indexes that tell about it.
    async fn flush(&self) {
        let sync = self.config.fsync == Fsync::Interval;
        for (topic, partition) in self.partitions() {
            let dirty = partition.log().take_dirty();
            if dirty.is_empty() || partition.is_closed() {
                continue;
            }
            let work = move || -> io::Result<()> {
                if sync {
                    dirty.iter().try_for_each(|f| f.sync_data())?;
                }
                partition.log().flush_indexes()
            };
            if let Err(e) = blocking(work).await {
                tracing::error!(topic = %topic.name, error = %e, "a partition cannot be flushed");
            }
        }
        if let Err(e) = self.topics.tidy() {
            tracing::warn!(error = %e, "the topic journal cannot be rewritten");
        }
    }

    async fn retain(self: &Arc<Self>) {
        let compaction = self.config.compaction;
        for (topic, partition) in self.partitions() {
            if partition.is_closed() {
                continue;
            }
            let now = self.clock.now_ms();
            let (id, worked, node) = (topic.id, Arc::clone(&partition), Arc::clone(self));
            let work = move || -> io::Result<Option<i64>> {
                let mut log = worked.log();
                let moved = match log.retention_cut(now) {
                    Some(cut) if !worked.is_closed() => {
                        node.topics.note_start(id, worked.index, cut)?;
                        Some(log.delete_below(cut, now)?)
                    }
                    _ => None,
                };
                if compaction {
                    log.compact(now)?;
                }
                Ok(moved)
            };
            match blocking(work).await {
                Ok(Some(start)) => {
                    tracing::info!(topic = %topic.name, partition = partition.index, start, "retention moved the log start");
                    partition.wake();
                }
                Ok(None) => {}
                Err(e) => {
                    tracing::error!(topic = %topic.name, partition = partition.index, error = %e, "retention failed")
                }
            }
        }
    }

    /// Brings all files into the state in which the next start has least to do.
    pub(crate) fn close(&self) -> io::Result<()> {
        for (_, partition) in self.partitions() {
            partition.log().close()?;
        }
        Ok(())
    }
}

/// Returns once the node stops, or is gone.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // Both outcomes mean the same.
    drop(stopping.wait_for(|s| *s).await);
}

/// Runs file work of unknown length beside the workers.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The id of this cluster, drawn at the first start.
fn cluster_id(dir: &std::path::Path) -> io::Result<String> {
    let path = dir.join("cluster-id");
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => {
            // Never begins with a dash, which would read as an option.
            let id = format!("M{}", Uuid::from_u128(rand::random()).simple());
            std::fs::write(&path, &id)?;
            Ok(id)
        }
    }
}
