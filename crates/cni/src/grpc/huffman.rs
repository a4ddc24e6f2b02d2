//! The Huffman code of HPACK (RFC 7541, appendix B). It is canonical: the lengths alone give the codes.

/// Bits of the code of each byte value.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, //
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, //
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, //
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, //
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
const LONGEST: u32 = 30;

/// Decodes a string; `None` where the bits are no code or the padding is not all ones.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(bytes.len() * 2);
    let (mut code, mut length) = (0_u32, 0_u32);
    for byte in bytes {
        for position in (0..8).rev() {
            code = (code << 1) | u32::from(byte >> position & 1);
            length += 1;
            if let Some(symbol) = symbol(code, length) {
                text.push(symbol);
                (code, length) = (0, 0);
            } else if length >= LONGEST {
                return None;
            }
        }
    }
    let padding_is_ones = length < 8 && code == (1 << length) - 1;
    padding_is_ones.then_some(text)
}

/// The byte whose code is the lowest `length` bits of `code`. Codes of one length are consecutive, in the order
/// of the bytes, and the first of them follows from the shorter ones.
fn symbol(code: u32, length: u32) -> Option<u8> {
    let mut first = 0_u32;
    for shorter in 5..length {
        first = (first + count(shorter)) << 1;
    }
    let rank = code.checked_sub(first).filter(|_| length >= 5)?;
    let mut of_length = (0..=u8::MAX).filter(|byte| u32::from(LENGTHS[usize::from(*byte)]) == length);
    of_length.nth(rank as usize)
}

fn count(length: u32) -> u32 {
    let of_length = LENGTHS.iter().filter(|other| u32::from(**other) == length);
    u32::try_from(of_length.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::decode;

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_decode() {
        let decoded = |hex: &[u8]| String::from_utf8(decode(hex).unwrap()).unwrap();
        let www = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(decoded(&www), "www.example.com");
        assert_eq!(decoded(&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]), "no-cache");
        assert_eq!(decoded(&[0x64, 0x02]), "302");
        let date = [
            0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81, 0x66,
            0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
        ];
        assert_eq!(decoded(&date), "Mon, 21 Oct 2013 20:13:21 GMT");
    }

    #[test]
    fn padding_with_zeros_and_the_end_symbol_are_refused() {
        assert_eq!(decode(&[0x00, 0x00]), None);
        assert_eq!(decode(&[0xff; 4]), None);
    }
}
