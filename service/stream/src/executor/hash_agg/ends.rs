//! The first values of one group's set: as many as are known without reading, in one small buffer.
//!
//! Invariant: every value of the group below the last known one is known with its exact count; the last one has at least its count. `complete` = there is
//! no other, and the last count is exact too. Empty and not complete = nothing is known until the group is read. Not here: where values are stored.

/// Values kept per group. A group with at most so many distinct ones is never read.
pub(super) const KEPT: usize = 8;

const HEAD: usize = 8;

/// Entries: count and length as u32 in the machine's order, then the value; ascending.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Ends {
    entries: Vec<u8>,
    len: u8,
    complete: bool,
}

/// A value left that was never there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotThere;

impl Ends {
    /// A group without values.
    pub(super) fn none() -> Self {
        Self { complete: true, ..Self::default() }
    }

    /// A group of which only the extreme is known.
    pub(super) fn from_extreme(value: &[u8]) -> Self {
        let mut ends = Self::default();
        ends.put(0, value, 1);
        ends
    }

    /// Nothing is known any more.
    pub(super) fn is_unknown(&self) -> bool {
        self.len == 0 && !self.complete
    }

    pub(super) fn first(&self) -> Option<&[u8]> {
        (self.len > 0).then(|| self.at(0).1)
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.entries.capacity() + size_of::<Self>()
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.entries[at..at + 4]);
        u32::from_ne_bytes(bytes)
    }

    /// Count and value of the entry at this byte.
    fn at(&self, at: usize) -> (u32, &[u8]) {
        let start = at + HEAD;
        (self.u32_at(at), &self.entries[start..start + self.u32_at(at + 4) as usize])
    }

    fn put(&mut self, at: usize, value: &[u8], count: u32) {
        let head = count.to_ne_bytes().into_iter().chain((value.len() as u32).to_ne_bytes());
        drop(self.entries.splice(at..at, head.chain(value.iter().copied())));
        self.len += 1;
    }

    /// The place of `value`, or where it belongs, and whether an entry at or after it exists.
    fn find(&self, value: &[u8]) -> Place {
        let mut at = 0;
        while at < self.entries.len() {
            let (_, v) = self.at(at);
            match v.cmp(value) {
                std::cmp::Ordering::Less => at += HEAD + v.len(),
                std::cmp::Ordering::Equal => return Place::Known(at),
                std::cmp::Ordering::Greater => return Place::Before(at),
            }
        }
        Place::Beyond
    }

    fn set_count(&mut self, at: usize, count: u32) {
        self.entries[at..at + 4].copy_from_slice(&count.to_ne_bytes());
    }

    pub(super) fn insert(&mut self, value: &[u8]) {
        match self.find(value) {
            Place::Known(at) => self.set_count(at, self.u32_at(at).saturating_add(1)),
            Place::Before(at) => self.put(at, value, 1),
            Place::Beyond if self.complete => self.put(self.entries.len(), value, 1),
            Place::Beyond => return,
        }
        if self.len as usize > KEPT {
            let mut last = 0;
            for _ in 1..self.len {
                last += HEAD + self.at(last).1.len();
            }
            self.entries.truncate(last);
            self.len -= 1;
            self.complete = false;
        }
    }

    pub(super) fn remove(&mut self, value: &[u8]) -> Result<(), NotThere> {
        match self.find(value) {
            Place::Known(at) => {
                let (count, v) = self.at(at);
                if count > 1 {
                    self.set_count(at, count - 1);
                } else {
                    let end = at + HEAD + v.len();
                    drop(self.entries.drain(at..end));
                    self.len -= 1;
                }
                Ok(())
            }
            Place::Beyond if !self.complete => Ok(()),
            Place::Before(_) | Place::Beyond => Err(NotThere),
        }
    }

    /// Appends a value of an ordered read; false when there is room for no other value.
    pub(super) fn push(&mut self, value: &[u8]) -> bool {
        match self.find(value) {
            Place::Known(at) => self.set_count(at, self.u32_at(at).saturating_add(1)),
            _ if self.len as usize == KEPT => return false,
            _ => self.put(self.entries.len(), value, 1),
        }
        true
    }

    /// The read came to the group's end.
    pub(super) fn all_read(&mut self) {
        self.complete = true;
    }
}

enum Place {
    Known(usize),
    Before(usize),
    Beyond,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The whole set, and what a read of it would give.
    fn read(set: &BTreeMap<u8, u32>, limit: usize) -> Ends {
        let mut ends = Ends::default();
        let mut left = limit;
        for (v, n) in set {
            for _ in 0..*n {
                if left == 0 || !ends.push(&[*v]) {
                    return ends;
                }
                left -= 1;
            }
        }
        ends.all_read();
        ends
    }

    proptest! {
        #[test]
        fn what_is_known_is_always_the_first_value(ops in prop::collection::vec((any::<bool>(), 0u8..24), 1..400), limit in 1usize..20) {
            let mut set: BTreeMap<u8, u32> = BTreeMap::new();
            let mut ends = Ends::none();
            for (insert, value) in ops {
                if insert {
                    *set.entry(value).or_default() += 1;
                    ends.insert(&[value]);
                } else if let Some(n) = set.get_mut(&value) {
                    *n -= 1;
                    if *n == 0 {
                        set.remove(&value);
                    }
                    prop_assert_eq!(ends.remove(&[value]), Ok(()));
                } else if ends.complete {
                    prop_assert_eq!(ends.remove(&[value]), Err(NotThere));
                }
                if ends.is_unknown() {
                    ends = read(&set, limit);
                }
                prop_assert_eq!(ends.first(), set.keys().next().map(std::slice::from_ref));
                prop_assert!(ends.len as usize <= KEPT);
            }
        }
    }
}
