//! The Huffman code of HPACK (RFC 7541, appendix B). It is canonical: the lengths alone give the codes.

/// The number of bits in the code of each byte value.
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
const LONGEST: usize = 30;

/// Codes of one length are consecutive, in the order of the bytes, and the first of them follows from the shorter ones.
struct Codes {
    /// The first code of each length.
    first: [u32; LONGEST + 1],
    /// How many codes of each length there are.
    count: [u32; LONGEST + 1],
    /// The index in `bytes` of the first byte of each length.
    place: [usize; LONGEST + 1],
    /// All bytes, by the length of their codes.
    bytes: [u8; 256],
}

static CODES: Codes = Codes::new();

impl Codes {
    const fn new() -> Self {
        let mut codes = Self {
            first: [0; LONGEST + 1],
            count: [0; LONGEST + 1],
            place: [0; LONGEST + 1],
            bytes: [0; 256],
        };
        let (mut length, mut next, mut place) = (1, 0, 0);
        while length <= LONGEST {
            next <<= 1;
            (codes.first[length], codes.place[length]) = (next, place);
            let (mut byte, mut index) = (0_u8, 0);
            while index < LENGTHS.len() {
                if LENGTHS[index] as usize == length {
                    codes.bytes[place] = byte;
                    codes.count[length] += 1;
                    (next, place) = (next + 1, place + 1);
                }
                (byte, index) = (byte.wrapping_add(1), index + 1);
            }
            length += 1;
        }
        codes
    }

    /// The byte whose code is the lowest `length` bits of `code`.
    fn byte(&self, code: u32, length: usize) -> Option<u8> {
        let rank = code.checked_sub(self.first[length]).filter(|rank| *rank < self.count[length])?;
        self.bytes.get(self.place[length] + rank as usize).copied()
    }
}

/// Appends the decoded string; `None` if the bits are no code or the padding is not all ones.
pub(super) fn decode(bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    text.reserve(bytes.len() * 2);
    let (mut code, mut length) = (0_u32, 0);
    for byte in bytes {
        for position in (0..8).rev() {
            code = (code << 1) | u32::from(byte >> position & 1);
            length += 1;
            if let Some(byte) = CODES.byte(code, length) {
                text.push(byte);
                (code, length) = (0, 0);
            } else if length >= LONGEST {
                return None;
            }
        }
    }
    let padding_is_ones = length < 8 && code == (1 << length) - 1;
    padding_is_ones.then_some(())
}

#[cfg(test)]
mod tests {
    fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        super::decode(bytes, &mut text).map(|()| text)
    }

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_decode() {
        let decoded = |hex: &[u8]| String::from_utf8(decoded(hex).unwrap()).unwrap();
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
        assert_eq!(decoded(&[0x00, 0x00]), None);
        assert_eq!(decoded(&[0xff; 4]), None);
    }
}
