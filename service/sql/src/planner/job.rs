//! Binds a draft to the ids of its catalog entry: regions, state tables, the derived topic -> `JobPlan`.

use std::sync::Arc;

use millstream_storage::{RegionSpec, WalBinding, api::OnDataLoss};
use millstream_stream::{
    AggState, Envelope, HashAggNode, InputPlan, JobKind, JobOptions, JobPlan, Node, OnEvalError, OutputPlan,
    TopicOutput, ViewOutput, plan::minmax_schema, progress_schema,
};
use millstream_types::{Encoder, InputId, RegionId, TableId, TableSchema};

use super::draft::{Draft, DraftAgg, DraftNode};
use crate::{
    SqlError,
    catalog::{Derived, TopicEnvelope},
    parser::statement::DerivedKind,
};

/// Encoders of the derived topic, made from its options.
#[derive(Debug, Clone)]
pub(crate) struct TopicEncoders {
    pub(crate) key: Option<Arc<dyn Encoder>>,
    pub(crate) value: Arc<dyn Encoder>,
    pub(crate) key_columns: Vec<usize>,
    pub(crate) value_columns: Vec<usize>,
    pub(crate) partitioner: fn(&[u8], i32) -> i32,
    pub(crate) headers_epoch: bool,
}

/// The options of a job that are not part of its plan's shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobSettings {
    pub(crate) snapshot: bool,
    pub(crate) on_eval_error: OnEvalError,
}

pub(crate) fn job_plan(
    kind: DerivedKind,
    object: &Derived,
    draft: &Draft,
    settings: JobSettings,
    encoders: Option<TopicEncoders>,
) -> Result<JobPlan, SqlError> {
    if draft.state_tables() != object.state.len() {
        return Err(SqlError::internal(
            format!(
                "{}: the plan needs {} state tables, the catalog has {}",
                object.name,
                draft.state_tables(),
                object.state.len()
            ),
            "plan and catalog differ",
        ));
    }
    let mut state_ids = object.state.iter().copied();
    let mut state = Vec::new();
    let mut nodes = Vec::with_capacity(draft.nodes.len());
    for node in &draft.nodes {
        nodes.push(match node {
            DraftNode::Filter { predicate, .. } => Node::Filter { predicate: Arc::clone(predicate) },
            DraftNode::Project(outputs) => {
                Node::Project { exprs: outputs.iter().map(|o| (Arc::clone(&o.expr), o.column.clone())).collect() }
            }
            DraftNode::Agg(agg) => Node::HashAgg(aggregation(object, agg, &mut state_ids, &mut state)),
        });
    }
    let view = (kind == DerivedKind::View)
        .then(|| ViewOutput { region: region(object, object.id, object.schema.clone(), "") });
    Ok(JobPlan {
        job: object.job,
        name: object.name.as_str().into(),
        kind: match kind {
            DerivedKind::View => JobKind::View,
            DerivedKind::Sink => JobKind::Sink,
        },
        shard: object.shard,
        input: InputPlan {
            input: InputId(0),
            table: draft.input.table,
            table_name: Arc::clone(&draft.input.name),
            regions: draft.input.regions.clone(),
            schema: Arc::clone(&draft.input.schema),
            columns: draft.input.columns.clone(),
            with_region: draft.input.with_region,
        },
        nodes,
        output: OutputPlan { view, topic: topic(object, draft, encoders) },
        progress: region(object, object.progress, progress_schema(), "progress"),
        state,
        options: JobOptions {
            backfill_rate_limit: object.backfill_rate_limit,
            snapshot: settings.snapshot,
            on_eval_error: settings.on_eval_error,
        },
        plan_hash: plan_hash(object, draft)?,
    })
}

fn topic(object: &Derived, draft: &Draft, encoders: Option<TopicEncoders>) -> Option<TopicOutput> {
    let (target, encoders) = (object.topic.as_ref()?, encoders?);
    Some(TopicOutput {
        topic: target.topic.as_str().into(),
        partitions: target.partitions,
        envelope: match target.envelope {
            TopicEnvelope::Append => Envelope::Append,
            TopicEnvelope::Upsert => Envelope::Upsert,
        },
        key_columns: encoders.key_columns,
        row_key: draft.schema.primary_key.clone(),
        value_columns: encoders.value_columns,
        key_encoder: encoders.key,
        value_encoder: encoders.value,
        partitioner: encoders.partitioner,
        headers_epoch: encoders.headers_epoch,
    })
}

fn aggregation(
    object: &Derived,
    agg: &DraftAgg,
    ids: &mut impl Iterator<Item = TableId>,
    all: &mut Vec<RegionSpec>,
) -> HashAggNode {
    let mut own = |schema: TableSchema, what: &str| {
        let id = ids.next().expect("the number of state tables was checked");
        let spec = region(object, id, schema, what);
        all.push(spec.clone());
        spec
    };
    let state = match &agg.in_view {
        Some(columns) => AggState::InView { columns: columns.clone() },
        None => {
            let columns = agg.layout.columns.clone();
            AggState::Own {
                region: own(TableSchema { id: 1, columns, primary_key: (0..agg.layout.group).collect() }, "groups"),
            }
        }
    };
    let minmax = agg
        .value_sets
        .iter()
        .map(|needed| needed.then(|| own(minmax_schema(&agg.input, &agg.group, &agg.stream_key), "values")))
        .collect();
    HashAggNode {
        input: agg.input.clone(),
        group: agg.group.clone(),
        calls: agg.calls.clone(),
        stream_key: agg.stream_key.clone(),
        append_only: agg.append_only,
        state,
        minmax,
        emit_before: agg.emit_before,
    }
}

/// A region of the job, on the job's WAL partition.
fn region(object: &Derived, table: TableId, schema: TableSchema, what: &str) -> RegionSpec {
    let name = if what.is_empty() { object.name.clone() } else { format!("{}.{what}", object.name) };
    RegionSpec {
        id: RegionId::new(table, 0),
        schema: Arc::new(schema),
        wal: WalBinding::Shared { shard: object.shard },
        table_name: name.into(),
        decoder: None,
        bad_records: None,
        on_data_loss: OnDataLoss::Fail,
    }
}

/// What stored state depends on: the query, the input, and the layout of view and state. FNV-1a, since it is compared across versions of Rust.
fn plan_hash(object: &Derived, draft: &Draft) -> Result<u64, SqlError> {
    let schema = serde_json::to_string(&object.schema).map_err(|e| SqlError::internal("schema to json", e))?;
    let layout = draft.aggregation().map(|a| format!("{:?} {:?}", a.layout.columns, a.calls)).unwrap_or_default();
    let text = format!("3\n{}\n{}\n{schema}\n{layout}", object.sql, object.input);
    Ok(text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)))
}
