//! Merges neighbouring runs into one; keeps every version.

use std::sync::Arc;

use super::Run;
use crate::{StorageError, layout::Layout};

/// One run with the rows of `runs` (oldest first, one region). CPU: one pass over all rows.
pub fn merge_runs(layout: &Arc<Layout>, runs: &[Arc<Run>]) -> Result<Run, StorageError> {
    crate::read::merge::merge_in_memory(layout, runs)
}
