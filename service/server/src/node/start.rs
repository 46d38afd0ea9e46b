//! Makes the parts of a node. What is outside and not there yet is waited for with a reason in `/readyz`; what is wrong ends the start.

use std::{future::Future, sync::Arc, time::Duration};

use millstream_admin::{AdminDeps, AdminMetrics, AdminState, Health, NodeInfo};
use millstream_config::Config;
use millstream_format::FormatMetrics;
use millstream_kafka::KafkaCluster;
use millstream_sql::{SqlDeps, SqlService};
use millstream_storage::{
    Engine, Storage, StorageDeps,
    listener::NoListener,
    object_store::{Bucket, probe},
};
use millstream_stream::{StreamDeps, StreamService};
use millstream_types::{
    Classified, ErrorKind, LogSystem,
    error::chain,
    runtime::{Clock, SystemClock, Tasks},
};
use prometheus::Registry;

use super::{NodeError, wal_topic};
use crate::{
    build_info::{COMMIT, VERSION},
    ports::{BadRecords, Jobs, Sql},
    settings,
};

/// First and longest wait for something outside that does not answer.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How often the progress of the recovery is looked at.
const PROGRESS_LOOK: Duration = Duration::from_millis(100);

/// What is there before anything outside is asked.
pub(crate) struct Base {
    pub(crate) config: Config,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    pub(crate) health: Health,
    pub(crate) metrics: AdminMetrics,
    pub(crate) replica: String,
    started_ms: u64,
}

/// The running parts, in the order of the data.
pub(crate) struct Parts {
    pub(crate) bucket: Arc<Bucket>,
    pub(crate) logs: Arc<dyn LogSystem>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) stream: StreamService,
    pub(crate) sql: SqlService,
    bad_records: Arc<BadRecords>,
}

impl Base {
    pub(crate) fn new(config: Config, tasks: Tasks) -> Result<Self, NodeError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let registry = Registry::new();
        let health = Health::new(&registry)?;
        let metrics = AdminMetrics::new(&registry, VERSION, COMMIT)?;
        let (replica, started_ms) = (config.server.replica_id(), clock.now_ms());
        Ok(Self { config, tasks, clock, registry, health, metrics, replica, started_ms })
    }

    /// Opens the doors to the outside and makes the services; no region is open and no job runs afterwards.
    pub(crate) async fn parts(&self) -> Result<Parts, NodeError> {
        let bucket = settings::bucket(&self.config).map_err(NodeError::Storage)?;
        if self.config.object_store.check_on_start {
            self.patiently("bucket", || probe(&bucket)).await?;
        }
        let kafka: Arc<dyn LogSystem> = KafkaCluster::connect(settings::kafka(&self.config)?)?;
        self.patiently("kafka", || wal_topic::ensure(kafka.admin(), &bucket, &self.config)).await?;
        let (wal, prefix): (Arc<str>, Arc<str>) =
            (settings::wal_topic(&self.config), self.config.kafka.prefix.as_str().into());
        let deps = StorageDeps {
            bucket: Arc::clone(&bucket),
            logs: Arc::clone(&kafka),
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            listener: Arc::new(NoListener),
            registry: self.registry.clone(),
            wal_topic: Arc::clone(&wal),
            prefix: Arc::clone(&prefix),
            replica: self.replica.as_str().into(),
        };
        let engine = Engine::start(settings::storage(&self.config), deps).await?;
        let deps = StreamDeps {
            storage: Arc::clone(&engine) as Arc<dyn Storage>,
            logs: Arc::clone(&kafka),
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            wal_topic: wal,
            prefix,
            metrics: self.registry.clone(),
        };
        let stream = StreamService::new(settings::stream(&self.config), deps)?;
        stream.run_injector();
        let bad_records = Arc::new(BadRecords::new(Arc::clone(&self.clock), FormatMetrics::register(&self.registry)?));
        let deps = SqlDeps {
            storage: Arc::clone(&engine) as Arc<dyn Storage>,
            stream: stream.clone(),
            logs: Arc::clone(&kafka),
            bucket: Arc::clone(&bucket),
            bad_records: Arc::clone(&bad_records) as Arc<dyn millstream_types::BadRecordSink>,
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            metrics: self.registry.clone(),
        };
        let sql = SqlService::new(settings::sql(&self.config), deps)?;
        bad_records.knows_tables_from(sql.clone());
        Ok(Parts { bucket, logs: kafka, engine, stream, sql, bad_records })
    }

    pub(crate) fn admin_state(&self, parts: &Parts) -> AdminState {
        let deps = AdminDeps {
            sql: Arc::new(Sql { service: parts.sql.clone(), bad_records: Arc::clone(&parts.bad_records) }),
            jobs: Arc::new(Jobs {
                stream: parts.stream.clone(),
                sql: parts.sql.clone(),
                clock: Arc::clone(&self.clock),
            }),
            storage: Arc::clone(&parts.engine) as Arc<dyn Storage>,
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            registry: self.registry.clone(),
            info: NodeInfo {
                version: VERSION,
                commit: COMMIT,
                replica: self.replica.clone(),
                prefix: self.config.kafka.prefix.clone(),
                started_ms: self.started_ms,
            },
        };
        AdminState::new(settings::admin(&self.config), deps, self.health.clone(), self.metrics.clone())
    }

    /// Opens the regions of all objects and starts their jobs, with the progress in `/readyz`.
    pub(crate) async fn recover(&self, parts: &Parts) -> Result<(), NodeError> {
        self.health.restoring(0);
        let recover = parts.sql.recover();
        tokio::pin!(recover);
        loop {
            tokio::select! {
                result = &mut recover => return Ok(result?),
                () = self.clock.sleep(PROGRESS_LOOK) => self.health.restoring(restored_percent(parts)),
            }
        }
    }

    /// Repeats a call until it succeeds or fails with anything but "not there". The cause stands in `/readyz` and, when it changes, in the log.
    async fn patiently<T, E, F>(&self, part: &'static str, mut call: impl FnMut() -> F) -> Result<T, NodeError>
    where
        E: Classified + Into<NodeError> + 'static,
        F: Future<Output = Result<T, E>>,
    {
        let mut wait = WAIT_MIN;
        loop {
            let error = match call().await {
                Ok(v) => {
                    self.health.report(part, None, self.clock.now_ms());
                    return Ok(v);
                }
                Err(error) => error,
            };
            // An unknown outcome of a start-up check has changed nothing that a second try could spoil.
            if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Exhausted) {
                return Err(error.into());
            }
            let cause = chain(&error);
            if self.health.report(part, Some(cause.clone()), self.clock.now_ms()) {
                tracing::warn!(part, error = %cause, "does not answer yet, waiting for it");
            }
            self.clock.sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }
}

/// Open regions of those in the catalog.
fn restored_percent(parts: &Parts) -> u8 {
    let Some(catalog) = parts.sql.catalog() else { return 0 };
    let all: usize = catalog.objects.iter().filter_map(|o| o.readable()).map(|(_, regions)| regions.len()).sum();
    let open = parts.engine.regions().len();
    (open * 100).checked_div(all).map_or(100, |percent| percent.min(100) as u8)
}
