//! Which partition a key belongs to: the murmur2 of the Java client, bit for bit, so that our topics are co-partitioned with those of other clients.
//!
//! Algorithm: MurmurHash2 of 32 bits by Austin Appleby with the seed of the Java client (0x9747b28c).

const SEED: u32 = 0x9747_b28c;
const M: u32 = 0x5bd1_e995;
const R: u32 = 24;

/// `(murmur2(key) & 0x7fffffff) % partitions`, as the default partitioner of the Java client does for records with a key.
///
/// # Panics
/// If `partitions` is not positive.
pub fn partition_for_key(key: &[u8], partitions: i32) -> i32 {
    assert!(partitions > 0, "a topic has at least one partition");
    ((murmur2(key) & 0x7fff_ffff) % partitions as u32) as i32
}

/// The hash as the Java client computes it; Java prints it as a signed number.
pub fn murmur2(key: &[u8]) -> u32 {
    let mut h = SEED ^ key.len() as u32;
    let (words, tail) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    if !tail.is_empty() {
        for (i, b) in tail.iter().enumerate() {
            h ^= u32::from(*b) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h = (h ^ (h >> 13)).wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_the_java_client() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }

    #[test]
    fn partitions_are_in_range() {
        for i in 0..1_000_u32 {
            assert!((0..7).contains(&partition_for_key(&i.to_be_bytes(), 7)));
        }
        assert_eq!(partition_for_key(b"anything", 1), 0);
        assert_eq!(partition_for_key(b"foobar", 16), ((-790_332_482_i32 & 0x7fff_ffff) % 16));
    }
}
