//! Start-up: unfinished drops, then what a killed process left open in Kafka, then the regions of all objects in one go (each shard of the WAL is read once), then the jobs.
//!
//! Plans are built anew from the stored SQL. An object whose plan comes out otherwise, or not at all, is broken: its data stays, it does not run, and
//! SHOW tells why; the service starts.

use std::{collections::HashMap, sync::Arc};

use millstream_storage::{RegionSpec, StorageError};
use millstream_stream::JobPlan;
use millstream_types::{Classified, RegionId, Retry, error::chain};

use crate::{
    SqlError,
    catalog::{Catalog, Derived, Object, Table},
    ddl::{bring_up, drop},
    parser::{
        self,
        statement::{DerivedKind, Statement},
    },
    planner::draft::draft,
    service::Core,
    stack::Deep,
};

pub(crate) async fn recover(core: &Arc<Core>) -> Result<(), SqlError> {
    let _one = core.ddl.lock().await;
    let catalog = core.catalog()?;
    if !catalog.dropping.is_empty() {
        drop::finish(core, catalog.dropping.clone()).await?;
    }
    for q in &catalog.quarantined {
        core.set_broken(&q.name, q.reason.clone(), Retry::Never);
    }
    let catalog = core.catalog()?;
    let (tables, jobs) = plan_all(core, &catalog).await;
    let mut specs: Vec<RegionSpec> = tables.iter().flat_map(|(_, specs)| specs.iter().cloned()).collect();
    specs.extend(jobs.iter().flat_map(|(plan, _)| plan.own_regions()));
    core.deps.stream.end_open_transactions(jobs.iter().map(|(plan, _)| plan.job)).await;
    let failed = open_all(core, specs).await;
    for (table, specs) in tables {
        let left: Vec<RegionSpec> = specs.into_iter().filter(|s| failed.contains_key(&s.id)).collect();
        let Some(error) = left
            .iter()
            .filter_map(|s| failed.get(&s.id))
            .find(|e| e.retry() == Retry::Never)
            .or(left.first().and_then(|s| failed.get(&s.id)))
        else {
            continue;
        };
        broken(core, &table.name, &chain(error), error.retry());
        if error.retry() != Retry::Never {
            // nobody waits for it
            drop(bring_up::open_in_background(core, table.id, table.name, left));
        }
    }
    for (plan, paused) in jobs {
        start(core, plan, paused, &failed).await;
    }
    tracing::info!(version = catalog.version, objects = catalog.objects.len(), "catalog recovered");
    Ok(())
}

fn broken(core: &Core, name: &str, reason: &str, retry: Retry) {
    tracing::error!(object = name, reason, "object cannot be brought up");
    core.set_broken(name, reason.to_owned(), retry);
}

type Planned = (Vec<(Table, Vec<RegionSpec>)>, Vec<(JobPlan, bool)>);

async fn plan_all(core: &Arc<Core>, catalog: &Catalog) -> Planned {
    let (mut tables, mut jobs) = (Vec::new(), Vec::new());
    for object in &catalog.objects {
        match object.as_ref() {
            Object::Table(table) => match bring_up::table_specs(core, table) {
                Ok(specs) => tables.push((table.clone(), specs)),
                Err(e) => broken(core, &table.name, &e.to_string(), Retry::Never),
            },
            Object::View(d) => plan_derived(core, object, d, DerivedKind::View, &mut jobs).await,
            Object::Sink(d) => plan_derived(core, object, d, DerivedKind::Sink, &mut jobs).await,
        }
    }
    (tables, jobs)
}

async fn plan_derived(
    core: &Arc<Core>,
    object: &Object,
    d: &Derived,
    kind: DerivedKind,
    jobs: &mut Vec<(JobPlan, bool)>,
) {
    match Deep::new(replan(core, d, kind)).await {
        Ok(plan) => jobs.push((plan, bring_up::is_paused(object))),
        Err(e) => broken(core, &d.name, &e.to_string(), Retry::Never),
    }
}

/// The plan of a stored object, if it still has the columns that are stored.
async fn replan(core: &Arc<Core>, d: &Derived, kind: DerivedKind) -> Result<JobPlan, SqlError> {
    let Statement::CreateDerived(create) = parser::parse_one(&d.sql)?.statement else {
        return Err(SqlError::invalid("the stored statement creates no view or sink"));
    };
    let draft = draft(&core.session()?, kind, &create.query, create.query_at).await?;
    if draft.schema != d.schema {
        return Err(SqlError::conflict(
            "PLAN_CHANGED",
            "this version lays out the columns of the query otherwise than the stored view",
        )
        .hint("drop it and create it again; its topic stays"));
    }
    bring_up::plan_of(d, kind, &draft)
}

/// The regions that are not open, with their errors.
async fn open_all(core: &Core, specs: Vec<RegionSpec>) -> HashMap<RegionId, StorageError> {
    // version 0 of a manifest is missing only if the last start ended between catalog and region
    let created = futures::future::join_all(specs.iter().map(|s| core.deps.storage.create_region(s))).await;
    let mut failed: HashMap<RegionId, StorageError> = HashMap::new();
    let mut good = Vec::with_capacity(specs.len());
    for (spec, result) in specs.into_iter().zip(created) {
        match result {
            Ok(()) => good.push(spec),
            Err(e) => {
                failed.insert(spec.id, e);
            }
        }
    }
    for (id, result) in core.deps.storage.open_regions(good).await {
        if let Err(e) = result {
            failed.insert(id, e);
        }
    }
    failed
}

async fn start(core: &Arc<Core>, plan: JobPlan, paused: bool, failed: &HashMap<RegionId, StorageError>) {
    let regions = plan.own_regions();
    let errors: Vec<&StorageError> = regions.iter().filter_map(|s| failed.get(&s.id)).collect();
    if let Some(error) = errors.iter().find(|e| e.retry() == Retry::Never).or(errors.first()) {
        broken(core, &plan.name, &chain(*error), error.retry());
        if error.retry() != Retry::Never {
            bring_up::start_in_background(core, plan, paused);
        }
        return;
    }
    let (name, job) = (Arc::clone(&plan.name), plan.job);
    if let Err(e) = core.deps.stream.start_job(plan, paused).await {
        tracing::error!(%job, %name, error = %chain(&e), "job cannot be started");
        core.set_broken(&name, chain(&e), Retry::Never);
    }
}
