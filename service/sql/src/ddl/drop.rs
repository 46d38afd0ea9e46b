//! DROP: out of the catalog first, so that the name is free and nobody sees the object; then job, pins and regions, which is done again at the next
//! start if it was not completed. The derived topic stays. Works in every state of the object.

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Location;
use millstream_stream::StreamError;
use millstream_types::error::chain;

use crate::{
    SqlError, StatementResult,
    catalog::{Catalog, Dropping, Object},
    parser::statement::{Name, ObjectKind},
    service::Core,
};

pub(crate) async fn drop_objects(
    core: &Arc<Core>,
    kind: ObjectKind,
    names: &[Name],
    if_exists: bool,
    cascade: bool,
) -> Result<StatementResult, SqlError> {
    let _one = core.ddl.lock().await;
    core.store()?.refresh().await?;
    let catalog = core.catalog()?;
    let mut notices = Vec::new();
    let mut doomed: Vec<String> = Vec::new();
    for name in names {
        if catalog.quarantined.iter().any(|q| q.name == name.value) {
            return Err(SqlError::unsupported(
                format!("{} is quarantined: this version cannot read what it consists of", name.value),
                "drop it with the version that created it",
            )
            .at(name.at));
        }
        if if_exists && catalog.object(&name.value).is_none() {
            notices.push(format!("{} {} does not exist, nothing was done", kind.word(), name.value));
            continue;
        }
        super::of_kind(&catalog, kind, name)?;
        doomed.push(name.value.clone());
    }
    let dependants = dependants(&catalog, &doomed);
    if !dependants.is_empty() && !cascade {
        let first = names.first().map_or(Location::empty(), |n| n.at);
        return Err(SqlError::conflict("HAS_DEPENDANTS", format!("{} depend on it", dependants.join(", ")))
            .at(first)
            .hint("drop them first, or write CASCADE"));
    }
    for name in &dependants {
        notices.push(format!("{name} is dropped too"));
    }
    // dependants first: their pins on the regions go before the regions
    let mut all: Vec<String> = dependants.into_iter().rev().collect();
    all.extend(doomed);
    for name in &all {
        if let Some(topic) = catalog.object(name).and_then(|o| o.derived()).and_then(|d| d.topic.as_ref()) {
            notices.push(format!("topic {} stays", topic.topic));
        }
    }
    notices.extend(remove(core, &all).await?);
    Ok(StatementResult::command(format!("DROP {}", kind.sql()), notices))
}

/// Names of everything that reads `roots`, in order of creation, without the roots.
fn dependants(catalog: &Catalog, roots: &[String]) -> Vec<String> {
    let mut doomed: Vec<String> = roots.to_vec();
    // inputs are created before what reads them, so one pass in order of creation finds all
    for object in &catalog.objects {
        let Some(derived) = object.derived() else { continue };
        let input_goes = catalog.by_table(derived.input).is_some_and(|i| doomed.iter().any(|d| d == i.name()));
        if input_goes && !doomed.contains(&derived.name) {
            doomed.push(derived.name.clone());
        }
    }
    doomed.split_off(roots.len())
}

/// Takes the objects out of the catalog and deletes what they consist of. What could not be deleted now is told, and done at the next start.
pub(super) async fn remove(core: &Arc<Core>, names: &[String]) -> Result<Option<String>, SqlError> {
    if names.is_empty() {
        return Ok(None);
    }
    let dropping = core
        .store()?
        .change(|catalog| {
            let mut dropping = Vec::with_capacity(names.len());
            for name in names {
                let Some(object) = catalog.object(name).cloned() else { continue };
                dropping.push(entry(&object));
                catalog.objects.retain(|o| o.name() != name);
            }
            catalog.dropping.extend(dropping.iter().cloned());
            Ok(dropping)
        })
        .await?;
    for name in names {
        core.clear_broken(name);
    }
    finish(core, dropping).await
}

fn entry(object: &Object) -> Dropping {
    match object {
        Object::Table(t) => Dropping { name: t.name.clone(), job: None, regions: t.regions() },
        Object::View(d) => Dropping { name: d.name.clone(), job: Some(d.job), regions: d.own_regions(true) },
        Object::Sink(d) => Dropping { name: d.name.clone(), job: Some(d.job), regions: d.own_regions(false) },
    }
}

/// Deletes what is left of dropped objects.
pub(crate) async fn finish(core: &Arc<Core>, dropping: Vec<Dropping>) -> Result<Option<String>, SqlError> {
    let mut done: Vec<Dropping> = Vec::new();
    let mut left = None;
    for d in dropping {
        match delete(core, &d).await {
            Ok(()) => done.push(d),
            Err(e) => {
                tracing::warn!(name = %d.name, error = %chain(&e), "dropped object could not be deleted, it is done at the next start");
                left = Some(format!("warning: files of {} could not be deleted yet: {e}", d.name));
            }
        }
    }
    if !done.is_empty() {
        core.store()?
            .change(|catalog| {
                catalog.dropping.retain(|d| !done.contains(d));
                Ok(())
            })
            .await?;
    }
    Ok(left)
}

async fn delete(core: &Core, d: &Dropping) -> Result<(), SqlError> {
    if let Some(job) = d.job {
        match core.deps.stream.drop_job(job).await {
            // a job that never started, or that went in an earlier try
            Ok(()) | Err(StreamError::JobNotFound { .. }) => {}
            Err(e) => return Err(super::wait::stream_error(e)),
        }
        core.deps.storage.unpin_job(job).await?;
    }
    for id in &d.regions {
        core.deps.storage.drop_region(*id).await?;
    }
    Ok(())
}
