//! What is told about a region's backfill: fraction, speed, time left. Derived from the machine's counters; stored counters are in the progress row.

use std::collections::VecDeque;

use millstream_types::{InputId, RegionId};

use super::machine::{Machine, Policy, Position};
use crate::BackfillStatus;

/// One region's position and counters, as a checkpoint stores them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionProgress {
    pub region: RegionId,
    pub position: Position,
    pub pass: u32,
    pub rows: u64,
    pub scanned: u64,
    pub total: u64,
    pub finish_epoch: Option<millstream_types::Epoch>,
}

impl RegionProgress {
    pub fn of(region: RegionId, m: &Machine) -> Self {
        Self {
            region,
            position: m.position().clone(),
            pass: m.pass,
            rows: m.rows,
            scanned: m.scanned,
            total: m.total,
            finish_epoch: m.finish_epoch,
        }
    }

    pub fn machine(&self, kind: millstream_types::RegionKind) -> Machine {
        let mut m = Machine::restore(kind, self.position.clone());
        (m.pass, m.rows, m.scanned, m.total) = (self.pass, self.rows, self.scanned, self.total);
        m.finish_epoch = self.finish_epoch;
        m
    }
}

/// How long speed is averaged over.
const WINDOW_MS: u64 = 60_000;

/// Speed of a scan over the last minute.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// (time, rows scanned so far)
    samples: VecDeque<(u64, u64)>,
}

impl Meter {
    pub(crate) fn sample(&mut self, now_ms: u64, scanned: u64) {
        self.samples.push_back((now_ms, scanned));
        while self.samples.len() > 2 && self.samples.front().is_some_and(|(t, _)| t + WINDOW_MS < now_ms) {
            self.samples.pop_front();
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((t0, n0)), Some((t1, n1))) if t1 > t0 => (n1 - n0) as f64 * 1000.0 / (t1 - t0) as f64,
            _ => 0.0,
        }
    }

    fn seconds(&self) -> f64 {
        match (self.samples.front(), self.samples.back()) {
            (Some((t0, _)), Some((t1, _))) => (t1 - t0) as f64 / 1000.0,
            _ => 0.0,
        }
    }
}

/// The status of one region.
pub(crate) fn status(
    input: InputId,
    p: &RegionProgress,
    policy: Policy,
    meter: &Meter,
    rate_limit: Option<u64>,
    paused: Vec<&'static str>,
) -> BackfillStatus {
    let end = p.position.at == millstream_types::Pos::End;
    let total = p.total.max(p.scanned);
    let fraction = if end {
        1.0
    } else if total == 0 {
        0.0
    } else {
        (p.scanned as f64 / total as f64).min(0.999)
    };
    let speed = meter.per_second();
    // Under ten seconds of watching a speed says nothing.
    let known = speed > 0.0 && meter.seconds() >= 10.0 && rate_limit != Some(0);
    let eta_seconds = if end { Some(0.0) } else { known.then(|| (total - p.scanned) as f64 / speed) };
    BackfillStatus {
        input,
        region: p.region,
        pass: p.pass,
        policy: policy.as_str(),
        state: match &p.position.at {
            millstream_types::Pos::NotStarted => "waiting",
            millstream_types::Pos::At(_) => "scanning",
            millstream_types::Pos::End => "finished",
        },
        above: p.position.above,
        below: p.position.below,
        rows: p.rows,
        scanned: p.scanned,
        total,
        fraction,
        rows_per_second: if end { 0.0 } else { speed },
        eta_seconds,
        rate_limit,
        paused,
        finish_epoch: p.finish_epoch,
    }
}
