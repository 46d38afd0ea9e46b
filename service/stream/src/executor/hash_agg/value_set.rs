//! The values of a retractable min or max: stored as rows (group, value, stream key), of which only the first few values per group are cached.
//!
//! Rows come and go without being read. A group is read when all its cached values have left: from the region, under the rows of epochs that it does not
//! have yet. Small groups are read whole, many of them with one look-up in key order; of a large one a scan reads the first rows. Values are compared and stored in their order-preserving encoding, those of a max as complement, so that the extreme is always the first.
//! The idea (state table ordered by value and stream key, cache of the first ones) is that of RisingWave's materialized input state.

use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, BinaryArray, RecordBatch, cast::AsArray},
    datatypes::DataType,
};
use futures::{StreamExt, TryStreamExt};
use millstream_storage::{KeyMatch, Region, ScanItem, ScanRequest};
use millstream_types::{Chunk, Epoch, Key, KeyCodec, Op, Pos};

use super::{
    ends::{Ends, NotThere},
    entries::{Entries, OutOfTurn, Pending},
    groups::GroupTable,
    slots::Rows,
};
use crate::StreamError;

/// Scans of large groups at once.
const READS: usize = 8;

/// Rows of one scan; a group with at most so many is small.
const READ_ROWS: usize = 256;

/// Rows of one look-up of small groups, roughly.
const LOOKUP_ROWS: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct ValueSet {
    region: Arc<dyn Region>,
    /// Group columns of the region; the value follows, then the stream key.
    groups: usize,
    value: KeyCodec,
    key: KeyCodec,
    max: bool,
    /// Per group.
    ends: Vec<Ends>,
    ends_bytes: usize,
    epoch: Entries,
    pending: Vec<Pending>,
}

impl ValueSet {
    /// `key` are the types of the stream key.
    pub(crate) fn new(
        region: Arc<dyn Region>,
        groups: usize,
        value: DataType,
        key: impl IntoIterator<Item = DataType>,
        max: bool,
    ) -> Result<Self, StreamError> {
        Ok(Self {
            region,
            groups,
            value: KeyCodec::new([value])?,
            key: KeyCodec::new(key)?,
            max,
            ends: Vec::new(),
            ends_bytes: 0,
            epoch: Entries::default(),
            pending: Vec::new(),
        })
    }

    /// Memory of what is known about groups.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.ends_bytes
    }

    /// Memory of rows that the region does not have yet.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.epoch.size_bytes() + self.pending.iter().map(|p| p.entries.size_bytes()).sum::<usize>()
    }

    /// A new group, which has no value unless [`ValueSet::load`] says so.
    pub(crate) fn push_group(&mut self) {
        let ends = Ends::none();
        self.ends_bytes += ends.size_bytes();
        self.ends.push(ends);
    }

    fn set_ends(&mut self, g: u32, ends: Ends) {
        self.ends_bytes += ends.size_bytes();
        self.ends_bytes -= std::mem::replace(&mut self.ends[g as usize], ends).size_bytes();
    }

    /// Stored groups: the extreme of group `groups[which[i]]` is row i of `extremes`.
    pub(crate) fn load(&mut self, extremes: &ArrayRef, groups: &[u32], which: &[u32]) -> Result<(), StreamError> {
        let encoded = self.value.encode(&[Arc::clone(extremes)])?;
        let mut value = Vec::new();
        for (i, w) in which.iter().enumerate().filter(|(i, _)| extremes.is_valid(*i)) {
            value.clear();
            value.extend(self.ordered(encoded.row(i).data()));
            self.set_ends(groups[*w as usize], Ends::from_extreme(&value));
        }
        Ok(())
    }

    fn ordered<'a>(&self, value: &'a [u8]) -> impl Iterator<Item = u8> + use<'a> {
        let flip = if self.max { 0xFF } else { 0 };
        value.iter().map(move |b| b ^ flip)
    }

    /// Adds the rows of a chunk. `key` are the columns of the stream key.
    pub(crate) fn update(&mut self, rows: Rows<'_>, arg: usize, key: &[ArrayRef]) -> Result<(), StreamError> {
        let column = rows.batch.column(arg);
        let values = self.value.encode(&[Arc::clone(column)])?;
        let keys = self.key.encode(key)?;
        for (i, g) in rows.groups.iter().enumerate().filter(|(i, _)| column.is_valid(*i)) {
            let value = self.ordered(values.row(i).data());
            self.epoch.push(*g, value, keys.row(i).data(), rows.signs[i]);
            let ends = &mut self.ends[*g as usize];
            let before = ends.size_bytes();
            if rows.signs[i] > 0 {
                ends.insert(self.epoch.last_value());
            } else {
                ends.remove(self.epoch.last_value())
                    .map_err(|NotThere| inconsistent("a value was deleted that no row of the group has"))?;
            }
            self.ends_bytes = self.ends_bytes + ends.size_bytes() - before;
        }
        Ok(())
    }

    /// Ends the epoch: the extremes of groups that changed and the rows to store. `applied` is the newest epoch that the region has, `count` tells how many
    /// rows a group has.
    pub(crate) async fn barrier(
        &mut self,
        epoch: Epoch,
        applied: Epoch,
        table: &GroupTable,
        group_codec: &KeyCodec,
        count: impl Fn(u32) -> i64,
    ) -> Result<Changed, StreamError> {
        self.pending.retain(|p| p.epoch > applied);
        let mut entries = std::mem::take(&mut self.epoch);
        let touched =
            entries.settle().map_err(|OutOfTurn| inconsistent("a row of the group was inserted or deleted twice"))?;
        if touched.is_empty() {
            return Ok(Changed::default());
        }
        let stored = if entries.len() == 0 { None } else { Some(self.stored(&entries, table, group_codec)?) };
        self.pending.push(Pending { epoch, entries });
        let mut unknown = Vec::new();
        for g in &touched {
            if count(*g) == 0 {
                self.set_ends(*g, Ends::none());
            } else if self.ends[*g as usize].is_unknown() {
                unknown.push(*g);
            }
        }
        self.read(&unknown, table, count).await?;
        let mut changed = Changed { stored, reads: unknown.len() as u64, ..Changed::default() };
        let mut values = Vec::new();
        for g in touched {
            match self.ends[g as usize].first() {
                Some(v) => {
                    changed.groups.push(g);
                    values.push(self.ordered(v).collect::<Vec<u8>>());
                }
                None => changed.empty.push(g),
            }
        }
        if !values.is_empty() {
            changed.values = self.value.decode(values.iter().map(|v| &v[..]))?.pop();
        }
        Ok(changed)
    }

    /// Rows of the region's schema.
    fn stored(&self, entries: &Entries, table: &GroupTable, group_codec: &KeyCodec) -> Result<Chunk, StreamError> {
        let mut columns = group_codec.decode(entries.group_keys(table))?;
        columns.push(Arc::new(BinaryArray::from_iter_values(entries.iter().map(|e| e.value))));
        columns.extend(self.key.decode(entries.iter().map(|e| e.key))?);
        let ops = entries.iter().map(|e| if e.insert { Op::Insert } else { Op::Delete }).collect();
        Ok(Chunk::new(RecordBatch::try_new(self.region.schema().arrow(), columns)?, ops))
    }

    async fn read(
        &mut self,
        groups: &[u32],
        table: &GroupTable,
        count: impl Fn(u32) -> i64,
    ) -> Result<(), StreamError> {
        // What the region has of a group: what there is, and what left in epochs that it does not have.
        let pending = |g| self.pending.iter().flat_map(move |p| p.entries.of_group(g)).filter(|e| !e.insert).count();
        let stored = |g| usize::try_from(count(g)).unwrap_or(0).saturating_add(pending(g));
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for g in groups {
            match stored(*g) {
                rows if rows <= READ_ROWS => small.push((Key::from(table.key(*g)), *g, rows)),
                _ => large.push(*g),
            }
        }
        small.sort_unstable();
        let mut read = Vec::with_capacity(groups.len());
        let mut rest = &small[..];
        while !rest.is_empty() {
            let mut rows = 0;
            let fits = |(_, _, n): &&(Key, u32, usize)| {
                rows += n;
                rows <= LOOKUP_ROWS
            };
            let (now, later) = rest.split_at(rest.iter().take_while(fits).count().max(1));
            self.read_small(now, &mut read).await?;
            rest = later;
        }
        let this = &*self;
        let scans = futures::stream::iter(large)
            .map(|g| async move { Ok::<_, StreamError>((g, this.read_large(g, table.key(g)).await?)) })
            .buffered(READS)
            .try_collect::<Vec<_>>()
            .await?;
        for (g, ends) in read.into_iter().chain(scans) {
            self.set_ends(g, ends);
        }
        Ok(())
    }

    /// The columns that a read decodes: value and stream key.
    fn columns(&self) -> Option<Vec<usize>> {
        Some((self.groups..self.region.schema().columns.len()).collect())
    }

    /// All rows of these groups, which come in key order.
    async fn read_small(&self, groups: &[(Key, u32, usize)], read: &mut Vec<(u32, Ends)>) -> Result<(), StreamError> {
        let keys = groups.iter().map(|(key, ..)| key.clone()).collect();
        let found = self.region.lookup(keys, KeyMatch::Prefix, self.region.applied(), self.columns()).await?;
        let mut at = 0;
        for (i, (_, g, _)) in groups.iter().enumerate() {
            let rows = found.which[at..].iter().take_while(|w| **w as usize == i).count();
            let mut merge = FirstValues::new(&self.pending, *g);
            if !merge.add(&found.rows.slice(at, rows), &self.key)? {
                merge.end();
            }
            read.push((*g, merge.ends));
            at += rows;
        }
        Ok(())
    }

    /// The first rows of a group.
    async fn read_large(&self, g: u32, prefix: &[u8]) -> Result<Ends, StreamError> {
        let mut merge = FirstValues::new(&self.pending, g);
        // No key column begins with this byte: the bound lies behind all rows of the group.
        let last = [prefix, &[0xFF]].concat();
        let mut scan = self.region.scan(ScanRequest {
            after: Pos::At(Key::from(prefix)),
            until: Pos::At(Key(last)),
            columns: self.columns(),
            max_rows: READ_ROWS,
            ..ScanRequest::snapshot(self.region.applied())
        });
        let mut rows = 0;
        while let Some(item) = scan.next().await {
            let ScanItem::Rows { chunk, .. } = item? else { continue };
            rows += chunk.len();
            if merge.add(&chunk.rows, &self.key)? || (rows >= READ_ROWS && !merge.ends.is_unknown()) {
                return Ok(merge.ends);
            }
        }
        merge.end();
        Ok(merge.ends)
    }

    /// Follows [`GroupTable::retain`]: the new number of each old group, `None` = gone.
    pub(crate) fn renumber(&mut self, numbers: &[Option<u32>]) {
        let mut old = numbers.iter();
        self.ends.retain(|_| old.next().is_some_and(Option::is_some));
        self.ends_bytes = self.ends.iter().map(Ends::size_bytes).sum();
        self.pending.iter_mut().for_each(|p| p.entries.renumber(numbers));
    }
}

/// The first values of a group: stored rows under those of epochs on their way, the later over the earlier.
struct FirstValues<'a> {
    over: Peekable<btree_map::IntoIter<(&'a [u8], &'a [u8]), bool>>,
    ends: Ends,
}

impl<'a> FirstValues<'a> {
    fn new(pending: &'a [Pending], g: u32) -> Self {
        let mut over: BTreeMap<(&[u8], &[u8]), bool> = BTreeMap::new();
        for p in pending {
            over.extend(p.entries.of_group(g).map(|e| ((e.value, e.key), e.insert)));
        }
        Self { over: over.into_iter().peekable(), ends: Ends::default() }
    }

    /// The next stored rows (value, stream key). True if enough is known.
    fn add(&mut self, rows: &RecordBatch, key: &KeyCodec) -> Result<bool, StreamError> {
        let values = rows.column(0).as_binary::<i32>();
        let keys = key.encode(&rows.columns()[1..])?;
        for i in 0..rows.num_rows() {
            let row = (values.value(i), keys.row(i).data());
            while let Some((k, insert)) = self.over.next_if(|(k, _)| *k < row) {
                if insert && !self.ends.push(k.0) {
                    return Ok(true);
                }
            }
            let kept = self.over.next_if(|(k, _)| *k == row).is_none_or(|(_, insert)| insert);
            if kept && !self.ends.push(row.0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// No stored row comes any more.
    fn end(&mut self) {
        for ((value, _), insert) in self.over.by_ref() {
            if insert && !self.ends.push(value) {
                return;
            }
        }
        self.ends.all_read();
    }
}

fn inconsistent(what: &str) -> StreamError {
    StreamError::Inconsistent { operator: "hash agg", what: what.to_owned() }
}

#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) groups: Vec<u32>,
    /// Extreme of each of `groups`.
    pub(crate) values: Option<ArrayRef>,
    pub(crate) empty: Vec<u32>,
    pub(crate) stored: Option<Chunk>,
    /// Groups that had to be read.
    pub(crate) reads: u64,
}
