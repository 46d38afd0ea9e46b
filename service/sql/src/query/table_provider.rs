//! A table or view as DataFusion reads it: the visible columns, one partition per region.
//!
//! Each region has one read point per statement, taken when the statement first meets it, and its stream is opened while planning: the scan holds
//! its version, so that flush and compaction may go on. A view is read as of its last applied checkpoint, since that is what `applied` means there.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::{Field, Schema, SchemaRef},
};
use async_trait::async_trait;
use datafusion::{
    catalog::{Session, TableProvider},
    common::{Constraint, Constraints, DataFusionError},
    execution::{SendableRecordBatchStream, TaskContext},
    logical_expr::{Expr, TableProviderFilterPushDown, TableType},
    physical_plan::{
        ExecutionPlan,
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use futures::{StreamExt, TryStreamExt};
use millstream_storage::{KeyMatch, Region, ScanItem, ScanRequest, ScanStream, Storage, StorageError};
use millstream_types::{ErrorKind, Key, RegionId, Seq, TableId, TableSchema};

use super::pushdown;
use crate::{SqlError, catalog::Object, parser::statement::ObjectKind, planner::stop};

/// Rows of one batch of a scan.
const BATCH_ROWS: usize = 8192;

/// The read point of each region that a statement has met.
#[derive(Debug, Default)]
pub(crate) struct ReadPoints(Mutex<HashMap<RegionId, Seq>>);

impl ReadPoints {
    fn of(&self, region: &Arc<dyn Region>) -> Seq {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(region.id()).or_insert_with(|| region.applied())
    }
}

#[derive(Debug)]
pub(crate) struct RegionTable {
    id: TableId,
    name: Arc<str>,
    schema: Arc<TableSchema>,
    /// Places in `schema` of the columns that queries see.
    visible: Vec<usize>,
    arrow: SchemaRef,
    constraints: Constraints,
    defaults: HashMap<String, Expr>,
    regions: Vec<RegionId>,
    /// A topic may get more partitions: then an old one may hold a key beside a new one.
    topic_fed: bool,
    storage: Arc<dyn Storage>,
    points: Arc<ReadPoints>,
    /// Why its rows are not what its statement says.
    problem: Option<String>,
    kind: ObjectKind,
}

impl RegionTable {
    /// `None` for a sink: it has no rows. `defaults` are given for the target of an INSERT: its columns are nullable for the planner, so that a NULL is
    /// refused by `insert` with the name of its column.
    pub(crate) fn new(
        object: &Object,
        storage: Arc<dyn Storage>,
        points: Arc<ReadPoints>,
        defaults: Option<HashMap<String, Expr>>,
    ) -> Option<Self> {
        let (id, regions) = object.readable()?;
        let schema = Arc::new(object.schema().clone());
        let visible = schema.visible();
        let fields: Vec<Field> = visible
            .iter()
            .map(|i| &schema.columns[*i])
            .map(|c| Field::new(&c.name, c.sql_type.arrow(), c.nullable || defaults.is_some()))
            .collect();
        let key: Option<Vec<usize>> = schema.primary_key.iter().map(|k| visible.iter().position(|v| v == k)).collect();
        let constraints = match key {
            Some(key) if !key.is_empty() => Constraints::new_unverified(vec![Constraint::PrimaryKey(key)]),
            _ => Constraints::default(),
        };
        Some(Self {
            id,
            name: object.name().into(),
            visible,
            arrow: Arc::new(Schema::new(fields)),
            constraints,
            defaults: defaults.unwrap_or_default(),
            schema,
            regions,
            topic_fed: matches!(object, Object::Table(t) if t.topic().is_some()),
            storage,
            points,
            problem: None,
            kind: object.kind(),
        })
    }

    /// It can be planned and explained, but not read.
    pub(crate) fn with_problem(mut self, problem: Option<String>) -> Self {
        self.problem = problem;
        self
    }

    pub(crate) fn id(&self) -> TableId {
        self.id
    }

    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    pub(crate) fn table_schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    pub(crate) fn regions(&self) -> &[RegionId] {
        &self.regions
    }

    pub(crate) fn partitions_may_share_keys(&self) -> bool {
        self.topic_fed
    }

    fn open_region(&self, id: RegionId) -> Result<Arc<dyn Region>, SqlError> {
        self.storage.region(id).ok_or_else(|| {
            SqlError::new(
                ErrorKind::Unavailable,
                "REGION_CLOSED",
                format!("region {id} of {} is not open here", self.name),
            )
            .hint("SHOW REGIONS tells why; a table that was just created or is being restored opens soon")
        })
    }
}

#[async_trait]
impl TableProvider for RegionTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.arrow)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>, DataFusionError> {
        // a look-up may bring a row that a filter on other columns refuses: the filter stays above
        Ok(filters
            .iter()
            .map(|f| match pushdown::key_values(f, &self.schema) {
                Some(_) => TableProviderFilterPushDown::Inexact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        stop::check()?;
        if let Some(reason) = &self.problem {
            return Err(DataFusionError::External(Box::new(SqlError::broken(self.kind, &self.name, reason))));
        }
        let wanted: Vec<usize> = projection.cloned().unwrap_or_else(|| (0..self.visible.len()).collect());
        let schema = Arc::new(self.arrow.project(&wanted)?);
        // a scan without columns would lose the number of rows
        let columns: Vec<usize> =
            if wanted.is_empty() { vec![self.visible[0]] } else { wanted.iter().map(|i| self.visible[*i]).collect() };
        let keys = pushdown::keys(filters, &self.schema).map_err(|e| DataFusionError::External(Box::new(e)))?;
        let mut partitions: Vec<Arc<dyn PartitionStream>> = Vec::with_capacity(self.regions.len());
        for id in &self.regions {
            let region = self.open_region(*id).map_err(|e| DataFusionError::External(Box::new(e)))?;
            let at = self.points.of(&region);
            let read = match &keys {
                Some((keys, by)) => Read::Lookup(keys.clone(), *by),
                None => {
                    let mut request = ScanRequest::snapshot(at);
                    request.columns = Some(columns.clone());
                    request.max_rows = limit.unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
                    Read::Scan { opened: Mutex::new(Some(region.scan(request.clone()))), request }
                }
            };
            partitions.push(Arc::new(RegionPartition {
                schema: Arc::clone(&schema),
                region,
                at,
                columns: columns.clone(),
                read,
            }));
        }
        Ok(Arc::new(StreamingTableExec::try_new(schema, partitions, None, None, false, limit)?))
    }
}

enum Read {
    /// The stream that was opened while planning; a second execution of the same plan opens its own at the same read point.
    Scan {
        opened: Mutex<Option<ScanStream>>,
        request: ScanRequest,
    },
    Lookup(Vec<Key>, KeyMatch),
}

struct RegionPartition {
    schema: SchemaRef,
    region: Arc<dyn Region>,
    at: Seq,
    columns: Vec<usize>,
    read: Read,
}

impl std::fmt::Debug for RegionPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionPartition")
            .field("region", &self.region.id())
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl PartitionStream for RegionPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let fit = move |rows: RecordBatch| fit(&schema, &rows);
        let external = |e: StorageError| DataFusionError::External(Box::new(e));
        let batches = match &self.read {
            Read::Scan { opened, request } => {
                let opened = opened.lock().unwrap_or_else(PoisonError::into_inner).take();
                let stream = opened.unwrap_or_else(|| self.region.scan(request.clone()));
                stream
                    .try_filter_map(|item| async move {
                        Ok(match item {
                            ScanItem::Rows { chunk, .. } => Some(chunk.rows),
                            ScanItem::Mark { .. } => None,
                        })
                    })
                    .map(move |rows| fit(rows.map_err(external)?))
                    .boxed()
            }
            Read::Lookup(keys, by) => {
                let (region, keys, by, at, columns) =
                    (Arc::clone(&self.region), keys.clone(), *by, self.at, self.columns.clone());
                futures::stream::once(async move {
                    let found = region.lookup(keys, by, at, Some(columns)).await.map_err(external)?;
                    fit(found.rows)
                })
                .boxed()
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

/// Storage's columns under the schema that the query was planned with.
fn fit(schema: &SchemaRef, rows: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let columns = if schema.fields().is_empty() { Vec::new() } else { rows.columns().to_vec() };
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
