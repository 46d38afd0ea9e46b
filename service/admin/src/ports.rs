//! What admin needs from the services behind it: statements and catalog ([`SqlPort`]), jobs ([`JobPort`]).
//!
//! Two narrow traits instead of the services themselves, so that the routes are tested without an engine. Regions need none: `storage::Storage` is a trait.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc, time::Duration};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use async_trait::async_trait;
use millstream_types::{Epoch, JobId, RegionId, Seq, TableId, TableSchema};

use crate::{
    error::ApiError,
    model::{job::JobInfo, object::ErrorsInfo},
};

/// What one statement gave.
#[derive(Debug, Clone)]
pub enum StatementOutput {
    Rows { schema: SchemaRef, batches: Vec<RecordBatch>, epoch: Option<Epoch>, notices: Vec<String> },
    Command { tag: String, notices: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    Table,
    View,
    Sink,
}

impl ObjectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Table => "table",
            ObjectKind::View => "view",
            ObjectKind::Sink => "sink",
        }
    }
}

/// One object of the catalog as the routes need it.
#[derive(Debug, Clone)]
pub struct CatalogObject {
    pub kind: ObjectKind,
    pub name: String,
    /// Of tables and views.
    pub table: Option<TableId>,
    /// Of views and sinks.
    pub job: Option<JobId>,
    pub schema: Option<Arc<TableSchema>>,
    /// The statement that made it.
    pub sql: String,
    pub options: BTreeMap<String, String>,
    /// The topic that feeds the table, or that the view or sink writes.
    pub topic: Option<String>,
    /// Regions of a table or view, by number.
    pub regions: Vec<RegionId>,
    /// Names of the tables and views it reads.
    pub inputs: Vec<String>,
    /// Why the catalog entry could not be loaded, if it could not.
    pub quarantined: Option<String>,
}

/// Statements and the catalog.
#[async_trait]
pub trait SqlPort: Send + Sync + Debug {
    /// Runs all statements of `text` in order; the first failure ends it.
    async fn execute(&self, text: &str) -> Result<Vec<StatementOutput>, ApiError>;
    /// The checks of [`SqlPort::execute`] without its effects. The notices say what would apply.
    async fn validate(&self, text: &str) -> Result<Vec<String>, ApiError>;
    /// All objects, by kind and name.
    fn objects(&self) -> Vec<CatalogObject>;
    /// What was rejected of a table's topic.
    fn bad_records(&self, table: &CatalogObject) -> ErrorsInfo;
}

/// Jobs of views and sinks.
#[async_trait]
pub trait JobPort: Send + Sync + Debug {
    fn jobs(&self) -> Vec<JobInfo>;
    fn job(&self, job: JobId) -> Option<JobInfo>;
    /// Both idempotent; return when the wish is accepted, not when it has its effect.
    async fn pause(&self, job: JobId) -> Result<(), ApiError>;
    async fn resume(&self, job: JobId) -> Result<(), ApiError>;
    /// Rows per second; `None` = unlimited.
    async fn set_rate_limit(&self, job: JobId, limit: Option<u64>) -> Result<(), ApiError>;
    /// Returns when the job's committed positions cover `positions`; `Exhausted` never, `Unavailable` after `timeout`.
    async fn wait_for(&self, job: JobId, positions: &[(RegionId, Seq)], timeout: Duration) -> Result<(), ApiError>;
    /// Sends a barrier now and returns its epoch.
    async fn checkpoint(&self) -> Result<Epoch, ApiError>;
    fn latest_epoch(&self) -> Epoch;
}
