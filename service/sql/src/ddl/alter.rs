//! ALTER MATERIALIZED VIEW | SINK: what the user wants goes into the catalog, then to the running job. No barrier waits for it.

use std::sync::Arc;

use millstream_stream::StreamError;

use super::wait::stream_error;
use crate::{
    SqlError, StatementResult,
    catalog::{Derived, Desired, Object},
    parser::statement::{AlterAction, Name, ObjectKind},
    service::Core,
};

pub(crate) async fn alter(
    core: &Arc<Core>,
    kind: ObjectKind,
    name: &Name,
    action: AlterAction,
) -> Result<StatementResult, SqlError> {
    let _one = core.ddl.lock().await;
    let store = core.store()?;
    store.refresh().await?;
    let job = store
        .change(|catalog| {
            let mut object = super::of_kind(catalog, kind, name)?.clone();
            let (Object::View(derived) | Object::Sink(derived)) = &mut object else {
                return Err(SqlError::invalid(format!("{} is a table", name.value)).at(name.at));
            };
            apply(derived, action);
            let job = derived.job;
            catalog.replace(object);
            Ok(job)
        })
        .await?;
    let stream = &core.deps.stream;
    let told = match action {
        AlterAction::Pause => stream.pause(job),
        AlterAction::Resume => stream.resume(job),
        AlterAction::SetRateLimit(limit) => stream.set_rate_limit(job, limit),
    };
    let notices = match told {
        Ok(()) => Vec::new(),
        // the wish is stored and holds when the job starts
        Err(StreamError::JobNotFound { .. }) => {
            vec!["the job is not running here; the change holds when it starts".to_owned()]
        }
        Err(e) => return Err(stream_error(e)),
    };
    Ok(StatementResult::command(format!("ALTER {}", kind.sql()), notices))
}

fn apply(derived: &mut Derived, action: AlterAction) {
    match action {
        AlterAction::Pause => derived.desired = Desired::Paused,
        AlterAction::Resume => derived.desired = Desired::Running,
        AlterAction::SetRateLimit(limit) => derived.backfill_rate_limit = limit,
    }
}
