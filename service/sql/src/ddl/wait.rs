//! WAIT FOR: returns when a table has read its topic up to its end of now, or a view contains all of that.

use std::sync::Arc;

use millstream_stream::StreamError;
use millstream_types::{Classified, ErrorKind, RegionId, Seq, error::chain};

use crate::{
    SqlError, StatementResult,
    catalog::{Catalog, Derived, Object, Table},
    parser::statement::Name,
    service::Core,
};

pub(super) fn stream_error(e: StreamError) -> SqlError {
    let code = match &e {
        StreamError::JobNotFound { .. } => "JOB_NOT_FOUND",
        StreamError::WrongState { .. } => "WRONG_STATE",
        StreamError::Timeout { .. } => "WAIT_TIMEOUT",
        _ => "JOB",
    };
    SqlError::new(e.kind(), code, chain(&e)).caused_by(e)
}

fn timed_out(core: &Core, name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::Exhausted,
        "WAIT_TIMEOUT",
        format!("{name} has not caught up after {} s", core.config.wait_timeout.as_secs()),
    )
    .hint("SHOW BACKFILLS and SHOW JOBS tell how far it is")
}

pub(crate) async fn wait_for(core: &Arc<Core>, name: &Name) -> Result<StatementResult, SqlError> {
    let catalog = core.catalog()?;
    let object = core.find(&catalog, name)?;
    tokio::select! {
        done = Box::pin(caught_up(core, &catalog, &object)) => done?,
        () = core.deps.clock.sleep(core.config.wait_timeout) => return Err(timed_out(core, &name.value)),
    };
    Ok(StatementResult::command("WAIT FOR", Vec::new()))
}

/// `wait = true` of a new view.
pub(super) async fn wait_running(core: &Arc<Core>, name: &Name) -> Result<(), SqlError> {
    wait_for(core, name).await.map(drop)
}

/// The sequences below which everything is in the object; everything its inputs have now is below them.
async fn caught_up(core: &Arc<Core>, catalog: &Catalog, object: &Object) -> Result<Vec<(RegionId, Seq)>, SqlError> {
    match object {
        Object::Table(table) => table_caught_up(core, table).await,
        Object::View(d) | Object::Sink(d) => {
            let input = catalog.by_table(d.input).ok_or_else(|| SqlError::not_found("table", "of the view's input"))?;
            let wanted = Box::pin(caught_up(core, catalog, input)).await?;
            job_caught_up(core, d, &wanted).await?;
            let own = RegionId::new(d.id, 0);
            let applied = core.deps.storage.region(own).map(|r| (own, r.applied()));
            Ok(applied.into_iter().collect())
        }
    }
}

async fn table_caught_up(core: &Core, table: &Table) -> Result<Vec<(RegionId, Seq)>, SqlError> {
    let mut ends: Vec<(RegionId, Seq)> = Vec::new();
    let offsets = match table.topic() {
        Some(t) => Some(core.deps.logs.admin().offsets(&t.topic).await?),
        None => None,
    };
    for id in table.regions() {
        let region = loop {
            match core.deps.storage.region(id) {
                Some(region) => break region,
                None => match core.broken_objects().get(&table.name) {
                    Some(reason) => {
                        return Err(SqlError::conflict("WRONG_STATE", format!("table {}: {reason}", table.name)));
                    }
                    // still being opened; the caller has a deadline
                    None => core.deps.clock.sleep(std::time::Duration::from_millis(20)).await,
                },
            }
        };
        let end = offsets
            .as_ref()
            .and_then(|o| o.get(id.number as usize))
            .map_or_else(|| region.applied(), |o| Seq::from(o.stable));
        region.wait_applied(end).await?;
        ends.push((id, end));
    }
    Ok(ends)
}

async fn job_caught_up(core: &Core, d: &Derived, wanted: &[(RegionId, Seq)]) -> Result<(), SqlError> {
    // a job that is being created in the background is not known yet
    while core.deps.stream.job(d.job).is_none() {
        if let Some(reason) = core.broken_objects().get(&d.name) {
            return Err(SqlError::conflict("WRONG_STATE", format!("{}: {reason}", d.name)));
        }
        core.deps.clock.sleep(std::time::Duration::from_millis(20)).await;
    }
    core.deps.stream.wait_for(d.job, wanted, core.config.wait_timeout).await.map_err(stream_error)?;
    Ok(())
}
