//! Which keys a row group may hold: the split-block Bloom filter of the Parquet format over encoded keys, stored between the row groups, where other
//! Parquet readers pass it over. One per row group of keyed files, found by [`super::GroupMeta::filter`].
//!
//! For look-ups of whole keys only: most groups that a key could be in by its order do not hold it, and need not be decoded to know that.

use parquet::bloom_filter::Sbbf;

use crate::StorageError;

/// Share of absent keys that pass, at most.
const FALSE_POSITIVES: f64 = 0.01;

/// Bytes of a block of the filter.
const BLOCK: usize = 32;

#[derive(Debug)]
pub(super) struct FilterBuilder(Sbbf);

impl FilterBuilder {
    /// For about `keys` keys; with fewer it shrinks in the end.
    pub(super) fn new(keys: usize) -> Result<Self, StorageError> {
        let sized = Sbbf::new_with_ndv_fpp(keys.max(1) as u64, FALSE_POSITIVES);
        Ok(Self(sized.map_err(|e| StorageError::internal("size key filter", e))?))
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        self.0.insert(key);
    }

    pub(super) fn finish(mut self) -> Result<Vec<u8>, StorageError> {
        self.0.fold_to_target_fpp(FALSE_POSITIVES);
        let mut bytes = Vec::with_capacity(self.0.num_blocks() * BLOCK);
        self.0.write_bitset(&mut bytes).map_err(|e| StorageError::internal("write key filter", e))?;
        Ok(bytes)
    }
}

#[derive(Debug)]
pub(crate) struct KeyFilter {
    bits: Sbbf,
    bytes: usize,
}

impl KeyFilter {
    /// `None`: these bytes are no filter.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let whole = !bytes.is_empty() && bytes.len().is_multiple_of(BLOCK);
        whole.then(|| Self { bits: Sbbf::new(bytes), bytes: bytes.len() })
    }

    /// False: the group has no row of this key.
    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        self.bits.check(key)
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_lost_and_few_strangers_pass_also_when_the_filter_has_shrunk() {
        for keys in [1_u32, 100, 20_000] {
            let mut builder = FilterBuilder::new(131_072).unwrap();
            (0..keys).for_each(|k| builder.add(&k.to_be_bytes()));
            let bytes = builder.finish().unwrap();
            assert!(bytes.len() <= (keys as usize * 4).max(64), "{} bytes for {keys} keys", bytes.len());
            let filter = KeyFilter::from_bytes(&bytes).unwrap();
            assert!((0..keys).all(|k| filter.may_hold(&k.to_be_bytes())));
            let passed = (1_000_000..1_020_000_u32).filter(|k| filter.may_hold(&k.to_be_bytes())).count();
            assert!(passed < 600, "{passed} of 20000 strangers passed with {keys} keys");
        }
        assert!(KeyFilter::from_bytes(&[]).is_none() && KeyFilter::from_bytes(&[0; 33]).is_none());
    }
}
