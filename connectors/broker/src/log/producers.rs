//! Who wrote to a partition: per producer the epoch, the last five batches and the open transaction. A pure state machine: batches in, verdicts out.
//! Invariants: an accepted sequence follows the one before it; of an older epoch nothing is accepted; `open` holds exactly the open transactions.

use std::collections::{BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{
    AppendError,
    batch::{BatchHeader, NO_PRODUCER, add_sequence},
};

/// So many batches are recognised when they come again; clients have at most this many in flight.
const REMEMBERED: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recent {
    pub(crate) first_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProducerState {
    pub(crate) epoch: i16,
    pub(crate) recent: VecDeque<Recent>,
    /// First offset of the open transaction.
    pub(crate) open_since: Option<i64>,
    /// When it last wrote, by the broker's clock.
    pub(crate) seen_ms: i64,
}

/// What to do with a batch that passed all checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fresh,
    /// It is in the log already.
    Repeat(Recent),
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Producers {
    states: HashMap<i64, ProducerState>,
    open: BTreeSet<(i64, i64)>,
}

impl Producers {
    pub(crate) fn restore(states: impl IntoIterator<Item = (i64, ProducerState)>) -> Self {
        let states: HashMap<_, _> = states.into_iter().collect();
        let open = states.iter().filter_map(|(id, s)| s.open_since.map(|at| (at, *id))).collect();
        Self { states, open }
    }

    pub(crate) fn states(&self) -> &HashMap<i64, ProducerState> {
        &self.states
    }

    /// First offset of the oldest open transaction.
    pub(crate) fn first_open(&self) -> Option<i64> {
        self.open.first().map(|(at, _)| *at)
    }

    /// May a producer's data batch be appended?
    pub(crate) fn check(&self, header: &BatchHeader) -> Result<Verdict, AppendError> {
        if header.producer_id == NO_PRODUCER {
            return Ok(Verdict::Fresh);
        }
        let Some(state) = self.states.get(&header.producer_id) else { return Ok(Verdict::Fresh) };
        if header.producer_epoch < state.epoch {
            return Err(AppendError::OldProducerEpoch);
        }
        if header.producer_epoch > state.epoch {
            return if header.base_sequence == 0 { Ok(Verdict::Fresh) } else { Err(AppendError::SequenceGap) };
        }
        if state.open_since.is_some() && !header.is_transactional() {
            return Err(AppendError::NotInTransaction);
        }
        let same = |r: &&Recent| r.first_sequence == header.base_sequence && r.last_sequence == header.last_sequence();
        if let Some(repeat) = state.recent.iter().find(same) {
            return Ok(Verdict::Repeat(*repeat));
        }
        match state.recent.back() {
            // After a marker that fenced or after expiry nothing is known: any sequence may start.
            None => Ok(Verdict::Fresh),
            Some(last) if add_sequence(last.last_sequence, 1) == header.base_sequence => Ok(Verdict::Fresh),
            Some(_) => Err(AppendError::SequenceGap),
        }
    }

    /// A data batch is in the log at the offsets of `header`.
    pub(crate) fn appended(&mut self, header: &BatchHeader, now_ms: i64) {
        if header.producer_id == NO_PRODUCER {
            return;
        }
        let state = self.states.entry(header.producer_id).or_insert_with(|| ProducerState {
            epoch: header.producer_epoch,
            recent: VecDeque::with_capacity(REMEMBERED),
            open_since: None,
            seen_ms: now_ms,
        });
        if state.epoch != header.producer_epoch {
            state.epoch = header.producer_epoch;
            state.recent.clear();
        }
        if state.recent.len() == REMEMBERED {
            state.recent.pop_front();
        }
        state.recent.push_back(Recent {
            first_sequence: header.base_sequence,
            last_sequence: header.last_sequence(),
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            timestamp: header.max_timestamp,
        });
        state.seen_ms = now_ms;
        if header.is_transactional() && state.open_since.is_none() {
            state.open_since = Some(header.base_offset);
            self.open.insert((header.base_offset, header.producer_id));
        }
    }

    /// A control batch is in the log. Returns the first offset of the transaction that it ended, if one was open here.
    pub(crate) fn ended(&mut self, producer_id: i64, epoch: i16, now_ms: i64) -> Option<i64> {
        let state = self.states.entry(producer_id).or_insert_with(|| ProducerState {
            epoch,
            recent: VecDeque::new(),
            open_since: None,
            seen_ms: now_ms,
        });
        if epoch > state.epoch {
            state.epoch = epoch;
            state.recent.clear();
        }
        state.seen_ms = now_ms;
        let first = state.open_since.take()?;
        self.open.remove(&(first, producer_id));
        Some(first)
    }

    /// Forgets producers that have been silent since before `limit_ms` and have nothing open.
    pub(crate) fn expire(&mut self, limit_ms: i64) {
        self.states.retain(|_, s| s.open_since.is_some() || s.seen_ms >= limit_ms);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::batch::{check_arrival, tests::sample};

    fn header(n: i32, producer: (i64, i16, i32), transactional: bool, offset: i64) -> BatchHeader {
        let mut h = check_arrival(&sample(n, producer, transactional, 0)).unwrap();
        h.base_offset = offset;
        h
    }

    #[test]
    fn a_repeat_is_recognised_a_gap_and_an_old_epoch_are_refused() {
        let mut p = Producers::default();
        for i in 0..6 {
            let h = header(2, (1, 3, i * 2), false, i64::from(i) * 2);
            assert_eq!(p.check(&h), Ok(Verdict::Fresh));
            p.appended(&h, 0);
        }
        let Ok(Verdict::Repeat(r)) = p.check(&header(2, (1, 3, 2), false, 0)) else { panic!() };
        assert_eq!(r.base_offset, 2);
        assert_eq!(p.check(&header(2, (1, 3, 0), false, 0)), Err(AppendError::SequenceGap), "older than five batches");
        assert_eq!(p.check(&header(2, (1, 3, 14), false, 0)), Err(AppendError::SequenceGap));
        assert_eq!(p.check(&header(2, (1, 2, 12), false, 0)), Err(AppendError::OldProducerEpoch));
        assert_eq!(p.check(&header(2, (1, 4, 12), false, 0)), Err(AppendError::SequenceGap), "a new epoch begins at 0");
        assert_eq!(p.check(&header(2, (1, 4, 0), false, 0)), Ok(Verdict::Fresh));
    }

    #[test]
    fn a_marker_of_a_newer_epoch_fences() {
        let mut p = Producers::default();
        p.appended(&header(2, (1, 3, 0), true, 10), 0);
        assert_eq!(p.first_open(), Some(10));
        assert_eq!(p.check(&header(1, (1, 3, 2), false, 12)), Err(AppendError::NotInTransaction));
        assert_eq!(p.ended(1, 4, 0), Some(10));
        assert_eq!(p.first_open(), None);
        assert_eq!(p.check(&header(1, (1, 3, 2), true, 12)), Err(AppendError::OldProducerEpoch));
        assert_eq!(p.ended(1, 4, 0), None, "nothing was open");
    }

    proptest! {
        /// Whatever is sent, the accepted batches of an epoch form one gapless run of sequences, and the oldest open transaction is the model's.
        #[test]
        fn accepted_sequences_have_no_gap(steps in prop::collection::vec((0i64..3, 0i16..3, 0i32..12, 1i32..4, prop::bool::ANY, 0u8..8), 1..200)) {
            let mut p = Producers::default();
            let mut next: HashMap<(i64, i16), i32> = HashMap::new();
            let mut open: HashMap<i64, i64> = HashMap::new();
            let mut newest: HashMap<i64, i16> = HashMap::new();
            let mut offset = 0;
            for (id, epoch, sequence, n, transactional, kind) in steps {
                if kind == 0 {
                    if newest.get(&id).is_some_and(|e| *e <= epoch) {
                        prop_assert_eq!(p.ended(id, epoch, 0), open.remove(&id));
                        if newest[&id] < epoch { next.remove(&(id, epoch)); }
                        newest.insert(id, epoch);
                    }
                } else {
                    let h = header(n, (id, epoch, sequence), transactional, offset);
                    if p.check(&h) == Ok(Verdict::Fresh) {
                        prop_assert!(newest.get(&id).is_none_or(|e| *e <= epoch));
                        if let Some(expected) = next.get(&(id, epoch)) { prop_assert_eq!(*expected, sequence); }
                        p.appended(&h, 0);
                        newest.insert(id, epoch);
                        next.insert((id, epoch), sequence + n);
                        if transactional { open.entry(id).or_insert(offset); }
                        offset += i64::from(n);
                    }
                }
                prop_assert_eq!(p.first_open(), open.values().min().copied());
            }
        }
    }
}
