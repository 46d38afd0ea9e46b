//! Metrics of this crate.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

#[derive(Debug, Clone)]
pub struct SqlMetrics {
    statements: IntCounterVec,
    seconds: HistogramVec,
}

/// Of the threads that plan.
#[derive(Debug, Clone)]
pub(crate) struct PlanningMetrics {
    pub(crate) running: IntGauge,
    /// Those of them that nobody waits for any more.
    pub(crate) overdue: IntGauge,
    pub(crate) refused: IntCounter,
}

impl PlanningMetrics {
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let running = IntGauge::new("millstream_sql_plannings", "Statements that are being parsed or planned")?;
        let overdue = IntGauge::new(
            "millstream_sql_plannings_overdue",
            "Plannings that go on although their client has its error",
        )?;
        let refused = IntCounter::new(
            "millstream_sql_plannings_refused_total",
            "Statements refused since all threads for planning were taken",
        )?;
        registry.register(Box::new(running.clone()))?;
        registry.register(Box::new(overdue.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        Ok(Self { running, overdue, refused })
    }
}

impl SqlMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let statements = IntCounterVec::new(
            Opts::new("millstream_sql_statements_total", "Statements by kind and result"),
            &["kind", "result"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new("millstream_sql_statement_seconds", "Duration of statements by kind")
                .buckets(vec![0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0]),
            &["kind"],
        )?;
        registry.register(Box::new(statements.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(Self { statements, seconds })
    }

    /// `result` is `ok` or the kind of the error.
    pub(crate) fn finished(&self, kind: &str, result: &str, took: Duration) {
        self.statements.with_label_values(&[kind, result]).inc();
        self.seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
    }
}
