//! Runs a plan within the limits of a query: time, rows, bytes, and the memory pool of its session.

use std::{sync::Arc, time::Duration};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use datafusion::{logical_expr::LogicalPlan, physical_plan::execute_stream};
use futures::TryStreamExt;
use millstream_types::{
    ErrorKind,
    runtime::{Clock, Tasks},
};

use crate::{SqlError, planner::session::Session};

/// What one query may use; the memory of all of them is `SqlConfig::query_memory_bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Duration,
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) schema: SchemaRef,
    pub(crate) batches: Vec<RecordBatch>,
}

/// Runs on the compute runtime; dropping the future stops the query.
pub(crate) async fn run(
    session: Session,
    plan: LogicalPlan,
    limits: Limits,
    tasks: &Tasks,
    clock: &Arc<dyn Clock>,
) -> Result<Answer, SqlError> {
    let query = tasks.compute("query", async move { collect(&session, &plan, limits).await });
    let stop = AbortOnDrop(query.abort_handle());
    let answer = tokio::select! {
        answer = query => answer,
        () = clock.sleep(limits.timeout) => {
            return Err(SqlError::new(ErrorKind::Exhausted, "QUERY_TIMEOUT", format!("the query took longer than {} ms", limits.timeout.as_millis()))
                .hint("raise sql.query_timeout, read by key, or keep the result up to date as a materialized view"));
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

async fn collect(session: &Session, plan: &LogicalPlan, limits: Limits) -> Result<Answer, SqlError> {
    let physical = session.state.create_physical_plan(plan).await?;
    let schema = physical.schema();
    let mut stream = execute_stream(physical, session.state.task_ctx())?;
    let (mut rows, mut bytes, mut batches) = (0, 0, Vec::new());
    while let Some(batch) = stream.try_next().await? {
        rows += batch.num_rows();
        // The rows' own share: batches of one scan are slices of the same buffers, which would count again with each of them.
        for column in batch.columns() {
            bytes += column.to_data().get_slice_memory_size()?;
        }
        if rows > limits.rows || bytes > limits.bytes {
            return Err(SqlError::new(
                ErrorKind::Exhausted,
                "RESULT_TOO_LARGE",
                format!("the result has more than {} rows or {} MiB", limits.rows, limits.bytes >> 20),
            )
            .hint("add a LIMIT or a WHERE, or work in parts"));
        }
        if batch.num_rows() > 0 {
            batches.push(batch);
        }
    }
    Ok(Answer { schema, batches })
}
