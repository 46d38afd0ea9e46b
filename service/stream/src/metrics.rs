//! All metrics of the stream engine. Labels: `job` (the view's or sink's name) and `kind`, both bounded. Added to once per epoch or chunk.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

#[derive(Debug)]
pub struct StreamMetrics {
    pub(crate) barrier_seconds: Histogram,
    pub(crate) in_flight: IntGaugeVec,
    pub(crate) skipped_epochs: IntCounterVec,
    pub(crate) oldest_epoch_age: GaugeVec,
    pub(crate) state: IntGaugeVec,
    pub(crate) restarts: IntCounterVec,
    pub(crate) backfill_rows: IntCounterVec,
    pub(crate) backfill_scanned: IntCounterVec,
    pub(crate) backfill_live: IntCounterVec,
    pub(crate) backfill_ratio: GaugeVec,
    pub(crate) backfill_eta: GaugeVec,
    pub(crate) scan_opens: IntCounterVec,
    pub(crate) backfill_paused: IntGaugeVec,
    pub(crate) rate_limit: IntGaugeVec,
    pub(crate) limiter_wait: prometheus::CounterVec,
    pub(crate) lag_rows: IntGaugeVec,
    pub(crate) checkpoint_seconds: HistogramVec,
    pub(crate) checkpoints: IntCounterVec,
    pub(crate) checkpoint_bytes: IntCounterVec,
    pub(crate) cache_bytes: IntGaugeVec,
    pub(crate) cache_lookups: IntCounterVec,
    pub(crate) eval_errors: IntCounterVec,
    pub(crate) inconsistent_rows: IntCounterVec,
    pub(crate) sink_records: IntCounterVec,
    pub(crate) dropped_records: IntCounterVec,
}

/// Makes metrics of one registry; the name prefix stands here only.
struct Maker<'a>(&'a Registry);

impl Maker<'_> {
    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("millstream_{name}"), help)
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        let m = IntCounterVec::new(Self::opts(name, help), labels)?;
        self.0.register(Box::new(m.clone()))?;
        Ok(m)
    }

    fn seconds(&self, name: &str, help: &str) -> Result<prometheus::CounterVec, prometheus::Error> {
        let m = prometheus::CounterVec::new(Self::opts(name, help), &["job"])?;
        self.0.register(Box::new(m.clone()))?;
        Ok(m)
    }

    fn int_gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        let m = IntGaugeVec::new(Self::opts(name, help), labels)?;
        self.0.register(Box::new(m.clone()))?;
        Ok(m)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<GaugeVec, prometheus::Error> {
        let m = GaugeVec::new(Self::opts(name, help), &["job"])?;
        self.0.register(Box::new(m.clone()))?;
        Ok(m)
    }
}

/// 1 ms to 65 s in factors of 2.
fn buckets() -> Result<Vec<f64>, prometheus::Error> {
    prometheus::exponential_buckets(0.001, 2.0, 17)
}

impl StreamMetrics {
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let m = Maker(registry);
        let job = &["job"][..];
        let kind = &["job", "kind"][..];
        let barrier_seconds = Histogram::with_opts(
            HistogramOpts::new(
                "millstream_barrier_latency_seconds",
                "time from a tick until every region gave its cut",
            )
            .buckets(buckets()?),
        )?;
        registry.register(Box::new(barrier_seconds.clone()))?;
        let checkpoint_seconds = HistogramVec::new(
            HistogramOpts::new("millstream_checkpoint_seconds", "time of a checkpoint by part").buckets(buckets()?),
            kind,
        )?;
        registry.register(Box::new(checkpoint_seconds.clone()))?;
        Ok(Self {
            barrier_seconds,
            in_flight: m.int_gauge("job_in_flight_epochs", "epochs collected and not committed", job)?,
            skipped_epochs: m.counter("job_skipped_epochs_total", "barriers that a busy job skipped", job)?,
            oldest_epoch_age: m
                .gauge("job_oldest_epoch_age_seconds", "age of the oldest epoch that is not published")?,
            state: m.int_gauge("job_state", "1 for the state the job is in", kind)?,
            restarts: m.counter("job_restarts_total", "restarts after an error", job)?,
            backfill_rows: m.counter("backfill_rows_total", "rows emitted by backfill scans", job)?,
            backfill_scanned: m.counter(
                "backfill_scanned_rows_total",
                "stored rows that backfill scans looked at",
                job,
            )?,
            backfill_live: m.counter("backfill_live_rows_total", "changed rows forwarded for covered keys", kind)?,
            backfill_ratio: m.gauge("backfill_progress_ratio", "part of the input that is covered")?,
            backfill_eta: m.gauge("backfill_eta_seconds", "estimated time to the end of the backfill, -1 = unknown")?,
            scan_opens: m.counter("backfill_scan_opens_total", "scans opened by backfills", job)?,
            backfill_paused: m.int_gauge("backfill_paused", "1 while a backfill is held for this reason", kind)?,
            rate_limit: m.int_gauge("backfill_rate_limit_rows_per_second", "rate limit, -1 = off", job)?,
            limiter_wait: m.seconds("backfill_limiter_wait_seconds_total", "time that scans waited for the limiter")?,
            lag_rows: m.int_gauge("input_lag_rows", "estimated rows between the position and the newest cut", job)?,
            checkpoint_seconds,
            checkpoints: m.counter("checkpoint_total", "checkpoints by outcome", kind)?,
            checkpoint_bytes: m.counter("checkpoint_bytes_total", "bytes sent in transactions", job)?,
            cache_bytes: m.int_gauge("state_cache_bytes", "memory of cached groups and value sets", job)?,
            cache_lookups: m.counter(
                "state_cache_lookups_total",
                "groups looked up: found in the cache, read, new",
                kind,
            )?,
            eval_errors: m.counter(
                "eval_errors_total",
                "values that became null because their evaluation failed",
                job,
            )?,
            inconsistent_rows: m.counter("inconsistent_rows_total", "rows that contradict the state", job)?,
            sink_records: m.counter("sink_records_total", "records written to derived topics", job)?,
            dropped_records: m.counter(
                "sink_dropped_rows_total",
                "deletes and old rows that an append envelope cannot say",
                job,
            )?,
        })
    }

    /// Handles with the job's label filled in.
    pub(crate) fn job(&self, name: &str) -> JobMetrics {
        let l = &[name][..];
        JobMetrics {
            name: name.to_owned(),
            in_flight: self.in_flight.with_label_values(l),
            skipped_epochs: self.skipped_epochs.with_label_values(l),
            oldest_epoch_age: self.oldest_epoch_age.with_label_values(l),
            backfill_rows: self.backfill_rows.with_label_values(l),
            backfill_scanned: self.backfill_scanned.with_label_values(l),
            live_forwarded: self.backfill_live.with_label_values(&[name, "forwarded"]),
            backfill_ratio: self.backfill_ratio.with_label_values(l),
            backfill_eta: self.backfill_eta.with_label_values(l),
            scan_opens: self.scan_opens.with_label_values(l),
            limiter_wait: self.limiter_wait.with_label_values(l),
            rate_limit: self.rate_limit.with_label_values(l),
            lag_rows: self.lag_rows.with_label_values(l),
            checkpoint_bytes: self.checkpoint_bytes.with_label_values(l),
            cache_bytes: self.cache_bytes.with_label_values(l),
            cache_hits: self.cache_lookups.with_label_values(&[name, "hit"]),
            cache_reads: self.cache_lookups.with_label_values(&[name, "read"]),
            eval_errors: self.eval_errors.with_label_values(l),
            inconsistent_rows: self.inconsistent_rows.with_label_values(l),
            sink_records: self.sink_records.with_label_values(l),
            dropped_records: self.dropped_records.with_label_values(l),
        }
    }

    /// Removes the series of a dropped job. A label that was never used is fine.
    pub(crate) fn forget(&self, name: &str) {
        for v in [&self.skipped_epochs, &self.restarts, &self.backfill_rows, &self.backfill_scanned, &self.scan_opens] {
            _ = v.remove_label_values(&[name]);
        }
        for v in [
            &self.checkpoint_bytes,
            &self.eval_errors,
            &self.inconsistent_rows,
            &self.sink_records,
            &self.dropped_records,
        ] {
            _ = v.remove_label_values(&[name]);
        }
        for v in [&self.in_flight, &self.rate_limit, &self.lag_rows, &self.cache_bytes] {
            _ = v.remove_label_values(&[name]);
        }
        for v in [&self.oldest_epoch_age, &self.backfill_ratio, &self.backfill_eta] {
            _ = v.remove_label_values(&[name]);
        }
        for kind in ["creating", "backfilling", "running", "degraded", "paused", "quarantined", "stopped"] {
            _ = self.state.remove_label_values(&[name, kind]);
        }
        for kind in ["user", "limit", "budget"] {
            _ = self.backfill_paused.remove_label_values(&[name, kind]);
        }
        for kind in ["ok", "light", "aborted", "unknown", "fenced"] {
            _ = self.checkpoints.remove_label_values(&[name, kind]);
        }
        for kind in ["collect", "commit", "apply"] {
            _ = self.checkpoint_seconds.remove_label_values(&[name, kind]);
        }
        for kind in ["hit", "read"] {
            _ = self.cache_lookups.remove_label_values(&[name, kind]);
        }
        _ = self.backfill_live.remove_label_values(&[name, "forwarded"]);
        _ = self.limiter_wait.remove_label_values(&[name]);
    }
}

/// The metrics of one job, made once.
#[derive(Debug, Clone)]
pub struct JobMetrics {
    pub(crate) name: String,
    pub(crate) in_flight: IntGauge,
    pub(crate) skipped_epochs: IntCounter,
    pub(crate) oldest_epoch_age: Gauge,
    pub(crate) backfill_rows: IntCounter,
    pub(crate) backfill_scanned: IntCounter,
    pub(crate) live_forwarded: IntCounter,
    pub(crate) backfill_ratio: Gauge,
    pub(crate) backfill_eta: Gauge,
    pub(crate) scan_opens: IntCounter,
    pub(crate) limiter_wait: prometheus::Counter,
    pub(crate) rate_limit: IntGauge,
    pub(crate) lag_rows: IntGauge,
    pub(crate) checkpoint_bytes: IntCounter,
    pub(crate) cache_bytes: IntGauge,
    pub(crate) cache_hits: IntCounter,
    pub(crate) cache_reads: IntCounter,
    pub(crate) eval_errors: IntCounter,
    pub(crate) inconsistent_rows: IntCounter,
    pub(crate) sink_records: IntCounter,
    pub(crate) dropped_records: IntCounter,
}
