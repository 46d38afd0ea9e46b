//! Which sorted runs to merge. Pure: files and options in, a plan out.

use std::sync::Arc;

use crate::manifest::FileEntry;

#[derive(Debug, Clone)]
pub struct PickOptions {
    /// Fewest neighbours of similar size that merge.
    pub min_runs: usize,
    /// At more runs than this the cheapest neighbours merge whatever their size.
    pub max_runs: usize,
    /// Most inputs of one plan.
    pub max_inputs: usize,
}

impl Default for PickOptions {
    fn default() -> Self {
        Self { min_runs: 4, max_runs: 12, max_inputs: 16 }
    }
}

/// Files to merge into one sorted run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub inputs: Vec<Arc<FileEntry>>,
    /// The oldest run is among the inputs: deletes may go.
    pub bottom: bool,
}

/// The next merge worth doing. `files` in the order of `manifest::State`.
pub fn pick(files: &[Arc<FileEntry>], options: &PickOptions) -> Option<Plan> {
    let _unused = (files, options);
    None
}

/// All files into one run; `None` if there is nothing to merge.
pub fn pick_all(files: &[Arc<FileEntry>]) -> Option<Plan> {
    (!files.is_empty()).then(|| Plan { inputs: files.to_vec(), bottom: true })
}
