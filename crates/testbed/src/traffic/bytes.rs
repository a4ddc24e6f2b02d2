//! An endless sequence of bytes that both ends of a connection know.

use std::fmt;

/// The bytes of one direction, from the first unused one.
///
/// Each byte depends on its position, and the sequence does not repeat: missing, duplicate or reordered bytes
/// are therefore as wrong as changed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    seed: u64,
    place: u64,
}

/// An unexpected byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strange {
    /// Its position, from the first byte of the connection.
    pub place: u64,
    /// The expected byte.
    pub expected: u8,
    /// The actual byte.
    pub found: u8,
}

impl Bytes {
    /// The sequence of this seed, from its start.
    pub fn new(seed: u64) -> Self {
        Self { seed, place: 0 }
    }

    /// How many were used.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// The next `count` bytes, without using them.
    pub fn next(&self, count: usize) -> Vec<u8> {
        (self.place..).take(count).map(|place| self.at(place)).collect()
    }

    /// Uses this many.
    pub fn advance(&mut self, count: usize) {
        self.place += count as u64;
    }

    /// Uses as many bytes as there are here, which must be equal.
    pub fn expect(&mut self, found: &[u8]) -> Result<(), Strange> {
        for (place, found) in (self.place..).zip(found) {
            let expected = self.at(place);
            if expected != *found {
                return Err(Strange { place, expected, found: *found });
            }
        }
        self.advance(found.len());
        Ok(())
    }

    fn at(&self, place: u64) -> u8 {
        // Eight bytes of each step of SplitMix64.
        let step = (self.seed + place / 8).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (step ^ (step >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()[(place % 8) as usize]
    }
}

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} is {:#04x}, and {:#04x} was sent", self.place, self.found, self.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_lost_doubled_or_changed_is_strange() {
        let sent = Bytes::new(7).next(1000);
        let (mut lost, mut doubled, mut changed) = (sent.clone(), sent.clone(), sent.clone());
        lost.remove(500);
        doubled.insert(500, sent[500]);
        changed[500] ^= 1;
        for found in [lost, doubled, changed] {
            let strange = Bytes::new(7).expect(&found).unwrap_err();
            assert!((500..510).contains(&strange.place), "{strange}");
        }
        Bytes::new(7).expect(&sent).unwrap();
    }

    #[test]
    fn a_row_goes_on_where_it_was_left() {
        let mut sending = Bytes::new(3);
        let mut receiving = sending;
        for count in [1, 7, 8, 9, 1500, 0, 3] {
            let sent = sending.next(count);
            sending.advance(count);
            receiving.expect(&sent).unwrap();
        }
        assert_eq!((sending.place(), receiving.place()), (1528, 1528));
    }
}
