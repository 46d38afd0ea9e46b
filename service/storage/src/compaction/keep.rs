//! Which versions of a key a flush or compaction must keep.

use millstream_types::Seq;

/// Per key are kept: the newest version; every version at or after `all_from`; the newest below it; for each exact pin the newest below the pin. Then the
/// oldest kept one goes if it is a delete below `all_from` and `bottom`: a delete hides only older rows, and there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeepRule {
    /// F = min(horizon, all floors).
    pub all_from: Seq,
    /// Exact pins.
    pub exact: Vec<Seq>,
    /// The inputs hold everything older of their keys.
    pub bottom: bool,
}

impl KeepRule {
    /// Keeps every version.
    pub fn everything() -> Self {
        Self { all_from: Seq(i64::MIN), exact: Vec::new(), bottom: false }
    }
}
