//! Which versions of a key a flush or compaction must keep.

use std::sync::Arc;

use millstream_types::Seq;

use crate::read::{
    block::{Block, Part, Parts},
    merge::same_key,
};

/// Per key are kept: the newest version; every version at or after `all_from`; the newest below it; for each exact pin the newest below the pin. Then the
/// oldest kept one goes if it is a delete below `all_from` and `bottom`: a delete hides only older rows, and there are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeepRule {
    /// F = min(horizon, all floors).
    pub all_from: Seq,
    /// Exact pins.
    pub exact: Vec<Seq>,
    /// The inputs hold everything older of their keys.
    pub bottom: bool,
}

impl KeepRule {
    /// Keeps every version.
    pub fn everything() -> Self {
        Self { all_from: Seq(i64::MIN), exact: Vec::new(), bottom: false }
    }

    /// `versions`: (sequence descending, is a delete) of one key. Sets `kept` to one flag for each.
    pub(crate) fn apply(&self, versions: &[(i64, bool)], kept: &mut Vec<bool>) {
        kept.clear();
        kept.extend(versions.iter().map(|(seq, _)| *seq >= self.all_from.0));
        if let Some(newest) = kept.first_mut() {
            *newest = true;
        }
        for bound in std::iter::once(&self.all_from).chain(&self.exact) {
            if let Some(i) = versions.iter().position(|(seq, _)| *seq < bound.0) {
                kept[i] = true;
            }
        }
        // One delete at the end may uncover another.
        while self.bottom
            && let Some(oldest) = kept.iter().rposition(|k| *k)
            && let (seq, true) = versions[oldest]
            && seq < self.all_from.0
        {
            kept[oldest] = false;
        }
    }
}

/// Takes merged rows in order and puts the kept ones out, whole keys at a time.
#[derive(Debug)]
pub(crate) struct Keeper {
    rule: KeepRule,
    /// Versions of the key in progress.
    rows: Vec<(Arc<Block>, usize)>,
    versions: Vec<(i64, bool)>,
    kept: Vec<bool>,
    /// No key twice and no delete among the rows put out since [`Keeper::take_plain`].
    plain: bool,
}

impl Keeper {
    pub(crate) fn new(rule: KeepRule) -> Self {
        Self { rule, rows: Vec::new(), versions: Vec::new(), kept: Vec::new(), plain: true }
    }

    pub(crate) fn take_plain(&mut self) -> bool {
        std::mem::replace(&mut self.plain, true)
    }

    pub(crate) fn take(&mut self, part: Part, out: &mut Parts) {
        let Part { block, start, len } = part;
        let end = start + len;
        if block.plain && len >= 3 {
            // Single versions that are no deletes are always kept.
            self.row(block.clone(), start, out);
            self.finish(out);
            out.push(&block, start + 1, len - 2);
        } else {
            for row in start..end - 1 {
                self.row(block.clone(), row, out);
            }
        }
        self.row(block, end - 1, out);
    }

    fn row(&mut self, block: Arc<Block>, row: usize, out: &mut Parts) {
        if self.rows.last().is_some_and(|last| !same_key(last, &block, row)) {
            self.finish(out);
        }
        // A sequence that two sources hold (a replay that was flushed meanwhile) is one version.
        if self.versions.last().is_some_and(|(seq, _)| *seq == block.seqs[row]) {
            return;
        }
        self.versions.push((block.seqs[row], block.is_delete(row)));
        self.rows.push((block, row));
    }

    /// All versions of the key were seen.
    pub(crate) fn finish(&mut self, out: &mut Parts) {
        // The newest version is always kept, but for a delete: what most keys are.
        if !matches!(self.versions[..], [] | [(_, false)]) {
            self.rule.apply(&self.versions, &mut self.kept);
        } else {
            self.kept.clear();
            self.kept.resize(self.versions.len(), true);
        }
        let mut puts = 0;
        for ((block, row), kept) in self.rows.drain(..).zip(&self.kept) {
            if *kept {
                puts += 1;
                self.plain &= puts == 1 && !block.is_delete(row);
                out.push_owned(block, row);
            }
        }
        self.versions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_rule_table() {
        // versions, F, exact, bottom -> kept sequences
        type Case = (&'static [(i64, bool)], i64, &'static [i64], bool, &'static [i64]);
        let cases: &[Case] = &[
            (&[(9, false), (5, false), (1, false)], 100, &[], true, &[9]),
            (&[(9, false), (5, false), (1, false)], 6, &[], true, &[9, 5]),
            (&[(9, false), (5, false), (1, false)], 0, &[], true, &[9, 5, 1]),
            (&[(9, false), (5, false), (1, false)], 100, &[2], true, &[9, 1]),
            (&[(9, false), (5, false), (1, false)], 100, &[1], true, &[9]),
            (&[(9, true), (5, false)], 100, &[], true, &[]),
            (&[(9, true), (5, false)], 100, &[], false, &[9]),
            (&[(9, true), (5, false)], 9, &[], true, &[9, 5]),
            (&[(9, true), (5, true), (3, false)], 100, &[6], true, &[]),
            (&[(9, false), (5, true), (3, false)], 100, &[6], true, &[9]),
            (&[(9, false), (5, true), (3, false)], 100, &[6], false, &[9, 5]),
            (&[(9, false), (5, true), (3, false)], 100, &[6, 4], true, &[9, 5, 3]),
            (&[(9, true)], 5, &[], true, &[9]),
        ];
        for (versions, f, exact, bottom, want) in cases {
            let rule = KeepRule { all_from: Seq(*f), exact: exact.iter().map(|e| Seq(*e)).collect(), bottom: *bottom };
            let mut kept = Vec::new();
            rule.apply(versions, &mut kept);
            let got: Vec<i64> = versions.iter().zip(&kept).filter(|(_, k)| **k).map(|((s, _), _)| *s).collect();
            assert_eq!(got, *want, "{versions:?} {rule:?}");
        }
    }
}
