//! A hash that is the same in every process and on every run.
//!
//! Replay matters more here than resistance to chosen keys: the cluster generates container IDs and claims,
//! and a table that differed from run to run could not be reproduced from a seed.

use std::hash::{Hash, Hasher};

/// The hash of a key.
pub(crate) fn hash_of<K: Hash + ?Sized>(key: &K) -> u64 {
    let mut hasher = FixedHasher(0x2545_f491_4f6c_dd1d);
    key.hash(&mut hasher);
    hasher.finish()
}

/// Multiplies each word in and folds the upper half of the product onto the lower.
struct FixedHasher(u64);

impl FixedHasher {
    fn mix(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, 0x9e37_79b9_7f4a_7c15);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "both halves of the product are used")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for FixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells "a" from "a\0", and never leaves the word zero.
        self.mix(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56) ^ 1);
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    fn write_u128(&mut self, value: u128) {
        self.mix(value as u64);
        self.mix((value >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.0, 0xd6e8_feb8_6659_fd93)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_key_never_changes() {
        assert_eq!(hash_of(&7_u128), hash_of(&7_u128));
        assert_ne!(hash_of("a"), hash_of("a\0"));
        assert_ne!(hash_of(&("a", "bc")), hash_of(&("ab", "c")));
    }

    #[test]
    fn neighbouring_keys_spread_over_a_table() {
        let mut buckets = [0_u32; 256];
        for key in 0..65_536_u128 {
            buckets[(hash_of(&key) & 255) as usize] += 1;
            buckets[(hash_of(&key) >> 56) as usize] += 1;
        }
        assert!(buckets.iter().all(|count| (400..630).contains(count)), "{buckets:?}");
    }
}
