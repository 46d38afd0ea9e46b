//! Runs a planned query within its limits: time, rows, bytes, and the memory pool of its session.

use std::sync::Arc;

use arrow::{
    array::{RecordBatch, RecordBatchOptions},
    datatypes::SchemaRef,
};
use datafusion::{
    execution::memory_pool::{MemoryConsumer, MemoryPool},
    physical_plan::execute_stream,
};
use futures::TryStreamExt;
use millstream_types::{
    ErrorKind,
    runtime::{Clock, Tasks},
};

use crate::{
    SqlError,
    planner::{functions::bounded::counted, session::Runnable, threads::Deadline},
    result::batch_bytes,
    stack::Deep,
};

/// What one query may use; the memory of all of them is `SqlConfig::query_memory_bytes`.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
    /// Of the results of all queries.
    pub(crate) results: Arc<dyn MemoryPool>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
}

/// Runs on the compute runtime; dropping the future stops the query.
pub(crate) async fn run(
    planned: Runnable,
    limits: Limits,
    until: Deadline,
    tasks: &Tasks,
    clock: &Arc<dyn Clock>,
) -> Result<Answer, SqlError> {
    let query = tasks.compute("query", Deep::new(collect(planned, limits)));
    let stop = AbortOnDrop(query.abort_handle());
    let answer = tokio::select! {
        answer = query => answer,
        () = clock.sleep(until.left(clock.as_ref())) => {
            let hint = "raise sql.query_timeout, read by key, or keep the result up to date as a materialized view";
            return Err(until.error("the query takes", hint));
        }
    };
    drop(stop);
    match answer {
        Ok(Some(answer)) => answer,
        Ok(None) => Err(SqlError::new(
            ErrorKind::Internal,
            "QUERY_PANICKED",
            "the query panicked, the log line before names it",
        )),
        Err(e) => Err(SqlError::internal("the query was stopped", e)),
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The batch, which counts against all results that wait for their clients as long as it lives.
fn held(batch: RecordBatch, bytes: usize, results: &Arc<dyn MemoryPool>) -> Result<RecordBatch, SqlError> {
    let reservation = MemoryConsumer::new("result").register(results);
    if reservation.try_grow(bytes).is_err() {
        return Err(SqlError::new(
            ErrorKind::Exhausted,
            "RESULTS_WAITING",
            "the results of other queries that wait for their clients have all the memory there is for results",
        )
        .hint("try again later, or add a LIMIT"));
    }
    let mut columns = batch.columns().to_vec();
    if let Some(first) = columns.first_mut() {
        *first = counted(first, reservation)?;
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

async fn collect(planned: Runnable, limits: Limits) -> Result<Answer, SqlError> {
    let schema = planned.plan.schema();
    let mut stream = execute_stream(planned.plan, planned.context)?;
    let (mut rows, mut bytes, mut batches) = (0, 0, Vec::new());
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows();
        let own = batch_bytes(&batch)?;
        bytes += own;
        if rows > limits.rows || bytes > limits.bytes {
            return Err(SqlError::new(
                ErrorKind::Invalid,
                "RESULT_TOO_LARGE",
                format!("the result has more than {} rows or {} MiB", limits.rows, limits.bytes >> 20),
            )
            .hint("add a LIMIT or a WHERE, or work in parts"));
        }
        if batch.num_rows() > 0 {
            batches.push(held(batch, own, &limits.results)?);
        }
    }
    Ok(Answer { schema, batches })
}
