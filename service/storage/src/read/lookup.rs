//! `lookup`: live rows by sorted key prefixes.
use std::sync::Arc;

use millstream_types::{Key, Seq};

use crate::{LookupRows, StorageError, region::version::Version, sst::SstReader};

/// Rows as of `at` whose encoded key starts with one of `prefixes` (ascending, distinct), in key order.
pub async fn lookup(
    version: Arc<Version>,
    reader: Arc<SstReader>,
    prefixes: Vec<Key>,
    at: Seq,
    columns: Option<Vec<usize>>,
) -> Result<LookupRows, StorageError> {
    let _unused = (version, reader, prefixes, at, columns);
    Err(StorageError::Stopped { what: "lookup" })
}
