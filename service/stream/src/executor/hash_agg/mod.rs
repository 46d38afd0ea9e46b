//! Hash aggregation: count, sum, avg, min and max per group, over inputs that may retract.
//!
//! [`groups`] numbers the keys of a chunk, [`slots`] holds the accumulators as arrays, [`value_set`] the values of a retractable min or max ([`ends`]: those
//! cached, [`entries`]: those on their way to the region). A group that is not cached is read from where the output is stored anyway ([`AggState`]): one
//! sorted look-up per chunk. At the barrier all groups that changed leave as one batch. A group is forgotten only when its last write is applied to the
//! region, so what is read back is never older than what was known.
//!
//! Invariants: a group with no row left is deleted, except the global one, which is always there; a negative count is `Inconsistent`.

mod columns;
mod ends;
mod entries;
mod groups;
mod scalar;
mod slot_plan;
mod slots;
mod value_set;

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int16Array, RecordBatch, UInt32Array},
    compute::{concat_batches, take_record_batch},
    datatypes::{DataType, SchemaRef},
    row::{RowConverter, SortField},
};
use millstream_storage::{KeyMatch, Region};
use millstream_types::{Chunk, Epoch, Key, KeyCodec, Op, Pos};

use self::{
    groups::GroupTable,
    slot_plan::SlotPlan,
    slots::{Rows, Scratch, Slots},
    value_set::ValueSet,
};
use super::{pipeline::StateWrite, project::motion_schema};
use crate::{
    OnEvalError, StreamError,
    metrics::JobMetrics,
    plan::{AggState, HashAggNode, agg_layout, needs_value_set},
};

/// Regions that hold the state.
#[derive(Debug)]
pub(crate) struct AggRegions {
    /// The view or the own state region.
    pub(crate) state: Arc<dyn Region>,
    /// Per call, that of its value set.
    pub(crate) sets: Vec<Option<Arc<dyn Region>>>,
}

pub(crate) struct AggOptions {
    pub(crate) cache_bytes: usize,
    pub(crate) on_error: OnEvalError,
    pub(crate) metrics: JobMetrics,
}

#[derive(Debug)]
pub(crate) struct HashAgg {
    node: HashAggNode,
    plan: SlotPlan,
    schema: SchemaRef,
    codec: KeyCodec,
    regions: AggRegions,
    /// One per extreme of the plan that needs one, in its order.
    sets: Vec<(usize, ValueSet)>,
    table: GroupTable,
    slots: Slots,
    /// Whether the group's row is downstream (as of the last barrier).
    exists: Vec<bool>,
    /// Epoch of the last write and of the last use.
    written: Vec<u64>,
    used: Vec<u64>,
    dirty: Vec<bool>,
    dirty_groups: Vec<u32>,
    /// What dirty groups looked like at the last barrier, in their order; only for `emit_before`.
    before: Slots,
    cache_bytes: usize,
    on_error: OnEvalError,
    metrics: JobMetrics,
    /// The state region is known to hold nothing older than this process wrote, so look-ups are skipped.
    state_is_empty: Option<bool>,
    epoch: u64,
    scratch: Scratch,
    chunk_groups: Vec<u32>,
    signs: Vec<i64>,
}

impl HashAgg {
    /// Groups that this epoch has changed.
    pub(crate) fn dirty_groups(&self) -> usize {
        self.dirty_groups.len()
    }

    pub(crate) fn new(node: HashAggNode, regions: AggRegions, options: AggOptions) -> Result<Self, StreamError> {
        let layout = agg_layout(&node.input, &node.group, &node.calls, node.append_only);
        let input: Vec<DataType> = node.input.iter().map(|c| c.sql_type.arrow()).collect();
        let has_set = |i: usize| needs_value_set(node.calls[i].func, node.append_only);
        let invalid = |what: String| StreamError::Inconsistent { operator: "hash agg", what };
        let plan = SlotPlan::new(&input, &layout, &node.calls, has_set).map_err(invalid)?;
        let codec = KeyCodec::new(layout.columns[..layout.group].iter().map(|c| c.sql_type.arrow()))?;
        let mut sets = Vec::new();
        for (i, e) in plan.extremes.iter().enumerate().filter(|(_, e)| e.from_set) {
            let region = regions.sets.get(e.call).cloned().flatten();
            let region = region.ok_or_else(|| invalid(format!("call {} has no value set region", e.call)))?;
            if node.stream_key.is_empty() {
                return Err(invalid("a value set needs a stream key".to_owned()));
            }
            let key = node.stream_key.iter().map(|k| input[*k].clone());
            sets.push((i, ValueSet::new(region, layout.group, plan.extreme_type(i).clone(), key, e.max)?));
        }
        let slots = Slots::new(&plan);
        Ok(Self {
            schema: motion_schema(&layout.columns),
            before: slots.clone(),
            slots,
            plan,
            codec,
            regions,
            sets,
            table: GroupTable::default(),
            exists: Vec::new(),
            written: Vec::new(),
            used: Vec::new(),
            dirty: Vec::new(),
            dirty_groups: Vec::new(),
            cache_bytes: options.cache_bytes,
            on_error: options.on_error,
            metrics: options.metrics,
            state_is_empty: None,
            epoch: 0,
            scratch: Scratch::default(),
            chunk_groups: Vec::new(),
            signs: Vec::new(),
            node,
        })
    }

    fn is_global(&self) -> bool {
        self.node.group.is_empty()
    }

    pub(crate) async fn chunk(&mut self, chunk: &Chunk) -> Result<(), StreamError> {
        if self.node.append_only
            && let Some(op) = chunk.ops.iter().find(|op| !op.is_insert())
        {
            let what = format!("{} in an append-only stream", op.symbol());
            return Err(StreamError::Inconsistent { operator: "hash agg", what });
        }
        self.number(chunk).await?;
        let groups = std::mem::take(&mut self.chunk_groups);
        let mut signs = std::mem::take(&mut self.signs);
        signs.clear();
        signs.extend(chunk.ops.iter().map(|op| if op.is_insert() { 1 } else { -1 }));
        let rows = Rows { groups: &groups, signs: &signs, batch: &chunk.rows };
        for g in &groups {
            if !self.dirty[*g as usize] {
                self.dirty[*g as usize] = true;
                self.dirty_groups.push(*g);
                if self.node.emit_before {
                    self.before.push_copy(&self.slots, *g);
                }
            }
        }
        for k in self.slots.update(&self.plan, rows, &mut self.scratch)? {
            self.out_of_range(self.slots.sum_name(&self.plan, k).to_owned())?;
        }
        if !self.sets.is_empty() {
            let key: Vec<ArrayRef> = self.node.stream_key.iter().map(|k| Arc::clone(chunk.rows.column(*k))).collect();
            for (i, set) in &mut self.sets {
                set.update(rows, self.plan.extremes[*i].arg, &key)?;
            }
        }
        (self.chunk_groups, self.signs) = (groups, signs);
        Ok(())
    }

    fn out_of_range(&self, column: String) -> Result<(), StreamError> {
        if self.on_error == OnEvalError::Fail {
            return Err(StreamError::OutOfRange { column });
        }
        self.metrics.eval_errors.inc();
        Ok(())
    }

    /// Fills `chunk_groups` with the group number of each row; groups seen for the first time are read.
    async fn number(&mut self, chunk: &Chunk) -> Result<(), StreamError> {
        let columns: Vec<ArrayRef> = if self.is_global() {
            vec![Arc::new(Int16Array::from(vec![0_i16; chunk.len()]))]
        } else {
            self.node.group.iter().map(|g| Arc::clone(chunk.rows.column(*g))).collect()
        };
        let keys = self.codec.encode(&columns)?;
        self.chunk_groups.clear();
        let first_new = self.table.len() as u32;
        for key in &keys {
            let (g, new) = self.table.insert(key.data());
            if new {
                self.add_group();
            }
            self.used[g as usize] = self.epoch;
            self.chunk_groups.push(g);
        }
        let new = self.table.len() as u32 - first_new;
        self.metrics.cache_hits.inc_by(chunk.len() as u64 - u64::from(new));
        self.load(first_new).await
    }

    fn add_group(&mut self) {
        self.slots.push_default();
        self.sets.iter_mut().for_each(|(_, s)| s.push_group());
        self.exists.push(false);
        self.written.push(0);
        self.used.push(self.epoch);
        self.dirty.push(false);
    }

    /// Reads groups `first..` from the state region.
    async fn load(&mut self, first: u32) -> Result<(), StreamError> {
        let end = self.table.len() as u32;
        if first == end {
            return Ok(());
        }
        let applied = self.regions.state.applied();
        // Before the first write of this process an empty region stays empty for all groups that are not cached.
        let empty = *self
            .state_is_empty
            .get_or_insert_with(|| self.regions.state.estimate(None, applied, &Pos::NotStarted).rows == 0);
        if empty {
            return Ok(());
        }
        let mut wanted: Vec<(Key, u32)> = (first..end).map(|g| (Key::from(self.table.key(g)), g)).collect();
        wanted.sort();
        let (keys, groups): (Vec<Key>, Vec<u32>) = wanted.into_iter().unzip();
        self.metrics.cache_reads.inc_by(keys.len() as u64);
        let columns = match &self.node.state {
            AggState::InView { columns } => columns.clone(),
            AggState::Own { .. } => (0..self.schema.fields().len()).collect(),
        };
        let found = self.regions.state.lookup(keys, KeyMatch::Whole, applied, Some(columns)).await?;
        for (row, which) in found.which.iter().enumerate() {
            let g = groups[*which as usize];
            self.slots.load(&self.plan, g, &found.rows, row);
            self.exists[g as usize] = true;
        }
        for (i, set) in &mut self.sets {
            set.load(found.rows.column(self.plan.extreme_column(*i)), &groups, &found.which)?;
        }
        Ok(())
    }

    /// Ends the epoch: what changed downstream, and what the own state regions have to store. `applied` is the newest epoch whose rows are in regions.
    pub(crate) async fn barrier(
        &mut self,
        epoch: Epoch,
        applied: Epoch,
        state: &mut Vec<StateWrite>,
    ) -> Result<Option<Chunk>, StreamError> {
        self.epoch = epoch.0;
        if self.is_global() && self.table.len() == 0 {
            self.add_global().await?;
        }
        self.settle_sets(epoch, applied, state).await?;
        let dirty = std::mem::take(&mut self.dirty_groups);
        for name in self.slots.settle(&self.plan, &dirty) {
            self.out_of_range(name)?;
        }
        let out = self.emit(&dirty)?;
        for g in &dirty {
            self.dirty[*g as usize] = false;
            self.written[*g as usize] = epoch.0;
        }
        let mut dirty = dirty;
        dirty.clear();
        self.dirty_groups = dirty;
        self.before = Slots::new(&self.plan);
        if let (Some(chunk), AggState::Own { region }) = (&out, &self.node.state) {
            state.push(StateWrite { region: region.id, chunk: stored(chunk, &region.schema.arrow())? });
        }
        self.evict(applied);
        let pending: usize = self.sets.iter().map(|(_, s)| s.pending_bytes()).sum();
        self.metrics.cache_bytes.set((self.size_bytes() + pending) as i64);
        Ok(out)
    }

    /// The global row is there from the first barrier on, also without input.
    async fn add_global(&mut self) -> Result<(), StreamError> {
        let keys = self.codec.encode(&[Arc::new(Int16Array::from(vec![0_i16]))])?;
        self.table.insert(keys.row(0).data());
        self.add_group();
        self.load(0).await?;
        if !self.exists[0] {
            self.dirty[0] = true;
            self.dirty_groups.push(0);
            if self.node.emit_before {
                self.before.push_copy(&self.slots, 0);
            }
        }
        Ok(())
    }

    async fn settle_sets(
        &mut self,
        epoch: Epoch,
        applied: Epoch,
        state: &mut Vec<StateWrite>,
    ) -> Result<(), StreamError> {
        for (i, set) in &mut self.sets {
            let (slots, rows) = (&self.slots, self.plan.rows);
            let is_empty = |g| rows.is_some_and(|r| slots.counter(r, g) == 0);
            let changed = set.barrier(epoch, applied, &self.table, &self.codec, is_empty).await?;
            self.metrics.cache_reads.inc_by(changed.reads);
            if let Some(values) = &changed.values {
                self.slots.set_extremes(*i, &changed.groups, values);
            }
            for g in changed.empty {
                self.slots.clear_extreme(*i, g);
            }
            let spec = self.node.minmax.get(self.plan.extremes[*i].call).and_then(Option::as_ref);
            if let (Some(chunk), Some(spec)) = (changed.stored, spec) {
                state.push(StateWrite { region: spec.id, chunk });
            }
        }
        Ok(())
    }

    /// The rows of changed groups, and `exists` as of this barrier.
    fn emit(&mut self, dirty: &[u32]) -> Result<Option<Chunk>, StreamError> {
        let (mut now, mut now_ops, mut old) = (Vec::new(), Vec::new(), Vec::new());
        let (mut pairs, mut singles) = (Vec::new(), Vec::new());
        for (place, g) in dirty.iter().enumerate() {
            let rows = self.plan.rows.map_or(1, |r| self.slots.counter(r, *g));
            if rows < 0 {
                self.metrics.inconsistent_rows.inc();
                let what = format!("a group has {rows} rows");
                return Err(StreamError::Inconsistent { operator: "hash agg", what });
            }
            let after = rows > 0 || self.is_global();
            let before = std::mem::replace(&mut self.exists[*g as usize], after);
            match (before, after) {
                (false, false) => {}
                (true, true) if self.node.emit_before => {
                    pairs.push((old.len() as u32, now.len() as u32));
                    old.push(place as u32);
                    now.push(*g);
                    now_ops.push(Op::UpdateInsert);
                }
                (true, false) if self.node.emit_before => {
                    singles.push((true, old.len() as u32, Op::Delete));
                    old.push(place as u32);
                }
                (b, a) => {
                    let op = if !a {
                        Op::Delete
                    } else if b {
                        Op::UpdateInsert
                    } else {
                        Op::Insert
                    };
                    singles.push((false, now.len() as u32, op));
                    now.push(*g);
                    now_ops.push(op);
                }
            }
        }
        let after = self.rows_of(&self.slots, &now, &now)?;
        if !self.node.emit_before {
            return Ok((!now.is_empty()).then(|| Chunk::new(after, now_ops)));
        }
        let old_groups: Vec<u32> = old.iter().map(|place| dirty[*place as usize]).collect();
        let before = self.rows_of(&self.before, &old, &old_groups)?;
        self.with_pairs(&before, &after, &pairs, &singles)
    }

    /// Output rows from places of `slots`; `groups` are the numbers that give their keys.
    fn rows_of(&self, slots: &Slots, places: &[u32], groups: &[u32]) -> Result<RecordBatch, StreamError> {
        let mut columns = self.codec.decode(groups.iter().map(|g| self.table.key(*g)))?;
        columns.extend(slots.emit(&self.plan, places)?);
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// Joins old and new rows to pairs; pairs with equal sides are left out.
    fn with_pairs(
        &self,
        before: &RecordBatch,
        after: &RecordBatch,
        pairs: &[(u32, u32)],
        singles: &[(bool, u32, Op)],
    ) -> Result<Option<Chunk>, StreamError> {
        let fields = self.schema.fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
        let compare = RowConverter::new(fields)?;
        let (b, a) = (compare.convert_columns(before.columns())?, compare.convert_columns(after.columns())?);
        let offset = before.num_rows() as u32;
        let (mut places, mut ops) = (Vec::new(), Vec::new());
        for (old, new) in pairs.iter().filter(|(old, new)| b.row(*old as usize) != a.row(*new as usize)) {
            places.extend([*old, offset + new]);
            ops.extend([Op::UpdateDelete, Op::UpdateInsert]);
        }
        for (is_old, place, op) in singles {
            places.push(if *is_old { *place } else { offset + place });
            ops.push(*op);
        }
        if ops.is_empty() {
            return Ok(None);
        }
        let both = concat_batches(&self.schema, [before, after])?;
        Ok(Some(Chunk::new(take_record_batch(&both, &UInt32Array::from(places))?, ops)))
    }

    fn size_bytes(&self) -> usize {
        let per_group = Slots::group_bytes(&self.plan) + 2 * 8 + 2;
        self.table.size_bytes()
            + self.slots.len() * per_group
            + self.sets.iter().map(|(_, s)| s.cache_bytes()).sum::<usize>()
    }

    /// Forgets the groups that were used longest ago until the cache is three quarters full; only groups whose last write is in the region.
    fn evict(&mut self, applied: Epoch) {
        let size = self.size_bytes();
        if size <= self.cache_bytes || self.is_global() {
            return;
        }
        let clean = |g: usize| self.written[g] <= applied.0;
        let mut ages: Vec<u64> = (0..self.table.len()).filter(|g| clean(*g)).map(|g| self.used[g]).collect();
        if ages.is_empty() {
            return;
        }
        let keep_share = (self.cache_bytes as f64 * 0.75 / size as f64).clamp(0.0, 1.0);
        let evict = self.table.len() - (self.table.len() as f64 * keep_share) as usize;
        let nth = evict.clamp(1, ages.len()) - 1;
        let (_, oldest_kept, _) = ages.select_nth_unstable(nth);
        let limit = *oldest_kept;
        let keep: Vec<bool> = (0..self.table.len()).map(|g| !clean(g) || self.used[g] > limit).collect();
        // What leaves may be written by now: from here on every unknown group is read.
        self.state_is_empty = Some(false);
        let mut next = 0;
        let numbers: Vec<Option<u32>> = keep
            .iter()
            .map(|k| {
                k.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        self.table.retain(&keep);
        self.slots.retain(&keep);
        for (_, s) in &mut self.sets {
            s.renumber(&numbers);
        }
        pack(&mut self.exists, &keep);
        pack(&mut self.written, &keep);
        pack(&mut self.used, &keep);
        pack(&mut self.dirty, &keep);
        tracing::debug!(job = %self.metrics.name, kept = next, evicted = keep.len() as u32 - next, "groups evicted");
    }
}

fn pack<T>(values: &mut Vec<T>, keep: &[bool]) {
    let mut it = keep.iter();
    values.retain(|_| *it.next().unwrap_or(&false));
}

/// Output rows as the state region stores them: no old rows, the region's schema.
fn stored(chunk: &Chunk, schema: &SchemaRef) -> Result<Chunk, StreamError> {
    let keep = chunk.ops.iter().map(|op| Some(*op != Op::UpdateDelete)).collect();
    let chunk = chunk.filter(&keep)?;
    let rows = RecordBatch::try_new(Arc::clone(schema), chunk.rows.columns().to_vec())?;
    Ok(Chunk::new(rows, chunk.ops))
}
