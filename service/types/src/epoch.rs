//! Epochs of processing, and epochs of region leadership. They are different orders and different types.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interval of processing, numbered by the Unix milliseconds of its end: `next = max(now, last + 1)`, so clocks may step back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch after `self` at wall time `now_ms`. Strictly greater than `self` (S4).
    pub fn next(self, now_ms: u64) -> Epoch {
        Epoch(now_ms.max(self.0 + 1))
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
        assert_eq!(Epoch(100).next(50), Epoch(101));
        assert_eq!(Epoch(100).next(200), Epoch(200));
    }
}
