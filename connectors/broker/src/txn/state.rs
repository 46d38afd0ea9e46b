//! One transactional id as a pure state machine: a request and the state give the next state or Kafka's error. No I/O, no clock of its own.
//!
//! ```text
//! Empty --add--> Ongoing --end--> PrepareCommit | PrepareAbort --markers written--> CompleteCommit | CompleteAbort --add--> Ongoing ..
//! ```
//! Invariants: an epoch is never given twice; of two `init` callers the later wins; a transaction that is prepared ends that way, whatever comes.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use serde::{Deserialize, Serialize};

use crate::log::batch::Marker;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Status {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

impl Status {
    /// Kafka's word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Ongoing => "Ongoing",
            Self::PrepareCommit => "PrepareCommit",
            Self::PrepareAbort => "PrepareAbort",
            Self::CompleteCommit => "CompleteCommit",
            Self::CompleteAbort => "CompleteAbort",
        }
    }

    /// How it will end, if that is decided and not yet done.
    pub(crate) fn prepared(self) -> Option<Marker> {
        match self {
            Self::PrepareCommit => Some(Marker::Commit),
            Self::PrepareAbort => Some(Marker::Abort),
            _ => None,
        }
    }
}

/// Partitions by topic.
pub(crate) type Partitions = BTreeMap<String, BTreeSet<i32>>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Transaction {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// The epoch before, if who had it asked for the new one: it may have lost the answer and asks again. -1: another came, or a timeout; who had the
    /// epoch before is locked out.
    pub(crate) last_epoch: i16,
    pub(crate) timeout_ms: i64,
    pub(crate) status: Status,
    pub(crate) partitions: Partitions,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) started_ms: i64,
    pub(crate) changed_ms: i64,
}

impl Transaction {
    /// Its end is still to come, or its markers are.
    pub(crate) fn is_active(&self) -> bool {
        self.status == Status::Ongoing || self.status.prepared().is_some()
    }
}

/// What `init` leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Init {
    /// The caller may begin, with this id and epoch.
    Ready(Transaction),
    /// The caller asked before and may go on with what it got.
    Again,
    /// The transaction that was open is aborted first, under a newer epoch; then ask again.
    Abort(Transaction),
    /// A prepared transaction has to end first; then ask again.
    Wait,
}

/// What `end` leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Prepare(Transaction),
    /// It has ended that way before.
    Done,
}

/// Above this an epoch cannot be fenced any more.
const LAST_EPOCH: i16 = i16::MAX - 1;

/// A caller that knows its id and epoch already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
}

/// `fresh` is a producer id that nobody has.
pub(crate) fn init(
    now: Option<&Transaction>,
    expected: Option<Expected>,
    timeout_ms: i64,
    fresh: i64,
    now_ms: i64,
) -> Result<Init, ResponseError> {
    let Some(tx) = now else {
        return Ok(Init::Ready(Transaction {
            producer_id: fresh,
            epoch: 0,
            last_epoch: -1,
            timeout_ms,
            status: Status::Empty,
            partitions: Partitions::new(),
            groups: BTreeSet::new(),
            started_ms: -1,
            changed_ms: now_ms,
        }));
    };
    if let Some(e) = expected {
        let current = e.producer_id == tx.producer_id && (e.epoch == tx.epoch || e.epoch == tx.last_epoch);
        // Who waits for the answer to its `init` has no transaction open: somebody else has.
        let overtaken = tx.status == Status::Ongoing && e.epoch != tx.epoch;
        if !current || overtaken {
            return Err(ResponseError::ProducerFenced);
        }
    }
    match tx.status {
        Status::PrepareCommit | Status::PrepareAbort => Ok(Init::Wait),
        Status::Ongoing => {
            let mut next = fence(tx, now_ms);
            // The caller itself goes on: it comes back with the epoch that it knows when the abort is done.
            next.last_epoch = expected.map_or(-1, |e| e.epoch);
            Ok(Init::Abort(next))
        }
        Status::Empty | Status::CompleteCommit | Status::CompleteAbort => {
            if expected.is_some_and(|e| e.epoch != tx.epoch) {
                return Ok(Init::Again);
            }
            let (producer_id, epoch, last_epoch) = if tx.epoch >= LAST_EPOCH {
                (fresh, 0, -1)
            } else {
                (tx.producer_id, tx.epoch + 1, expected.map_or(-1, |e| e.epoch))
            };
            Ok(Init::Ready(Transaction {
                producer_id,
                epoch,
                last_epoch,
                timeout_ms,
                status: Status::Empty,
                partitions: Partitions::new(),
                groups: BTreeSet::new(),
                started_ms: -1,
                changed_ms: now_ms,
            }))
        }
    }
}

/// The open transaction is to be aborted and its producer locked out.
pub(crate) fn fence(tx: &Transaction, now_ms: i64) -> Transaction {
    let mut next = tx.clone();
    next.last_epoch = -1;
    next.epoch = tx.epoch.saturating_add(1);
    next.status = Status::PrepareAbort;
    next.changed_ms = now_ms;
    next
}

fn check_producer(tx: Option<&Transaction>, who: Expected) -> Result<&Transaction, ResponseError> {
    let tx = tx.ok_or(ResponseError::InvalidProducerIdMapping)?;
    if tx.producer_id != who.producer_id {
        return Err(ResponseError::InvalidProducerIdMapping);
    }
    if tx.epoch != who.epoch {
        return Err(ResponseError::ProducerFenced);
    }
    Ok(tx)
}

/// Adds partitions or groups; begins the transaction if none is open. `None`: they are part of it already.
pub(crate) fn add(
    now: Option<&Transaction>,
    who: Expected,
    partitions: &[(&str, i32)],
    group: Option<&str>,
    now_ms: i64,
) -> Result<Option<Transaction>, ResponseError> {
    let tx = check_producer(now, who)?;
    if tx.status.prepared().is_some() {
        return Err(ResponseError::ConcurrentTransactions);
    }
    let mut next = tx.clone();
    if tx.status != Status::Ongoing {
        next.status = Status::Ongoing;
        next.started_ms = now_ms;
        next.partitions.clear();
        next.groups.clear();
    }
    for (topic, index) in partitions {
        next.partitions.entry((*topic).to_owned()).or_default().insert(*index);
    }
    next.groups.extend(group.map(str::to_owned));
    if next == *tx {
        return Ok(None);
    }
    next.changed_ms = now_ms;
    Ok(Some(next))
}

/// The producer asks for commit or abort.
pub(crate) fn end(now: Option<&Transaction>, who: Expected, marker: Marker, now_ms: i64) -> Result<End, ResponseError> {
    let tx = check_producer(now, who)?;
    match (tx.status, marker) {
        (Status::Ongoing, _) => {
            let mut next = tx.clone();
            next.status = if marker == Marker::Commit { Status::PrepareCommit } else { Status::PrepareAbort };
            next.changed_ms = now_ms;
            Ok(End::Prepare(next))
        }
        (Status::CompleteCommit, Marker::Commit) | (Status::CompleteAbort, Marker::Abort) => Ok(End::Done),
        (Status::PrepareCommit, Marker::Commit) | (Status::PrepareAbort, Marker::Abort) => {
            Err(ResponseError::ConcurrentTransactions)
        }
        _ => Err(ResponseError::InvalidTxnState),
    }
}

/// All markers are written.
pub(crate) fn complete(tx: &Transaction, now_ms: i64) -> Transaction {
    let mut next = tx.clone();
    next.status = if tx.status == Status::PrepareCommit { Status::CompleteCommit } else { Status::CompleteAbort };
    next.partitions.clear();
    next.groups.clear();
    next.started_ms = -1;
    next.changed_ms = now_ms;
    next
}

/// Whether the transaction has been open for longer than it may.
pub(crate) fn is_expired(tx: &Transaction, now_ms: i64) -> bool {
    tx.status == Status::Ongoing && now_ms - tx.started_ms > tx.timeout_ms
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ready(now: Option<&Transaction>, expected: Option<Expected>) -> Transaction {
        match init(now, expected, 1000, 7, 0) {
            Ok(Init::Ready(t)) => t,
            other => panic!("{other:?}"),
        }
    }

    fn who(t: &Transaction) -> Expected {
        Expected { producer_id: t.producer_id, epoch: t.epoch }
    }

    #[test]
    fn the_life_of_a_transaction() {
        let t = ready(None, None);
        assert_eq!((t.producer_id, t.epoch, t.status), (7, 0, Status::Empty));
        assert_eq!(end(Some(&t), who(&t), Marker::Commit, 0), Err(ResponseError::InvalidTxnState));
        let open = add(Some(&t), who(&t), &[("a", 0)], None, 5).unwrap().unwrap();
        assert_eq!(add(Some(&open), who(&t), &[("a", 0)], None, 6), Ok(None));
        let Ok(End::Prepare(p)) = end(Some(&open), who(&t), Marker::Commit, 7) else { panic!() };
        assert_eq!(p.status.prepared(), Some(Marker::Commit));
        assert_eq!(add(Some(&p), who(&t), &[("a", 1)], None, 8), Err(ResponseError::ConcurrentTransactions));
        assert_eq!(end(Some(&p), who(&t), Marker::Abort, 8), Err(ResponseError::InvalidTxnState));
        let done = complete(&p, 9);
        assert_eq!(end(Some(&done), who(&t), Marker::Commit, 10), Ok(End::Done));
        assert_eq!(end(Some(&done), who(&t), Marker::Abort, 10), Err(ResponseError::InvalidTxnState));
    }

    #[test]
    fn a_second_init_fences_the_first() {
        let t = ready(None, None);
        let open = add(Some(&t), who(&t), &[("a", 0)], None, 5).unwrap().unwrap();
        let Ok(Init::Abort(a)) = init(Some(&open), None, 1000, 8, 6) else { panic!() };
        assert_eq!(end(Some(&a), who(&t), Marker::Commit, 7), Err(ResponseError::ProducerFenced));
        assert_eq!(init(Some(&a), None, 1000, 8, 6), Ok(Init::Wait));
        let second = ready(Some(&complete(&a, 8)), None);
        assert_eq!((second.producer_id, second.epoch), (7, 2));
        assert_eq!(init(Some(&second), Some(who(&t)), 1000, 8, 9), Err(ResponseError::ProducerFenced));
    }

    #[test]
    fn a_lost_answer_to_init_may_be_asked_for_again() {
        let t = ready(None, None);
        let bumped = ready(Some(&t), Some(who(&t)));
        assert_eq!(bumped.epoch, 1);
        assert_eq!(init(Some(&bumped), Some(who(&t)), 1000, 8, 9), Ok(Init::Again));
    }

    #[test]
    fn who_was_replaced_or_timed_out_does_not_get_in_again() {
        let first = ready(None, None);
        let second = ready(Some(&first), None);
        assert_eq!(init(Some(&second), Some(who(&first)), 1000, 8, 9), Err(ResponseError::ProducerFenced));
        let open = add(Some(&second), who(&second), &[("a", 0)], None, 5).unwrap().unwrap();
        let late = complete(&fence(&open, 6), 7);
        assert_eq!(init(Some(&late), Some(who(&second)), 1000, 8, 9), Err(ResponseError::ProducerFenced));
    }

    #[test]
    fn who_aborts_its_own_transaction_by_init_goes_on() {
        let t = ready(None, None);
        let open = add(Some(&t), who(&t), &[("a", 0)], None, 5).unwrap().unwrap();
        let Ok(Init::Abort(a)) = init(Some(&open), Some(who(&t)), 1000, 8, 6) else { panic!() };
        assert_eq!(init(Some(&a), Some(who(&t)), 1000, 8, 6), Ok(Init::Wait));
        let done = complete(&a, 7);
        assert_eq!(init(Some(&done), Some(who(&t)), 1000, 8, 6), Ok(Init::Again));
        // Unless another was faster.
        let other = ready(Some(&done), None);
        assert_eq!(init(Some(&other), Some(who(&t)), 1000, 8, 6), Err(ResponseError::ProducerFenced));
    }

    #[test]
    fn epochs_that_run_out_give_a_new_id() {
        let mut t = ready(None, None);
        t.epoch = LAST_EPOCH;
        let next = match init(Some(&t), None, 1000, 99, 0) {
            Ok(Init::Ready(t)) => t,
            other => panic!("{other:?}"),
        };
        assert_eq!((next.producer_id, next.epoch), (99, 0));
    }

    proptest! {
        /// Of several processes with one transactional id only the last that came without an epoch can do anything, whatever answers get lost.
        #[test]
        fn only_the_newest_caller_gets_in(steps in prop::collection::vec((0usize..3, 0u8..6, prop::bool::ANY), 1..80)) {
            let mut tx: Option<Transaction> = None;
            let mut held: [Option<Expected>; 3] = [None; 3];
            let mut owner = None;
            for (caller, step, lost) in steps {
                let mine = held[caller];
                let is_owner = owner == Some(caller);
                let next = match (step, mine) {
                    (0, _) | (1, None) => match init(tx.as_ref(), None, 10, 7, 0) {
                        Ok(Init::Ready(t)) => {
                            // What it knew before is worth nothing any more.
                            held[caller] = (!lost).then_some(who(&t));
                            owner = Some(caller);
                            Some(t)
                        }
                        Ok(Init::Abort(t)) => { owner = None; Some(t) }
                        Ok(Init::Wait) => None,
                        other => return Err(TestCaseError::fail(format!("{other:?}"))),
                    },
                    (1 | 2, Some(e)) => match init(tx.as_ref(), Some(e), 10, 7, 0) {
                        Ok(Init::Ready(t)) => {
                            prop_assert!(is_owner);
                            if !lost { held[caller] = Some(who(&t)); }
                            Some(t)
                        }
                        Ok(Init::Again) => {
                            prop_assert!(is_owner);
                            held[caller] = tx.as_ref().map(who);
                            None
                        }
                        Ok(Init::Abort(t)) => { prop_assert!(is_owner); Some(t) }
                        Ok(Init::Wait) => None,
                        Err(e) => { prop_assert!(!is_owner, "{e}"); None }
                    },
                    (3, Some(e)) => match add(tx.as_ref(), e, &[("a", 0)], None, 0) {
                        Ok(t) => { prop_assert!(is_owner); t }
                        Err(_) => None,
                    },
                    (4, Some(e)) => match end(tx.as_ref(), e, Marker::Commit, 0) {
                        Ok(End::Prepare(t)) => { prop_assert!(is_owner); Some(t) }
                        _ => None,
                    },
                    _ => tx.as_ref().filter(|t| t.status.prepared().is_some()).map(|t| complete(t, 0)),
                };
                tx = next.or(tx);
            }
        }

        /// Whatever clients do, the pair (id, epoch) never goes back, and what was prepared ends that way.
        #[test]
        fn epochs_rise_and_decisions_hold(steps in prop::collection::vec((0u8..6, -1i16..4), 1..100)) {
            let mut tx: Option<Transaction> = None;
            for (step, epoch) in steps {
                let before = tx.clone();
                let id = tx.as_ref().map_or(7, |t| t.producer_id);
                let expected = Expected { producer_id: id, epoch };
                let next = match step {
                    0 => match init(tx.as_ref(), (epoch >= 0).then_some(expected), 10, 7, 0) {
                        Ok(Init::Ready(t) | Init::Abort(t)) => Some(t),
                        _ => None,
                    },
                    1 => add(tx.as_ref(), expected, &[("a", i32::from(epoch))], None, 0).ok().flatten(),
                    2 | 3 => match end(tx.as_ref(), expected, if step == 2 { Marker::Commit } else { Marker::Abort }, 0) {
                        Ok(End::Prepare(t)) => Some(t),
                        _ => None,
                    },
                    4 => tx.as_ref().filter(|t| t.status.prepared().is_some()).map(|t| complete(t, 0)),
                    _ => tx.as_ref().filter(|t| is_expired(t, 100)).map(|t| fence(t, 0)),
                };
                if let (Some(b), Some(n)) = (&before, &next) {
                    prop_assert!(n.epoch >= b.epoch);
                    match b.status {
                        Status::PrepareCommit => prop_assert_eq!(n.status, Status::CompleteCommit),
                        Status::PrepareAbort => prop_assert_eq!(n.status, Status::CompleteAbort),
                        _ => {}
                    }
                }
                tx = next.or(before);
            }
        }
    }
}
