//! The door of this crate: text in, results out.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::Duration,
};

use datafusion::execution::{
    memory_pool::{GreedyMemoryPool, MemoryPool},
    runtime_env::RuntimeEnv,
};
use futures::FutureExt;
use millstream_storage::{Storage, object_store::Bucket};
use millstream_stream::StreamService;
use millstream_types::{
    BadRecordSink, Classified, ErrorKind, LogSystem,
    runtime::{Clock, Tasks},
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    SqlConfig, SqlError, StatementResult,
    broken::BrokenObjects,
    catalog::{BucketCatalogLog, Catalog, CatalogStore, Cluster, Object},
    ddl, insert,
    metrics::{PlanningMetrics, SqlMetrics},
    parser::{
        self,
        statement::{ExplainTarget, Parsed, Statement},
    },
    planner::{
        self,
        session::{Runnable, Session},
        threads::{Deadline, Planners},
    },
    query::{
        notices,
        run::{Answer, Limits, run},
        schema_provider::PublicSchema,
        system_tables::SystemSchema,
    },
    recover, show,
    stack::{self, Deep},
};

/// What the service works with.
#[derive(Debug, Clone)]
pub struct SqlDeps {
    pub storage: Arc<dyn Storage>,
    pub stream: StreamService,
    pub logs: Arc<dyn LogSystem>,
    /// Holds `catalog/`.
    pub bucket: Arc<Bucket>,
    /// Where decoders of topic-fed tables report rejected records.
    pub bad_records: Arc<dyn BadRecordSink>,
    pub tasks: Tasks,
    pub clock: Arc<dyn Clock>,
    pub metrics: prometheus::Registry,
}

/// Cheap to clone; all clones are one service.
#[derive(Debug, Clone)]
pub struct SqlService {
    pub(crate) core: Arc<Core>,
}

/// What statements share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: SqlConfig,
    pub(crate) deps: SqlDeps,
    runtime: Arc<RuntimeEnv>,
    metrics: SqlMetrics,
    large_texts: Semaphore,
    /// Large texts that wait.
    waiting_texts: Semaphore,
    pub(crate) planners: Arc<Planners>,
    /// Memory of results until they are sent.
    results: Arc<dyn MemoryPool>,
    /// Set by `recover`.
    store: OnceLock<CatalogStore>,
    pub(crate) broken: BrokenObjects,
    /// One DDL statement of this process at a time: its steps outside the catalog (topic, regions, job) must not interleave.
    pub(crate) ddl: tokio::sync::Mutex<()>,
}

impl SqlService {
    /// Answers only after [`SqlService::recover`].
    pub fn new(config: SqlConfig, deps: SqlDeps) -> Result<Self, SqlError> {
        let runtime = planner::session::runtime(config.query_memory_bytes)?;
        stack::deepen_tasks();
        let metrics = SqlMetrics::new(&deps.metrics).map_err(|e| SqlError::internal("register metrics", e))?;
        let results: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(config.max_result_bytes.saturating_mul(2)));
        let planning = PlanningMetrics::new(&deps.metrics).map_err(|e| SqlError::internal("register metrics", e))?;
        let planners = Arc::new(Planners::new(config.plannings, planning, Arc::clone(&deps.clock)));
        let core = Core {
            config,
            deps,
            runtime,
            metrics,
            large_texts: Semaphore::new(LARGE_TEXTS_KIB),
            waiting_texts: Semaphore::new(WAITING_TEXTS_KIB),
            planners,
            results,
            store: OnceLock::new(),
            broken: BrokenObjects::default(),
            ddl: tokio::sync::Mutex::default(),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// Loads the catalog, ends unfinished drops, opens the regions of all objects and starts their jobs. An object that cannot be brought up is named
    /// in `SHOW` with its reason and harms no other; what is only unavailable is tried again in the background. Fails if the catalog cannot be read.
    pub async fn recover(&self) -> Result<(), SqlError> {
        let log = Arc::new(BucketCatalogLog::new(Arc::clone(&self.core.deps.bucket)));
        let store = CatalogStore::load(log, Cluster { shards: self.core.config.shards }).await?;
        if self.core.store.set(store).is_err() {
            return Err(SqlError::conflict("RECOVERED_ALREADY", "the service has been recovered already"));
        }
        recover::recover(&self.core).await
    }

    /// Runs the statements of `sql` in order and stops at the first that fails; the ones before it stay done. A text with a syntax error runs nothing.
    pub async fn execute(&self, sql: &str) -> Result<Vec<StatementResult>, SqlError> {
        let done = async {
            let _large = self.core.admit(sql).await?;
            Deep::new(self.execute_all(self.core.parse(sql).await?)).await
        };
        answered(done).await
    }

    async fn execute_all(&self, statements: Vec<Parsed>) -> Result<Vec<StatementResult>, SqlError> {
        let mut results = Vec::new();
        let mut kept = 0;
        for parsed in statements {
            let kind = kind_of(&parsed.statement);
            let started = self.core.deps.clock.now_ms();
            let result = Box::pin(self.core.run(parsed)).await;
            let took = Duration::from_millis(self.core.deps.clock.now_ms().saturating_sub(started));
            self.core.metrics.finished(kind, result.as_ref().map_or_else(|e| e.kind().as_str(), |_| "ok"), took);
            let result = result?;
            kept += result.bytes()?;
            if kept > self.core.config.max_result_bytes {
                return Err(SqlError::new(
                    ErrorKind::Invalid,
                    "RESULT_TOO_LARGE",
                    format!(
                        "the results of all statements together have more than {} MiB",
                        self.core.config.max_result_bytes >> 20
                    ),
                )
                .hint("send the statements one by one"));
            }
            results.push(result);
        }
        Ok(results)
    }

    /// The same checks as `execute` makes before it changes anything.
    pub async fn validate(&self, sql: &str) -> Result<(), SqlError> {
        let done = async {
            let _large = self.core.admit(sql).await?;
            Deep::new(self.validate_all(self.core.parse(sql).await?)).await
        };
        answered(done).await
    }

    async fn validate_all(&self, statements: Vec<Parsed>) -> Result<(), SqlError> {
        for parsed in statements {
            match parsed.statement {
                Statement::Query(query) => {
                    let core = Arc::clone(&self.core);
                    let planning = async move { core.session()?.plan_query(*query).await.map(drop) };
                    self.core.planners.run(self.core.deadline(), planning).await?;
                }
                Statement::CreateDerived(create) => {
                    ddl::create_derived::prepare(&self.core, &create).await?.check_input(&self.core, &create)?;
                }
                Statement::CreateTable(create) => drop(ddl::create_table::prepare(&self.core, &create).await?),
                _ => {}
            }
        }
        Ok(())
    }

    /// The newest catalog version this process knows; `None` before `recover`.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.core.store.get().map(CatalogStore::current)
    }

    /// Why an object does not run here, if it does not.
    pub fn broken(&self) -> BTreeMap<String, String> {
        self.core.broken_objects()
    }
}

/// An error of a readable length, also for a statement that the library panics on while it plans.
async fn answered<T>(work: impl Future<Output = Result<T, SqlError>>) -> Result<T, SqlError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result.map_err(SqlError::shortened),
        Err(_) => {
            tracing::error!("a statement panicked while it was planned");
            Err(SqlError::new(ErrorKind::Internal, "QUERY_PANICKED", "the statement panicked, the log names it"))
        }
    }
}

fn kind_of(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateTable(_) | Statement::CreateDerived(_) => "create",
        Statement::Drop { .. } => "drop",
        Statement::Alter { .. } => "alter",
        Statement::Show(_) | Statement::ShowCreate(_) | Statement::Describe(_) => "show",
        Statement::Explain { .. } => "explain",
        Statement::Query(_) => "select",
        Statement::Insert { .. } => "insert",
        Statement::Delete { .. } => "delete",
        Statement::Flush(_) | Statement::Compact(_) | Statement::Checkpoint => "operate",
        Statement::WaitFor(_) => "wait",
    }
}

/// Texts above this size wait for each other.
const LARGE_TEXT: usize = 1 << 20;
/// What all large texts together may need, in KiB.
const LARGE_TEXTS_KIB: usize = 512 << 10;
/// What is kept of those that wait for the others, in KiB.
const WAITING_TEXTS_KIB: usize = 64 << 10;
/// Bytes that are parsed where they come in: less than a few milliseconds.
const SHORT_TEXT: usize = 32 << 10;

impl Core {
    /// Waits until a large text has room, with all others that are being worked on.
    async fn admit(&self, text: &str) -> Result<Option<SemaphorePermit<'_>>, SqlError> {
        let weight = parser::weight(text);
        if weight <= LARGE_TEXT {
            return Ok(None);
        }
        let kib = (weight >> 10).min(LARGE_TEXTS_KIB) as u32;
        if let Ok(room) = self.large_texts.try_acquire_many(kib) {
            return Ok(Some(room));
        }
        let refused = |what: &str| {
            SqlError::new(ErrorKind::Exhausted, "TOO_MANY_LARGE_STATEMENTS", what)
                .hint("send it again, or in smaller parts")
        };
        let Ok(_waits) = self.waiting_texts.try_acquire_many((text.len() >> 10) as u32) else {
            return Err(refused("other large statements are at work, and wait for them"));
        };
        tokio::select! {
            permit = self.large_texts.acquire_many(kib) => permit.map(Some).map_err(|e| SqlError::internal("large texts", e)),
            () = self.deps.clock.sleep(self.config.query_timeout) => Err(refused("other large statements are at work")),
        }
    }

    /// Long texts take their time, on a thread of their own.
    async fn parse(&self, text: &str) -> Result<Vec<Parsed>, SqlError> {
        if text.len() <= SHORT_TEXT {
            return parser::parse(text);
        }
        let text = text.to_owned();
        self.planners.run(self.deadline(), async move { parser::parse(&text) }).await
    }

    /// Of a statement that begins now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::new(self.deps.clock.as_ref(), self.config.query_timeout)
    }

    pub(crate) fn store(&self) -> Result<&CatalogStore, SqlError> {
        self.store.get().ok_or_else(|| {
            SqlError::new(ErrorKind::Unavailable, "STARTING", "the service is starting, its catalog is not loaded yet")
        })
    }

    pub(crate) fn catalog(&self) -> Result<Arc<Catalog>, SqlError> {
        Ok(self.store()?.current())
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            rows: self.config.max_result_rows,
            bytes: self.config.max_result_bytes,
            results: Arc::clone(&self.results),
        }
    }

    /// A session over the newest catalog, system tables included.
    pub(crate) fn session(self: &Arc<Self>) -> Result<Session, SqlError> {
        let catalog = self.catalog()?;
        let system = Arc::new(SystemSchema::new(Arc::clone(self)));
        let problems = self.problems(&catalog);
        self.session_over(PublicSchema::new(catalog, Arc::clone(&self.deps.storage), problems), Some(system))
    }

    pub(crate) fn session_over(
        &self,
        public: PublicSchema,
        system: Option<Arc<SystemSchema>>,
    ) -> Result<Session, SqlError> {
        let system = system.map(|s| s as Arc<dyn datafusion::catalog::SchemaProvider>);
        Session::new(Arc::clone(&self.runtime), Arc::new(public), system)
    }

    async fn run_planned(&self, planned: Runnable, until: Deadline) -> Result<Answer, SqlError> {
        run(planned, self.limits(), until, &self.deps.tasks, &self.deps.clock).await
    }

    /// For INSERT and DELETE: any number of rows that fit into memory, since they do not go to a client.
    pub(crate) async fn run_unlimited_rows(&self, planned: Runnable, until: Deadline) -> Result<Answer, SqlError> {
        let limits = Limits { rows: usize::MAX, ..self.limits() };
        run(planned, limits, until, &self.deps.tasks, &self.deps.clock).await
    }

    async fn run(self: &Arc<Self>, parsed: Parsed) -> Result<StatementResult, SqlError> {
        let at = parsed.at;
        match parsed.statement {
            Statement::CreateTable(create) => ddl::create_table::create(self, create, parsed.text).await,
            Statement::CreateDerived(create) => ddl::create_derived::create(self, create, parsed.text).await,
            Statement::Drop { kind, names, if_exists, cascade } => {
                ddl::drop::drop_objects(self, kind, &names, if_exists, cascade).await
            }
            Statement::Alter { kind, name, action } => ddl::alter::alter(self, kind, &name, action).await,
            Statement::Show(listing) => show::listing(self, listing).await,
            Statement::ShowCreate(name) => show::create(self, &name),
            Statement::Describe(name) => show::describe(self, &name),
            Statement::Explain { verbose, target: ExplainTarget::Derived(create) } => {
                let prepared = ddl::create_derived::prepare(self, &create).await?;
                show::text("plan", prepared.explain(self, &create, verbose))
            }
            Statement::Explain { verbose, target: ExplainTarget::Query(query) } => {
                let core = Arc::clone(self);
                let planning = async move { show::explain_query(&core, *query, at, verbose).await };
                self.planners.run(self.deadline(), planning).await
            }
            Statement::Query(query) => self.select(*query).await.map_err(|e| e.at(at)),
            Statement::Insert { table, statement } => {
                Box::pin(insert::insert(self, &table, *statement)).await.map_err(|e| e.at(at))
            }
            Statement::Delete { table, statement } => {
                Box::pin(insert::delete(self, &table, *statement)).await.map_err(|e| e.at(at))
            }
            Statement::Flush(table) => self.flush(table).await,
            Statement::Compact(table) => self.compact(table).await,
            Statement::Checkpoint => {
                self.deps.stream.checkpoint();
                Ok(StatementResult::command("CHECKPOINT", Vec::new()))
            }
            Statement::WaitFor(name) => ddl::wait::wait_for(self, &name).await,
        }
    }

    async fn select(
        self: &Arc<Self>,
        query: datafusion::sql::sqlparser::ast::Query,
    ) -> Result<StatementResult, SqlError> {
        // a compaction between planning and a second scan of one region may take its read point away: once more with new ones
        let mut tried = false;
        let until = self.deadline();
        loop {
            let epoch = Some(self.deps.stream.latest_epoch()).filter(|e| e.0 > 0);
            let (core, query) = (Arc::clone(self), query.clone());
            let planning = async move {
                let session = core.session()?;
                let plan = session.plan_query(query).await?;
                let notices = notices::of_query(&core, &plan)?;
                Ok((session.runnable(&plan).await?, notices))
            };
            let (runnable, notices) = self.planners.run(until, planning).await?;
            match self.run_planned(runnable, until).await {
                Ok(Answer { schema, batches }) => {
                    return Ok(StatementResult::Rows { schema, batches, epoch, notices });
                }
                Err(e) if e.code == "READ_POINT_GONE" && !tried => tried = true,
                Err(e) => return Err(e),
            }
        }
    }

    async fn flush(&self, table: Option<parser::statement::Name>) -> Result<StatementResult, SqlError> {
        let regions = match &table {
            None => self.deps.storage.regions(),
            Some(name) => self.open_regions(name)?,
        };
        futures::future::try_join_all(regions.iter().map(|r| r.flush())).await?;
        Ok(StatementResult::command("FLUSH", Vec::new()))
    }

    async fn compact(&self, table: parser::statement::Name) -> Result<StatementResult, SqlError> {
        for region in self.open_regions(&table)? {
            region.compact().await?;
        }
        Ok(StatementResult::command("COMPACT TABLE", Vec::new()))
    }

    /// The regions of a table or view; an error if it is unknown or one of them is not open here.
    pub(crate) fn open_regions(
        &self,
        name: &parser::statement::Name,
    ) -> Result<Vec<Arc<dyn millstream_storage::Region>>, SqlError> {
        let catalog = self.catalog()?;
        let object = self.find(&catalog, name)?;
        let (_, ids) = object
            .readable()
            .ok_or_else(|| SqlError::invalid(format!("{} is a sink, it has no regions", name.value)).at(name.at))?;
        ids.into_iter()
            .map(|id| {
                self.deps.storage.region(id).ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::Unavailable,
                        "REGION_CLOSED",
                        format!("region {id} of {} is not open here", name.value),
                    )
                    .at(name.at)
                })
            })
            .collect()
    }

    pub(crate) fn find(&self, catalog: &Catalog, name: &parser::statement::Name) -> Result<Arc<Object>, SqlError> {
        if let Some(object) = catalog.object(&name.value) {
            return Ok(Arc::clone(object));
        }
        if let Some(q) = catalog.quarantined.iter().find(|q| q.name == name.value) {
            return Err(
                SqlError::conflict("QUARANTINED", format!("{} is quarantined: {}", q.name, q.reason)).at(name.at)
            );
        }
        let names = catalog.objects.iter().map(|o| o.name());
        Err(SqlError::not_found("object", &name.value).or_hint(crate::error::nearest(&name.value, names)).at(name.at))
    }
}
