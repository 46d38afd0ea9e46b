//! Metrics of REST and of the process: request counts and times, build, memory.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct AdminMetrics {
    registry: Registry,
    pub(crate) requests: IntCounterVec,
    pub(crate) seconds: HistogramVec,
    resident: IntGauge,
}

impl AdminMetrics {
    pub fn new(registry: &Registry, version: &str, commit: &str) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new("millstream_http_requests_total", "REST requests by route and status class"),
            &["kind", "result"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new("millstream_http_request_seconds", "Time from the request to the head of its answer")
                .buckets(vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0]),
            &["kind"],
        )?;
        let resident = IntGauge::new("process_resident_memory_bytes", "Resident memory of the process")?;
        let build = IntGaugeVec::new(Opts::new("millstream_build_info", "Always 1"), &["version", "commit"])?;
        build.with_label_values(&[version, commit]).set(1);
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(resident.clone()))?;
        registry.register(Box::new(build))?;
        Ok(Self { registry: registry.clone(), requests, seconds, resident })
    }

    /// All metrics of the process in Prometheus' text form.
    pub(crate) fn render(&self) -> Result<String, prometheus::Error> {
        if let Some(bytes) = resident_bytes() {
            self.resident.set(bytes);
        }
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// Linux only; elsewhere the gauge stays 0.
fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok().map(|kib| kib * 1024)
}
