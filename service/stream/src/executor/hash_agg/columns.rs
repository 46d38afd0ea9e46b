//! Accumulator arrays of one call: exact sums, float sums, extremes. Place g belongs to group g.
//!
//! An exact sum has 192 bits, which no number of rows can overflow: whether a value is out of range depends on the rows that are there, not on the way to
//! them. A float sum is kept as two halves that are renormalised after each step (the compensation of Knuth's two-sum); NaN and infinities are counted
//! apart, so are summands near the end of the range, and a sum without finite arguments is exactly 0: so retracting what was added leads back to the
//! start within rounding of the second half.

use arrow::{
    array::{Array, ArrayRef},
    datatypes::i256,
    error::ArrowError,
};

use super::scalar;

#[derive(Debug, Default, Clone)]
pub(super) struct SumColumn {
    /// The low 128 bits.
    pub(super) low: Vec<i128>,
    /// The sum is `carry * 2^128 + low`.
    pub(super) carry: Vec<i64>,
    /// It did not fit its column at the last barrier.
    pub(super) over: Vec<bool>,
}

impl SumColumn {
    pub(super) fn add(&mut self, g: usize, x: i128) {
        let (sum, overflow) = self.low[g].overflowing_add(x);
        self.low[g] = sum;
        if overflow {
            self.carry[g] += if x > 0 { 1 } else { -1 };
        }
    }

    /// The sum, if it has 128 bits.
    pub(super) fn narrow(&self, g: usize) -> Option<i128> {
        (self.carry[g] == 0).then_some(self.low[g])
    }

    /// The sum. Carries of more than 64 bits would need more rows than there can be.
    pub(super) fn wide(&self, g: usize) -> i256 {
        let low = i256::from_i128(self.low[g]);
        // The high half is the carry, less one where the low half was extended by its sign.
        let high = i128::from(self.carry[g]) - i128::from(self.low[g] < 0);
        i256::from_parts(low.to_parts().0, high)
    }

    pub(super) fn bytes(&self, g: usize) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.carry[g].to_be_bytes());
        bytes[8..].copy_from_slice(&self.low[g].to_be_bytes());
        bytes
    }

    /// Reverse of [`SumColumn::bytes`].
    pub(super) fn set_bytes(&mut self, g: usize, bytes: &[u8]) -> Option<()> {
        let (carry, low) = bytes.split_first_chunk::<8>()?;
        (self.carry[g], self.low[g]) = (i64::from_be_bytes(*carry), i128::from_be_bytes(low.try_into().ok()?));
        Some(())
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct FloatColumn {
    pub(super) hi: Vec<f64>,
    pub(super) lo: Vec<f64>,
    /// The same of summands from [`HUGE`] on, divided by [`SCALE`].
    pub(super) huge: Vec<[f64; 2]>,
    /// NaN, +infinity, -infinity.
    pub(super) special: [Vec<i64>; 3],
}

/// 2^960. Below it 2^63 summands stay finite, and so do those from it on when divided by [`SCALE`].
const HUGE: f64 = f64::from_bits((1023 + 960) << 52);
/// 2^64.
const SCALE: f64 = 18_446_744_073_709_551_616.0;

/// Adds `x` to the sum of two halves.
fn add(hi: &mut f64, lo: &mut f64, x: f64) {
    let t = *hi + x;
    let error = if hi.abs() >= x.abs() { (*hi - t) + x } else { (x - t) + *hi };
    let low = *lo + error;
    *hi = t + low;
    *lo = low - (*hi - t);
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
        } else if v.abs() < HUGE {
            add(&mut self.hi[g], &mut self.lo[g], v * sign as f64);
        } else {
            let [hi, lo] = &mut self.huge[g];
            add(hi, lo, v * sign as f64 / SCALE);
        }
    }

    pub(super) fn clear(&mut self, g: usize) {
        (self.hi[g], self.lo[g], self.huge[g]) = (0.0, 0.0, [0.0; 2]);
    }

    /// What the columns of the halves do not have; almost always nothing.
    pub(super) fn bytes(&self, g: usize) -> Option<[u8; 16]> {
        let [hi, lo] = self.huge[g];
        let bytes = (u128::from(hi.to_bits()) << 64) | u128::from(lo.to_bits());
        (bytes != 0).then(|| bytes.to_be_bytes())
    }

    /// Reverse of [`FloatColumn::bytes`].
    pub(super) fn set_bytes(&mut self, g: usize, bytes: &[u8]) -> Option<()> {
        let bits = u128::from_be_bytes(bytes.try_into().ok()?);
        self.huge[g] = [f64::from_bits((bits >> 64) as u64), f64::from_bits(bits as u64)];
        Some(())
    }

    pub(super) fn value(&self, g: usize) -> f64 {
        let [nan, pos, neg] = [0, 1, 2].map(|k| self.special[k][g] != 0);
        match (nan, pos, neg) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ if self.huge[g] == [0.0; 2] => self.hi[g],
            _ => (self.huge[g][0] + self.hi[g] / SCALE) * SCALE,
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
