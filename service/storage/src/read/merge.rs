//! The k-way merge under scans, flushes and compactions.
use std::sync::Arc;

use crate::{StorageError, layout::Layout, memtable::Run};

pub(crate) fn merge_in_memory(layout: &Arc<Layout>, runs: &[Arc<Run>]) -> Result<Run, StorageError> {
    let _unused = (layout, runs);
    Err(StorageError::Stopped { what: "merge" })
}
