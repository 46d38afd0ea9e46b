//! Rows of a table or view by key or from the start, read-your-writes by Kafka position, and rows in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{
        Query, State,
        rejection::{JsonRejection, QueryRejection},
    },
    http::HeaderMap,
    response::Response,
};
use millstream_types::{Epoch, ErrorKind, JobId, RegionId, Seq};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::sql::Int64Option;
use crate::extract::Path;
use crate::{
    encode::{
        json::Int64Form,
        respond::{Format, respond},
    },
    error::{ApiError, ErrorBody},
    literal,
    model::{object::InsertedInfo, sql::SqlResponse},
    ports::{CatalogObject, ObjectKind, StatementOutput},
    read,
    state::AdminState,
};

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RowQuery {
    /// Value of the primary key: `42`, `a,b` or a JSON array `["a",42]` for several columns. The first columns of the key are enough.
    key: Option<String>,
    /// Positions that the answer must contain: `orders-3:91834` (topic, partition, offset of a record), several with commas.
    wait_for: Option<String>,
    /// How long to wait for them. Default `2s`, at most `60s`.
    timeout: Option<String>,
    /// Most rows. Default 100.
    limit: Option<usize>,
    /// `number` (default) or `string`.
    int64: Option<Int64Option>,
}

const DEFAULT_LIMIT: usize = 100;
const DEFAULT_WAIT: Duration = Duration::from_secs(2);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Rows of a view at its newest committed epoch.
#[utoipa::path(get, path = "/v1/views/{view}/rows", tag = "views", params(("view" = String, Path), RowQuery),
    responses((status = 200, body = SqlResponse), (status = 404, body = ErrorBody), (status = 503, description = "wait_for was not reached in time", body = ErrorBody)))]
pub(crate) async fn view_rows(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    query: Result<Query<RowQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let object = state.object(ObjectKind::View, &name)?;
    if let Some(wait_for) = &query.wait_for {
        let job = object.job.ok_or_else(|| ApiError::not_found("job", &name))?;
        wait_for_view(&state, &object, job, wait_for, wait(query.timeout.as_deref())?).await?;
    }
    let epoch = object.job.and_then(|j| state.deps.jobs.job(j)).map(|j| Epoch(j.committed_epoch));
    answer(&state, &object, &query, &headers, epoch).await
}

/// Rows of a table as applied.
#[utoipa::path(get, path = "/v1/tables/{table}/rows", tag = "tables", params(("table" = String, Path), RowQuery),
    responses((status = 200, body = SqlResponse), (status = 404, body = ErrorBody), (status = 503, description = "wait_for was not reached in time", body = ErrorBody)))]
pub(crate) async fn table_rows(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    query: Result<Query<RowQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let object = state.object(ObjectKind::Table, &name)?;
    if let Some(wait_for) = &query.wait_for {
        let timeout = wait(query.timeout.as_deref())?;
        let applied = async {
            for (id, seq) in positions(&[&object], wait_for)? {
                region(&state, id)?.wait_applied(seq).await?;
            }
            Ok::<_, ApiError>(())
        };
        tokio::select! {
            result = applied => result?,
            () = state.deps.clock.sleep(timeout) => return Err(not_yet(wait_for, timeout)),
        }
    }
    answer(&state, &object, &query, &headers, None).await
}

fn region(state: &AdminState, id: RegionId) -> Result<Arc<dyn millstream_storage::Region>, ApiError> {
    state.deps.storage.region(id).ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "REGION_NOT_OPEN", format!("region {id} is not open"))
            .detail("region", id.to_string())
    })
}

async fn answer(
    state: &AdminState,
    object: &CatalogObject,
    query: &RowQuery,
    headers: &HeaderMap,
    epoch: Option<Epoch>,
) -> Result<Response, ApiError> {
    let format = Format::accepted(headers)?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if limit > state.config.max_rows {
        let most = state.config.max_rows;
        return Err(ApiError::invalid(
            "LIMIT_TOO_LARGE",
            format!("limit is at most {most}; use POST /v1/sql for more"),
        ));
    }
    let schema = object.schema.as_ref().ok_or_else(|| ApiError::not_found("schema of", &object.name))?;
    let regions = object.regions.iter().map(|id| region(state, *id)).collect::<Result<Vec<_>, _>>()?;
    let batches = match &query.key {
        Some(key) => read::by_key(schema, &regions, key, limit).await?,
        None => read::from_start(schema, &regions, limit).await?,
    };
    let rows = StatementOutput::Rows { schema: schema.arrow_visible(), batches, epoch, notices: Vec::new() };
    let int64 = if query.int64 == Some(Int64Option::String) { Int64Form::Text } else { Int64Form::Number };
    respond(vec![rows], format, int64)
}

/// `2s`, `500ms`, or a number of seconds.
fn wait(text: Option<&str>) -> Result<Duration, ApiError> {
    let Some(text) = text else { return Ok(DEFAULT_WAIT) };
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1000),
    };
    let ms = number.trim().parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    match ms.map(Duration::from_millis) {
        Some(timeout) if timeout <= MAX_WAIT => Ok(timeout),
        _ => Err(ApiError::invalid("TIMEOUT_INVALID", format!("timeout {text:?}: write 500ms or 2s, at most 60s"))),
    }
}

fn not_yet(wait_for: &str, timeout: Duration) -> ApiError {
    let message = format!("{wait_for} is not contained yet after {} ms", timeout.as_millis());
    ApiError::new(ErrorKind::Unavailable, "NOT_YET", message).detail("wait_for", wait_for)
}

/// `topic-partition:offset` of a record, as the exclusive end that contains it, in the region of the table that the topic feeds.
fn positions(tables: &[&CatalogObject], text: &str) -> Result<Vec<(RegionId, Seq)>, ApiError> {
    let invalid = |part: &str| {
        ApiError::invalid(
            "WAIT_FOR_INVALID",
            format!("wait_for {part:?}: write topic-partition:offset, as in orders-3:91834"),
        )
    };
    let one = |part: &str| {
        let (place, offset) = part.trim().rsplit_once(':').ok_or_else(|| invalid(part))?;
        let (topic, partition) = place.rsplit_once('-').ok_or_else(|| invalid(part))?;
        let offset = offset.parse::<i64>().ok().filter(|o| (0..i64::MAX).contains(o)).ok_or_else(|| invalid(part))?;
        let partition = partition.parse::<u32>().map_err(|_| invalid(part))?;
        let table = tables
            .iter()
            .find(|t| t.topic.as_deref() == Some(topic))
            .or_else(|| tables.iter().find(|t| t.name == topic));
        let table = table
            .ok_or_else(|| ApiError::invalid("WAIT_FOR_INVALID", format!("no input is fed by topic {topic:?}")))?;
        let region = table.regions.iter().find(|r| r.number == partition);
        let region = region.ok_or_else(|| {
            ApiError::invalid("WAIT_FOR_INVALID", format!("topic {topic:?} has no partition {partition}"))
        })?;
        Ok((*region, Seq(offset).next()))
    };
    text.split(',').map(one).collect()
}

async fn wait_for_view(
    state: &AdminState,
    view: &CatalogObject,
    job: JobId,
    wait_for: &str,
    timeout: Duration,
) -> Result<(), ApiError> {
    let objects = state.deps.sql.objects();
    let inputs: Vec<&CatalogObject> =
        objects.iter().filter(|o| o.kind != ObjectKind::Sink && view.inputs.contains(&o.name)).collect();
    let positions = positions(&inputs, wait_for)?;
    tokio::select! {
        result = state.deps.jobs.wait_for(job, &positions, timeout) => result,
        // The job has its own clock; this one only keeps the promise if it is late.
        () = state.deps.clock.sleep(timeout + Duration::from_secs(1)) => Err(not_yet(wait_for, timeout)),
    }
}

const MAX_INSERT_ROWS: usize = 10_000;

/// One row as it was sent: numbers keep all their digits.
type JsonRow = BTreeMap<String, Box<RawValue>>;

/// Rows into a table that no topic feeds; columns that no row names take their default. Answers when they are durable and readable.
#[utoipa::path(post, path = "/v1/tables/{table}/rows", tag = "tables", params(("table" = String, Path)), request_body = Vec<Object>,
    responses((status = 200, body = InsertedInfo), (status = 404, body = ErrorBody), (status = 504, description = "may have happened", body = ErrorBody)))]
pub(crate) async fn insert(
    State(state): State<AdminState>,
    Path(name): Path<String>,
    rows: Result<Json<Vec<JsonRow>>, JsonRejection>,
) -> Result<Json<InsertedInfo>, ApiError> {
    let Json(rows) = rows?;
    let object = state.object(ObjectKind::Table, &name)?;
    if rows.len() > MAX_INSERT_ROWS {
        return Err(ApiError::invalid("TOO_MANY_ROWS", format!("at most {MAX_INSERT_ROWS} rows at a time")));
    }
    if rows.is_empty() {
        return Ok(Json(InsertedInfo { rows: 0 }));
    }
    let (text, count) = (insert_text(&object, &rows)?, rows.len() as u64);
    let sql = Arc::clone(&state.deps.sql);
    state.detached("insert", async move { sql.execute(&text).await }).await?;
    Ok(Json(InsertedInfo { rows: count }))
}

fn insert_text(table: &CatalogObject, rows: &[JsonRow]) -> Result<String, ApiError> {
    let schema = table.schema.as_ref().ok_or_else(|| ApiError::not_found("schema of", &table.name))?;
    let mut columns = Vec::new();
    for name in rows.iter().flat_map(BTreeMap::keys) {
        let column = schema.columns.iter().find(|c| c.name == *name && !c.hidden);
        let column = column.ok_or_else(|| ApiError::not_found("column", name))?;
        if !columns.iter().any(|c: &&millstream_types::Column| c.id == column.id) {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return Err(ApiError::invalid("ROWS_EMPTY", "no row names a column"));
    }
    let names: Vec<String> = columns.iter().map(|c| literal::identifier(&c.name)).collect();
    // one cast a column instead of one a value: a tenth of the words for the parser and the planner
    let casts = columns.iter().enumerate().map(|(i, c)| literal::cast(&format!("v.c{i}"), &c.sql_type));
    let casts = casts.collect::<Result<Vec<_>, _>>()?;
    let mut text = format!(
        "INSERT INTO {} ({}) SELECT {} FROM (VALUES ",
        literal::identifier(&table.name),
        names.join(", "),
        casts.join(", ")
    );
    let null = RawValue::NULL;
    for (i, row) in rows.iter().enumerate() {
        text.push_str(if i > 0 { ", (" } else { "(" });
        for (c, column) in columns.iter().enumerate() {
            if c > 0 {
                text.push_str(", ");
            }
            text.push_str(&literal::value(row.get(&column.name).map_or(null, |v| v), &column.sql_type)?);
        }
        text.push(')');
    }
    let places: Vec<String> = (0..columns.len()).map(|i| format!("c{i}")).collect();
    text.push_str(&format!(") AS v({})", places.join(", ")));
    Ok(text)
}
