//! SHA-256, as far as names, hardware addresses and comparisons need it.

use ring::digest::{SHA256, digest};

/// The digest of some bytes.
pub fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

/// The first `length` hexadecimal digits of the digest of a text.
pub fn hex(text: &str, length: usize) -> String {
    let digits = b"0123456789abcdef";
    let nibbles = sha256(text.as_bytes()).into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(length).map(|nibble| char::from(digits[usize::from(nibble)])).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn digests_are_those_of_everybody() {
        assert_eq!(super::hex("abc", 64), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
