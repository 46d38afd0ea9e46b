//! The last bad records of a table, counts per reason, and one log line now and then.
//!
//! Not here: keeping payloads. A record is known by its coordinates; the topic still has it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use millstream_types::{BadRecord, BadRecordSink, TopicPartition, runtime::Clock};
use serde::Serialize;

use crate::metrics::FormatMetrics;

/// What `GET /v1/tables/<t>/errors` shows.
const KEPT: usize = 100;
/// One line per table in this time, however many records are bad.
const LOG_EVERY_MS: u64 = 10_000;

/// Bad records of one table. Bounded: 100 entries of at most about 1 KiB.
#[derive(Debug)]
pub struct BadRecordRing {
    table: String,
    clock: Arc<dyn Clock>,
    metrics: FormatMetrics,
    /// Written by the table's decoders once per batch with bad records, read by REST.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: VecDeque<BadEntry>,
    by_reason: BTreeMap<&'static str, u64>,
    total: u64,
    last_ms: Option<u64>,
    logged_ms: Option<u64>,
    unlogged: u64,
}

/// A bad record with all of its coordinates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadEntry {
    pub topic: Arc<str>,
    pub partition: i32,
    #[serde(flatten)]
    pub record: BadRecord,
    /// When it was met, Unix milliseconds.
    pub seen_ms: u64,
}

/// What a ring knows.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BadReport {
    /// Since the start of the process; a replay counts again.
    pub total: u64,
    pub by_reason: BTreeMap<&'static str, u64>,
    /// Newest first, at most 100.
    pub last: Vec<BadEntry>,
    /// When the newest was met, Unix milliseconds.
    pub last_ms: Option<u64>,
}

impl BadRecordRing {
    pub fn new(table: impl Into<String>, clock: Arc<dyn Clock>, metrics: FormatMetrics) -> Self {
        Self { table: table.into(), clock, metrics, state: Mutex::default() }
    }

    pub fn table(&self) -> &str {
        &self.table
    }

    pub fn report(&self) -> BadReport {
        let state = self.lock();
        BadReport {
            total: state.total,
            by_reason: state.by_reason.clone(),
            last: state.last.iter().rev().cloned().collect(),
            last_ms: state.last_ms,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the records and returns how many are to be told in the log line of this batch, if one is due.
    fn keep(&self, partition: &TopicPartition, bad: &[BadRecord], now_ms: u64) -> Option<u64> {
        let mut state = self.lock();
        for record in bad {
            *state.by_reason.entry(record.reason.as_str()).or_default() += 1;
        }
        state.total += bad.len() as u64;
        state.last_ms = Some(now_ms);
        for record in &bad[bad.len().saturating_sub(KEPT)..] {
            if state.last.len() == KEPT {
                state.last.pop_front();
            }
            let topic = Arc::clone(&partition.topic);
            state.last.push_back(BadEntry {
                topic,
                partition: partition.partition,
                record: record.clone(),
                seen_ms: now_ms,
            });
        }
        state.unlogged += bad.len() as u64;
        let due = state.logged_ms.is_none_or(|t| now_ms >= t.saturating_add(LOG_EVERY_MS));
        due.then(|| {
            state.logged_ms = Some(now_ms);
            std::mem::take(&mut state.unlogged)
        })
    }
}

impl BadRecordSink for BadRecordRing {
    fn report(&self, partition: &TopicPartition, bad: Vec<BadRecord>) {
        let Some(newest) = bad.last() else { return };
        let due = self.keep(partition, &bad, self.clock.now_ms());
        for record in &bad {
            self.metrics.bad_records.with_label_values(&[self.table.as_str(), record.reason.as_str()]).inc();
        }
        if let Some(records) = due {
            tracing::warn!(
                table = %self.table,
                topic = %partition.topic,
                partition = partition.partition,
                offset = newest.offset,
                reason = newest.reason.as_str(),
                column = %newest.column,
                message = %newest.message,
                records,
                "bad records did not become rows"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::{BadReason, runtime::ManualClock};

    use super::*;

    fn bad(offset: i64, reason: BadReason) -> BadRecord {
        BadRecord { offset, timestamp_ms: 0, stage: "value", reason, column: String::new(), message: "m".to_owned() }
    }

    #[test]
    fn the_ring_keeps_the_last_hundred_and_counts_all() {
        let clock = Arc::new(ManualClock::new(1_000));
        let metrics = FormatMetrics::unregistered().unwrap();
        let ring = BadRecordRing::new("orders", Arc::clone(&clock) as Arc<dyn Clock>, metrics.clone());
        let tp = TopicPartition::new("t", 3);
        BadRecordSink::report(&ring, &tp, (0..250).map(|o| bad(o, BadReason::Malformed)).collect());
        BadRecordSink::report(&ring, &tp, vec![bad(250, BadReason::OutOfRange)]);
        let report = ring.report();
        assert_eq!((report.total, report.last.len()), (251, 100));
        assert_eq!((report.last[0].record.offset, report.last[99].record.offset), (250, 151));
        assert_eq!(report.by_reason, BTreeMap::from([("malformed", 250), ("out_of_range", 1)]));
        assert_eq!(metrics.bad_records.with_label_values(&["orders", "malformed"]).get(), 250);
    }

    #[test]
    fn one_log_line_is_due_in_ten_seconds() {
        let clock = Arc::new(ManualClock::new(1_000));
        let ring =
            BadRecordRing::new("t", Arc::clone(&clock) as Arc<dyn Clock>, FormatMetrics::unregistered().unwrap());
        let tp = TopicPartition::new("t", 0);
        let one = [bad(1, BadReason::Malformed)];
        assert_eq!(ring.keep(&tp, &one, 1_000), Some(1));
        assert_eq!(ring.keep(&tp, &one, 1_001), None);
        assert_eq!(ring.keep(&tp, &one, 11_000), Some(2));
    }
}
