//! What a job does, as data. The planner builds it anew from the SQL text at every start; nothing here is stored but [`JobPlan::plan_hash`].
//!
//! Rows of the input (with [`InputPlan::columns`]) pass [`JobPlan::nodes`] in order and end in [`OutputPlan`]. Not here: how a node works (`executor`).

mod agg;

use std::{fmt, sync::Arc};

use datafusion_physical_expr::PhysicalExpr;
use millstream_storage::RegionSpec;
use millstream_types::{
    Column, Encoder, InputId, JobId, RegionId, ShardId, SqlType, TableId, TableSchema, schema::REGION_COLUMN,
};

pub use agg::{
    AggLayout, CallLayout, accumulator_columns, agg_layout, global_key_column, minmax_schema, needs_value_set,
    sum_state_type,
};

/// One view or sink.
#[derive(Debug, Clone)]
pub struct JobPlan {
    pub job: JobId,
    /// Name of the view or sink, for logs and metric labels.
    pub name: Arc<str>,
    pub kind: JobKind,
    /// WAL partition of all regions of the job.
    pub shard: ShardId,
    pub input: InputPlan,
    pub nodes: Vec<Node>,
    pub output: OutputPlan,
    /// The job's progress region; schema from [`crate::progress_schema`].
    pub progress: RegionSpec,
    /// State tables that aggregations own: those of [`AggState::Own`] and `minmax`, listed again here so that they can be created and dropped.
    pub state: Vec<RegionSpec>,
    pub options: JobOptions,
    /// Hash of what the stored state depends on; a job whose stored hash differs is quarantined.
    pub plan_hash: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    View,
    Sink,
}

/// The one scan of a job. For a keyed input the columns include its primary key.
#[derive(Debug, Clone)]
pub struct InputPlan {
    pub input: InputId,
    pub table: TableId,
    pub table_name: Arc<str>,
    pub regions: Vec<RegionId>,
    pub schema: Arc<TableSchema>,
    /// Places in `schema` that are read; the first node sees them in this order.
    pub columns: Vec<usize>,
    /// Whether the number of the row's region follows them ([`region_column`]): with it a key is unique also if two partitions hold it.
    pub with_region: bool,
}

impl InputPlan {
    /// What the first node sees.
    pub fn row(&self) -> Vec<Column> {
        let mut row: Vec<Column> = self.columns.iter().map(|c| self.schema.columns[*c].clone()).collect();
        row.extend(self.with_region.then(region_column));
        row
    }
}

/// The number of a row's region within its table.
pub fn region_column() -> Column {
    let mut c = Column::new(0, REGION_COLUMN, SqlType::Int).not_null();
    c.hidden = true;
    c
}

#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a plan has a handful of nodes")]
pub enum Node {
    /// Keeps rows where the predicate is true; null is no.
    Filter { predicate: Arc<dyn PhysicalExpr> },
    /// One output column per expression; a result of another Arrow type than the column's is cast.
    Project { exprs: Vec<(Arc<dyn PhysicalExpr>, Column)> },
    /// Output columns: those of [`agg_layout`].
    HashAgg(HashAggNode),
}

/// Grouping over columns that an earlier `Project` has laid out.
#[derive(Debug, Clone)]
pub struct HashAggNode {
    /// Columns of the node's input, as the node before puts them out (or the input plan's columns).
    pub input: Vec<Column>,
    /// Places in `input`. Empty = one global row that is always there; its key is the constant hidden column of [`global_key_column`].
    pub group: Vec<usize>,
    pub calls: Vec<AggCall>,
    /// Whether the node's input never retracts.
    pub append_only: bool,
    pub state: AggState,
    /// Places in `input` that tell rows of a group apart; only used by `minmax`.
    pub stream_key: Vec<usize>,
    /// Per call the value set of a retractable min or max ([`minmax_schema`]); empty if no call needs one.
    pub minmax: Vec<Option<RegionSpec>>,
    /// Whether updates leave as pairs (needed before a filter), not as the new row alone.
    pub emit_before: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggCall {
    pub func: AggFunc,
    /// Place in the node's input; `None` only for `CountStar`.
    pub arg: Option<usize>,
    pub name: String,
    pub output: SqlType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggFunc {
    CountStar,
    Count,
    Sum,
    Avg,
    Min,
    Max,
}

/// Where the accumulators of the groups are stored. Both forms hold exactly the output columns of the node ([`agg_layout`]), keyed by the group.
#[derive(Debug, Clone)]
pub enum AggState {
    /// In the view of the job: place in the view's schema of each output column, in order. The view's primary key is the group, in order, and every
    /// group is in the view (no filter between).
    InView { columns: Vec<usize> },
    /// In a region of its own whose columns are the output columns.
    Own { region: RegionSpec },
}

#[derive(Debug, Clone)]
pub struct OutputPlan {
    pub view: Option<ViewOutput>,
    pub topic: Option<TopicOutput>,
}

/// The last node's columns are the region's, in order, hidden ones included. A view without aggregation has the key of its input, and behind it the
/// number of the region ([`InputPlan::with_region`]) where two regions may hold one key: the view has as many rows as its query.
#[derive(Debug, Clone)]
pub struct ViewOutput {
    pub region: RegionSpec,
}

#[derive(Clone)]
pub struct TopicOutput {
    pub topic: Arc<str>,
    /// As recorded at CREATE.
    pub partitions: i32,
    pub envelope: Envelope,
    /// Places in the last node's output; what the key encoder was made for.
    pub key_columns: Vec<usize>,
    /// Places of what tells rows apart: the key of the input in its order, then the region's number if there is one. With it rows may share a record key
    /// (see `executor::fold`).
    pub row_key: Vec<usize>,
    pub value_columns: Vec<usize>,
    /// `None` = null keys, records spread evenly.
    pub key_encoder: Option<Arc<dyn Encoder>>,
    pub value_encoder: Arc<dyn Encoder>,
    pub partitioner: fn(&[u8], i32) -> i32,
    /// Whether records carry `millstream-job` and `millstream-epoch`.
    pub headers_epoch: bool,
}

impl fmt::Debug for TopicOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicOutput")
            .field("topic", &self.topic)
            .field("partitions", &self.partitions)
            .field("envelope", &self.envelope)
            .field("key_columns", &self.key_columns)
            .field("value_columns", &self.value_columns)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Envelope {
    /// Values only; deletes and old rows are dropped and counted.
    Append,
    /// Key and value; a delete is a tombstone. At most one record per key and epoch.
    Upsert,
}

#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Rows per second of backfill scans; `None` = no limit, 0 = hold.
    pub backfill_rate_limit: Option<u64>,
    /// `false` = no history: the job starts with the changes after its creation.
    pub snapshot: bool,
    pub on_eval_error: OnEvalError,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { backfill_rate_limit: None, snapshot: true, on_eval_error: OnEvalError::Null }
    }
}

/// What a failed expression or an overflow does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnEvalError {
    /// The value is null and the error is counted.
    #[default]
    Null,
    /// The job stops with the error.
    Fail,
}

impl JobPlan {
    /// Every region that the job writes: progress, state, view.
    pub fn own_regions(&self) -> Vec<RegionSpec> {
        let mut all = vec![self.progress.clone()];
        all.extend(self.state.iter().cloned());
        all.extend(self.output.view.iter().map(|v| v.region.clone()));
        all
    }
}
