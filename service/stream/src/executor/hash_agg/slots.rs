//! The accumulators of all cached groups, one array per accumulator.
//!
//! How values are summed stands in `columns`. Not here: which group a row belongs to, and the value sets of a
//! retractable min or max.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, BinaryArray, Float32Array, Float64Array, Int64Array, RecordBatch, cast::AsArray},
    datatypes::{DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, i256},
    error::ArrowError,
};

use super::{
    columns::{ExtremeColumn, FloatColumn, SumColumn},
    scalar,
    slot_plan::{ExactSum, SlotPlan, Source},
};

/// Accumulator arrays; place g belongs to group g.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    counters: Vec<Vec<i64>>,
    sums: Vec<SumColumn>,
    floats: Vec<FloatColumn>,
    extremes: Vec<ExtremeColumn>,
    len: usize,
}

/// Reused buffers for one chunk's arguments.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ints: Vec<i128>,
    floats: Vec<f64>,
}

/// The rows of a chunk: group and sign (+1 insert, -1 delete) of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) groups: &'a [u32],
    pub(crate) signs: &'a [i64],
    pub(crate) batch: &'a RecordBatch,
}

impl Slots {
    pub(crate) fn new(plan: &SlotPlan) -> Self {
        Self {
            counters: vec![Vec::new(); plan.counters.len()],
            sums: vec![SumColumn::default(); plan.sums.len()],
            floats: vec![FloatColumn::default(); plan.floats.len()],
            extremes: plan
                .extremes
                .iter()
                .map(|e| if e.int { ExtremeColumn::Ints(Vec::new()) } else { ExtremeColumn::Bytes(Vec::new()) })
                .collect(),
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes per group, without the text of extremes.
    pub(crate) fn group_bytes(plan: &SlotPlan) -> usize {
        plan.counters.len() * 8 + plan.sums.len() * 25 + plan.floats.len() * 56 + plan.extremes.len() * 32
    }

    pub(crate) fn counter(&self, i: usize, group: u32) -> i64 {
        self.counters[i][group as usize]
    }

    pub(crate) fn push_default(&mut self) {
        self.len += 1;
        self.counters.iter_mut().for_each(|c| c.push(0));
        for s in &mut self.sums {
            s.low.push(0);
            s.carry.push(0);
            s.over.push(false);
        }
        for f in &mut self.floats {
            f.hi.push(0.0);
            f.lo.push(0.0);
            f.huge.push([0.0; 2]);
            f.special.iter_mut().for_each(|c| c.push(0));
        }
        for e in &mut self.extremes {
            match e {
                ExtremeColumn::Ints(v) => v.push(None),
                ExtremeColumn::Bytes(v) => v.push(None),
            }
        }
    }

    /// Appends a copy of what `from` has at `group`.
    pub(crate) fn push_copy(&mut self, from: &Slots, group: u32) {
        let g = group as usize;
        self.len += 1;
        for (to, from) in self.counters.iter_mut().zip(&from.counters) {
            to.push(from[g]);
        }
        for (to, from) in self.sums.iter_mut().zip(&from.sums) {
            to.low.push(from.low[g]);
            to.carry.push(from.carry[g]);
            to.over.push(from.over[g]);
        }
        for (to, from) in self.floats.iter_mut().zip(&from.floats) {
            to.hi.push(from.hi[g]);
            to.lo.push(from.lo[g]);
            to.huge.push(from.huge[g]);
            for (to, from) in to.special.iter_mut().zip(&from.special) {
                to.push(from[g]);
            }
        }
        for (to, from) in self.extremes.iter_mut().zip(&from.extremes) {
            match (to, from) {
                (ExtremeColumn::Ints(to), ExtremeColumn::Ints(from)) => to.push(from[g]),
                (ExtremeColumn::Bytes(to), ExtremeColumn::Bytes(from)) => to.push(from[g].clone()),
                _ => unreachable!("both were made from one plan"),
            }
        }
    }

    pub(crate) fn retain(&mut self, keep: &[bool]) {
        fn pack<T>(v: &mut Vec<T>, keep: &[bool]) {
            let mut it = keep.iter();
            v.retain(|_| *it.next().unwrap_or(&false));
        }
        self.counters.iter_mut().for_each(|c| pack(c, keep));
        for s in &mut self.sums {
            pack(&mut s.low, keep);
            pack(&mut s.carry, keep);
            pack(&mut s.over, keep);
        }
        for f in &mut self.floats {
            pack(&mut f.hi, keep);
            pack(&mut f.lo, keep);
            pack(&mut f.huge, keep);
            f.special.iter_mut().for_each(|c| pack(c, keep));
        }
        for e in &mut self.extremes {
            match e {
                ExtremeColumn::Ints(v) => pack(v, keep),
                ExtremeColumn::Bytes(v) => pack(v, keep),
            }
        }
        self.len = keep.iter().filter(|k| **k).count();
    }

    /// Reads the accumulators of `group` from row `row` of stored output columns. `None` if they are not readable.
    pub(crate) fn load(&mut self, plan: &SlotPlan, group: u32, stored: &RecordBatch, row: usize) -> Option<()> {
        let g = group as usize;
        let over = |column: usize| {
            let c = stored.column(column);
            c.is_valid(row).then(|| c.as_binary::<i32>().value(row))
        };
        let int = |column: usize| {
            let c = stored.column(column);
            if c.is_null(row) { 0 } else { c.as_primitive::<Int64Type>().value(row) }
        };
        for (values, c) in self.counters.iter_mut().zip(&plan.counters) {
            values[g] = int(c.column);
        }
        for (column, s) in self.sums.iter_mut().zip(&plan.sums) {
            let array = stored.column(s.column);
            let value = (!array.is_null(row)).then(|| match array.data_type() {
                DataType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value(row),
                DataType::Int32 => i128::from(array.as_primitive::<Int32Type>().value(row)),
                _ => i128::from(array.as_primitive::<Int64Type>().value(row)),
            });
            (column.low[g], column.carry[g]) = (value.unwrap_or(0), 0);
            if let Some(bytes) = over(s.over) {
                column.set_bytes(g, bytes)?;
                column.over[g] = !s.avg;
            }
        }
        for (column, f) in self.floats.iter_mut().zip(&plan.floats) {
            let float = |c: usize| {
                let c = stored.column(c);
                if c.is_null(row) { 0.0 } else { c.as_primitive::<Float64Type>().value(row) }
            };
            column.hi[g] = float(f.columns[0]);
            column.lo[g] = float(f.columns[1]);
            for k in 0..3 {
                column.special[k][g] = int(f.columns[k + 2]);
            }
            if let Some(bytes) = over(f.over) {
                column.set_bytes(g, bytes)?;
            }
        }
        for (column, e) in self.extremes.iter_mut().zip(&plan.extremes) {
            column.set(g, stored.column(e.column), row);
        }
        Some(())
    }

    /// Adds the rows of a chunk.
    pub(crate) fn update(&mut self, plan: &SlotPlan, rows: Rows<'_>, scratch: &mut Scratch) -> Result<(), ArrowError> {
        let Rows { groups, signs, batch } = rows;
        for (values, c) in self.counters.iter_mut().zip(&plan.counters) {
            let nulls = c.arg.and_then(|a| batch.column(a).nulls().cloned());
            match nulls {
                None => groups.iter().zip(signs).for_each(|(g, s)| values[*g as usize] += s),
                Some(n) => {
                    for (i, g) in groups.iter().enumerate() {
                        if n.is_valid(i) {
                            values[*g as usize] += signs[i];
                        }
                    }
                }
            }
        }
        for (column, s) in self.sums.iter_mut().zip(&plan.sums) {
            let array = batch.column(s.arg);
            scalar::ints(array.as_ref(), &mut scratch.ints)?;
            for (i, g) in groups.iter().enumerate() {
                if array.is_valid(i) {
                    column.add(*g as usize, scratch.ints[i] * i128::from(signs[i]));
                }
            }
        }
        for (column, f) in self.floats.iter_mut().zip(&plan.floats) {
            let array = batch.column(f.arg);
            scalar::floats(array.as_ref(), &mut scratch.floats)?;
            for (i, g) in groups.iter().enumerate() {
                if array.is_valid(i) {
                    column.add(*g as usize, scratch.floats[i], signs[i]);
                }
            }
        }
        for (column, e) in self.extremes.iter_mut().zip(&plan.extremes).filter(|(_, e)| !e.from_set) {
            column.update(groups, batch.column(e.arg), e.max, &mut scratch.ints)?;
        }
        Ok(())
    }

    /// Ends an epoch for these groups. Returns the names of sums that do not fit their column, and did at the last barrier.
    pub(crate) fn settle(&mut self, plan: &SlotPlan, groups: &[u32]) -> Vec<String> {
        let mut out_of_range = Vec::new();
        for (column, s) in self.sums.iter_mut().zip(&plan.sums).filter(|(_, s)| !s.avg) {
            for g in groups {
                let g = *g as usize;
                let over = !column.narrow(g).is_some_and(|v| fits(&s.limit, v));
                if over && !column.over[g] {
                    out_of_range.push(s.name.clone());
                }
                column.over[g] = over;
            }
        }
        for (column, f) in self.floats.iter_mut().zip(&plan.floats) {
            for g in groups {
                let g = *g as usize;
                if self.counters[f.non_null][g] == column.special.iter().map(|c| c[g]).sum::<i64>() {
                    column.clear(g);
                }
            }
        }
        out_of_range
    }

    /// Sets extremes of `groups` from value `i` of `values` each.
    pub(crate) fn set_extremes(&mut self, extreme: usize, groups: &[u32], values: &ArrayRef) {
        for (i, g) in groups.iter().enumerate() {
            self.extremes[extreme].set(*g as usize, values, i);
        }
    }

    pub(crate) fn clear_extreme(&mut self, extreme: usize, group: u32) {
        self.extremes[extreme].clear(group as usize);
    }

    /// The output columns after the group columns, for these groups.
    pub(crate) fn emit(&self, plan: &SlotPlan, groups: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
        plan.sources.iter().zip(&plan.types).map(|(s, t)| self.emit_one(plan, *s, t, groups)).collect()
    }

    fn emit_one(&self, plan: &SlotPlan, source: Source, t: &DataType, groups: &[u32]) -> Result<ArrayRef, ArrowError> {
        let gs = || groups.iter().map(|g| *g as usize);
        Ok(match source {
            Source::Counter(i) => {
                let c = &self.counters[i];
                Arc::new(gs().map(|g| c[g]).collect::<Int64Array>())
            }
            Source::Sum(i) | Source::SumState(i) => {
                let n = &self.counters[plan.sums[i].non_null];
                let c = &self.sums[i];
                let limit = &plan.sums[i].limit;
                let shown = |g: usize| c.narrow(g).filter(|v| n[g] != 0 && fits(limit, *v));
                scalar::from_ints(t, &gs().map(shown).collect::<Vec<_>>())?
            }
            Source::SumOver(i) => {
                let (c, limit) = (&self.sums[i], &plan.sums[i].limit);
                let hidden = |g: usize| (!c.narrow(g).is_some_and(|v| fits(limit, v))).then(|| c.bytes(g));
                Arc::new(gs().map(hidden).collect::<BinaryArray>())
            }
            Source::FloatOver(i) => Arc::new(gs().map(|g| self.floats[i].bytes(g)).collect::<BinaryArray>()),
            Source::Avg(i) => self.emit_avg(&plan.sums[i], &self.sums[i], t, groups)?,
            Source::FloatSum(i) | Source::FloatAvg(i) => {
                let n = &self.counters[plan.floats[i].non_null];
                let avg = matches!(source, Source::FloatAvg(_));
                let value = |g: usize| {
                    let v = self.floats[i].value(g);
                    (n[g] != 0).then(|| if avg { v / n[g] as f64 } else { v })
                };
                match t {
                    DataType::Float32 => Arc::new(gs().map(|g| value(g).map(|v| v as f32)).collect::<Float32Array>()),
                    _ => Arc::new(gs().map(value).collect::<Float64Array>()),
                }
            }
            Source::FloatPart(i, 0) => Arc::new(gs().map(|g| self.floats[i].hi[g]).collect::<Float64Array>()),
            Source::FloatPart(i, 1) => Arc::new(gs().map(|g| self.floats[i].lo[g]).collect::<Float64Array>()),
            Source::FloatPart(i, k) => Arc::new(gs().map(|g| self.floats[i].special[k - 2][g]).collect::<Int64Array>()),
            Source::Extreme(i) => match &self.extremes[i] {
                ExtremeColumn::Ints(v) => scalar::from_ints(t, &gs().map(|g| v[g]).collect::<Vec<_>>())?,
                ExtremeColumn::Bytes(v) => scalar::from_bytes(t, &gs().map(|g| v[g].as_deref()).collect::<Vec<_>>())?,
            },
        })
    }

    /// Decimal averages are cut towards zero at the output's scale, as the batch engine does.
    fn emit_avg(&self, s: &ExactSum, c: &SumColumn, t: &DataType, groups: &[u32]) -> Result<ArrayRef, ArrowError> {
        let n = &self.counters[s.non_null];
        let gs = groups.iter().map(|g| *g as usize);
        if let DataType::Decimal128(_, to) = t {
            let factor = 10_i128.checked_pow(u32::from((to - s.scale).unsigned_abs()));
            let avg = |g: usize| match c.narrow(g).and_then(|sum| sum.checked_mul(factor?)) {
                Some(scaled) => Some(scaled / i128::from(n[g])),
                None => {
                    let scaled = c.wide(g).checked_mul(i256::from_i128(factor?))?;
                    scaled.checked_div(i256::from_i128(i128::from(n[g])))?.to_i128()
                }
            };
            let values: Vec<_> = gs.map(|g| (n[g] != 0).then(|| avg(g)).flatten().filter(|v| fits(t, *v))).collect();
            return scalar::from_ints(t, &values);
        }
        let unit = 10_f64.powi(i32::from(s.scale));
        let sum = |g: usize| c.carry[g] as f64 * 2_f64.powi(128) + c.low[g] as f64;
        let avg = |g: usize| (n[g] != 0).then(|| sum(g) / unit / n[g] as f64);
        Ok(Arc::new(gs.map(avg).collect::<Float64Array>()))
    }
}

/// Whether a sum can be shown in a column of this type.
fn fits(t: &DataType, v: i128) -> bool {
    match t {
        DataType::Int32 => i32::try_from(v).is_ok(),
        DataType::Int64 => i64::try_from(v).is_ok(),
        DataType::Decimal128(p, _) => v.unsigned_abs() < 10_u128.pow(u32::from(*p)),
        _ => true,
    }
}
