//! Metrics of the formats. Declared here and nowhere else.

use prometheus::{IntCounterVec, Opts, Registry};

/// Clones count into the same series.
#[derive(Debug, Clone)]
pub struct FormatMetrics {
    /// `millstream_bad_records_total{table,kind}`: records that did not become rows, by reason.
    pub(crate) bad_records: IntCounterVec,
}

impl FormatMetrics {
    /// Registers the metrics. Fails if they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::unregistered()?;
        registry.register(Box::new(metrics.bad_records.clone()))?;
        Ok(metrics)
    }

    /// For tests and tools that expose nothing.
    pub fn unregistered() -> Result<Self, prometheus::Error> {
        let opts = Opts::new("millstream_bad_records_total", "Records that did not become rows, by table and reason");
        Ok(Self { bad_records: IntCounterVec::new(opts, &["table", "kind"])? })
    }
}
