//! Epochs of processing, and epochs of region leadership. They are different orders and different types.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interval of processing, numbered by the Unix milliseconds of the barrier at its end: `next = max(now, last + ROOM)`, so clocks may step back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// From one barrier's number to the next at least; the numbers between are for [`Epoch::again`].
    pub const ROOM: u64 = 50;

    /// The epoch of the barrier after `self` at wall time `now_ms`. Strictly greater than `self` (S4).
    pub fn next(self, now_ms: u64) -> Epoch {
        Epoch(now_ms.max(self.0 + Self::ROOM))
    }

    /// The number after `self` for one more epoch on the cuts of `barrier`; `None` when the room up to the next barrier is used up.
    pub fn again(self, barrier: Epoch) -> Option<Epoch> {
        (self.0 + 1 < barrier.0 + Self::ROOM).then_some(Epoch(self.0 + 1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fence token of a region's leader, kept in the manifest; each claim raises it by one (R4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaderEpoch(pub u64);

impl fmt::Display for LeaderEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_rises_when_the_clock_steps_back() {
        assert_eq!(Epoch(100).next(50), Epoch(100 + Epoch::ROOM));
        assert_eq!(Epoch(100).next(200), Epoch(200));
    }

    #[test]
    fn epochs_between_two_barriers_stay_below_the_second() {
        let barrier = Epoch(100);
        let between: Vec<Epoch> = std::iter::successors(Some(barrier), |e| e.again(barrier)).collect();
        assert_eq!(between.len() as u64, Epoch::ROOM);
        assert!(between.is_sorted() && between.last() < Some(&barrier.next(0)));
    }
}
