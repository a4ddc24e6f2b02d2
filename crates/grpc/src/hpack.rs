//! Header compression (RFC 7541). Input is decoded completely, with dynamic table and Huffman code; output is
//! literal, so that no state is kept about a peer.

mod huffman;
mod table;

use table::{Dynamic, Entry, STATIC, of_all};

/// The default size of a peer's table. Only a peer that needs none is told otherwise.
pub(crate) const TABLE: usize = 4096;

/// A header block that cannot be decoded. Its sender has another table than we have, so the connection is
/// lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a header block {0}")]
pub(crate) struct Malformed(&'static str);

const ENDS_EARLY: Malformed = Malformed("ends too early");

/// Decodes the header blocks of one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    dynamic: Dynamic,
    /// Buffers for decoded Huffman strings.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// Decodes a block and passes on its fields in order.
    pub(crate) fn decode(
        &mut self,
        block: &[u8],
        field: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let mut reader = Reader { bytes: block };
        let mut begun = false;
        while let Some(first) = reader.bytes.first().copied() {
            if first & 0xe0 == 0x20 {
                let size = reader.integer(5)?;
                if begun || size > TABLE {
                    return Err(Malformed("changes the table's size where, or to what, it may not"));
                }
                self.dynamic.resize(size);
                continue;
            }
            begun = true;
            if first & 0x80 != 0 {
                let (name, value) = entry(&self.dynamic, reader.integer(7)?)?;
                field(name, value);
                continue;
            }
            // Added to the table (6 bits of the name's index), not added, or never added (4 bits).
            let remember = first & 0x40 != 0;
            let index = reader.integer(if remember { 6 } else { 4 })?;
            let name = match index {
                0 => reader.string(&mut self.name)?,
                index => entry(&self.dynamic, index)?.0,
            };
            let value = reader.string(&mut self.value)?;
            field(name, value);
            if remember {
                // Copied first: making room may remove the entry with the name.
                let entry = Entry::new(name, value);
                self.dynamic.insert(entry);
            }
        }
        Ok(())
    }

    /// Resets it for another connection.
    pub(crate) fn clear(&mut self) {
        self.dynamic = Dynamic::default();
    }
}

/// The field at an index of both tables, the static one first.
fn entry(dynamic: &Dynamic, index: usize) -> Result<(&[u8], &[u8]), Malformed> {
    const NONE: Malformed = Malformed("uses an entry of the table that there is not");
    let place = index.checked_sub(1).ok_or(NONE)?;
    let found = place.checked_sub(STATIC).map_or_else(|| of_all(place), |place| dynamic.get(place));
    found.ok_or(NONE)
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.bytes.split_first().ok_or(ENDS_EARLY)?;
        self.bytes = rest;
        Ok(*first)
    }

    /// A number that starts in the lowest bits of a byte (section 5.1).
    fn integer(&mut self, prefix: u32) -> Result<usize, Malformed> {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed("has a number that is too large"))
    }

    /// A string: in place, or in `decoded` if it is coded.
    fn string<'s>(&mut self, decoded: &'s mut Vec<u8>) -> Result<&'s [u8], Malformed>
    where
        'a: 's,
    {
        let coded = self.bytes.first().is_some_and(|first| first & 0x80 != 0);
        let length = self.integer(7)?;
        let (text, rest) = self.bytes.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.bytes = rest;
        if !coded {
            return Ok(text);
        }
        decoded.clear();
        huffman::decode(text, decoded)
            .ok_or(Malformed("has a string that is not Huffman-coded as it says"))?;
        Ok(decoded)
    }
}

/// A field of the static table.
pub(crate) fn indexed(block: &mut Vec<u8>, index: u8) {
    block.push(0x80 | index);
}

/// A field whose name is in the static table, not added to the dynamic table.
pub(crate) fn named(block: &mut Vec<u8>, index: u8, value: &str) {
    integer(block, 4, usize::from(index));
    string(block, value);
}

/// A field that is not added to the dynamic table.
pub(crate) fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    string(block, name);
    string(block, value);
}

fn string(block: &mut Vec<u8>, text: &str) {
    integer(block, 7, text.len());
    block.extend_from_slice(text.as_bytes());
}

/// A number with a prefix of this many bits, and no bit set before it.
fn integer(block: &mut Vec<u8>, prefix: u32, value: usize) {
    let mask = (1_usize << prefix) - 1;
    let low = |value: usize| value.to_le_bytes()[0];
    if value < mask {
        block.push(low(value));
        return;
    }
    block.push(low(mask));
    let mut rest = value - mask;
    while rest >= 0x80 {
        block.push(low(rest) | 0x80);
        rest >>= 7;
    }
    block.push(low(rest));
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
