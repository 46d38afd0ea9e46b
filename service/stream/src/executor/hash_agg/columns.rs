//! Accumulator arrays of one call: exact sums, float sums, extremes. Place g belongs to group g.
//!
//! A float sum is kept as two halves that are renormalised after each step (the compensation of Knuth's two-sum); NaN and infinities are counted apart,
//! and a sum without finite arguments is exactly 0: so retracting what was added leads back to the start within rounding of the second half.

use arrow::{
    array::{Array, ArrayRef},
    error::ArrowError,
};

use super::scalar;

#[derive(Debug, Default, Clone)]
pub(super) struct SumColumn {
    pub(super) sums: Vec<i128>,
    /// Overflowed: null until the last argument has left.
    pub(super) poisoned: Vec<bool>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct FloatColumn {
    pub(super) hi: Vec<f64>,
    pub(super) lo: Vec<f64>,
    /// NaN, +infinity, -infinity.
    pub(super) special: [Vec<i64>; 3],
}

#[derive(Debug, Clone)]
pub(super) enum ExtremeColumn {
    Ints(Vec<Option<i128>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

impl FloatColumn {
    pub(super) fn add(&mut self, g: usize, v: f64, sign: i64) {
        if v.is_nan() {
            self.special[0][g] += sign;
        } else if v == f64::INFINITY {
            self.special[1][g] += sign;
        } else if v == f64::NEG_INFINITY {
            self.special[2][g] += sign;
        } else {
            let (x, hi) = (v * sign as f64, self.hi[g]);
            let t = hi + x;
            let error = if hi.abs() >= x.abs() { (hi - t) + x } else { (x - t) + hi };
            let lo = self.lo[g] + error;
            self.hi[g] = t + lo;
            self.lo[g] = lo - (self.hi[g] - t);
        }
    }

    pub(super) fn value(&self, g: usize) -> f64 {
        let [nan, pos, neg] = [0, 1, 2].map(|k| self.special[k][g] != 0);
        match (nan, pos, neg) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ => self.hi[g],
        }
    }
}

impl ExtremeColumn {
    pub(super) fn clear(&mut self, g: usize) {
        match self {
            ExtremeColumn::Ints(v) => v[g] = None,
            ExtremeColumn::Bytes(v) => v[g] = None,
        }
    }

    pub(super) fn set(&mut self, g: usize, array: &ArrayRef, row: usize) {
        let null = array.is_null(row);
        match self {
            ExtremeColumn::Ints(v) => {
                let mut one = Vec::with_capacity(1);
                let read = !null && scalar::ints(array.slice(row, 1).as_ref(), &mut one).is_ok();
                v[g] = if read { one.pop() } else { None };
            }
            ExtremeColumn::Bytes(v) => v[g] = (!null).then(|| scalar::bytes(array.as_ref(), row).to_vec()),
        }
    }

    pub(super) fn update(
        &mut self,
        groups: &[u32],
        array: &ArrayRef,
        max: bool,
        ints: &mut Vec<i128>,
    ) -> Result<(), ArrowError> {
        match self {
            ExtremeColumn::Ints(v) => {
                scalar::ints(array.as_ref(), ints)?;
                for (i, g) in groups.iter().enumerate().filter(|(i, _)| array.is_valid(*i)) {
                    let best = &mut v[*g as usize];
                    if best.is_none_or(|b| if max { ints[i] > b } else { ints[i] < b }) {
                        *best = Some(ints[i]);
                    }
                }
            }
            ExtremeColumn::Bytes(v) => {
                for (i, g) in groups.iter().enumerate().filter(|(i, _)| array.is_valid(*i)) {
                    let value = scalar::bytes(array.as_ref(), i);
                    match &mut v[*g as usize] {
                        Some(best) if (max && value > &best[..]) || (!max && value < &best[..]) => {
                            best.clear();
                            best.extend_from_slice(value);
                        }
                        Some(_) => {}
                        none => *none = Some(value.to_vec()),
                    }
                }
            }
        }
        Ok(())
    }
}
