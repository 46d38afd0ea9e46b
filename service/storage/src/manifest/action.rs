//! What a manifest version says. Unknown fields and actions are refused, never skipped: skipping one would lose rows.

use millstream_types::{Key, LeaderEpoch, RegionId, Seq, TableSchema};
use serde::{Deserialize, Serialize};

use crate::WalBinding;

/// One SST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// File name without folder.
    pub name: String,
    /// The region whose folder has it.
    pub origin: RegionId,
    /// Bytes of the object.
    pub size: u64,
    pub rows: u64,
    pub deletes: u64,
    /// Sequence range of the sorted run; of an append file its own range.
    pub from: Seq,
    pub end: Seq,
    /// First and last key. Append files: first and last (sequence, ord).
    #[serde(with = "hex_pair", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<(Key, Key)>,
    /// Schema id that wrote it.
    pub schema: u32,
    /// Sorted run: the exclusive end of the run's sequences. Runs are ordered by it and disjoint.
    pub run: u64,
    /// No key twice in the file and no delete.
    pub single_version: bool,
    /// When it was written, Unix ms: age for retention.
    pub written_ms: u64,
}

impl FileEntry {
    pub fn path(&self) -> String {
        crate::object_store::paths::sst(self.origin, &self.name)
    }
}

/// Why an edit was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditReason {
    Flush,
    Compact,
    Import,
    Expire,
    /// Only the flushed sequence moves.
    Position,
}

/// The flushed sequence moves from `from`, which must be the manifest's, to `flushed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushRange {
    pub from: Seq,
    pub flushed: Seq,
}

/// Files in and out in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub reason: EditReason,
    /// Flush and position edits have one, others leave flushed as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<FlushRange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<FileEntry>,
    /// Names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<String>,
    /// From here on every version is kept; the state takes the maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_from: Option<Seq>,
    /// At `.0` (Unix ms) the region had applied `.1`: one point of the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<(u64, Seq)>,
}

impl Edit {
    /// A flush or, without files, a position edit.
    pub fn flush(from: Seq, flushed: Seq, add: Vec<FileEntry>) -> Self {
        let reason = if add.is_empty() { EditReason::Position } else { EditReason::Flush };
        Self {
            reason,
            range: Some(FlushRange { from, flushed }),
            add,
            remove: Vec::new(),
            history_from: None,
            applied_at: None,
        }
    }

    pub fn compact(remove: Vec<String>, add: Vec<FileEntry>) -> Self {
        Self { reason: EditReason::Compact, range: None, add, remove, history_from: None, applied_at: None }
    }
}

/// A lost range of the WAL. Kept for ever and shown to users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    pub from: Seq,
    pub to: Seq,
    /// `retention`, `tombstones`, ..
    pub kind: String,
    /// What was done: `fail` or `continue`.
    pub policy: String,
    pub at_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Version 0 and nowhere else.
    Create {
        region: RegionId,
        schema: TableSchema,
        wal: WalBinding,
        start: Seq,
    },
    Claim {
        leader_epoch: LeaderEpoch,
        replica: String,
    },
    Edit(Edit),
    /// Records at or after `at` use `schema`; `at` is the flushed sequence.
    Change {
        schema: TableSchema,
        at: Seq,
    },
    Gap(Gap),
    /// Removed files that are deleted from the bucket.
    Purged {
        files: Vec<String>,
    },
}

/// Key pairs as hex text, which people can read in a manifest.
mod hex_pair {
    use millstream_types::Key;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(pair: &Option<(Key, Key)>, s: S) -> Result<S::Ok, S::Error> {
        pair.as_ref().map(|(a, b)| (super::hex(a.as_bytes()), super::hex(b.as_bytes()))).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<(Key, Key)>, D::Error> {
        let Some((a, b)) = Option::<(String, String)>::deserialize(d)? else { return Ok(None) };
        let key = |text: &str| super::unhex(text).map(Key).ok_or_else(|| D::Error::custom("key is not hex"));
        Ok(Some((key(&a)?, key(&b)?)))
    }
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        text.push(DIGITS[usize::from(b >> 4)] as char);
        text.push(DIGITS[usize::from(b & 15)] as char);
    }
    text
}

/// Reverse of [`hex`].
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16);
    text.as_bytes().chunks(2).map(|p| Some((digit(p[0])? * 16 + digit(*p.get(1)?)?) as u8)).collect()
}
