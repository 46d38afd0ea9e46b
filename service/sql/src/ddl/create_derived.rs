//! CREATE MATERIALIZED VIEW and CREATE SINK: plan, topic, catalog entry, job. Returns when the catalog has it; the backfill runs in the background.

use std::{collections::BTreeMap, sync::Arc};

use datafusion::sql::sqlparser::tokenizer::Location;
use millstream_stream::OnEvalError;

use super::{
    bring_up,
    options::{OptionReader, as_map},
    target::{self, TargetDraft},
    wait,
};
use crate::{
    SqlError, StatementResult,
    catalog::{Catalog, Derived, Desired, Object},
    parser::statement::{CreateDerived, DerivedKind, ObjectKind},
    planner::{
        constants,
        draft::{Draft, draft},
        explain::{ExplainOutput, explain},
        job::JobSettings,
    },
    service::Core,
};

/// Options of the job itself.
pub(super) const JOB_OPTIONS: [&str; 4] = ["backfill_rate_limit", "snapshot", "wait", "on_eval_error"];

/// Everything about the view but its numbers.
#[derive(Debug)]
pub(crate) struct Prepared {
    draft: Draft,
    target: Option<TargetDraft>,
    options: BTreeMap<String, String>,
    backfill_rate_limit: Option<u64>,
    wait: bool,
    notices: Vec<String>,
}

impl Prepared {
    /// A view over what cannot be read would be filled with what is left of it.
    pub(crate) fn check_input(&self, core: &Core, create: &CreateDerived) -> Result<(), SqlError> {
        core.readable(core.catalog()?.as_ref(), &self.draft.input.name).map_err(|e| e.at(create.query_at))
    }

    pub(crate) fn explain(&self, core: &Core, create: &CreateDerived, verbose: bool) -> Vec<String> {
        let output = ExplainOutput {
            kind: create.kind,
            name: &create.name.value,
            topic: self.target.as_ref().map(|t| &t.target),
        };
        explain(&output, &self.draft, core.deps.storage.as_ref(), verbose)
    }
}

fn object_kind(kind: DerivedKind) -> ObjectKind {
    match kind {
        DerivedKind::View => ObjectKind::View,
        DerivedKind::Sink => ObjectKind::Sink,
    }
}

pub(crate) async fn create(core: &Arc<Core>, create: CreateDerived, text: String) -> Result<StatementResult, SqlError> {
    let kind = object_kind(create.kind);
    let tag = format!("CREATE {}", kind.sql());
    let created = {
        let _one = core.ddl.lock().await;
        let store = core.store()?;
        store.refresh().await?;
        if let Some(notice) = super::existing(&store.current(), kind, &create.name, create.if_not_exists)? {
            return Ok(StatementResult::command(tag, vec![notice]));
        }
        let mut prepared = prepare(core, &create).await?;
        prepared.check_input(core, &create)?;
        if let Some(target) = &mut prepared.target {
            target::ensure(core.deps.logs.as_ref(), target, &mut prepared.notices).await?;
        }
        let object = store.change(|catalog| append(core, catalog, &create, &text, &prepared)).await?;
        if let Some(object) = object {
            let notices = bring_up::start_job(core, &object, create.kind, &prepared.draft).await?;
            prepared.notices.extend(notices);
        }
        prepared
    };
    let mut notices = created.notices;
    if created.wait {
        wait::wait_running(core, &create.name).await?;
    } else {
        notices.push(format!("the backfill runs in the background: SHOW BACKFILLS, or WAIT FOR {}", create.name.value));
    }
    Ok(StatementResult::command(tag, notices))
}

/// All checks; changes nothing.
pub(crate) async fn prepare(core: &Arc<Core>, create: &CreateDerived) -> Result<Prepared, SqlError> {
    let mut notices = Vec::new();
    let planning = {
        let (core, kind, query, at) = (Arc::clone(core), create.kind, create.query.clone(), create.query_at);
        async move {
            let draft = draft(&core.session()?, kind, &query, at).await?;
            constants::check(&draft).map_err(|e| e.at(at))?;
            Ok(draft)
        }
    };
    let draft = core.planners.run(core.deadline(), planning).await?;
    let mut options = OptionReader::new(&create.options);
    options.not_yet(&[
        ("late_topic", "leave it out: there are no windows yet"),
        ("hydrate_order", "leave it out: a view has one input"),
        ("on_big_record", "leave it out: a record that is too large fails the job, with its key"),
        ("tombstones", "leave it out: upsert always writes them"),
    ])?;
    let target = target::read(&mut options, &draft, core.config.topic_partitions, &mut notices)?;
    if create.kind == DerivedKind::Sink && target.is_none() {
        return Err(SqlError::option("a sink needs a topic")
            .at(create.name.at)
            .hint("add WITH (topic = 'name') after the name"));
    }
    let backfill_rate_limit = options.number("backfill_rate_limit", 0..=u64::MAX)?;
    let wait = options.flag("wait", false)?;
    let settings = settings_of(&mut options)?;
    check_snapshot(&settings, &draft, options.entry("snapshot").map(|e| e.value_at))?;
    match &target {
        Some(t) => {
            let made = target::encoders(&t.target, &draft, &as_map(&create.options));
            made.map_err(|r| options.refused(r))?;
            target::check_free(core.catalog()?.as_ref(), &core.config.wal_topic, t, &create.name.value)?;
        }
        None => options.finish()?,
    }
    if draft.schema.primary_key.is_empty() {
        notices.push("the input has no primary key: rows are only ever added".to_owned());
    }
    Ok(Prepared { draft, target, options: as_map(&create.options), backfill_rate_limit, wait, notices })
}

/// Without the history an aggregate would take back rows that it never counted.
fn check_snapshot(settings: &JobSettings, draft: &Draft, at: Option<Location>) -> Result<(), SqlError> {
    if settings.snapshot || draft.aggregation().is_none_or(|a| a.append_only) {
        return Ok(());
    }
    let what = format!("an aggregate over {}, whose rows can change, needs the rows from before", draft.input.name);
    Err(SqlError::option(format!("snapshot = false: {what}"))
        .at(at.unwrap_or(Location::empty()))
        .hint("leave snapshot out, or aggregate a table without a primary key"))
}

fn settings_of(options: &mut OptionReader<'_>) -> Result<JobSettings, SqlError> {
    Ok(JobSettings {
        snapshot: options.flag("snapshot", true)?,
        on_eval_error: options.choice(
            "on_eval_error",
            &[("null", OnEvalError::Null), ("fail", OnEvalError::Fail)],
            "null",
        )?,
    })
}

/// The settings of a stored object; its options were checked when it was created.
pub(super) fn stored_settings(object: &Derived) -> JobSettings {
    let is = |key: &str, word: &str| object.options.get(key).is_some_and(|v| v == word);
    JobSettings {
        snapshot: !is("snapshot", "false"),
        on_eval_error: if is("on_eval_error", "fail") { OnEvalError::Fail } else { OnEvalError::Null },
    }
}

/// Adds the entry; checks again what another replica may have changed.
fn append(
    core: &Core,
    catalog: &mut Catalog,
    create: &CreateDerived,
    text: &str,
    prepared: &Prepared,
) -> Result<Option<Derived>, SqlError> {
    if super::existing(catalog, object_kind(create.kind), &create.name, create.if_not_exists)?.is_some() {
        return Ok(None);
    }
    let input = &prepared.draft.input;
    let same = catalog.by_table(input.table).is_some_and(|o| *o.schema() == *input.schema);
    if !same {
        return Err(SqlError::conflict("INPUT_CHANGED", format!("{} was dropped or changed meanwhile", input.name))
            .at(create.query_at)
            .hint("try again"));
    }
    if let Some(t) = &prepared.target {
        target::check_free(catalog, &core.config.wal_topic, t, &create.name.value)?;
    }
    let id = catalog.take_table_id();
    let progress = catalog.take_table_id();
    let state = (0..prepared.draft.state_tables()).map(|_| catalog.take_table_id()).collect();
    let job = catalog.take_job_id();
    let object = Derived {
        id,
        job,
        name: create.name.value.clone(),
        sql: text.to_owned(),
        schema: prepared.draft.schema.clone(),
        options: prepared.options.clone(),
        input: input.table,
        shard: catalog.cluster.shard_of(job.0),
        progress,
        state,
        topic: prepared.target.as_ref().map(|t| t.target.clone()),
        desired: Desired::Running,
        backfill_rate_limit: prepared.backfill_rate_limit,
        created_ms: core.deps.clock.now_ms(),
    };
    catalog.replace(match create.kind {
        DerivedKind::View => Object::View(object.clone()),
        DerivedKind::Sink => Object::Sink(object.clone()),
    });
    Ok(Some(object))
}
