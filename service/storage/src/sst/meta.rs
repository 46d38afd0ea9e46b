//! What a footer tells about a file and its row groups.
use millstream_types::{Key, Seq};

/// One row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMeta {
    pub rows: usize,
    pub first: Key,
    pub last: Key,
    /// Lowest sequence.
    pub from: Seq,
    /// Exclusive end of the sequences.
    pub end: Seq,
    /// No key twice and no delete.
    pub plain: bool,
}

/// One file.
#[derive(Debug, Clone)]
pub struct FileMeta {
    pub groups: Vec<GroupMeta>,
}
