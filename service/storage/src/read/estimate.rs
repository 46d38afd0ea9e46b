//! `estimate`: rough size of a scan, from metadata only.

use millstream_types::{Pos, Seq};

use crate::{Estimate, region::version::Version};

/// Rows and bytes that a scan of `[from, to)` after `after` would look at.
pub fn estimate(version: &Version, from: Option<Seq>, to: Seq, after: &Pos) -> Estimate {
    let mut sum = Estimate::default();
    let touches = |start: Seq, end: Seq| start < to && from.is_none_or(|f| end > f);
    for run in version.runs.iter().filter(|r| touches(r.from, r.end)) {
        let rows = match after {
            Pos::NotStarted => run.len(),
            Pos::End => 0,
            Pos::At(key) if version.layout.is_keyed() => {
                let (mut low, mut high) = (0, run.len());
                while low < high {
                    let mid = (low + high) / 2;
                    if run.keys.get(mid) <= key.as_bytes() { low = mid + 1 } else { high = mid }
                }
                run.len() - low
            }
            Pos::At(key) => key.as_append().map_or(run.len(), |(seq, _)| {
                let seqs = crate::layout::sequences(&run.rows, version.layout.width());
                run.len() - seqs.partition_point(|s| *s <= seq)
            }),
        };
        sum.rows += rows as u64;
        sum.bytes += (run.bytes as u64).checked_div(run.len() as u64).unwrap_or(0) * rows as u64;
    }
    for file in version.files.iter().filter(|f| touches(f.from, f.end)) {
        if file.key.as_ref().is_none_or(|(_, last)| !after.covers(last.as_bytes())) {
            sum.rows += file.rows;
            sum.bytes += file.size;
        }
    }
    sum
}
