//! The backfill of one region as a pure state machine: no I/O, no clock, no async.
//!
//! Defends B1 (content at each barrier), B2 (`at` never falls within a pass) and B6 (counters never fall). The driver carries out [`Work`] and reports
//! rows, marks and ends; it may stop between any two of them, since each leaves a valid position.

use millstream_types::{Epoch, Key, Pos, RegionKind, Seq, invariant, invariant::Broken};

/// P: what downstream has received is `content(P)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// State of the keys that are not covered; `None` = downstream has nothing of them.
    pub above: Option<Seq>,
    /// State of the covered keys (exclusive end).
    pub below: Seq,
    pub at: Pos,
}

impl Position {
    /// Everything below it is downstream, whatever the key: `below` once every key is covered, until then what the keys not yet covered are at.
    ///
    /// This, not `below`, answers "is my record in the result": in a pass over net changes `below` is already the new cut while most keys still show
    /// the old one.
    pub fn complete(&self) -> Seq {
        if self.at == Pos::End { self.below } else { self.above.unwrap_or(Seq::ZERO) }
    }
}

/// What an epoch does with the changes of covered keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Forward them at each barrier; the scan goes on as of the new cut.
    Follow,
    /// Leave them for later: `below` stands still, each barrier costs upstream nothing, and the scan goes on where it was.
    Fixed,
    /// Everything is covered: forward the whole change.
    Live,
    /// Everything is covered and the change is too large for one epoch: sweep over it.
    Rebase,
}

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::Follow => "follow",
            Policy::Fixed => "fixed",
            Policy::Live => "live",
            Policy::Rebase => "rebase",
        }
    }
}

/// A read that the driver carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// The net change of covered keys; all of it, or the epoch is void.
    Advance { from: Seq, to: Seq, until: Pos },
    /// The sweep; may stop after any item.
    Scan { above: Option<Seq>, below: Seq, after: Pos },
}

/// Thresholds of the choice, in rows.
#[derive(Debug, Clone, Copy)]
pub struct Thresholds {
    pub catchup_rows: u64,
    pub follow_max_rows: u64,
}

/// One region's backfill.
#[derive(Debug, Clone)]
pub struct Machine {
    kind: RegionKind,
    position: Position,
    /// Counts from 1.
    pub pass: u32,
    /// Rows emitted by scans, all passes.
    pub rows: u64,
    /// Stored rows looked at by scans, all passes.
    pub scanned: u64,
    /// Estimate of `scanned` at the end of the present pass.
    pub total: u64,
    pub finish_epoch: Option<Epoch>,
}

impl Machine {
    /// A first pass that has not begun, or with `history` false one that is over.
    pub fn new(kind: RegionKind, below: Seq, history: bool) -> Self {
        let at = if history { Pos::NotStarted } else { Pos::End };
        Self::restore(kind, Position { above: None, below, at })
    }

    /// Goes on at a stored position; the counters are set by the caller.
    pub fn restore(kind: RegionKind, position: Position) -> Self {
        Self { kind, position, pass: 1, rows: 0, scanned: 0, total: 0, finish_epoch: None }
    }

    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Whether anything of the region may be downstream.
    pub fn has_begun(&self) -> bool {
        self.position.above.is_some() || self.position.at != Pos::NotStarted
    }

    pub fn is_end(&self) -> bool {
        self.position.at == Pos::End
    }

    /// Sequences that a reader of this position needs.
    pub fn needed(&self) -> Vec<Seq> {
        let above = if self.is_end() { None } else { self.position.above };
        let mut all: Vec<Seq> = above.into_iter().chain([self.position.below]).collect();
        all.dedup();
        all
    }

    /// The policy for a gap of `behind` rows below the cut, with `left` rows to scan. Any other choice would be as correct, only slower.
    ///
    /// A scan follows seldom: forwarding looks up the old row of each change of a covered key, and changes that gather share what is read for it. It
    /// follows before the gap is too large for one epoch, so that no second pass is needed if the scan keeps up at all.
    pub fn choose(&self, behind: u64, left: u64, t: &Thresholds) -> Policy {
        match &self.position.at {
            Pos::End if behind <= t.catchup_rows => Policy::Live,
            Pos::End => Policy::Rebase,
            _ if behind > t.catchup_rows || left > t.follow_max_rows || behind < t.catchup_rows.div_ceil(2) => {
                Policy::Fixed
            }
            _ => Policy::Follow,
        }
    }

    /// Whether a scan that was opened as of `above` and `below` still brings what [`Machine::scan`] asks for, if only this scan has moved `at` since.
    pub fn is_current(&self, above: Option<Seq>, below: Seq) -> bool {
        let p = &self.position;
        // New rows of an append region come after all of the open scan: it is right as far as it goes.
        let below_fits = p.below == below || (self.kind == RegionKind::Append && below < p.below);
        p.at != Pos::End && p.above == above && below_fits
    }

    /// Begins an epoch with this cut. The answer must be carried out before anything is scanned, then [`Machine::advanced`] is told.
    pub fn begin(&mut self, cut: Seq, policy: Policy) -> Option<Work> {
        let p = &mut self.position;
        if cut <= p.below {
            return None;
        }
        match (&p.at, policy, self.kind) {
            // Nothing is covered, so no change has to be forwarded.
            (Pos::NotStarted, ..) => {
                p.below = cut;
                None
            }
            (Pos::End, Policy::Rebase, _) => {
                *p = Position { above: Some(p.below), below: cut, at: Pos::NotStarted };
                self.pass += 1;
                None
            }
            (Pos::End, ..) => Some(Work::Advance { from: p.below, to: cut, until: Pos::End }),
            // New rows of an append region come after every covered one: the scan will find them.
            (Pos::At(_), _, RegionKind::Append) => {
                p.below = cut;
                None
            }
            (Pos::At(_), Policy::Fixed, RegionKind::Keyed) => None,
            (Pos::At(_), _, RegionKind::Keyed) => Some(Work::Advance { from: p.below, to: cut, until: p.at.clone() }),
        }
    }

    /// All rows of [`Work::Advance`] have been emitted.
    pub fn advanced(&mut self, to: Seq) {
        self.position.below = self.position.below.max(to);
    }

    /// What is left to sweep, if anything.
    pub fn scan(&self) -> Option<Work> {
        let p = &self.position;
        (p.at != Pos::End).then(|| Work::Scan { above: p.above, below: p.below, after: p.at.clone() })
    }

    /// Rows of the scan have been emitted up to and including `last`.
    pub fn rows(&mut self, last: Key, rows: u64, scanned: u64) -> Result<(), Broken> {
        self.rows += rows;
        self.move_to(Pos::At(last), scanned)
    }

    /// The scan has passed `at` and everything hidden before it.
    pub fn mark(&mut self, at: Key, scanned: u64) -> Result<(), Broken> {
        self.move_to(Pos::At(at), scanned)
    }

    /// Every key is covered now.
    pub fn scan_end(&mut self) {
        self.position.at = Pos::End;
    }

    /// The barrier of `epoch` passes. True if the region is finished with it for the first time.
    pub fn barrier(&mut self, epoch: Epoch) -> bool {
        let first = self.is_end() && self.finish_epoch.is_none();
        if first {
            self.finish_epoch = Some(epoch);
        }
        first
    }

    fn move_to(&mut self, at: Pos, scanned: u64) -> Result<(), Broken> {
        invariant!(B2, at >= self.position.at, "from {:?} to {at:?}", self.position.at);
        self.position.at = at;
        self.scanned += scanned;
        Ok(())
    }
}
