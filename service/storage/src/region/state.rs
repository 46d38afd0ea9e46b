//! The states of a region; [`next`] is the only way to change one.

use crate::StorageError;
use millstream_types::RegionId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegionState {
    /// Claimed; its WAL is being replayed. Rows come in, clients wait.
    Opening,
    /// Everything goes.
    Writable,
    /// A newer leader has it: nothing is written any more.
    Fenced,
    /// Waits for a person; reads go on over what is there.
    Quarantined,
    /// Its objects are being deleted.
    Dropping,
    /// Not open in this process any more.
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Replayed,
    Fence,
    Quarantine,
    Drop,
    Close,
}

impl RegionState {
    pub fn as_str(self) -> &'static str {
        match self {
            RegionState::Opening => "opening",
            RegionState::Writable => "writable",
            RegionState::Fenced => "fenced",
            RegionState::Quarantined => "quarantined",
            RegionState::Dropping => "dropping",
            RegionState::Closed => "closed",
        }
    }

    pub const ALL: [RegionState; 6] = [
        RegionState::Opening,
        RegionState::Writable,
        RegionState::Fenced,
        RegionState::Quarantined,
        RegionState::Dropping,
        RegionState::Closed,
    ];

    /// Rows may enter the memtable and the manifest may be written.
    pub fn is_live(self) -> bool {
        matches!(self, RegionState::Opening | RegionState::Writable)
    }

    /// Has a cut at a barrier.
    pub fn is_readable(self) -> bool {
        matches!(self, RegionState::Writable | RegionState::Quarantined)
    }
}

/// The state after an event; an event that does not fit is a Conflict.
pub fn next(region: RegionId, state: RegionState, event: Event) -> Result<RegionState, StorageError> {
    use RegionState as S;
    match (state, event) {
        (S::Opening | S::Writable, Event::Replayed) => Ok(S::Writable),
        (S::Opening | S::Writable | S::Fenced, Event::Fence) => Ok(S::Fenced),
        (S::Opening | S::Writable | S::Quarantined, Event::Quarantine) => Ok(S::Quarantined),
        (S::Opening | S::Writable | S::Fenced | S::Quarantined | S::Dropping, Event::Drop) => Ok(S::Dropping),
        (_, Event::Close) => Ok(S::Closed),
        (
            S::Fenced | S::Quarantined | S::Dropping | S::Closed,
            Event::Replayed | Event::Fence | Event::Quarantine | Event::Drop,
        ) => Err(StorageError::WrongState {
            region,
            state: state.as_str(),
            reason: format!("{event:?} does not apply").to_lowercase(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use millstream_types::TableId;

    use super::*;

    #[test]
    fn state_table() {
        let id = RegionId::new(TableId(1), 0);
        let table = |event| RegionState::ALL.map(|s| next(id, s, event).map_or("-", RegionState::as_str));
        assert_eq!(table(Event::Replayed), ["writable", "writable", "-", "-", "-", "-"]);
        assert_eq!(table(Event::Fence), ["fenced", "fenced", "fenced", "-", "-", "-"]);
        assert_eq!(table(Event::Quarantine), ["quarantined", "quarantined", "-", "quarantined", "-", "-"]);
        assert_eq!(table(Event::Drop), ["dropping", "dropping", "dropping", "dropping", "dropping", "-"]);
        assert_eq!(table(Event::Close), ["closed"; 6]);
    }
}
