//! What the footer metadata `millstream.*` of an SST tells, and its check against the manifest.

use millstream_types::{Key, LeaderEpoch, RegionId, RegionKind, Seq};
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

use crate::{
    StorageError,
    manifest::{FileEntry, hex, unhex},
};

/// Rows between two of [`GroupMeta::segments`] in files that we write; also the row limit of a page, so that a segment is a whole number of pages.
/// Smaller: a look-up decodes less. Larger: fewer pages, faster scans.
pub const SEGMENT_ROWS: usize = 2048;

const FORMAT: &str = "1";
const FILE: &str = "millstream.file";
const GROUPS: &str = "millstream.groups";

/// One row group. All versions of a key are in one group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMeta {
    pub rows: usize,
    /// First and last key (append: sequence and ord).
    #[serde(with = "hex_key")]
    pub first: Key,
    #[serde(with = "hex_key")]
    pub last: Key,
    /// Lowest sequence, and exclusive end.
    pub from: Seq,
    pub end: Seq,
    /// No key twice and no delete.
    pub plain: bool,
    /// The key of the first row of each segment, so that a look-up or a scan that goes on in the middle decodes segments and not the group. Empty in append
    /// files of versions before that.
    #[serde(with = "hex_keys")]
    pub segments: Vec<Key>,
    /// Keyed: offset and length of the key filter in the file. Absent in files of versions before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<(u64, u32)>,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMeta {
    pub region: RegionId,
    pub kind: RegionKind,
    pub sequence_from: Seq,
    pub sequence_end: Seq,
    pub schema_id: u32,
    pub leader_epoch: LeaderEpoch,
    pub rows: u64,
    pub deletes: u64,
    pub single_version: bool,
    pub writer: String,
    /// Rows of a segment.
    pub segment_rows: u32,
    #[serde(skip)]
    pub groups: Vec<GroupMeta>,
}

impl FileMeta {
    /// Footer entries.
    pub(super) fn to_footer(&self) -> Result<Vec<KeyValue>, StorageError> {
        let json = |what: &'static str, text: Result<String, serde_json::Error>| {
            text.map_err(|e| StorageError::internal(what, e))
        };
        let entry = |key: &str, value: String| KeyValue { key: key.to_owned(), value: Some(value) };
        let keys = self.groups.first().zip(self.groups.last());
        Ok(vec![
            entry("millstream.format", FORMAT.to_owned()),
            entry("millstream.key_min", keys.map(|(g, _)| hex(g.first.as_bytes())).unwrap_or_default()),
            entry("millstream.key_max", keys.map(|(_, g)| hex(g.last.as_bytes())).unwrap_or_default()),
            entry(FILE, json("encode footer", serde_json::to_string(self))?),
            entry(GROUPS, json("encode footer", serde_json::to_string(&self.groups))?),
        ])
    }

    /// Reads the footer entries of `path` and checks them against its manifest entry.
    pub(super) fn from_footer(path: &str, footer: &[KeyValue], entry: &FileEntry) -> Result<Self, StorageError> {
        let find = |key: &str| {
            let found = footer.iter().find(|kv| kv.key == key).and_then(|kv| kv.value.as_deref());
            found.ok_or_else(|| StorageError::corrupt(path, format!("footer lacks {key}")))
        };
        let format = find("millstream.format")?;
        if format != FORMAT {
            return Err(StorageError::corrupt(
                path,
                format!("file format {format} is not {FORMAT}: written by a newer release"),
            ));
        }
        let bad = |what: &'static str| {
            move |e: serde_json::Error| StorageError::Corrupt {
                path: path.to_owned(),
                what: what.to_owned(),
                source: Some(e.into()),
            }
        };
        let mut meta: FileMeta = serde_json::from_str(find(FILE)?).map_err(bad(FILE))?;
        meta.groups = serde_json::from_str(find(GROUPS)?).map_err(bad(GROUPS))?;
        if meta.segment_rows == 0 {
            return Err(StorageError::corrupt(path, "segments of no rows"));
        }
        let ours = (meta.region, meta.rows, meta.deletes, meta.sequence_from, meta.sequence_end, meta.schema_id);
        let theirs = (entry.origin, entry.rows, entry.deletes, entry.from, entry.end, entry.schema);
        if ours != theirs {
            return Err(StorageError::corrupt(
                path,
                format!("footer {ours:?} does not agree with its manifest entry {theirs:?}"),
            ));
        }
        Ok(meta)
    }
}

mod hex_key {
    use millstream_types::Key;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(key: &Key, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&super::hex(key.as_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Key, D::Error> {
        let text = String::deserialize(d)?;
        super::unhex(&text).map(Key).ok_or_else(|| D::Error::custom("key is not hex"))
    }
}

mod hex_keys {
    use millstream_types::Key;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(keys: &[Key], s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(keys.iter().map(|k| super::hex(k.as_bytes())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Key>, D::Error> {
        let texts = Vec::<String>::deserialize(d)?;
        texts.iter().map(|t| super::unhex(t).map(Key).ok_or_else(|| D::Error::custom("key is not hex"))).collect()
    }
}
