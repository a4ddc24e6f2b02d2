//! Small changes to known input: what a crash, a bad disk or a bad day makes of it.

use tenure_handles::{Entropy, SeededEntropy};

/// Changes that follow from a seed.
#[derive(Debug)]
pub struct Changes {
    chance: SeededEntropy,
}

/// What breaks those who read text, numbers or lengths.
const NASTY: [&[u8]; 24] = [
    b"",
    b"\0",
    b"\n\n",
    b"=",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xf0\x9f\xa6\x80",
    b"\"",
    b"\\u0000",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"null",
    b"-0",
    b"1e999",
    b"99999999999999999999999999",
    b"-1",
    b"4294967296",
    b"18446744073709551615",
    b"/../../",
    b"%s%n",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"TENUREJ",
];

impl Changes {
    /// The changes of this seed.
    pub fn new(seed: u64) -> Self {
        Self { chance: SeededEntropy::new(seed) }
    }

    /// A few changes to `input`, with pieces of `other` in it.
    pub fn apply(&self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(changed.len() + 1);
            let length = self.below((changed.len() - at).min(16) + 1);
            match self.below(7) {
                0 => changed.truncate(at),
                1 => drop(changed.drain(at..at + length)),
                2 => {
                    let piece = NASTY[self.below(NASTY.len())];
                    drop(changed.splice(at..at, piece.iter().copied()));
                }
                3 => {
                    let piece = NASTY[self.below(NASTY.len())];
                    drop(changed.splice(at..at + length, piece.iter().copied()));
                }
                4 => {
                    let start = self.below(other.len() + 1);
                    let piece = &other[start..start + self.below((other.len() - start).min(64) + 1)];
                    drop(changed.splice(at..at + length, piece.iter().copied()));
                }
                5 => {
                    let piece = changed[at..at + length].repeat(1 + self.below(8));
                    drop(changed.splice(at..at, piece));
                }
                _ => {
                    if let Some(byte) = changed.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        changed
    }

    /// Which of so many comes next.
    pub fn below(&self, count: usize) -> usize {
        let count = u64::try_from(count.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.chance.next_u64() % count).unwrap_or(0)
    }
}
