//! Group keys -> dense numbers: all key bytes in one arena, an open-addressing table of numbers over it, no object per group.
//!
//! Numbers count from 0 in order of first sight and stay until [`GroupTable::retain`] packs the table. Not here: what is known about a group.

use std::hash::Hasher;

use rustc_hash::FxHasher;

/// No group has this number.
const FREE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct GroupTable {
    bytes: Vec<u8>,
    /// End of key i in `bytes`.
    ends: Vec<usize>,
    hashes: Vec<u64>,
    /// Power of two, at most 7/8 full.
    slots: Vec<u32>,
}

impl Default for GroupTable {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), hashes: Vec::new(), slots: vec![FREE; 16] }
    }
}

fn hash(key: &[u8]) -> u64 {
    let mut h = FxHasher::default();
    h.write(key);
    h.finish()
}

impl GroupTable {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * 16 + self.slots.len() * 4
    }

    pub(crate) fn key(&self, group: u32) -> &[u8] {
        let i = group as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }

    /// The number of `key`, and whether it is new.
    pub(crate) fn insert(&mut self, key: &[u8]) -> (u32, bool) {
        let h = hash(key);
        let mut slot = self.first_slot(h);
        loop {
            let group = self.slots[slot];
            if group == FREE {
                break;
            }
            if self.hashes[group as usize] == h && self.key(group) == key {
                return (group, false);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        let group = self.ends.len() as u32;
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.hashes.push(h);
        self.slots[slot] = group;
        if self.ends.len() * 8 > self.slots.len() * 7 {
            self.rehash(self.slots.len() * 2);
        }
        (group, true)
    }

    /// Keeps the groups where `keep` is true; they are numbered anew in the same order.
    pub(crate) fn retain(&mut self, keep: &[bool]) {
        let (mut n, mut to, mut start) = (0, 0, 0);
        for (i, kept) in keep.iter().enumerate() {
            let end = self.ends[i];
            if *kept {
                self.bytes.copy_within(start..end, to);
                to += end - start;
                self.ends[n] = to;
                self.hashes[n] = self.hashes[i];
                n += 1;
            }
            start = end;
        }
        self.bytes.truncate(to);
        self.ends.truncate(n);
        self.hashes.truncate(n);
        self.bytes.shrink_to(to * 2);
        self.rehash((n * 2).next_power_of_two().max(16));
    }

    /// The high bits choose the slot: those are the well-mixed ones of the hash.
    fn first_slot(&self, h: u64) -> usize {
        (h.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - self.slots.len().trailing_zeros())) as usize
    }

    fn rehash(&mut self, size: usize) {
        self.slots.clear();
        self.slots.resize(size, FREE);
        for group in 0..self.hashes.len() {
            let mut slot = self.first_slot(self.hashes[group]);
            while self.slots[slot] != FREE {
                slot = (slot + 1) & (size - 1);
            }
            self.slots[slot] = group as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_numbers_until_the_table_is_packed() {
        let mut t = GroupTable::default();
        let key = |i: u32| i.to_be_bytes().repeat((i % 3) as usize);
        let mut numbers = std::collections::HashMap::new();
        for i in 0..5_000 {
            let (n, new) = t.insert(&key(i));
            assert_eq!(new, !numbers.contains_key(&key(i)));
            assert_eq!(*numbers.entry(key(i)).or_insert(n), n);
        }
        let keep: Vec<bool> = (0..t.len()).map(|i| i % 7 == 0).collect();
        let kept: Vec<Vec<u8>> = (0..t.len() as u32).filter(|i| i % 7 == 0).map(|i| t.key(i).to_vec()).collect();
        t.retain(&keep);
        assert_eq!(t.len(), kept.len());
        for (i, k) in kept.iter().enumerate() {
            assert_eq!(t.insert(k), (i as u32, false));
        }
        assert!(t.insert(b"never seen").1);
    }
}
