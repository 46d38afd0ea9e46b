//! The loop of one job: recover, pin, then epoch after epoch: newest cuts, read, operators, barrier, hand over to the committer.
//!
//! Runs on the compute runtime. Everything it knows dies with it: a start begins with [`recovery`]. Not here: retries ([`super::supervision`]).

use std::sync::Arc;

use millstream_storage::{Region, RegionStatus};
use millstream_types::{Epoch, EpochCuts, Seq};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    AbortOnDrop,
    service::Context,
    shared::JobShared,
    status::{JobState, Reason},
};
use crate::{
    StreamError,
    checkpoint::{
        committer::{Committer, EpochOutput},
        pins::PinKeeper,
        progress_row::Progress,
        recovery,
    },
    executor::{
        backfill::{driver::BackfillExecutor, machine::Machine},
        cache_budget::CacheBudget,
        eval::Evaluator,
        filter::Filter,
        fold::{Fold, Siblings},
        hash_agg::{AggOptions, AggRegions, HashAgg},
        materialize::Materialize,
        pipeline::{Operator, Pipeline},
        project::{Project, motion_schema},
        sink::Sink,
    },
    metrics::JobMetrics,
    plan::{AggState, HashAggNode, JobPlan, Node},
};

/// What one run of a job needs.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) ctx: Arc<Context>,
    pub(crate) plan: Arc<JobPlan>,
    pub(crate) shared: Arc<JobShared>,
    pub(crate) cancel: CancellationToken,
}

/// One run, from recovery to the first error or the stop. Returns `Ok` when it was told to stop and everything collected is committed.
pub(crate) async fn run(run: Run) -> Result<(), StreamError> {
    let stop = run.cancel.clone();
    let started = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        started = start(&run) => started?,
    };
    let Started { mut input, mut pipeline, committer, cuts } = started;
    let (epochs, queue) = mpsc::channel(run.ctx.config.max_in_flight.saturating_sub(1).max(1));
    let committing = run.ctx.tasks.compute(format!("job {} committer", run.plan.job), committer.run(queue));
    let mut committing = AbortOnDrop(committing);
    let looped = epoch_loop(&run, &mut input, &mut pipeline, epochs, cuts, &mut committing.0).await;
    // The sender is gone: the committer ends what it has. When the job is dropped nobody wants that any more.
    if looped.is_err() || (run.cancel.is_cancelled() && !run.ctx.stopping.is_cancelled()) {
        // Waited for, so that nothing of this run touches pins or regions after it; a finished handle must not be polled again.
        if !committing.0.is_finished() {
            committing.0.abort();
            drop((&mut committing.0).await);
        }
        return looped;
    }
    joined(&run, (&mut committing.0).await)
}

fn joined(
    run: &Run,
    result: Result<Option<Result<(), StreamError>>, tokio::task::JoinError>,
) -> Result<(), StreamError> {
    match result {
        Ok(Some(r)) => r,
        Ok(None) | Err(_) => Err(StreamError::Panicked { job: run.plan.job }),
    }
}

struct Started {
    input: BackfillExecutor,
    pipeline: Pipeline,
    committer: Committer,
    cuts: watch::Receiver<EpochCuts>,
}

/// Everything before the first epoch (03 section 9.3).
async fn start(run: &Run) -> Result<Started, StreamError> {
    let Run { ctx, plan, shared, .. } = run;
    let metrics = ctx.metrics.job(&plan.name);
    let regions = recovery::own_regions(ctx, plan).await?;
    let mut writer = ctx.logs.epoch_writer(&super::transactional_id(&ctx.prefix, plan.job));
    recovery::init(ctx, shared, writer.as_mut()).await?;
    let stored = recovery::read_back(ctx, shared, plan, regions[0].as_ref()).await?;
    let is_new = stored.epoch == Epoch::default();
    if !is_new && stored.plan_hash != plan.plan_hash {
        return Err(StreamError::PlanChanged { job: plan.job, stored: stored.plan_hash, ours: plan.plan_hash });
    }
    ctx.injector.observe(stored.epoch);
    shared.set_applied(stored.epoch);
    shared.keep_progress(stored.regions.clone());
    let inputs = input_regions(ctx, plan)?;
    let mut pins =
        PinKeeper::new(plan.job, plan.input.input, ctx.config.pin_refresh.as_millis() as u64, inputs.clone());
    pins.start(&stored.regions, ctx.clock.now_ms()).await?;
    let pipeline = build(&ctx.cache, plan, &regions, &inputs, &metrics)?;
    let machines = inputs.into_iter().map(|r| (Arc::clone(&r), machine(r.as_ref(), &stored, plan))).collect();
    let rate = shared.wish.borrow().rate_limit;
    let mut input = BackfillExecutor::new(
        plan.input.clone(),
        ctx.config.clone(),
        (Arc::clone(&ctx.clock), ctx.tasks.clone()),
        metrics.clone(),
        machines,
        rate,
    );
    input.set_rate(rate);
    input.watch_losses(if is_new { ctx.clock.now_ms() } else { stored.epoch.0 });
    // Cuts from before the pins may lie below them: only what comes from here on counts.
    let mut cuts = ctx.injector.subscribe();
    cuts.borrow_and_update();
    let starts = stored.starts + 1;
    tracing::info!(job = %plan.job, name = %plan.name, epoch = %stored.epoch, starts, new = is_new, "job recovered");
    let wal_end = regions.iter().map(|r| r.applied().0).max().unwrap_or(0);
    let committer = Committer {
        ctx: Arc::clone(ctx),
        plan: Arc::clone(plan),
        shared: Arc::clone(shared),
        metrics,
        writer,
        regions,
        pins,
        starts,
        stored: stored.regions,
        stored_ms: ctx.clock.now_ms(),
        wal_end,
    };
    ctx.injector.demand();
    Ok(Started { input, pipeline, committer, cuts })
}

pub(crate) fn input_regions(ctx: &Context, plan: &JobPlan) -> Result<Vec<Arc<dyn Region>>, StreamError> {
    let closed = |region| StreamError::InputClosed { input: plan.input.input, region };
    plan.input.regions.iter().map(|id| ctx.storage.region(*id).ok_or_else(|| closed(*id))).collect()
}

/// The stored position of a region, or a first pass from nothing. A region that came later starts at its first row.
fn machine(region: &dyn Region, stored: &Progress, plan: &JobPlan) -> Machine {
    match stored.regions.iter().find(|p| p.region == region.id()) {
        Some(p) => p.machine(region.kind()),
        None => {
            let first_start = stored.epoch == Epoch::default();
            Machine::new(
                region.kind(),
                if first_start { region.applied() } else { Seq::ZERO },
                plan.options.snapshot || !first_start,
            )
        }
    }
}

/// Plan -> operators. `regions` are those of the job, `inputs` those that it reads.
pub(crate) fn build(
    cache: &Arc<CacheBudget>,
    plan: &JobPlan,
    regions: &[Arc<dyn Region>],
    inputs: &[Arc<dyn Region>],
    metrics: &JobMetrics,
) -> Result<Pipeline, StreamError> {
    let eval = Evaluator::new(plan.options.on_eval_error, metrics.clone());
    let mut operators = Vec::new();
    let mut schema = motion_schema(&plan.input.row());
    for node in &plan.nodes {
        operators.push(match node {
            Node::Filter { predicate } => Operator::Filter(Filter::new(Arc::clone(predicate), eval.clone())),
            Node::Project { exprs } => {
                schema = motion_schema(exprs.iter().map(|(_, c)| c));
                Operator::Project(Project::new(exprs.clone(), eval.clone()))
            }
            Node::HashAgg(agg) => {
                let layout = crate::plan::agg_layout(&agg.input, &agg.group, &agg.calls, agg.append_only);
                schema = motion_schema(&layout.columns);
                let options =
                    AggOptions { cache: cache.share(), on_error: plan.options.on_eval_error, metrics: metrics.clone() };
                Operator::HashAgg(Box::new(HashAgg::new(agg.clone(), agg_regions(plan, agg, regions)?, options)?))
            }
        });
    }
    let (schema, keyed) = match (&plan.output.view, &plan.output.topic) {
        (Some(v), _) => (v.region.schema.arrow(), !v.region.schema.primary_key.is_empty()),
        (None, Some(t)) => (schema, t.envelope == crate::Envelope::Upsert),
        (None, None) => (schema, false),
    };
    let fold = plan.output.topic.as_ref().map(|t| Fold::new(t, &schema)).transpose()?.flatten();
    let fold = fold.map(|f| Siblings::new(plan.input.clone(), inputs.to_vec()).map(|s| (f, s))).transpose()?;
    let materialize = Materialize::new(schema, keyed, metrics.clone());
    let sink = plan.output.topic.clone().map(|t| Sink::new(t, plan.job, metrics.clone()));
    Ok(Pipeline::new(operators, materialize, sink, fold, plan.output.view.is_some()))
}

fn agg_regions(plan: &JobPlan, agg: &HashAggNode, regions: &[Arc<dyn Region>]) -> Result<AggRegions, StreamError> {
    let invalid = |what: &str| StreamError::Plan { job: plan.job, what: what.to_owned() };
    let find = |id| {
        regions
            .iter()
            .find(|r| r.id() == id)
            .cloned()
            .ok_or_else(|| invalid("a state region is not listed in the plan"))
    };
    let state = match &agg.state {
        AggState::InView { .. } => {
            let view = plan.output.view.as_ref().ok_or_else(|| invalid("state in view without a view"))?;
            find(view.region.id)?
        }
        AggState::Own { region } => find(region.id)?,
    };
    let sets = agg.minmax.iter().map(|s| s.as_ref().map(|s| find(s.id)).transpose()).collect::<Result<_, _>>()?;
    Ok(AggRegions { state, sets })
}

async fn epoch_loop(
    run: &Run,
    input: &mut BackfillExecutor,
    pipeline: &mut Pipeline,
    epochs: mpsc::Sender<EpochOutput>,
    mut cuts: watch::Receiver<EpochCuts>,
    committing: &mut JoinHandle<Option<Result<(), StreamError>>>,
) -> Result<(), StreamError> {
    let mut first = true;
    let mut ticks = run.ctx.injector.ticks();
    // The cuts of a full epoch once more under the next number: a backfill does not wait for the next barrier, nor hurry it for all other jobs.
    let mut again: Option<EpochCuts> = None;
    let mut barrier = Epoch::default();
    loop {
        let newest = match again.take() {
            Some(again) if !cuts.has_changed().unwrap_or(false) => again,
            _ => {
                tokio::select! {
                    () = run.cancel.cancelled() => return Ok(()),
                    r = &mut *committing => return ended(run, r),
                    changed = cuts.changed() => if changed.is_err() { return Ok(()) },
                }
                let newest = cuts.borrow_and_update().clone();
                barrier = newest.epoch;
                newest
            }
        };
        let now = run.ctx.injector.ticks();
        input.metrics().skipped_epochs.inc_by(now.saturating_sub(ticks + 1));
        ticks = now;
        let wish = *run.shared.wish.borrow();
        input.set_rate(wish.rate_limit);
        let started = run.ctx.clock.now_ms();
        let positions = tokio::select! {
            () = run.cancel.cancelled() => return Ok(()),
            r = input.epoch(&newest, &cuts, wish.paused, pipeline) => r?,
        };
        let rows = pipeline.barrier(newest.epoch, run.shared.applied(), &positions.progress).await?;
        let collect_ms = run.ctx.clock.now_ms().saturating_sub(started);
        if collect_ms > run.ctx.config.watchdog_warn.as_millis() as u64 {
            tracing::warn!(job = %run.plan.job, epoch = %newest.epoch, collect_ms, "epoch took long to collect");
        }
        if positions.is_full {
            again = newest.epoch.again(barrier).map(|epoch| EpochCuts { epoch, ..newest.clone() });
        }
        let output = EpochOutput {
            epoch: newest.epoch,
            rows,
            progress: positions.progress,
            cuts: positions.cuts,
            backfills: positions.backfills,
            milestone: positions.milestone || std::mem::take(&mut first),
            paused: wish.paused,
            degraded: closed_input(run, &newest),
            collect_ms,
        };
        tokio::select! {
            () = run.cancel.cancelled() => return Ok(()),
            r = &mut *committing => return ended(run, r),
            sent = epochs.send(output) => if sent.is_err() { return Err(StreamError::Stopped { what: "committer" }) },
        }
    }
}

/// The committer ends before the loop only with an error.
fn ended(
    run: &Run,
    result: Result<Option<Result<(), StreamError>>, tokio::task::JoinError>,
) -> Result<(), StreamError> {
    joined(run, result).and(Err(StreamError::Stopped { what: "committer" }))
}

/// A region that is closed or quarantined, or a table that does not read all of its topic: the job goes on with what there is and says so.
fn closed_input(run: &Run, cuts: &EpochCuts) -> Option<Reason> {
    let mut stopped: Vec<String> = Vec::new();
    let mut incomplete = None;
    for id in &run.plan.input.regions {
        // A quarantined region stays readable, so it has a cut, which does not move any more.
        let status = run.ctx.storage.region(*id).map(|r| r.status());
        match status {
            Some(RegionStatus { state: "quarantined", reason, .. }) => {
                stopped.push(format!("{id} is quarantined: {}", reason.unwrap_or_default()));
            }
            Some(status) => incomplete = status.reason.or(incomplete),
            None if !cuts.cuts.contains_key(id) => stopped.push(format!("{id} is closed")),
            None => {}
        }
    }
    if stopped.is_empty() {
        return incomplete.map(|message| Reason { code: "input_incomplete".into(), message });
    }
    let message = format!("regions of {} stand still: {}", run.plan.input.table_name, stopped.join("; "));
    Some(Reason { code: "input_closed".into(), message })
}

/// Shows that a run is about to start.
pub(crate) fn announce(shared: &JobShared) {
    shared.set_state(JobState::Creating, None);
}
