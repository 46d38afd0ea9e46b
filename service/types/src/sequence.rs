//! The order of writes inside one region.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Offset;

/// Order of writes inside a region. Topic-fed: the Kafka offset of the record. Shared WAL: the WAL offset of the entry.
///
/// Bounds (`applied`, `flushed`, `cut`, pins, `from`, `to`) are exclusive ends: "as of 100" sees sequences below 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub i64);

impl Seq {
    pub const ZERO: Seq = Seq(0);
    pub const MAX: Seq = Seq(i64::MAX);

    /// The bound that includes this sequence.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl From<Offset> for Seq {
    fn from(o: Offset) -> Self {
        Seq(o.0)
    }
}

impl From<Seq> for Offset {
    fn from(s: Seq) -> Self {
        Offset(s.0)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
