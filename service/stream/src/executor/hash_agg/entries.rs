//! The rows of one epoch for a value set: (group, value, stream key) and whether it came or left, all bytes in one arena.
//!
//! An input row's key comes and goes in turn, so the sum of its signs is what the epoch did to it: 1 came, -1 left, 0 nothing. Rows are written without
//! being read before. They are kept until the region has them, for reads in between.

use millstream_types::Epoch;

use super::groups::GroupTable;

#[derive(Debug, Clone, Copy)]
struct Entry {
    group: u32,
    start: usize,
    value: u32,
    key: u32,
    sign: i8,
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    arena: Vec<u8>,
    rows: Vec<Entry>,
}

/// One net row.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryRow<'a> {
    pub(super) value: &'a [u8],
    pub(super) key: &'a [u8],
    /// It came (else it left).
    pub(super) insert: bool,
}

/// A key that came or left twice.
#[derive(Debug)]
pub(super) struct OutOfTurn;

impl Entries {
    pub(super) fn push(&mut self, group: u32, value: impl Iterator<Item = u8>, key: &[u8], sign: i64) {
        let start = self.arena.len();
        self.arena.extend(value);
        let value = (self.arena.len() - start) as u32;
        self.arena.extend_from_slice(key);
        self.rows.push(Entry { group, start, value, key: key.len() as u32, sign: sign as i8 });
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.arena.capacity() + self.rows.capacity() * size_of::<Entry>()
    }

    /// Value of the last row pushed.
    pub(super) fn last_value(&self) -> &[u8] {
        self.rows.last().map_or(&[], |e| self.row(e).value)
    }

    fn row(&self, e: &Entry) -> EntryRow<'_> {
        let (value, key) = self.arena[e.start..e.start + (e.value + e.key) as usize].split_at(e.value as usize);
        EntryRow { value, key, insert: e.sign > 0 }
    }

    /// Sorts by (group, value, key) and nets: each key at most once afterwards. Groups that had rows, ascending.
    pub(super) fn settle(&mut self) -> Result<Vec<u32>, OutOfTurn> {
        let mut rows = std::mem::take(&mut self.rows);
        let bytes = |e: &Entry| {
            let (value, key) = self.arena[e.start..e.start + (e.value + e.key) as usize].split_at(e.value as usize);
            (e.group, value, key)
        };
        rows.sort_unstable_by(|a, b| bytes(a).cmp(&bytes(b)));
        let mut touched: Vec<u32> = rows.iter().map(|e| e.group).collect();
        touched.dedup();
        let mut kept = 0;
        let mut i = 0;
        while i < rows.len() {
            let same = rows[i..].iter().take_while(|e| bytes(e) == bytes(&rows[i])).count();
            let net: i64 = rows[i..i + same].iter().map(|e| i64::from(e.sign)).sum();
            if net.abs() > 1 {
                return Err(OutOfTurn);
            }
            if net != 0 {
                rows[kept] = Entry { sign: net as i8, ..rows[i] };
                kept += 1;
            }
            i += same;
        }
        rows.truncate(kept);
        self.rows = rows;
        Ok(touched)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = EntryRow<'_>> {
        self.rows.iter().map(|e| self.row(e))
    }

    /// Rows of one group in order; after [`Entries::settle`].
    pub(super) fn of_group(&self, group: u32) -> impl Iterator<Item = EntryRow<'_>> {
        let from = self.rows.partition_point(|e| e.group < group);
        self.rows[from..].iter().take_while(move |e| e.group == group).map(|e| self.row(e))
    }

    /// Follows [`GroupTable::retain`]; no group with rows here is forgotten, and the order stays.
    pub(super) fn renumber(&mut self, numbers: &[Option<u32>]) {
        for e in &mut self.rows {
            e.group = numbers[e.group as usize].expect("a group with rows on their way stays");
        }
    }

    /// The key bytes of each row's group.
    pub(super) fn group_keys<'a>(&'a self, table: &'a GroupTable) -> impl Iterator<Item = &'a [u8]> {
        self.rows.iter().map(|e| table.key(e.group))
    }
}

/// Settled entries on their way to the region.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) epoch: Epoch,
    pub(super) entries: Entries,
}
