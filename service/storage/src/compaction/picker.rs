//! Which sorted runs to merge. Pure: files and options in, a plan out.
//!
//! Size-tiered. Runs are ordered by sequence and only neighbours merge, so the ranges stay disjoint and a look-up may stop at the first hit.

use std::sync::Arc;

use crate::manifest::FileEntry;

#[derive(Debug, Clone)]
pub struct PickOptions {
    /// Fewest neighbours of similar size that merge.
    pub min_runs: usize,
    /// At more runs than this the cheapest neighbours merge whatever their size.
    pub max_runs: usize,
    /// Most runs of one plan: each holds a batch and a fetched row group.
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
    /// Whole runs, in the order of `manifest::State`.
    pub inputs: Vec<Arc<FileEntry>>,
    /// The oldest run is among the inputs: deletes may go.
    pub bottom: bool,
}

impl Plan {
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|f| f.size).sum()
    }

    /// Names for `manifest::Edit::compact`.
    pub fn names(&self) -> Vec<String> {
        self.inputs.iter().map(|f| f.name.clone()).collect()
    }
}

/// The next merge worth doing: the newest group of at least `min_runs` neighbours whose oldest is at most twice the sum of the newer ones; else, above
/// `max_runs`, the cheapest `min_runs` neighbours. `files` in the order of `manifest::State`.
pub fn pick(files: &[Arc<FileEntry>], options: &PickOptions) -> Option<Plan> {
    let runs: Vec<&[Arc<FileEntry>]> = files.chunk_by(|a, b| a.run == b.run).collect();
    let size = |run: &[Arc<FileEntry>]| run.iter().map(|f| f.size).sum::<u64>();
    let sizes: Vec<u64> = runs.iter().map(|r| size(r)).collect();
    let plan = |from: usize, to: usize| Plan { inputs: runs[from..to].concat(), bottom: from == 0 };
    // From the newest run backwards: take older ones in while they are not much larger than all newer together.
    let mut end = runs.len();
    while end >= options.min_runs.max(2) {
        let (mut start, mut sum) = (end - 1, sizes[end - 1]);
        while start > 0 && end - start < options.max_inputs && sizes[start - 1] <= sum.saturating_mul(2) {
            start -= 1;
            sum += sizes[start];
        }
        if end - start >= options.min_runs {
            return Some(plan(start, end));
        }
        end -= 1;
    }
    if runs.len() <= options.max_runs {
        return None;
    }
    let width = options.min_runs.clamp(2, options.max_inputs.max(2));
    let cheapest = (0..=runs.len() - width).min_by_key(|start| sizes[*start..start + width].iter().sum::<u64>())?;
    Some(plan(cheapest, cheapest + width))
}

/// All files into one run; `None` if one run without old versions and deletes is all there is.
pub fn pick_all(files: &[Arc<FileEntry>]) -> Option<Plan> {
    let runs = files.chunk_by(|a, b| a.run == b.run).count();
    let clean = runs <= 1 && files.iter().all(|f| f.single_version);
    (!clean).then(|| Plan { inputs: files.to_vec(), bottom: true })
}

#[cfg(test)]
mod tests {
    use millstream_types::{RegionId, Seq, TableId};

    use super::*;

    fn runs(sizes: &[u64]) -> Vec<Arc<FileEntry>> {
        let file = |(i, size): (usize, &u64)| {
            Arc::new(FileEntry {
                name: i.to_string(),
                origin: RegionId::new(TableId(1), 0),
                size: *size,
                rows: *size,
                deletes: 0,
                from: Seq(i as i64),
                end: Seq(i as i64 + 1),
                key: None,
                schema: 0,
                run: i as u64 + 1,
                single_version: true,
                written_ms: 0,
            })
        };
        sizes.iter().enumerate().map(file).collect()
    }

    #[test]
    fn picker_tables() {
        let options = PickOptions::default();
        // sizes oldest first -> names picked, bottom
        type Case = (&'static [u64], Option<(&'static str, bool)>);
        let cases: &[Case] = &[
            (&[], None),
            (&[10, 10, 10], None),
            (&[10, 10, 10, 10], Some(("0123", true))),
            (&[1000, 10, 10, 10, 10], Some(("1234", false))),
            (&[60, 10, 10, 10, 10], Some(("01234", true))),
            (&[1000, 10, 10, 10, 10, 1], Some(("1234", false))),
            (&[10_000, 3000, 1000, 300, 100, 30, 10, 3, 1], None),
        ];
        for (sizes, want) in cases {
            let plan = pick(&runs(sizes), &options);
            let got = plan.map(|p| (p.names().concat(), p.bottom));
            assert_eq!(got, want.map(|(n, b)| (n.to_owned(), b)), "{sizes:?}");
        }
        let steep: Vec<u64> = (0..13).rev().map(|i| 4u64.pow(i)).collect();
        let plan = pick(&runs(&steep), &options).unwrap();
        assert_eq!((plan.names(), plan.bottom), (["9", "10", "11", "12"].map(str::to_owned).to_vec(), false));
        assert!(pick_all(&runs(&[5])).is_none() && pick_all(&runs(&[5, 5])).unwrap().bottom);
    }
}
