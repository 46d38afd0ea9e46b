//! Bytes of stored JSON documents: `{"format":1,"crc32c":"..","body":{..}}`, the checksum over the bytes of `body`.
//!
//! Shared by manifest versions, checkpoints, pins and the catalog. A wrong format or checksum is Corrupt.

use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::StorageError;

/// Raised by each change that an older release could misread.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    format: u32,
    crc32c: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Encodes a document.
pub fn seal<T: Serialize>(body: &T) -> Result<Bytes, StorageError> {
    let raw = serde_json::value::to_raw_value(body).map_err(|e| StorageError::internal("encode document", e))?;
    let envelope =
        Envelope { format: FORMAT, crc32c: format!("{:08x}", crc32c::crc32c(raw.get().as_bytes())), body: &raw };
    Ok(serde_json::to_vec(&envelope).map_err(|e| StorageError::internal("encode document", e))?.into())
}

/// Checks and decodes a document; `path` is for the error.
pub fn unseal<T: DeserializeOwned>(path: &str, bytes: &[u8]) -> Result<T, StorageError> {
    let corrupt = |what: &str, e: serde_json::Error| StorageError::Corrupt {
        path: path.to_owned(),
        what: what.to_owned(),
        source: Some(e.into()),
    };
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|e| corrupt("no sealed document", e))?;
    if envelope.format != FORMAT {
        return Err(StorageError::corrupt(
            path,
            format!("format {} is not {FORMAT}: written by a newer release", envelope.format),
        ));
    }
    let crc = format!("{:08x}", crc32c::crc32c(envelope.body.get().as_bytes()));
    if crc != envelope.crc32c {
        return Err(StorageError::corrupt(path, format!("checksum is {crc}, expected {}", envelope.crc32c)));
    }
    serde_json::from_str(envelope.body.get()).map_err(|e| corrupt("body", e))
}
