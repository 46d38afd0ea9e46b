//! Makes what a catalog entry says: regions, open and readable, and the job. Everything here is idempotent.
//!
//! What fails because something is away is tried again in the background until it works or the object is dropped; what fails for another reason
//! marks the object as broken, with its reason in SHOW.

use std::{sync::Arc, time::Duration};

use millstream_storage::RegionSpec;
use millstream_stream::JobPlan;
use millstream_types::{Classified, RegionId, Retry, TableId, codec::SharedDecoderFactory, error::chain};
use tokio::sync::watch;

use super::{create_derived::stored_settings, target};
use crate::{
    SqlError,
    catalog::{Derived, Desired, Object, Table},
    format,
    parser::statement::DerivedKind,
    planner::{draft::Draft, job},
    service::Core,
};

const BACKOFF_MIN: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

pub(crate) fn table_specs(core: &Core, table: &Table) -> Result<Vec<RegionSpec>, SqlError> {
    let decoder = match table.topic() {
        None => None,
        Some(_) => {
            let format = format::table_format(&table.schema, &format_options(table))
                .map_err(|r| SqlError::option(r.message).or_hint(r.hint))?;
            Some(Arc::new(format) as SharedDecoderFactory)
        }
    };
    let schema = Arc::new(table.schema.clone());
    let name: Arc<str> = table.name.as_str().into();
    Ok(table
        .regions()
        .into_iter()
        .map(|id| RegionSpec {
            id,
            schema: Arc::clone(&schema),
            wal: table.wal(id.number),
            table_name: Arc::clone(&name),
            decoder: decoder.clone(),
            bad_records: decoder.is_some().then(|| Arc::clone(&core.deps.bad_records)),
            on_data_loss: table.topic().map(|t| t.on_data_loss).unwrap_or_default(),
        })
        .collect())
}

/// Options of a table that its format understands.
pub(crate) fn format_options(table: &Table) -> crate::format::Options {
    const OWN: [&str; 6] =
        ["topic", "scan.startup.mode", "scan.startup.timestamp", "scan.startup.offsets", "on_data_loss", "on_error"];
    table.options.iter().filter(|(k, _)| !OWN.contains(&k.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Creates and opens the regions of a new table. Returns when they are open, or after `open_wait` with a notice: a long topic is read on in the background.
pub(crate) async fn open_table(core: &Arc<Core>, table: Table) -> Result<Option<String>, SqlError> {
    let specs = table_specs(core, &table)?;
    let mut opened = open_in_background(core, table.id, table.name.clone(), specs);
    let wait = async {
        // the sender goes when the table is open, broken or dropped
        while opened.changed().await.is_ok() {}
    };
    tokio::select! {
        () = wait => match core.broken_objects().get(&table.name) {
            Some(reason) => Ok(Some(format!("warning: the table is in the catalog, but not open: {reason}"))),
            None => Ok(None),
        },
        () = core.deps.clock.sleep(core.config.open_wait) => {
            Ok(Some(format!("table {} is still reading its topic; SHOW REGIONS shows how far it is", table.name)))
        }
    }
}

/// The receiver's channel closes when there is nothing more to do.
pub(crate) fn open_in_background(
    core: &Arc<Core>,
    id: TableId,
    name: String,
    specs: Vec<RegionSpec>,
) -> watch::Receiver<()> {
    let (done, opened) = watch::channel(());
    let core = Arc::clone(core);
    let tasks = core.deps.tasks.clone();
    drop(tasks.io(format!("open table {name}"), async move {
        let mut left = specs;
        let mut backoff = BACKOFF_MIN;
        while still_there(&core, id) {
            left = match open_once(&core, &left).await {
                Ok(()) => {
                    core.clear_broken(&name);
                    break;
                }
                Err((again, error)) => {
                    core.set_broken(&name, chain(&error), error.retry());
                    if error.retry() == Retry::Never {
                        tracing::error!(table = %name, error = %chain(&error), "table cannot be opened");
                        break;
                    }
                    tracing::warn!(table = %name, error = %chain(&error), regions = again.len(), "table cannot be opened now, trying again");
                    again
                }
            };
            core.deps.clock.sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
        drop(done);
    }));
    opened
}

fn still_there(core: &Core, id: TableId) -> bool {
    core.catalog().is_ok_and(|c| c.by_table(id).is_some())
}

/// The regions that are left, with an error of one of them: a final one if there is any.
async fn open_once(core: &Core, specs: &[RegionSpec]) -> Result<(), (Vec<RegionSpec>, SqlError)> {
    for spec in specs {
        if let Err(e) = core.deps.storage.create_region(spec).await {
            return Err((specs.to_vec(), e.into()));
        }
    }
    let mut failed: Vec<RegionId> = Vec::new();
    let mut worst: Option<SqlError> = None;
    for (id, result) in core.deps.storage.open_regions(specs.to_vec()).await {
        if let Err(e) = result {
            failed.push(id);
            if worst.is_none() || e.retry() == Retry::Never {
                worst = Some(e.into());
            }
        }
    }
    match worst {
        None => Ok(()),
        Some(e) => Err((specs.iter().filter(|s| failed.contains(&s.id)).cloned().collect(), e)),
    }
}

/// The plan of a stored view or sink.
pub(crate) fn plan_of(object: &Derived, kind: DerivedKind, draft: &Draft) -> Result<JobPlan, SqlError> {
    let encoders = match &object.topic {
        None => None,
        Some(t) => {
            Some(target::encoders(t, draft, &object.options).map_err(|r| SqlError::option(r.message).or_hint(r.hint))?)
        }
    };
    job::job_plan(kind, object, draft, stored_settings(object), encoders)
}

/// Starts the job of a new entry. A final failure takes the entry back, so that the statement did nothing.
pub(crate) async fn start_job(
    core: &Arc<Core>,
    object: &Derived,
    kind: DerivedKind,
    draft: &Draft,
) -> Result<Option<String>, SqlError> {
    let plan = plan_of(object, kind, draft)?;
    let Err(error) = core.deps.stream.create_job(plan.clone()).await else { return Ok(None) };
    if error.retry() != Retry::Never {
        let notice = format!("warning: the job cannot start yet and is tried again: {}", chain(&error));
        start_in_background(core, plan, false);
        return Ok(Some(notice));
    }
    let error = SqlError::new(
        error.kind(),
        "JOB_FAILED",
        format!("the job of {} cannot be created: {}", object.name, chain(&error)),
    );
    if let Err(e) = super::drop::remove(core, std::slice::from_ref(&object.name)).await {
        tracing::error!(name = %object.name, error = %chain(&e), "a view that could not be created could not be taken back");
    }
    Err(error)
}

/// Creates regions and job until it works or the object is dropped.
pub(crate) fn start_in_background(core: &Arc<Core>, plan: JobPlan, paused: bool) {
    let core = Arc::clone(core);
    let tasks = core.deps.tasks.clone();
    drop(tasks.io(format!("start job of {}", plan.name), async move {
        let mut backoff = BACKOFF_MIN;
        loop {
            core.deps.clock.sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            let there = core.catalog().is_ok_and(|c| c.by_job(plan.job).is_some());
            if !there || core.deps.stream.job(plan.job).is_some() {
                return;
            }
            match core.deps.stream.create_job(plan.clone()).await {
                Ok(()) => {
                    core.clear_broken(&plan.name);
                    if paused && let Err(e) = core.deps.stream.pause(plan.job) {
                        tracing::warn!(job = %plan.job, error = %chain(&e), "job could not be paused");
                    }
                    return;
                }
                Err(e) => {
                    core.set_broken(&plan.name, chain(&e), e.retry());
                    if e.retry() == Retry::Never {
                        tracing::error!(job = %plan.job, name = %plan.name, error = %chain(&e), "job cannot be started");
                        return;
                    }
                    tracing::warn!(job = %plan.job, name = %plan.name, error = %chain(&e), "job cannot be started now, trying again");
                }
            }
        }
    }));
}

/// Whether the user has paused the object's job.
pub(crate) fn is_paused(object: &Object) -> bool {
    object.derived().is_some_and(|d| d.desired == Desired::Paused)
}
