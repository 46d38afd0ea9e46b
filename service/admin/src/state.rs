//! What every route can reach: handles only, no engine. Cheap to clone.

use std::{sync::Arc, time::Duration};

use millstream_storage::Storage;
use millstream_types::runtime::{Clock, Tasks};
use prometheus::Registry;
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinError},
};

use crate::{
    error::ApiError,
    health::Health,
    metrics::AdminMetrics,
    ports::{CatalogObject, JobPort, ObjectKind, SqlPort},
};

/// Limits of the REST port.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// Largest request body.
    pub max_body_bytes: usize,
    /// Requests at work at one time; one more is answered 429.
    pub max_requests: usize,
    /// The body of a request has come after this time, or it is refused.
    pub body_timeout: Duration,
    /// After this time a request is answered 504; a statement that runs goes on.
    pub request_timeout: Duration,
    /// Most rows of one `GET rows`.
    pub max_rows: usize,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            max_requests: 256,
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(300),
            max_rows: 10_000,
        }
    }
}

/// Handles that the node hands in.
#[derive(Debug, Clone)]
pub struct AdminDeps {
    pub sql: Arc<dyn SqlPort>,
    pub jobs: Arc<dyn JobPort>,
    pub storage: Arc<dyn Storage>,
    pub tasks: Tasks,
    pub clock: Arc<dyn Clock>,
    pub registry: Registry,
    pub info: NodeInfo,
}

/// What `/v1/info` tells about this process.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub version: &'static str,
    pub commit: &'static str,
    pub replica: String,
    pub prefix: String,
    pub started_ms: u64,
}

/// State of the REST routes.
#[derive(Debug, Clone)]
pub struct AdminState {
    pub(crate) config: Arc<AdminConfig>,
    pub(crate) deps: Arc<AdminDeps>,
    pub(crate) health: Health,
    /// One permit per request at work.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) metrics: AdminMetrics,
}

impl AdminState {
    pub fn new(config: AdminConfig, deps: AdminDeps, health: Health, metrics: AdminMetrics) -> Self {
        let permits = Arc::new(Semaphore::new(config.max_requests));
        Self { config: Arc::new(config), deps: Arc::new(deps), health, permits, metrics }
    }

    /// Looks a name up in the catalog: the only use that is made of a name in a path.
    pub(crate) fn object(&self, kind: ObjectKind, name: &str) -> Result<CatalogObject, ApiError> {
        let found = self.deps.sql.objects().into_iter().find(|o| o.kind == kind && o.name == name);
        found.ok_or_else(|| ApiError::not_found(kind.as_str(), name))
    }

    /// Runs a job to its end even if the client goes away: a cancelled DDL or flush is a half-done one.
    pub(crate) async fn detached<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        ended(name, self.deps.tasks.io(name, work).await)
    }

    /// Runs what changes nothing: it ends when the client goes away.
    pub(crate) async fn attached<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let task = self.deps.tasks.io(name, work);
        let _stop = AbortOnDrop(task.abort_handle());
        ended(name, task.await)
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn ended<T>(name: &'static str, result: Result<Option<Result<T, ApiError>>, JoinError>) -> Result<T, ApiError> {
    match result {
        Ok(Some(result)) => result,
        Ok(None) => Err(ApiError::new(
            millstream_types::ErrorKind::Internal,
            "INTERNAL",
            format!("{name} panicked, see the log"),
        )),
        Err(e) => Err(ApiError::internal(name, e)),
    }
}
