//! Goal: B1, B2 and the restart rule hold for every sequence of steps.
//! Method: random tables with changes per sequence; a driver in a few lines carries out the machine's work with random chunk sizes, budgets, policies,
//! pauses and crashes; after each barrier the rows downstream are compared with `content(P)` computed from the model.

use std::collections::BTreeMap;

use millstream_stream::executor::backfill::machine::{Machine, Policy, Position, Thresholds, Work};
use millstream_types::{Epoch, Key, Pos, RegionKind, Seq};
use proptest::prelude::*;

type Rows = BTreeMap<Vec<u8>, u32>;

/// Content after each sequence; index = exclusive end.
#[derive(Debug, Clone)]
struct Model {
    kind: RegionKind,
    states: Vec<Rows>,
}

impl Model {
    fn new(kind: RegionKind) -> Self {
        Self { kind, states: vec![Rows::new()] }
    }

    /// One write at the next sequence. Append: a new row; keyed: put or delete.
    fn write(&mut self, key: u8, value: Option<u32>) {
        let seq = self.states.len() as i64 - 1;
        let mut next = self.states.last().cloned().unwrap_or_default();
        match (self.kind, value) {
            (RegionKind::Append, v) => _ = next.insert(Key::append(seq, 0).0, v.unwrap_or(0)),
            (RegionKind::Keyed, Some(v)) => _ = next.insert(vec![key], v),
            (RegionKind::Keyed, None) => _ = next.remove(&vec![key]),
        }
        self.states.push(next);
    }

    fn end(&self) -> Seq {
        Seq(self.states.len() as i64 - 1)
    }

    fn at(&self, s: Option<Seq>) -> Rows {
        s.map(|s| self.states[s.0 as usize].clone()).unwrap_or_default()
    }

    fn content(&self, p: &Position) -> Rows {
        let covered = self.at(Some(p.below)).into_iter().filter(|(k, _)| p.at.covers(k));
        let rest = self.at(p.above).into_iter().filter(|(k, _)| !p.at.covers(k));
        covered.chain(rest).collect()
    }

    /// Net change per key in key order: `None` = deleted.
    fn changes(&self, from: Option<Seq>, to: Seq, after: &Pos, until: &Pos) -> Vec<(Vec<u8>, Option<u32>)> {
        let (old, new) = (self.at(from), self.at(Some(to)));
        let mut keys: Vec<&Vec<u8>> = old.keys().chain(new.keys()).collect();
        keys.sort();
        keys.dedup();
        keys.into_iter()
            .filter(|k| !after.covers(k) && until.covers(k) && old.get(*k) != new.get(*k))
            .map(|k| (k.clone(), new.get(k).copied()))
            .collect()
    }
}

fn send(down: &mut Rows, key: &[u8], value: Option<u32>) {
    match value {
        Some(v) => _ = down.insert(key.to_vec(), v),
        None => assert!(down.remove(key).is_some(), "a delete of a row that is not there: {key:?}"),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        key: u8,
        value: Option<u32>,
    },
    /// Writes whose net change is nothing: the scan sees only marks.
    Hidden {
        key: u8,
    },
    Epoch {
        policy: Option<u8>,
        chunk: usize,
        budget: usize,
        paused: bool,
        marks: bool,
    },
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write =
        (0..24_u8, proptest::option::weighted(0.7, 0..1000_u32)).prop_map(|(key, value)| Step::Write { key, value });
    let epoch = (proptest::option::of(0..4_u8), 1..9_usize, 0..20_usize, proptest::bool::weighted(0.1), any::<bool>())
        .prop_map(|(policy, chunk, budget, paused, marks)| Step::Epoch { policy, chunk, budget, paused, marks });
    let step = prop_oneof![
        6 => write,
        1 => (0..24_u8).prop_map(|key| Step::Hidden { key }),
        3 => epoch,
        1 => Just(Step::Crash),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A scan that stays open over barriers: as of which sequences, and what it has not brought yet.
type Open = (Option<Seq>, Seq, Vec<(Vec<u8>, Option<u32>)>);

struct Run {
    model: Model,
    machine: Machine,
    open: Option<Open>,
    down: Rows,
    /// What the newest barrier stored: position and rows downstream.
    stored: (Position, Rows),
    epoch: Epoch,
}

impl Run {
    fn new(kind: RegionKind) -> Self {
        let machine = Machine::new(kind, Seq::ZERO, true);
        let stored = (machine.position().clone(), Rows::new());
        Self { model: Model::new(kind), machine, open: None, down: Rows::new(), stored, epoch: Epoch(0) }
    }

    fn epoch(&mut self, policy: Option<u8>, chunk: usize, mut budget: usize, marks: bool) {
        let before = self.machine.position().clone();
        let cut = self.model.end();
        let t = Thresholds { catchup_rows: 6, follow_max_rows: 10 };
        let behind = self.model.changes(Some(before.below), cut, &Pos::NotStarted, &Pos::End).len() as u64;
        let left = self.model.changes(before.above, before.below, &before.at, &Pos::End).len() as u64;
        let chosen = match policy {
            None => self.machine.choose(behind, left, &t),
            Some(0) => Policy::Follow,
            Some(1) => Policy::Fixed,
            Some(2) => Policy::Live,
            Some(_) => Policy::Rebase,
        };
        let pass = self.machine.pass;
        if let Some(Work::Advance { from, to, until }) = self.machine.begin(cut, chosen) {
            for (k, v) in self.model.changes(Some(from), to, &Pos::NotStarted, &until) {
                send(&mut self.down, &k, v);
            }
            self.machine.advanced(to);
        }
        self.open.take_if(|(above, below, _)| !self.machine.is_current(*above, *below));
        if let Some(Work::Scan { above, below, after }) = self.machine.scan() {
            let fresh = || (above, below, self.model.changes(above, below, &after, &Pos::End));
            let (above, below, rows) = self.open.take().unwrap_or_else(fresh);
            let (mut whole, mut brought) = (true, 0);
            for part in rows.chunks(chunk) {
                if budget == 0 {
                    whole = false;
                    break;
                }
                brought += part.len();
                budget = budget.saturating_sub(part.len());
                if marks {
                    self.machine.mark(Key(part[0].0.clone()), 3).unwrap();
                    // A mark says that nothing up to its key is left; the chunk's first row was hidden in no read, so only its key counts.
                    send(&mut self.down, &part[0].0, part[0].1);
                    for (k, v) in &part[1..] {
                        send(&mut self.down, k, *v);
                    }
                } else {
                    part.iter().for_each(|(k, v)| send(&mut self.down, k, *v));
                }
                let last = Key(part[part.len() - 1].0.clone());
                self.machine.rows(last, part.len() as u64, part.len() as u64).unwrap();
            }
            match whole {
                false => self.open = Some((above, below, rows[brought..].to_vec())),
                // Of an append region more may have come since the scan was opened.
                true if below < self.machine.position().below => {}
                true => self.machine.scan_end(),
            }
        }
        if self.machine.pass == pass {
            assert!(self.machine.position().at >= before.at, "B2: {before:?} then {:?}", self.machine.position());
        }
        self.barrier();
    }

    fn barrier(&mut self) {
        self.epoch.0 += 1;
        self.machine.barrier(self.epoch);
        let p = self.machine.position();
        assert_eq!(self.down, self.model.content(p), "B1 at {p:?}");
        self.stored = (p.clone(), self.down.clone());
    }

    fn crash(&mut self) {
        let kind = self.model.kind;
        self.open = None;
        self.machine = Machine::restore(kind, self.stored.0.clone());
        self.down = self.stored.1.clone();
    }

    /// Without more writes every input is finished after enough epochs.
    fn drain(&mut self) {
        for _ in 0..200 {
            self.epoch(None, 3, 5, false);
            let p = self.machine.position();
            if p.at == Pos::End && p.below == self.model.end() {
                assert_eq!(self.down, self.model.at(Some(self.model.end())));
                assert!(self.machine.finish_epoch.is_some());
                return;
            }
        }
        panic!("not finished: {:?}", self.machine.position());
    }
}

fn check(kind: RegionKind, steps: Vec<Step>) {
    let mut run = Run::new(kind);
    for step in steps {
        match step {
            Step::Write { key, value } => run.model.write(key, value),
            Step::Hidden { key } => {
                run.model.write(key, Some(1));
                run.model.write(key, None);
            }
            Step::Epoch { paused: true, .. } => run.barrier(),
            Step::Epoch { policy, chunk, budget, marks, .. } => run.epoch(policy, chunk, budget, marks),
            Step::Crash => run.crash(),
        }
    }
    run.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn a_keyed_backfill_matches_the_model_at_every_barrier(steps in steps()) {
        check(RegionKind::Keyed, steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn an_append_backfill_matches_the_model_at_every_barrier(steps in steps()) {
        check(RegionKind::Append, steps);
    }
}

#[test]
fn a_rebase_has_the_same_content() {
    let mut model = Model::new(RegionKind::Keyed);
    for i in 0..20 {
        model.write(i % 7, (i % 3 != 0).then_some(u32::from(i)));
    }
    let mut m = Machine::restore(RegionKind::Keyed, Position { above: None, below: Seq(10), at: Pos::End });
    let before = model.content(m.position());
    assert_eq!(m.begin(Seq(20), Policy::Rebase), None);
    assert_eq!(model.content(m.position()), before);
    assert_eq!(*m.position(), Position { above: Some(Seq(10)), below: Seq(20), at: Pos::NotStarted });
    assert_eq!(m.needed(), [Seq(10), Seq(20)]);
    // What may be told to somebody who waits for sequence 15: not yet.
    assert_eq!(m.position().complete(), Seq(10));
}

#[test]
fn an_empty_region_is_finished_at_its_first_barrier() {
    let mut run = Run::new(RegionKind::Keyed);
    run.epoch(None, 2, 10, false);
    assert_eq!(run.machine.finish_epoch, Some(Epoch(1)));
    run.crash();
    assert!(run.machine.scan().is_none(), "End is stored although there was no key");
}

#[test]
fn a_position_that_goes_back_is_a_broken_invariant() {
    let mut m = Machine::new(RegionKind::Keyed, Seq(5), true);
    m.rows(Key(vec![9]), 1, 1).unwrap();
    assert!(m.mark(Key(vec![3]), 1).is_err());
}
