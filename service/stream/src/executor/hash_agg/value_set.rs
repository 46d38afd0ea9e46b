//! The values of a retractable min or max: per group an ordered multiset, stored as (group, value) -> count, cached whole for groups in use.
//!
//! Values are compared and stored in their order-preserving encoding. A group is read by one prefix look-up when its first value changes. Memory is
//! that of all values of cached groups: an epoch over a group with many distinct values holds them all.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, cast::AsArray},
    datatypes::{DataType, Int64Type},
};
use millstream_storage::Region;
use millstream_types::{Chunk, Key, KeyCodec, Op};
use rustc_hash::FxHashMap;

use super::{groups::GroupTable, slots::Rows};
use crate::StreamError;

/// Rough cost of a tree entry beside its bytes.
const ENTRY_BYTES: usize = 64;

#[derive(Debug, Default)]
struct Count {
    n: i64,
    dirty: bool,
}

#[derive(Debug, Default)]
struct ValueSet {
    values: BTreeMap<Box<[u8]>, Count>,
    dirty: Vec<Box<[u8]>>,
}

#[derive(Debug)]
pub(crate) struct ValueSets {
    region: Arc<dyn Region>,
    codec: KeyCodec,
    max: bool,
    sets: FxHashMap<u32, ValueSet>,
    touched: Vec<u32>,
    bytes: usize,
}

impl ValueSets {
    pub(crate) fn new(region: Arc<dyn Region>, value: DataType, max: bool) -> Result<Self, StreamError> {
        let codec = KeyCodec::new([value])?;
        Ok(Self { region, codec, max, sets: FxHashMap::default(), touched: Vec::new(), bytes: 0 })
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the sets of the groups that this chunk changes. `is_new` = the group has no stored row, so it has no values either.
    pub(crate) async fn load(
        &mut self,
        table: &GroupTable,
        rows: Rows<'_>,
        arg: usize,
        is_new: impl Fn(u32) -> bool,
    ) -> Result<(), StreamError> {
        let mut wanted: Vec<(Key, u32)> = Vec::new();
        let column = rows.batch.column(arg);
        for (i, g) in rows.groups.iter().enumerate() {
            if column.is_valid(i) && !self.sets.contains_key(g) {
                self.sets.insert(*g, ValueSet::default());
                if !is_new(*g) {
                    wanted.push((Key::from(table.key(*g)), *g));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort();
        let (keys, groups): (Vec<Key>, Vec<u32>) = wanted.into_iter().unzip();
        let n = self.region.schema().columns.len();
        let found = self.region.lookup(keys, self.region.applied(), Some(vec![n - 2, n - 1])).await?;
        let values = found.rows.column(0).as_binary::<i32>();
        let counts = found.rows.column(1).as_primitive::<Int64Type>();
        for (i, which) in found.which.iter().enumerate() {
            let Some(set) = self.sets.get_mut(&groups[*which as usize]) else { continue };
            self.bytes += values.value(i).len() + ENTRY_BYTES;
            set.values.insert(values.value(i).into(), Count { n: counts.value(i), dirty: false });
        }
        Ok(())
    }

    /// Adds the rows of a chunk; their sets are loaded.
    pub(crate) fn update(&mut self, rows: Rows<'_>, arg: usize) -> Result<(), StreamError> {
        let column = rows.batch.column(arg);
        let encoded = self.codec.encode(&[Arc::clone(column)])?;
        for (i, g) in rows.groups.iter().enumerate().filter(|(i, _)| column.is_valid(*i)) {
            let row = encoded.row(i);
            let value: &[u8] = row.data();
            let set = self.sets.entry(*g).or_default();
            let count = match set.values.get_mut(value) {
                Some(c) => c,
                None => {
                    self.bytes += value.len() + ENTRY_BYTES;
                    set.values.entry(value.into()).or_default()
                }
            };
            count.n += rows.signs[i];
            if !count.dirty {
                count.dirty = true;
                if set.dirty.is_empty() {
                    self.touched.push(*g);
                }
                set.dirty.push(value.into());
            }
        }
        Ok(())
    }

    /// The new extremes of changed groups (`None` = no value left) and the rows to store. Nothing is dirty afterwards.
    pub(crate) fn barrier(&mut self, table: &GroupTable, keys: &KeyCodec) -> Result<Changed, StreamError> {
        let touched = std::mem::take(&mut self.touched);
        let mut changed = Changed::default();
        let (mut owners, mut values, mut counts, mut ops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut best: Vec<Box<[u8]>> = Vec::new();
        for g in touched {
            let Some(set) = self.sets.get_mut(&g) else { continue };
            for value in std::mem::take(&mut set.dirty) {
                let Some(count) = set.values.get_mut(&value) else { continue };
                if count.n < 0 {
                    let what = format!("a value of a group was deleted {} times more than inserted", -count.n);
                    return Err(StreamError::Inconsistent { operator: "hash agg", what });
                }
                count.dirty = false;
                owners.push(g);
                counts.push(count.n);
                ops.push(if count.n > 0 { Op::Insert } else { Op::Delete });
                if count.n == 0 {
                    set.values.remove(&value);
                    self.bytes -= value.len() + ENTRY_BYTES;
                }
                values.push(value);
            }
            let entry = if self.max { set.values.last_key_value() } else { set.values.first_key_value() };
            match entry {
                Some((v, _)) => {
                    changed.groups.push(g);
                    best.push(v.clone());
                }
                None => changed.empty.push(g),
            }
        }
        if !best.is_empty() {
            changed.values = self.codec.decode(best.iter().map(|v| &v[..]))?.pop();
        }
        if !owners.is_empty() {
            let mut columns = keys.decode(owners.iter().map(|g| table.key(*g)))?;
            columns.push(Arc::new(BinaryArray::from_iter_values(values.iter())));
            columns.push(Arc::new(Int64Array::from(counts)) as ArrayRef);
            let rows = RecordBatch::try_new(self.region.schema().arrow(), columns)?;
            changed.stored = Some(Chunk::new(rows, ops));
        }
        Ok(changed)
    }

    /// Follows [`GroupTable::retain`]: `new_number` of each old group, `None` = gone.
    pub(crate) fn renumber(&mut self, new_number: &[Option<u32>]) {
        let old = std::mem::take(&mut self.sets);
        for (g, set) in old {
            match new_number[g as usize] {
                Some(n) => _ = self.sets.insert(n, set),
                None => self.bytes -= set.values.keys().map(|v| v.len() + ENTRY_BYTES).sum::<usize>(),
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) groups: Vec<u32>,
    /// Extreme of each of `groups`.
    pub(crate) values: Option<ArrayRef>,
    pub(crate) empty: Vec<u32>,
    pub(crate) stored: Option<Chunk>,
}
