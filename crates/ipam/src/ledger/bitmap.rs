//! Offsets as a base64 bitmap, for records with thousands of holds: node addresses (`NodeIPPool`).
//!
//! The bytes are those of one large number, highest byte first and without leading zero bytes; bit `n` stands
//! for offset `n`. OVN writes the same format for its own pools. The empty text means that nothing is held.
//! Reading also accepts leading zero bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::address::Address;
use crate::ledger::{Decoded, LedgerError, Offsets};

/// Offsets from here on are refused: a Kubernetes object can have about a megabyte, and a bitmap of this
/// length takes that.
pub const LIMIT: u128 = 1 << 22;

impl Offsets {
    /// Held addresses as a bitmap.
    pub fn encode_bitmap(&self, held: impl IntoIterator<Item = Address>) -> Result<String, LedgerError> {
        let offsets = self.encode_list(held)?;
        let Some(highest) = offsets.last() else { return Ok(String::new()) };
        let mut bytes = vec![0_u8; place(*highest)? + 1];
        for offset in &offsets {
            bytes[place(*offset)?] |= 1 << (offset % 8);
        }
        bytes.reverse();
        Ok(STANDARD.encode(bytes))
    }

    /// Held addresses from a bitmap.
    pub fn decode_bitmap(&self, text: &str) -> Decoded<()> {
        let refuse = |error| Decoded { entries: Vec::new(), refused: vec![error] };
        let bytes = match STANDARD.decode(text) {
            Ok(bytes) => bytes,
            Err(error) => {
                let start = text.chars().take(32).collect();
                return refuse(LedgerError::NotABitmap { start, reason: error.to_string() });
            }
        };
        let leading_zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let bits = (bytes.len() - leading_zeros) as u128 * 8;
        if bits > LIMIT {
            return refuse(LedgerError::TooLong { offset: bits - 1 });
        }
        let bytes = bytes.iter().rev().zip((0_u128..).step_by(8));
        let offsets = bytes.flat_map(|(byte, first)| {
            (0..8_u128).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| first + bit)
        });
        self.decode_list(offsets)
    }
}

/// The index, from the lowest, of the byte with an offset's bit.
fn place(offset: u128) -> Result<usize, LedgerError> {
    let place = usize::try_from(offset / 8).ok().filter(|_| offset < LIMIT);
    place.ok_or(LedgerError::TooLong { offset })
}
