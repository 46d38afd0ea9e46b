//! Metrics of this crate.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

#[derive(Debug, Clone)]
pub struct SqlMetrics {
    statements: IntCounterVec,
    seconds: HistogramVec,
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
