//! Order-preserving key bytes. Keys are compared in encoded form only (`r04_key_orders`).
//!
//! The encoding is Arrow's row format (crate `arrow-row`): memcomparable, nulls first, ascending. The encoding of the first columns of a key is a
//! byte prefix of the encoding of the whole key, so a prefix look-up is a byte-prefix look-up. Encoded keys are persisted in progress rows and as
//! min/max in manifests; `key_bytes_are_stable` holds golden bytes and fails if the library ever changes them.

use std::fmt;

use arrow::{array::ArrayRef, datatypes::DataType, error::ArrowError};
use arrow_row::{RowConverter, Rows, SortField};
use serde::{Deserialize, Serialize};

/// One encoded key. For append regions: sequence as 8 and row number as 4 big-endian bytes ([`Key::append`]).
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub Vec<u8>);

impl Key {
    /// The hidden key of row `ord` of sequence `seq` in an append region.
    pub fn append(seq: i64, ord: u32) -> Key {
        let mut bytes = Vec::with_capacity(12);
        bytes.extend_from_slice(&seq.to_be_bytes());
        bytes.extend_from_slice(&ord.to_be_bytes());
        Key(bytes)
    }

    /// Reverse of [`Key::append`]; `None` if the bytes are no such key.
    pub fn as_append(&self) -> Option<(i64, u32)> {
        let (seq, ord) = self.0.split_at_checked(8)?;
        Some((i64::from_be_bytes(seq.try_into().ok()?), u32::from_be_bytes(ord.try_into().ok()?)))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        for b in &self.0 {
            write!(f, "{b:02x}")?;
        }
        f.write_str(")")
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Key(bytes.to_vec())
    }
}

/// How far a pass over the keys of a region has come. Ordered; a key k is covered when `At(k) <= pos`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pos {
    #[default]
    NotStarted,
    At(Key),
    End,
}

impl Pos {
    pub fn covers(&self, key: &[u8]) -> bool {
        match self {
            Pos::NotStarted => false,
            Pos::At(at) => key <= at.as_bytes(),
            Pos::End => true,
        }
    }
}

/// Encodes key columns. Cheap to make, not shared between threads.
#[derive(Debug)]
pub struct KeyCodec {
    converter: RowConverter,
}

impl KeyCodec {
    pub fn new(types: impl IntoIterator<Item = DataType>) -> Result<Self, ArrowError> {
        Ok(Self { converter: RowConverter::new(types.into_iter().map(SortField::new).collect())? })
    }

    /// Encodes all rows into one arena: `rows.row(i).as_ref()` (or `.data()`) are the bytes of row i.
    pub fn encode(&self, columns: &[ArrayRef]) -> Result<Rows, ArrowError> {
        self.converter.convert_columns(columns)
    }

    /// Decodes keys back to columns.
    pub fn decode<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>, ArrowError> {
        let parser = self.converter.parser();
        self.converter.convert_rows(keys.into_iter().map(|k| parser.parse(k)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn key_bytes_are_stable() {
        let codec = KeyCodec::new([DataType::Int64, DataType::Utf8]).unwrap();
        let rows = codec
            .encode(&[Arc::new(Int64Array::from(vec![Some(1), None])), Arc::new(StringArray::from(vec!["ab", ""]))])
            .unwrap();
        let hex = |i: usize| rows.row(i).as_ref().iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(0), "01800000000000000102616200000000000002");
        assert_eq!(hex(1), "00000000000000000001");
        let back = codec.decode([rows.row(0).as_ref()]).unwrap();
        assert_eq!(back[0].as_ref(), &Int64Array::from(vec![1]) as &dyn arrow::array::Array);
    }

    #[test]
    fn append_keys_order_like_their_numbers() {
        assert!(Key::append(1, 500) < Key::append(2, 0));
        assert!(Key::append(1, 1) < Key::append(1, 2));
        assert_eq!(Key::append(77, 3).as_append(), Some((77, 3)));
        assert!(Pos::At(Key::append(1, 0)) < Pos::End && Pos::NotStarted < Pos::At(Key::default()));
    }
}
