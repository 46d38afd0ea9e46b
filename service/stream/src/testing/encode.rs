//! Records as text, for reading them back in a test.

use arrow::array::RecordBatch;
use millstream_types::{BinaryArena, BoxError, Encoder, testing::literal};

/// A row as `literal::print_rows` writes it.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextEncoder;

impl Encoder for TextEncoder {
    fn encode(&self, rows: &RecordBatch, out: &mut BinaryArena) -> Result<(), BoxError> {
        for i in 0..rows.num_rows() {
            out.push(Some(literal::print_rows(&rows.slice(i, 1)).as_bytes()));
        }
        Ok(())
    }
}

/// Any function of the key that spreads.
pub fn hash_partition(key: &[u8], partitions: i32) -> i32 {
    key.iter().fold(7_i32, |h, b| h.wrapping_mul(31).wrapping_add(i32::from(*b))).rem_euclid(partitions)
}
