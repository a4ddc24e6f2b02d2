//! Randomness, from the system or from a seed.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};

/// Returns random bits. Cheap to share.
pub trait Entropy: Send + Sync + 'static {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// 128 random bits.
    fn next_u128(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }

    /// A random (version 4) UUID in its usual text form.
    fn uuid(&self) -> String {
        let bits = (self.next_u128() & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl<E: Entropy + ?Sized> Entropy for Arc<E> {
    fn next_u64(&self) -> u64 {
        (**self).next_u64()
    }
}

/// The same bits for the same seed, for tests and the simulator.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    /// Randomness that replays from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }
}

/// Randomness seeded once from the operating system.
#[derive(Debug)]
pub struct SystemEntropy(SeededEntropy);

impl SystemEntropy {
    /// Asks the operating system for a seed; fails only if it has no source of randomness.
    pub fn new() -> std::io::Result<Self> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(std::io::Error::other)?;
        Ok(Self(SeededEntropy(Mutex::new(rng))))
    }
}

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_chance() {
        let (a, b) = (SeededEntropy::new(7), SeededEntropy::new(7));
        assert_eq!((a.next_u64(), a.uuid()), (b.next_u64(), b.uuid()));
        assert_ne!(SeededEntropy::new(7).next_u64(), SeededEntropy::new(8).next_u64());
    }

    #[test]
    fn a_uuid_is_of_version_4_and_of_the_usual_shape() {
        let uuid = SystemEntropy::new().unwrap().uuid();
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }
}
