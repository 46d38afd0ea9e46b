//! SHOW, DESCRIBE, EXPLAIN of a query. Listings have one source, [`table_of`], which the system tables use too.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use datafusion::sql::sqlparser::{ast::Query, tokenizer::Location};

use crate::{
    SqlError, StatementResult,
    catalog::{Derived, Object},
    parser::statement::{DerivedKind, Listing, Name},
    planner,
    service::Core,
};

/// A column of a listing.
pub(crate) enum Values {
    Text(Vec<Option<String>>),
    Int(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Bool(Vec<Option<bool>>),
}

impl Values {
    fn data_type(&self) -> DataType {
        match self {
            Values::Text(_) => DataType::Utf8,
            Values::Int(_) => DataType::Int64,
            Values::Float(_) => DataType::Float64,
            Values::Bool(_) => DataType::Boolean,
        }
    }

    fn array(self) -> ArrayRef {
        match self {
            Values::Text(v) => Arc::new(StringArray::from(v)),
            Values::Int(v) => Arc::new(Int64Array::from(v)),
            Values::Float(v) => Arc::new(Float64Array::from(v)),
            Values::Bool(v) => Arc::new(BooleanArray::from(v)),
        }
    }
}

fn batch(columns: Vec<(&str, Values)>) -> Result<RecordBatch, SqlError> {
    let fields: Vec<Field> = columns.iter().map(|(name, values)| Field::new(*name, values.data_type(), true)).collect();
    let arrays = columns.into_iter().map(|(_, values)| values.array()).collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// Rows that a statement answers from memory.
fn rows(batch: RecordBatch) -> StatementResult {
    let schema: SchemaRef = batch.schema();
    StatementResult::Rows { schema, batches: vec![batch], epoch: None, notices: Vec::new() }
}

pub(crate) fn text(column: &str, lines: Vec<String>) -> Result<StatementResult, SqlError> {
    Ok(rows(batch(vec![(column, Values::Text(lines.into_iter().map(Some).collect()))])?))
}

fn text_of<T>(items: &[T], f: impl Fn(&T) -> Option<String>) -> Values {
    Values::Text(items.iter().map(f).collect())
}

fn int_of<T>(items: &[T], f: impl Fn(&T) -> Option<i64>) -> Values {
    Values::Int(items.iter().map(f).collect())
}

pub(crate) async fn listing(core: &Core, listing: Listing) -> Result<StatementResult, SqlError> {
    if listing == Listing::Topics {
        let mut topics = core.deps.logs.admin().list().await?;
        topics.sort_unstable();
        return text("topic", topics);
    }
    Ok(rows(table_of(core, listing)?))
}

/// The rows of a listing that needs no I/O.
pub(crate) fn table_of(core: &Core, listing: Listing) -> Result<RecordBatch, SqlError> {
    match listing {
        Listing::Tables => tables(core),
        Listing::Views => derived(core, DerivedKind::View),
        Listing::Sinks => derived(core, DerivedKind::Sink),
        Listing::Jobs => jobs(core),
        Listing::Backfills => backfills(core),
        Listing::Regions => regions(core),
        Listing::Topics => Err(SqlError::invalid("topics are not a system table").hint("write SHOW TOPICS")),
    }
}

fn key_text(object: &Object) -> Option<String> {
    let schema = object.schema();
    let names: Vec<&str> = schema.primary_key.iter().map(|k| schema.columns[*k].name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn tables(core: &Core) -> Result<RecordBatch, SqlError> {
    let catalog = core.catalog()?;
    let broken = core.broken_objects();
    let tables: Vec<_> = catalog
        .objects
        .iter()
        .filter_map(|o| match o.as_ref() {
            Object::Table(t) => Some((o, t)),
            _ => None,
        })
        .collect();
    batch(vec![
        ("name", text_of(&tables, |(_, t)| Some(t.name.clone()))),
        ("id", int_of(&tables, |(_, t)| Some(i64::from(t.id.0)))),
        ("topic", text_of(&tables, |(_, t)| t.topic().map(|s| s.topic.clone()))),
        ("primary_key", text_of(&tables, |(o, _)| key_text(o))),
        ("regions", int_of(&tables, |(_, t)| Some(t.regions().len() as i64))),
        ("rows", int_of(&tables, |(_, t)| Some(estimated_rows(core, &t.regions())))),
        ("problem", text_of(&tables, |(_, t)| broken.get(&t.name).cloned().or_else(|| problem_of(core, &t.regions())))),
    ])
}

/// What is wrong with a region that is open.
fn problem_of(core: &Core, regions: &[millstream_types::RegionId]) -> Option<String> {
    regions.iter().find_map(|id| core.deps.storage.region(*id)?.status().reason)
}

fn estimated_rows(core: &Core, regions: &[millstream_types::RegionId]) -> i64 {
    let open = regions.iter().filter_map(|id| core.deps.storage.region(*id));
    open.map(|r| r.estimate(None, r.applied(), &millstream_types::Pos::NotStarted).rows as i64).sum()
}

fn derived(core: &Core, kind: DerivedKind) -> Result<RecordBatch, SqlError> {
    let catalog = core.catalog()?;
    let broken = core.broken_objects();
    let found: Vec<(&Arc<Object>, &Derived)> = catalog
        .objects
        .iter()
        .filter(|o| Derived::derived_kind(o) == Some(kind))
        .filter_map(|o| o.derived().map(|d| (o, d)))
        .collect();
    let state = |d: &Derived| core.deps.stream.job(d.job).map(|s| s.state.as_str().to_owned());
    let mut columns = vec![
        ("name", text_of(&found, |(_, d)| Some(d.name.clone()))),
        ("id", int_of(&found, |(_, d)| Some(i64::from(d.id.0)))),
        ("job", int_of(&found, |(_, d)| Some(d.job.0 as i64))),
        ("input", text_of(&found, |(_, d)| catalog.by_table(d.input).map(|o| o.name().to_owned()))),
        ("state", text_of(&found, |(_, d)| state(d).or(Some("quarantined".to_owned())))),
        ("topic", text_of(&found, |(_, d)| d.topic.as_ref().map(|t| t.topic.clone()))),
        ("envelope", text_of(&found, |(_, d)| d.topic.as_ref().map(|t| t.envelope.as_str().to_owned()))),
    ];
    if kind == DerivedKind::View {
        columns.push(("primary_key", text_of(&found, |(o, _)| key_text(o))));
        columns.push((
            "rows",
            int_of(&found, |(_, d)| Some(estimated_rows(core, &[millstream_types::RegionId::new(d.id, 0)]))),
        ));
    }
    columns.push(("problem", text_of(&found, |(_, d)| broken.get(&d.name).cloned())));
    batch(columns)
}

fn jobs(core: &Core) -> Result<RecordBatch, SqlError> {
    let jobs = core.deps.stream.jobs();
    let reason = |r: &Option<millstream_stream::Reason>| r.as_ref().map(|r| format!("{}: {}", r.code, r.message));
    batch(vec![
        ("job", int_of(&jobs, |j| Some(j.job.0 as i64))),
        ("name", text_of(&jobs, |j| Some(j.name.to_string()))),
        ("state", text_of(&jobs, |j| Some(j.state.as_str().to_owned()))),
        ("reason", text_of(&jobs, |j| reason(&j.reason))),
        ("committed_epoch", int_of(&jobs, |j| Some(j.committed_epoch.0 as i64))),
        ("restarts", int_of(&jobs, |j| Some(j.restarts as i64))),
        ("last_error", text_of(&jobs, |j| reason(&j.last_error))),
        ("backfill_rate_limit", int_of(&jobs, |j| j.rate_limit.map(|l| l as i64))),
    ])
}

fn backfills(core: &Core) -> Result<RecordBatch, SqlError> {
    let jobs = core.deps.stream.jobs();
    let all: Vec<_> = jobs.iter().flat_map(|j| j.backfills.iter().map(move |b| (j, b))).collect();
    batch(vec![
        ("job", int_of(&all, |(j, _)| Some(j.job.0 as i64))),
        ("name", text_of(&all, |(j, _)| Some(j.name.to_string()))),
        ("region", text_of(&all, |(_, b)| Some(b.region.to_string()))),
        ("state", text_of(&all, |(_, b)| Some(b.state.to_owned()))),
        ("pass", int_of(&all, |(_, b)| Some(i64::from(b.pass)))),
        ("policy", text_of(&all, |(_, b)| Some(b.policy.to_owned()))),
        ("rows", int_of(&all, |(_, b)| Some(b.rows as i64))),
        ("total", int_of(&all, |(_, b)| Some(b.total as i64))),
        ("fraction", Values::Float(all.iter().map(|(_, b)| Some(b.fraction)).collect())),
        ("rows_per_second", Values::Float(all.iter().map(|(_, b)| Some(b.rows_per_second)).collect())),
        ("eta_seconds", Values::Float(all.iter().map(|(_, b)| b.eta_seconds).collect())),
        ("waits_for", text_of(&all, |(_, b)| (!b.paused.is_empty()).then(|| b.paused.join(", ")))),
    ])
}

fn regions(core: &Core) -> Result<RecordBatch, SqlError> {
    let all: Vec<_> = core.deps.storage.regions().iter().map(|r| r.status()).collect();
    let kind = |k: &millstream_types::RegionKind| match k {
        millstream_types::RegionKind::Append => "append".to_owned(),
        millstream_types::RegionKind::Keyed => "keyed".to_owned(),
    };
    batch(vec![
        ("region", text_of(&all, |r| Some(r.region.clone()))),
        ("table", text_of(&all, |r| Some(r.table.clone()))),
        ("kind", text_of(&all, |r| Some(kind(&r.kind)))),
        ("state", text_of(&all, |r| Some(r.state.to_owned()))),
        ("reason", text_of(&all, |r| r.reason.clone())),
        ("leader_epoch", int_of(&all, |r| Some(r.leader_epoch.0 as i64))),
        ("applied", int_of(&all, |r| Some(r.applied.0))),
        ("flushed", int_of(&all, |r| Some(r.flushed.0))),
        ("memtable_rows", int_of(&all, |r| Some(r.memtable_rows as i64))),
        ("memtable_bytes", int_of(&all, |r| Some(r.memtable_bytes as i64))),
        ("files", int_of(&all, |r| Some(r.files.len() as i64))),
        ("file_bytes", int_of(&all, |r| Some(r.files.iter().map(|f| f.size_bytes as i64).sum()))),
        ("pinned", Values::Bool(all.iter().map(|r| Some(!r.pins.is_empty())).collect())),
    ])
}

pub(crate) fn create(core: &Core, name: &Name) -> Result<StatementResult, SqlError> {
    let catalog = core.catalog()?;
    let object = core.find(&catalog, name)?;
    Ok(rows(batch(vec![
        ("name", Values::Text(vec![Some(object.name().to_owned())])),
        ("statement", Values::Text(vec![Some(object.sql().to_owned())])),
    ])?))
}

pub(crate) fn describe(core: &Core, name: &Name) -> Result<StatementResult, SqlError> {
    let catalog = core.catalog()?;
    let object = core.find(&catalog, name)?;
    let schema = object.schema();
    let visible = schema.visible();
    let yes = |b: bool| Some(if b { "yes" } else { "no" }.to_owned());
    Ok(rows(batch(vec![
        ("column", text_of(&visible, |i| Some(schema.columns[*i].name.clone()))),
        ("type", text_of(&visible, |i| Some(schema.columns[*i].sql_type.to_string()))),
        ("nullable", text_of(&visible, |i| yes(schema.columns[*i].nullable && !schema.is_key(*i)))),
        ("key", int_of(&visible, |i| schema.primary_key.iter().position(|k| k == i).map(|p| p as i64 + 1))),
        ("default", text_of(&visible, |i| schema.columns[*i].default.clone())),
        (
            "metadata",
            text_of(&visible, |i| schema.columns[*i].metadata.as_ref().map(|m| format!("{m:?}").to_lowercase())),
        ),
    ])?))
}

/// The batch plan of a query, and whether a view could keep it up to date.
pub(crate) async fn explain_query(
    core: &Arc<Core>,
    query: Query,
    at: Location,
    verbose: bool,
) -> Result<StatementResult, SqlError> {
    let session = core.session()?;
    let mut lines = Vec::new();
    match planner::draft::draft(&session, DerivedKind::View, &query, at).await {
        Ok(draft) => {
            lines.push("as a materialized view:".to_owned());
            let output = planner::explain::ExplainOutput { kind: DerivedKind::View, name: "(view)", topic: None };
            let tree = planner::explain::explain(&output, &draft, core.deps.storage.as_ref(), verbose);
            lines.extend(tree.into_iter().map(|l| format!("  {l}")));
        }
        // names that do not exist fail the query as well
        Err(e) if e.code != "NOT_SUPPORTED" => return Err(e),
        Err(e) => lines.push(format!("as a materialized view: not possible: {e}")),
    }
    let plan = session.plan_query(query).await?;
    let plan = session.optimize(&plan)?;
    lines.push("as a query:".to_owned());
    lines.extend(plan.display_indent().to_string().lines().map(|l| format!("  {l}")));
    if verbose {
        let physical = session.physical(&plan).await?;
        lines.push("physical plan:".to_owned());
        let shown = datafusion::physical_plan::displayable(physical.as_ref()).indent(true).to_string();
        lines.extend(shown.lines().map(|l| format!("  {l}")));
    }
    text("plan", lines)
}
