//! Plans and small helpers for the tests of this crate.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use datafusion_expr::Operator;
use datafusion_physical_expr::{
    PhysicalExpr,
    expressions::{BinaryExpr, Column as Col, Literal},
};
use millstream_storage::{RegionSpec, WalBinding, api::OnDataLoss};
use millstream_stream::{
    AggCall, AggFunc, AggState, Envelope, HashAggNode, InputPlan, JobKind, JobOptions, JobPlan, Node, OutputPlan,
    StreamConfig, TopicOutput, ViewOutput,
    plan::{agg_layout, minmax_schema, needs_value_set},
    progress_schema,
    testing::{TextEncoder, hash_partition},
};
use millstream_types::{Column, InputId, JobId, RegionId, ShardId, SqlType, TableId, TableSchema};

pub(crate) const INPUT: TableId = TableId(1);
pub(crate) const VIEW: TableId = TableId(2);
pub(crate) const PROGRESS: TableId = TableId(3);
/// State tables count from here.
pub(crate) const STATE: u32 = 10;

/// `k bigint, g varchar`; the first `keys` columns are the primary key and not null.
pub(crate) fn table(text: &str, keys: usize) -> TableSchema {
    let column = |(i, part): (usize, &str)| {
        let (name, t) = part.trim().split_once(' ').expect("name and type");
        let c = Column::new(i as u32 + 1, name, t.parse::<SqlType>().expect("a type"));
        if i < keys { c.not_null() } else { c }
    };
    let columns = split(text).into_iter().enumerate().map(column).collect();
    TableSchema { id: 1, columns, primary_key: (0..keys).collect() }
}

fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
    .collect()
}

pub(crate) fn spec(table: TableId, number: u32, schema: TableSchema) -> RegionSpec {
    RegionSpec {
        id: RegionId::new(table, number),
        schema: Arc::new(schema),
        wal: WalBinding::Shared { shard: ShardId(0) },
        table_name: format!("t{}", table.0).into(),
        decoder: None,
        bad_records: None,
        on_data_loss: OnDataLoss::Fail,
    }
}

/// A plan that reads all columns of `input`; the caller adds nodes and output.
pub(crate) fn plan(input: &TableSchema, regions: u32) -> JobPlan {
    JobPlan {
        job: JobId(7),
        name: "v".into(),
        kind: JobKind::View,
        shard: ShardId(0),
        input: InputPlan {
            input: InputId(0),
            table: INPUT,
            table_name: "t".into(),
            regions: (0..regions).map(|n| RegionId::new(INPUT, n)).collect(),
            schema: Arc::new(input.clone()),
            columns: (0..input.columns.len()).collect(),
            with_region: false,
        },
        nodes: Vec::new(),
        output: OutputPlan { view: None, topic: None },
        progress: spec(PROGRESS, 0, progress_schema()),
        state: Vec::new(),
        options: JobOptions::default(),
        plan_hash: 1,
    }
}

/// Adds a view with these columns.
pub(crate) fn with_view(mut plan: JobPlan, columns: Vec<Column>, key: Vec<usize>) -> JobPlan {
    let schema = TableSchema { id: 1, columns: renumber(columns), primary_key: key };
    plan.output.view = Some(ViewOutput { region: spec(VIEW, 0, schema) });
    plan
}

fn renumber(mut columns: Vec<Column>) -> Vec<Column> {
    for (i, c) in columns.iter_mut().enumerate() {
        c.id = i as u32 + 1;
    }
    columns
}

/// Adds an upsert topic with the view's key and visible columns, as text.
pub(crate) fn with_topic(mut plan: JobPlan, topic: &str, partitions: i32, envelope: Envelope) -> JobPlan {
    let view = plan.output.view.as_ref().expect("a view");
    let schema = &view.region.schema;
    plan.output.topic = Some(TopicOutput {
        topic: topic.into(),
        partitions,
        envelope,
        key_columns: schema.user_key().to_vec(),
        row_key: schema.primary_key.clone(),
        value_columns: schema.visible(),
        key_encoder: (envelope == Envelope::Upsert).then(|| Arc::new(TextEncoder) as _),
        value_encoder: Arc::new(TextEncoder),
        partitioner: hash_partition,
        headers_epoch: true,
    });
    plan
}

pub(crate) fn call(func: AggFunc, arg: Option<usize>, name: &str, output: &str) -> AggCall {
    AggCall { func, arg, name: name.into(), output: output.parse().expect("a type") }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    View,
    Own,
}

/// Adds an aggregation and the view over it. The stream key is the column `id`, or the input's key (all columns if there is none), and the
/// region if the plan has it.
pub(crate) fn with_agg(
    mut plan: JobPlan,
    input: &[Column],
    group: Vec<usize>,
    calls: Vec<AggCall>,
    append: bool,
    at: Where,
) -> JobPlan {
    let layout = agg_layout(input, &group, &calls, append);
    let mut next = STATE;
    let mut state_spec = |plan: &mut JobPlan, schema: TableSchema| {
        next += 1;
        let s = spec(TableId(next), 0, schema);
        plan.state.push(s.clone());
        s
    };
    let id = input.iter().position(|c| c.name == "id");
    let mut stream_key = id.map_or_else(|| plan.input.schema.primary_key.clone(), |i| vec![i]);
    if stream_key.is_empty() {
        stream_key = (0..input.len()).collect();
    }
    stream_key.extend(plan.input.with_region.then_some(plan.input.columns.len()));
    let minmax = calls
        .iter()
        .map(|c| {
            let schema = minmax_schema(input, &group, &stream_key);
            needs_value_set(c.func, append).then(|| state_spec(&mut plan, schema))
        })
        .collect();
    let key: Vec<usize> = (0..layout.group).collect();
    let state = match at {
        Where::View => AggState::InView { columns: (0..layout.columns.len()).collect() },
        Where::Own => {
            let schema = TableSchema { id: 1, columns: layout.columns.clone(), primary_key: key.clone() };
            AggState::Own { region: state_spec(&mut plan, schema) }
        }
    };
    plan.nodes.push(Node::HashAgg(HashAggNode {
        input: input.to_vec(),
        group,
        calls,
        stream_key,
        append_only: append,
        state,
        minmax,
        emit_before: at == Where::Own,
    }));
    with_view(plan, layout.columns, key)
}

pub(crate) fn column(name: &str, i: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Col::new(name, i))
}

pub(crate) fn int(v: i64) -> Arc<dyn PhysicalExpr> {
    Arc::new(Literal::new(datafusion_common::ScalarValue::Int64(Some(v))))
}

pub(crate) fn binary(a: Arc<dyn PhysicalExpr>, op: Operator, b: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(a, op, b))
}

/// Everything small, so that few rows go through every path.
pub(crate) fn small() -> StreamConfig {
    StreamConfig {
        barrier_interval: Duration::from_millis(20),
        barrier_min_gap: Duration::from_millis(2),
        chunk_rows: 7,
        quantum_rows: 5,
        quantum: Duration::from_millis(1),
        epoch_rows: 40,
        catchup_rows: 20,
        follow_max_rows: 60,
        idle_checkpoint: Duration::from_millis(50),
        pin_refresh: Duration::from_millis(10),
        state_cache_bytes: 1,
        commit_backoff_min: Duration::from_millis(1),
        commit_backoff_max: Duration::from_millis(4),
        restart_backoff_min: Duration::from_millis(1),
        restart_backoff_max: Duration::from_millis(4),
        quarantine_after: 50,
        ..StreamConfig::default()
    }
}

/// Whether a consumer of the derived topic has, for each key of the view (its first column), one of the view's rows, and nothing else.
pub(crate) fn topic_agrees(folded: &BTreeMap<String, String>, view: &str) -> Result<(), String> {
    let mut rows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in view.split(" | ").filter(|l| !l.is_empty()) {
        rows.entry(line.split(' ').next().unwrap_or_default()).or_default().insert(line);
    }
    let wrong = folded.iter().find(|(k, v)| !rows.get(k.as_str()).is_some_and(|r| r.contains(v.as_str())));
    let missing = rows.keys().find(|k| !folded.contains_key(**k));
    match (wrong, missing) {
        (None, None) => Ok(()),
        _ => Err(format!("topic has {wrong:?}, and lacks {missing:?} of the view: {view}")),
    }
}
