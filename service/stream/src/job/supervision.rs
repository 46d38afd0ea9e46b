//! Keeps one job alive: an error or a panic stops that job alone, it is started again after a back-off, and given up when that does not help.
//!
//! | end of a run | what follows |
//! |---|---|
//! | told to stop | the end |
//! | plan or layout does not fit, value error with `fail` | quarantine at once |
//! | the same failure that time does not heal 3 times within an hour, or `quarantine_after` failures without a checkpoint | quarantine |
//! | fenced | if the job's regions are still ours (their manifest can be written): start again; else stopped |
//! | anything else | again after 1 s doubling to 60 s |
//!
//! A run that begins commits where it stands, so checkpoints between two failures say nothing about the rows that they fail at. Hence the first kind is
//! counted whatever was committed meanwhile.
//!
//! A quarantined or stopped job keeps exact pins, waits for `resume`, and can be dropped.

use std::{future::Future, sync::Arc, time::Duration};

use millstream_types::{Classified, Epoch, ErrorKind, error::chain};
use tokio_util::sync::CancellationToken;

use super::{
    AbortOnDrop,
    service::Context,
    shared::JobShared,
    status::{JobState, Reason},
    task::{self, Run},
};
use crate::{StreamError, checkpoint::pins, plan::JobPlan};

/// The same contradiction, bad value or panic so often is no accident.
const SAME_FAILURE: u32 = 3;
const SAME_WITHIN_MS: u64 = 3_600_000;

/// Counts failures since the last checkpoint.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    epoch: Epoch,
    /// The last failure that trying again cannot heal: its code, how often it came in a row, and when first.
    same: Option<(&'static str, u32, u64)>,
}

/// What to do after a failed run.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    RetryAfter(Duration),
    Quarantine,
    /// Fenced: another owner may be at work.
    AskWhoOwns,
}

impl Failures {
    fn judge(&mut self, error: &StreamError, committed: Epoch, ctx: &Context) -> Verdict {
        if committed > self.epoch {
            (self.epoch, self.count) = (committed, 0);
        }
        if matches!(error, StreamError::Fenced { .. } | StreamError::Overtaken { .. }) {
            return Verdict::AskWhoOwns;
        }
        // A closed input is waited for, however long that takes: it is not the job's failure.
        if matches!(error, StreamError::InputClosed { .. }) {
            return Verdict::RetryAfter(ctx.config.restart_backoff_min);
        }
        self.count += 1;
        let hopeless = self.is_same(error, ctx.clock.now_ms()) || self.count >= ctx.config.quarantine_after;
        if error.is_final() || hopeless {
            return Verdict::Quarantine;
        }
        Verdict::RetryAfter(self.backoff(ctx))
    }

    /// Whether the error is one that comes back, and has.
    fn is_same(&mut self, error: &StreamError, now_ms: u64) -> bool {
        if !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Internal) {
            self.same = None;
            return false;
        }
        let before = self.same.filter(|(code, _, first)| *code == error.code() && now_ms < first + SAME_WITHIN_MS);
        let (code, times, first) = before.unwrap_or((error.code(), 0, now_ms));
        self.same = Some((code, times + 1, first));
        times + 1 >= SAME_FAILURE
    }

    /// Doubles with each failure, up to the maximum.
    fn backoff(&self, ctx: &Context) -> Duration {
        let factor = 1_u32.checked_shl(self.count.saturating_sub(1)).unwrap_or(u32::MAX);
        ctx.config.restart_backoff_min.saturating_mul(factor).min(ctx.config.restart_backoff_max)
    }
}

/// Runs until the job is told to stop.
pub(crate) async fn supervise(
    ctx: Arc<Context>,
    plan: Arc<JobPlan>,
    shared: Arc<JobShared>,
    cancel: CancellationToken,
) {
    let run = Run { ctx, plan, shared, cancel };
    let mut failures = Failures::default();
    loop {
        task::announce(&run.shared);
        let mut running = AbortOnDrop(run.ctx.tasks.compute(format!("job {}", run.plan.job), task::run(run.clone())));
        let result = match (&mut running.0).await {
            Ok(Some(r)) => r,
            Ok(None) | Err(_) => Err(StreamError::Panicked { job: run.plan.job }),
        };
        let Err(error) = result else { break };
        if run.cancel.is_cancelled() {
            break;
        }
        if !recover(&run, &mut failures, error).await {
            break;
        }
    }
    run.shared.set_state(JobState::Stopped, None);
}

/// Waits until the job may run again; false = it is told to stop.
async fn recover(run: &Run, failures: &mut Failures, error: StreamError) -> bool {
    let message = chain(&error);
    let reason = Reason { code: error.code().to_owned(), message: message.clone() };
    let committed = run.shared.applied();
    let mut verdict = failures.judge(&error, committed, &run.ctx);
    run.shared.update(|s| {
        s.restarts += 1;
        s.last_error = Some(reason.clone());
    });
    run.ctx.metrics.restarts.with_label_values(&[&run.plan.name]).inc();
    if verdict == Verdict::AskWhoOwns {
        if !still_ours(run).await {
            tracing::warn!(job = %run.plan.job, error = %message, "job stopped, another owner is at work");
            return wait_for_resume(run, JobState::Stopped, reason).await;
        }
        verdict = Verdict::RetryAfter(run.ctx.config.restart_backoff_min);
    }
    match verdict {
        Verdict::RetryAfter(wait) => {
            tracing::warn!(job = %run.plan.job, error = %message, restart_ms = wait.as_millis() as u64, "job failed, it will be restarted");
            let resumed = resumed(run);
            let code = format!("restarting_{}", reason.code);
            run.shared.set_state(JobState::Paused, Some(Reason { code, message }));
            tokio::select! {
                () = run.cancel.cancelled() => false,
                () = run.ctx.clock.sleep(wait) => true,
                // The user does not want to wait: the cause is gone.
                () = resumed => true,
            }
        }
        _ => {
            tracing::error!(job = %run.plan.job, name = %run.plan.name, error = %message, "job quarantined, resume or drop it");
            *failures = Failures::default();
            wait_for_resume(run, JobState::Quarantined, reason).await
        }
    }
}

/// Freezes the pins, then waits for `resume` (true) or the end (false).
async fn wait_for_resume(run: &Run, state: JobState, reason: Reason) -> bool {
    let resumed = resumed(run);
    run.shared.set_state(state, Some(reason));
    if let Ok(regions) = task::input_regions(&run.ctx, &run.plan) {
        pins::freeze(run.plan.job, run.plan.input.input, &regions, &run.shared.progress()).await;
    }
    tokio::select! {
        () = run.cancel.cancelled() => false,
        () = resumed => true,
    }
}

/// Ends at the next `resume` after this call.
fn resumed(run: &Run) -> impl Future<Output = ()> + use<> {
    let mut wish = run.shared.wish.subscribe();
    let resumes = wish.borrow_and_update().resumes;
    async move {
        while wish.borrow_and_update().resumes == resumes {
            // Without a sender nobody can resume any more; the token ends the wait.
            if wish.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// After a fence: a broker that aborted a slow transaction fences too. If the manifest of the progress region can still be written, nobody else leads.
async fn still_ours(run: &Run) -> bool {
    let Some(region) = run.ctx.storage.region(run.plan.progress.id) else { return false };
    match region.flush().await {
        Ok(_) => region.status().state == "writable",
        Err(e) => {
            tracing::info!(job = %run.plan.job, error = %chain(&e), "progress region cannot be written after a fence");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::LogError;

    use super::*;

    #[test]
    fn a_failure_that_time_does_not_heal_counts_also_over_checkpoints_but_not_over_hours() {
        let bad = || StreamError::Inconsistent { operator: "hash agg", what: String::new() };
        let away = StreamError::Log(LogError::new(ErrorKind::Unavailable, "away"));
        let mut f = Failures::default();
        let times = [(0, false), (10, false), (20, true)];
        for (at, given_up) in times {
            f.count = 0;
            assert_eq!(f.is_same(&bad(), at), given_up);
        }
        let mut f = Failures::default();
        assert!(!f.is_same(&bad(), 0) && !f.is_same(&bad(), 1) && !f.is_same(&away, 2) && !f.is_same(&bad(), 3));
        let mut f = Failures::default();
        assert!((0..20).all(|i| !f.is_same(&bad(), i * SAME_WITHIN_MS / 2 * 3)));
        assert!((0..20).all(|i| !f.is_same(&away, i)), "what may heal is tried on");
    }
}
