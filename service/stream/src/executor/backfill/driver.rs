//! Carries out what the machines decide: opens scans ([`super::scans`]), hands chunks to the pipeline, ends the quantum when the next barrier is there.
//!
//! Owns: the order of reads within an epoch, budgets, the limiter's waits. No decision about correctness is made here: stopping after any item is fine.

use std::{future::Future, sync::Arc, time::Duration};

use arrow::{
    array::{Int32Array, RecordBatch},
    datatypes::SchemaRef,
};
use futures::StreamExt;
use millstream_storage::{Estimate, LostRange, Region, ScanItem, ScanRequest, WalBinding};
use millstream_types::{
    Chunk, EpochCuts, Pos, Seq,
    runtime::{Clock, Tasks},
};
use tokio::sync::watch;

use super::{
    limiter::{Limiter, Permit},
    machine::{Machine, Policy, Thresholds, Work},
    progress::{Meter, RegionProgress, status},
    scans::{Fetched, Scans},
};
use crate::{
    BackfillStatus, StreamConfig, StreamError, executor::project::motion_schema, metrics::JobMetrics, plan::InputPlan,
};

/// A scan that brings nothing for so long lets the barrier pass.
const OPEN_WAIT: Duration = Duration::from_secs(2);

/// A chunk of large rows has about so many bytes, as far as the estimate knows.
const CHUNK_BYTES: u64 = 8 << 20;

/// Takes the chunks of an epoch.
pub(crate) trait Downstream: Send {
    fn chunk(&mut self, chunk: Chunk) -> impl Future<Output = Result<(), StreamError>> + Send;

    /// What the operators keep of the epoch until its barrier, and so the size of its transaction: rows, and bytes as far as they are known.
    fn held(&self) -> (u64, usize);
}

#[derive(Debug)]
struct RegionInput {
    region: Arc<dyn Region>,
    machine: Machine,
    policy: Policy,
    meter: Meter,
    /// The newest cut.
    cut: Seq,
    /// Whether the present epoch has a cut of it; a closed region is left alone.
    open: bool,
    /// Sequences are offsets of the region's topic: a range of n of them has at most n rows.
    topic_fed: bool,
    over_budget: bool,
    /// Lost ranges of the region that were looked at.
    lost_seen: Vec<LostRange>,
}

impl RegionInput {
    /// What lies between `below` and the newest cut, roughly. The estimate counts whole runs and files, so a range of offsets may bound it better.
    fn behind(&self, below: Seq) -> Estimate {
        let whole = self.region.estimate(Some(below), self.cut, &Pos::NotStarted);
        let offsets = (self.cut.0 - below.0).max(0) as u64;
        if !self.topic_fed || whole.rows <= offsets {
            return whole;
        }
        let share = offsets as f64 / whole.rows as f64;
        Estimate { rows: offsets, bytes: (whole.bytes as f64 * share) as u64 }
    }

    /// What the pass will have scanned in the end, in each epoch anew: the first cut need not be above the position that a scan starts from.
    fn expect_total(&mut self) {
        if let Some(Work::Scan { above, below, after }) = self.machine.scan() {
            let left = self.region.estimate(above, below, &after).rows;
            self.machine.total = self.machine.total.max(self.machine.scanned + left);
        }
    }
}

/// The input of one job: all its regions.
#[derive(Debug)]
pub(crate) struct BackfillExecutor {
    plan: InputPlan,
    /// Schema of a row with its region's number.
    with_region: Option<SchemaRef>,
    config: StreamConfig,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    metrics: JobMetrics,
    regions: Vec<RegionInput>,
    limiter: Limiter,
    scans: Scans,
    /// When the positions that the job starts from were stored; an older loss was looked at then.
    lost_since_ms: u64,
}

/// What an epoch did to the input.
#[derive(Debug)]
pub(crate) struct EpochPositions {
    pub(crate) progress: Vec<RegionProgress>,
    /// Cut of each region in the same order: the next floor of its pin.
    pub(crate) cuts: Vec<Seq>,
    pub(crate) backfills: Vec<BackfillStatus>,
    /// Something that must be durable: a region finished or began another pass.
    pub(crate) milestone: bool,
    /// The epoch was ended by its budget and there is more to scan: another one may follow at once.
    pub(crate) is_full: bool,
}

/// What ends the scans of an epoch.
struct Quantum<'a> {
    cuts: &'a watch::Receiver<EpochCuts>,
    started_ms: u64,
    scanned: u64,
}

impl BackfillExecutor {
    pub(crate) fn new(
        plan: InputPlan,
        config: StreamConfig,
        (clock, tasks): (Arc<dyn Clock>, Tasks),
        metrics: JobMetrics,
        regions: Vec<(Arc<dyn Region>, Machine)>,
        rate: Option<u64>,
    ) -> Self {
        let limiter = Limiter::new(rate, config.chunk_rows, clock.now_ms());
        let regions = regions
            .into_iter()
            .map(|(region, machine)| {
                let policy = if machine.is_end() { Policy::Live } else { Policy::Follow };
                let cut = machine.position().below;
                let topic_fed = matches!(region.status().wal, WalBinding::Topic { .. });
                RegionInput {
                    region,
                    machine,
                    policy,
                    meter: Meter::default(),
                    cut,
                    open: false,
                    topic_fed,
                    over_budget: false,
                    lost_seen: Vec::new(),
                }
            })
            .collect();
        let with_region = plan.with_region.then(|| motion_schema(&plan.row()));
        let scans = Scans::default();
        Self { plan, with_region, config, clock, tasks, metrics, regions, limiter, scans, lost_since_ms: u64::MAX }
    }

    /// `positions_ms`: when the positions that the job starts from were stored, or now if it is new.
    pub(crate) fn watch_losses(&mut self, positions_ms: u64) {
        self.lost_since_ms = positions_ms;
    }

    pub(crate) fn set_rate(&mut self, rate: Option<u64>) {
        self.limiter.set_rate(rate, self.clock.now_ms());
        self.metrics.rate_limit.set(rate.map_or(-1, |r| r as i64));
    }

    /// Reads one epoch. `newer` tells that the next barrier has come. A region without a cut (closed, quarantined) stands still.
    pub(crate) async fn epoch(
        &mut self,
        cuts: &EpochCuts,
        newer: &watch::Receiver<EpochCuts>,
        paused: bool,
        down: &mut impl Downstream,
    ) -> Result<EpochPositions, StreamError> {
        self.check_lost()?;
        let passes: Vec<u32> = self.regions.iter().map(|r| r.machine.pass).collect();
        for r in &mut self.regions {
            r.over_budget = false;
            let cut = cuts.cuts.get(&r.region.id());
            r.open = cut.is_some();
            r.cut = cut.map_or(r.cut, |c| r.cut.max(*c));
        }
        if !paused {
            for i in 0..self.regions.len() {
                if let Some(cut) = cuts.cuts.get(&self.regions[i].region.id()) {
                    self.advance(i, *cut, down).await?;
                    self.regions[i].expect_total();
                }
            }
            self.sweep(newer, down).await?;
        }
        if paused || self.limiter.rate() == Some(0) {
            self.scans.clear();
        }
        let mut milestone = false;
        for (r, pass) in self.regions.iter_mut().zip(passes) {
            milestone |= r.machine.barrier(cuts.epoch) || r.machine.pass != pass;
        }
        Ok(self.positions(paused, milestone))
    }

    /// An error if a table went on over records that it lost, of which this job has some: the table was at `from` then, and the job is further. Looked at once
    /// for each loss, before anything from after it is read.
    fn check_lost(&mut self) -> Result<(), StreamError> {
        let since = self.lost_since_ms;
        for r in &mut self.regions {
            for lost in r.region.lost() {
                if r.lost_seen.contains(&lost) {
                    continue;
                }
                r.lost_seen.push(lost);
                if lost.at_ms >= since && r.machine.has_begun() && r.machine.position().below > lost.from {
                    let (table, region) = (self.plan.table_name.to_string(), r.region.id());
                    return Err(StreamError::InputLost { table, region, from: lost.from, to: lost.to });
                }
            }
        }
        Ok(())
    }

    /// `max_rows` unless the rows are large: a chunk of them stays small.
    fn request(&self, i: usize, from: Option<Seq>, to: Seq, after: Pos, until: Pos, max_rows: usize) -> ScanRequest {
        let size = self.regions[i].region.estimate(from, to, &after);
        let row = (size.bytes / size.rows.max(1)).max(1);
        let max_rows = usize::try_from(CHUNK_BYTES / row).unwrap_or(max_rows).clamp(1, max_rows);
        ScanRequest { from, to, after, until, columns: Some(self.plan.columns.clone()), max_rows }
    }

    /// Adds the region's number, if it is wanted.
    fn row(&self, i: usize, chunk: Chunk) -> Result<Chunk, StreamError> {
        let Some(schema) = &self.with_region else { return Ok(chunk) };
        let number = self.regions[i].region.id().number as i32;
        let mut columns = chunk.rows.columns().to_vec();
        columns.push(Arc::new(Int32Array::from_value(number, chunk.len())));
        Ok(Chunk::new(RecordBatch::try_new(Arc::clone(schema), columns)?, chunk.ops))
    }

    /// Forwards the change of covered keys up to the cut, or leaves it for later.
    async fn advance(&mut self, i: usize, cut: Seq, down: &mut impl Downstream) -> Result<(), StreamError> {
        let thresholds =
            Thresholds { catchup_rows: self.config.catchup_rows, follow_max_rows: self.config.follow_max_rows };
        let r = &mut self.regions[i];
        let p = r.machine.position().clone();
        if cut <= p.below {
            return Ok(());
        }
        let behind = r.behind(p.below);
        // Large rows count as several: `catchup_rows` of them fill an epoch.
        let row_bytes = (self.config.epoch_bytes as u64 / self.config.catchup_rows.max(1)).max(1);
        let behind = behind.rows.max(behind.bytes / row_bytes);
        let left = if p.at == Pos::End { 0 } else { r.region.estimate(p.above, p.below, &p.at).rows };
        r.policy = r.machine.choose(behind, left, &thresholds);
        let work = r.machine.begin(cut, r.policy);
        if let Some(Work::Advance { from, to, until }) = work {
            let request = self.request(i, Some(from), to, Pos::NotStarted, until, self.config.chunk_rows);
            let mut stream = self.regions[i].region.scan(request);
            while let Some(item) = stream.next().await {
                if let ScanItem::Rows { chunk, .. } = item? {
                    self.metrics.live_forwarded.inc_by(chunk.len() as u64);
                    down.chunk(self.row(i, chunk)?).await?;
                }
            }
            self.regions[i].machine.advanced(to);
        }
        Ok(())
    }

    /// Scans the regions until the quantum ends, the budget is used, or all is covered.
    async fn sweep(
        &mut self,
        newer: &watch::Receiver<EpochCuts>,
        down: &mut impl Downstream,
    ) -> Result<(), StreamError> {
        let now = self.clock.now_ms();
        let regions = &self.regions;
        let machine = |at: usize| regions[at].open.then_some(&regions[at].machine);
        self.scans.keep_current(machine, self.limiter.chunk_rows(), now);
        let mut waiting: Vec<usize> =
            (0..regions.len()).rev().filter(|i| regions[*i].open && !self.scans.has(*i)).collect();
        waiting.retain(|i| regions[*i].machine.scan().is_some());
        let mut quantum = Quantum { cuts: newer, started_ms: now, scanned: 0 };
        while !waiting.is_empty() || !self.scans.is_empty() {
            if self.limiter.rate() == Some(0)
                || self.is_over(&quantum, down.held())
                || !self.wait_for_permit(&mut quantum).await
            {
                break;
            }
            while !self.scans.is_full()
                && let Some(at) = waiting.pop()
            {
                self.open_scan(at);
            }
            let Some((at, fetched)) = self.next_item(&quantum).await else { break };
            match fetched {
                Fetched::Item(item) => self.take(at, item?, &mut quantum, down).await?,
                Fetched::Lost => return Err(StreamError::Stopped { what: "backfill scan" }),
                Fetched::End => {
                    let machine = &mut self.regions[at].machine;
                    // Of an append region more may have come since the scan was opened.
                    match self.scans.take(at).is_some_and(|s| s.below < machine.position().below) {
                        true => waiting.push(at),
                        false => machine.scan_end(),
                    }
                }
            }
        }
        Ok(())
    }

    fn open_scan(&mut self, at: usize) {
        let r = &self.regions[at];
        let Some(Work::Scan { above, below, after }) = r.machine.scan() else { return };
        self.metrics.scan_opens.inc();
        let chunk_rows = self.limiter.chunk_rows();
        let request = self.request(at, above, below, after, Pos::End, chunk_rows);
        self.scans.open((at, r.region.as_ref()), request, chunk_rows, &self.tasks, self.clock.now_ms());
    }

    /// The next item of a scan and its region; `None` means that all are slow and the barrier goes first.
    async fn next_item(&mut self, quantum: &Quantum<'_>) -> Option<(usize, Fetched)> {
        let late = async {
            self.clock.sleep(OPEN_WAIT).await;
            let mut cuts = quantum.cuts.clone();
            // A closed channel never brings a barrier; the scan then decides alone.
            if cuts.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            item = self.scans.next() => Some(item),
            () = late => None,
        }
    }

    async fn take(
        &mut self,
        at: usize,
        item: ScanItem,
        quantum: &mut Quantum<'_>,
        down: &mut impl Downstream,
    ) -> Result<(), StreamError> {
        match item {
            ScanItem::Rows { chunk, last, scanned } => {
                let rows = chunk.len();
                quantum.scanned += scanned;
                self.metrics.backfill_rows.inc_by(rows as u64);
                self.metrics.backfill_scanned.inc_by(scanned);
                down.chunk(self.row(at, chunk)?).await?;
                self.limiter.take(rows);
                self.regions[at].machine.rows(last, rows as u64, scanned)?;
            }
            ScanItem::Mark { at: key, scanned } => {
                quantum.scanned += scanned;
                self.metrics.backfill_scanned.inc_by(scanned);
                self.regions[at].machine.mark(key, scanned)?;
            }
        }
        Ok(())
    }

    /// Whether the epoch has had its share of scanning.
    fn is_over(&mut self, q: &Quantum<'_>, (rows, bytes): (u64, usize)) -> bool {
        if rows >= self.config.epoch_rows || bytes >= self.config.epoch_bytes {
            for r in &mut self.regions {
                r.over_budget = !r.machine.is_end();
            }
            return true;
        }
        let served = q.scanned >= self.config.quantum_rows
            || self.clock.now_ms().saturating_sub(q.started_ms) >= self.config.quantum.as_millis() as u64;
        served && q.cuts.has_changed().unwrap_or(false)
    }

    /// True when a chunk may go; false when a barrier came while the limiter made us wait.
    async fn wait_for_permit(&mut self, q: &mut Quantum<'_>) -> bool {
        loop {
            let ms = match self.limiter.permit(self.clock.now_ms()) {
                Permit::Rows(_) => return true,
                Permit::Hold => return false,
                Permit::WaitMs(ms) => ms,
            };
            self.metrics.limiter_wait.inc_by(ms as f64 / 1000.0);
            let mut cuts = q.cuts.clone();
            tokio::select! {
                () = self.clock.sleep(Duration::from_millis(ms)) => {}
                changed = cuts.changed() => if changed.is_ok() { return false },
            }
        }
    }

    fn positions(&mut self, user_paused: bool, milestone: bool) -> EpochPositions {
        let now = self.clock.now_ms();
        let rate = self.limiter.rate();
        let mut result =
            EpochPositions { progress: Vec::new(), cuts: Vec::new(), backfills: Vec::new(), milestone, is_full: false };
        let (mut scanned, mut total, mut lag) = (0, 0, 0);
        for r in &mut self.regions {
            let p = RegionProgress::of(r.region.id(), &r.machine);
            r.meter.sample(now, p.scanned);
            let mut paused = Vec::new();
            if user_paused {
                paused.push("user");
            }
            if rate == Some(0) && !r.machine.is_end() {
                paused.push("limit");
            }
            result.is_full |= r.over_budget;
            if r.over_budget {
                paused.push("budget");
            }
            scanned += p.scanned;
            total += p.total.max(p.scanned);
            if r.cut > p.position.below {
                lag += r.behind(p.position.below).rows;
            }
            result.backfills.push(status(self.plan.input, &p, r.policy, &r.meter, rate, paused));
            result.cuts.push(r.cut.max(p.position.below));
            result.progress.push(p);
        }
        let finished = self.regions.iter().all(|r| r.machine.is_end());
        let ratio = if finished { 1.0 } else { (scanned as f64 / f64::max(total as f64, 1.0)).min(0.999) };
        self.metrics.backfill_ratio.set(ratio);
        let eta = result.backfills.iter().try_fold(0.0, |m: f64, b| b.eta_seconds.map(|s| m.max(s)));
        self.metrics.backfill_eta.set(eta.unwrap_or(-1.0));
        self.metrics.lag_rows.set(lag as i64);
        result
    }

    pub(crate) fn metrics(&self) -> &JobMetrics {
        &self.metrics
    }
}
