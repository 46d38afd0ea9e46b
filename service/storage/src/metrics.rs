//! The metrics of storage, all declared here. Labels are bounded: `table`, `kind`, `result`; region detail is REST's business.

use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

use crate::StorageError;

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    /// By state.
    pub region_count: IntGaugeVec,
    pub request_wait_seconds: HistogramVec,
    pub write_rows: IntCounterVec,
    pub write_bytes: IntCounter,
    pub stalled_requests: IntGauge,
    pub stalled_bytes: IntGauge,
    pub write_rejected: IntCounterVec,
    pub append_seconds: Histogram,
    pub append_unknown: IntCounterVec,
    /// By kind: mutable, frozen, held.
    pub memtable_bytes: IntGaugeVec,
    pub flush_total: IntCounterVec,
    pub flush_seconds: Histogram,
    pub flush_bytes: IntCounter,
    pub flush_queue: IntGauge,
    pub manifest_put: IntCounterVec,
    pub fenced: IntCounter,
    pub compaction_total: IntCounterVec,
    pub compaction_seconds: Histogram,
    /// By kind: in, out.
    pub compaction_bytes: IntCounterVec,
    pub sorted_runs_max: IntGauge,
    pub sst_files: IntGauge,
    pub sst_bytes: IntGauge,
    pub purge_total: IntCounterVec,
    pub orphans_deleted: IntCounter,
    pub wal_replay_rows: IntCounter,
    pub wal_gap_records: IntCounter,
    pub wal_pruned_offset: IntGaugeVec,
    pub wal_prune_blocked_seconds: Gauge,
    pub wal_foreign_records: IntCounter,
    pub wal_corrupt_entries: IntCounter,
    pub wal_zombie_entries: IntCounter,
    pub bad_records: IntCounterVec,
    /// Records between the position and the last stable offset, summed over a table's partitions.
    pub tail_lag: IntGaugeVec,
    pub unread_partitions: IntGaugeVec,
    pub pin_count: IntGauge,
}

impl Metrics {
    /// Registers everything; fails only if a name is registered twice.
    pub(crate) fn new(registry: &Registry) -> Result<Self, StorageError> {
        let r = Reg(registry);
        Ok(Self {
            region_count: r.gauges("region_count", "open regions by state", "kind")?,
            request_wait_seconds: r.histograms("region_request_wait_seconds", "time in a worker's mailbox", "kind")?,
            write_rows: r.counters("write_rows_total", "rows that entered memtables", "table")?,
            write_bytes: r.counter("write_bytes_total", "bytes that entered memtables")?,
            stalled_requests: r.gauge("write_stalled_requests", "requests parked by memory pressure")?,
            stalled_bytes: r.gauge("write_stalled_bytes", "bytes parked by memory pressure")?,
            write_rejected: r.counters("write_rejected_total", "client writes refused", "kind")?,
            append_seconds: r.histogram("append_seconds", "group commit on the shared wal")?,
            append_unknown: r.counters(
                "append_unknown_total",
                "appends with unknown outcome, by what reading back found",
                "result",
            )?,
            memtable_bytes: r.gauges("memtable_bytes", "bytes of memtables", "kind")?,
            flush_total: r.counters("flush_total", "flushes", "result")?,
            flush_seconds: r.histogram("flush_duration_seconds", "sort, encode and upload of one frozen memtable")?,
            flush_bytes: r.counter("flush_bytes_total", "bytes of ssts written by flushes")?,
            flush_queue: r.gauge("flush_queue_length", "frozen memtables that wait or are being flushed")?,
            manifest_put: r.counters("manifest_put_total", "manifest versions put", "result")?,
            fenced: r.counter("fenced_total", "regions fenced by a newer leader epoch")?,
            compaction_total: r.counters("compaction_total", "compactions", "result")?,
            compaction_seconds: r.histogram("compaction_duration_seconds", "one compaction")?,
            compaction_bytes: r.counters("compaction_bytes_total", "bytes read and written by compactions", "kind")?,
            sorted_runs_max: r.gauge("sorted_runs_max", "most sorted runs of any region")?,
            sst_files: r.gauge("sst_files", "listed ssts of all regions")?,
            sst_bytes: r.gauge("sst_bytes", "bytes of listed ssts of all regions")?,
            purge_total: r.counters("purge_total", "removed files deleted", "result")?,
            orphans_deleted: r.counter("orphans_deleted_total", "unlisted objects deleted")?,
            wal_replay_rows: r.counter("wal_replay_rows_total", "rows read back from the shared wal")?,
            wal_gap_records: r
                .counter("wal_gap_records_total", "topic records lost to retention before they were read")?,
            wal_pruned_offset: r.gauges(
                "wal_pruned_offset",
                "shared wal offset below which nothing is needed",
                "kind",
            )?,
            wal_prune_blocked_seconds: r
                .float_gauge("wal_prune_blocked_seconds", "how long pruning has been impossible")?,
            wal_foreign_records: r.counter("wal_foreign_records_total", "shared wal records of somebody else")?,
            wal_corrupt_entries: r.counter("wal_corrupt_entries_total", "shared wal entries with a broken checksum")?,
            wal_zombie_entries: r.counter("wal_zombie_entries_total", "shared wal entries of a lower leader epoch")?,
            bad_records: r.counters("topic_bad_records_total", "topic records that could not be decoded", "table")?,
            tail_lag: r.gauges("topic_lag_records", "records between position and last stable offset", "table")?,
            unread_partitions: r.gauges(
                "topic_unread_partitions",
                "partitions added to the topic since CREATE, which the table does not read",
                "table",
            )?,
            pin_count: r.gauge("pin_count", "pins of jobs")?,
        })
    }
}

/// Adds the prefix and registers.
struct Reg<'a>(&'a Registry);

impl Reg<'_> {
    fn add<C: Collector + Clone + 'static>(&self, made: Result<C, prometheus::Error>) -> Result<C, StorageError> {
        let metric = made.map_err(|e| StorageError::internal("metrics", e))?;
        self.0.register(Box::new(metric.clone())).map_err(|e| StorageError::internal("metrics", e))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, StorageError> {
        self.add(IntCounter::with_opts(opts(name, help)))
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec, StorageError> {
        self.add(IntCounterVec::new(opts(name, help), &[label]))
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, StorageError> {
        self.add(IntGauge::with_opts(opts(name, help)))
    }

    fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, StorageError> {
        self.add(Gauge::with_opts(opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> Result<IntGaugeVec, StorageError> {
        self.add(IntGaugeVec::new(opts(name, help), &[label]))
    }

    fn histogram(&self, name: &str, help: &str) -> Result<Histogram, StorageError> {
        self.add(Histogram::with_opts(histogram_opts(name, help)))
    }

    fn histograms(&self, name: &str, help: &str, label: &str) -> Result<HistogramVec, StorageError> {
        self.add(HistogramVec::new(histogram_opts(name, help), &[label]))
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("millstream_{name}"), help)
}

fn histogram_opts(name: &str, help: &str) -> HistogramOpts {
    // 1 ms to 65 s by factors of 4: a flush of a full region takes seconds, a group commit milliseconds.
    let buckets = (0..9).map(|i| 0.001 * 4_f64.powi(i)).collect();
    HistogramOpts::new(format!("millstream_{name}"), help).buckets(buckets)
}
