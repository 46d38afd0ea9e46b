//! Threads for what nothing can stop: parsing a long text, planning, checking constants.
//!
//! Each runs on a thread of its own and not on a worker of a runtime, so that it holds up neither other clients nor jobs. Its client waits for it up to a
//! deadline. What is not done then is told to stop ([`super::stop`]) and keeps its slot until it does; when all slots are taken, new statements are refused.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use millstream_types::{ErrorKind, runtime::Clock};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::stop::{self, Stop};
use crate::{SqlError, metrics::PlanningMetrics, stack};

/// When the client of a statement gets an answer, whatever has become of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) at_ms: u64,
    pub(crate) timeout: Duration,
}

impl Deadline {
    pub(crate) fn new(clock: &dyn Clock, timeout: Duration) -> Self {
        Self { at_ms: clock.now_ms().saturating_add(timeout.as_millis() as u64), timeout }
    }

    pub(crate) fn left(&self, clock: &dyn Clock) -> Duration {
        // a clock that is set back must not make it longer
        Duration::from_millis(self.at_ms.saturating_sub(clock.now_ms())).min(self.timeout)
    }

    pub(crate) fn error(&self, what: &str, hint: &str) -> SqlError {
        let message = format!("{what} longer than {} ms", self.timeout.as_millis());
        SqlError::new(ErrorKind::Exhausted, "QUERY_TIMEOUT", message).hint(hint)
    }
}

#[derive(Debug)]
pub(crate) struct Planners {
    slots: Arc<Semaphore>,
    all: usize,
    metrics: PlanningMetrics,
    clock: Arc<dyn Clock>,
}

/// Longest wait for a slot: all of them are held that long only by plannings that do not end.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

impl Planners {
    pub(crate) fn new(slots: usize, metrics: PlanningMetrics, clock: Arc<dyn Clock>) -> Self {
        Self { slots: Arc::new(Semaphore::new(slots)), all: slots, metrics, clock }
    }

    async fn slot(&self, until: Deadline) -> Result<OwnedSemaphorePermit, SqlError> {
        if let Ok(free) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(free);
        }
        tokio::select! {
            slot = Arc::clone(&self.slots).acquire_owned() => slot.map_err(|e| SqlError::internal("slots of planning", e)),
            () = self.clock.sleep(until.left(self.clock.as_ref()).min(LONGEST_WAIT)) => {
                self.metrics.refused.inc();
                let message = format!("{} other statements are being planned, and take long", self.all);
                Err(SqlError::new(ErrorKind::Exhausted, "TOO_MANY_PLANNINGS", message)
                    .hint("send it again; metric millstream_sql_plannings_overdue counts those that nobody waits for any more"))
            }
        }
    }

    /// The outcome of `work`, which runs on a thread of its own; an error when it is not done in time.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        until: Deadline,
        work: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, SqlError>> {
        // such futures are large, and would be a part of all that wait for them
        self.run_boxed(until, work.boxed()).boxed()
    }

    async fn run_boxed<T: Send + 'static>(
        &self,
        until: Deadline,
        work: BoxFuture<'static, Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        let slot = self.slot(until).await?;
        let wanted = Wanted { stop: Stop::default(), ended: Arc::default(), metrics: self.metrics.clone() };
        let (stop, ended, metrics) = (Arc::clone(&wanted.stop), Arc::clone(&wanted.ended), self.metrics.clone());
        let (runtime, span) = (Handle::current(), tracing::Span::current());
        let (done, mut outcome) = oneshot::channel();
        self.metrics.running.inc();
        let thread = std::thread::Builder::new().name("plan".to_owned()).spawn(move || {
            let _in_span = span.entered();
            stack::grown(|| {
                let planned = AssertUnwindSafe(|| stop::within(Arc::clone(&stop), || runtime.block_on(work)));
                let outcome = std::panic::catch_unwind(planned);
                // an outcome that nobody waits for is deep, too
                if let Err(unwanted) = done.send(outcome) {
                    drop(unwanted);
                }
            });
            metrics.running.dec();
            if ended.swap(true, Ordering::AcqRel) {
                metrics.overdue.dec();
            }
            drop(slot);
        });
        if let Err(e) = thread {
            self.metrics.running.dec();
            wanted.ended.store(true, Ordering::Release);
            return Err(SqlError::new(ErrorKind::Unavailable, "NO_THREAD", "no thread for planning").caused_by(e));
        }
        tokio::select! {
            outcome = &mut outcome => match outcome {
                Ok(Ok(planned)) => planned,
                // counted and answered where all panics of a statement are
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(e) => Err(SqlError::internal("the thread of a planning is gone", e)),
            },
            () = self.clock.sleep(until.left(self.clock.as_ref())) => Err(until.error(
                "planning the statement takes",
                "make it smaller: keep parts of it as materialized views; or raise sql.query_timeout",
            )),
        }
    }
}

/// As long as somebody waits for a planning; dropped without its outcome, it tells the planning to stop.
struct Wanted {
    stop: Stop,
    /// Set by whoever is first, the planning or the one who waits.
    ended: Arc<AtomicBool>,
    metrics: PlanningMetrics,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // counted before: the planning takes it back as soon as it sees the mark
        self.metrics.overdue.inc();
        if self.ended.swap(true, Ordering::AcqRel) {
            self.metrics.overdue.dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use millstream_types::{Classified, Retry, runtime::SystemClock};

    use super::*;

    fn planners(slots: usize) -> (Planners, PlanningMetrics, Deadline) {
        let metrics = PlanningMetrics::new(&prometheus::Registry::new()).unwrap();
        let clock = Arc::new(SystemClock);
        let until = Deadline::new(clock.as_ref(), Duration::from_millis(50));
        (Planners::new(slots, metrics.clone(), clock), metrics, until)
    }

    fn soon(until: Duration) -> Deadline {
        Deadline::new(&SystemClock, until)
    }

    async fn eventually(what: &str, done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < end, "{what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn a_planning_that_takes_too_long_is_answered_in_time_and_told_to_stop() {
        let (planners, metrics, until) = planners(1);
        let endless = async {
            loop {
                stop::check()?;
                std::thread::yield_now();
            }
        };
        let error = planners.run::<()>(until, endless).await.unwrap_err();
        assert_eq!((error.code, error.retry()), ("QUERY_TIMEOUT", Retry::Safe), "{error}");
        eventually("it has stopped", || metrics.running.get() == 0 && metrics.overdue.get() == 0).await;
        assert_eq!(planners.run(soon(Duration::from_secs(20)), async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_stops_its_planning() {
        let (planners, metrics, _) = planners(1);
        let endless = async {
            loop {
                stop::check()?;
                std::thread::yield_now();
            }
        };
        let mut waiting = Box::pin(planners.run::<()>(soon(Duration::from_secs(600)), endless));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(waiting);
        eventually("it has stopped", || metrics.running.get() == 0 && metrics.overdue.get() == 0).await;
    }

    #[tokio::test]
    async fn what_cannot_be_stopped_keeps_its_slot_is_counted_and_others_are_refused() {
        let (planners, metrics, until) = planners(1);
        let (release, held) = std::sync::mpsc::channel::<()>();
        let deaf = async move { held.recv().map_err(|e| SqlError::internal("held", e)) };
        assert_eq!(planners.run(until, deaf).await.unwrap_err().code, "QUERY_TIMEOUT");
        assert_eq!((metrics.running.get(), metrics.overdue.get()), (1, 1));
        let refused = planners.run(soon(Duration::from_millis(20)), async { Ok(()) }).await.unwrap_err();
        assert_eq!((refused.code, refused.retry(), metrics.refused.get()), ("TOO_MANY_PLANNINGS", Retry::Safe, 1));
        release.send(()).unwrap();
        eventually("the slot is free", || metrics.running.get() == 0 && metrics.overdue.get() == 0).await;
        planners.run(soon(Duration::from_secs(20)), async { Ok(()) }).await.unwrap();
    }

    #[tokio::test]
    async fn a_panic_of_a_planning_is_that_of_its_statement_and_frees_the_slot() {
        let (planners, metrics, _) = planners(1);
        let broken = planners.run::<()>(soon(Duration::from_secs(20)), async { panic!("as planned") });
        assert!(AssertUnwindSafe(broken).catch_unwind().await.is_err());
        eventually("the slot is free", || metrics.running.get() == 0).await;
        assert_eq!(planners.run(soon(Duration::from_secs(20)), async { Ok(1) }).await.unwrap(), 1);
    }
}
