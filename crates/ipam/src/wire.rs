//! Numbers as bytes: what snapshots are written with.

/// Appends a number in as few bytes as it needs, seven bits a byte, lowest first.
#[expect(clippy::cast_possible_truncation, reason = "takes the low seven bits each time")]
pub(crate) fn put(bytes: &mut Vec<u8>, number: impl Into<u128>) {
    let mut left: u128 = number.into();
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
}

/// Takes a number off the front; `None` if the bytes end within it, if it does not fit, or if it was written
/// in more bytes than it needs (so that equal content is equal bytes).
pub(crate) fn take<N: TryFrom<u128>>(bytes: &mut &[u8]) -> Option<N> {
    let mut number = 0_u128;
    for shift in (0..u128::BITS).step_by(7) {
        let byte = take_byte(bytes)?;
        let part = u128::from(byte & 0x7f);
        if part << shift >> shift != part || (byte == 0 && shift > 0) {
            return None;
        }
        number |= part << shift;
        if byte & 0x80 == 0 {
            return N::try_from(number).ok();
        }
    }
    None
}

/// Takes one byte off the front.
pub(crate) fn take_byte(bytes: &mut &[u8]) -> Option<u8> {
    bytes.split_off_first().copied()
}

/// Takes as many bytes off the front as a number before them says.
pub(crate) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len: usize = take(bytes)?;
    bytes.split_off(..len)
}

/// CRC-64/XZ: tells torn and damaged content from whole.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(u64::MAX, |crc, byte| TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)] ^ (crc >> 8))
}

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xc96c_5795_d787_0f42 } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_the_known_one() {
        assert_eq!(checksum(b"123456789"), 0x995d_c9bb_df19_39fa);
    }

    #[test]
    fn a_number_in_too_many_bytes_is_refused() {
        assert_eq!(take::<u128>(&mut [0x80, 0x00].as_slice()), None);
        assert_eq!(take::<u128>(&mut [0xff; 19].as_slice()), None);
        assert_eq!(take::<u8>(&mut [0x80, 0x02].as_slice()), None);
    }

    proptest! {
        #[test]
        fn a_number_comes_back(number: u128, shift in 0_u32..128) {
            let (mut bytes, number) = (Vec::new(), number >> shift);
            put(&mut bytes, number);
            prop_assert_eq!(take::<u128>(&mut bytes.as_slice()), Some(number));
            bytes.pop();
            prop_assert_eq!(take::<u128>(&mut bytes.as_slice()), None);
        }
    }
}
