//! An Ethernet address.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of an Ethernet interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// A locally administered unicast address that carries the low 40 bits of `bits`.
    pub fn local(bits: u64) -> Self {
        let mut bytes = [0x0a; 6];
        bytes[1..].copy_from_slice(&bits.to_be_bytes()[3..]);
        Self(bytes)
    }

    /// Whether one interface can own it: neither a group address nor all zeros.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }

    /// From an attribute of a link; `None` unless it has six bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b':'; 17];
        for (pair, byte) in text.chunks_mut(3).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        // One write: every pod formats two of them.
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an Ethernet address; accepted: six pairs of hexadecimal digits, as in 0a:58:0a:02:00:01"
)]
pub struct NotAMac(String);

impl FromStr for Mac {
    type Err = NotAMac;

    fn from_str(text: &str) -> Result<Self, NotAMac> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            *byte = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()))
                .and_then(|part| u8::from_str_radix(part, 16).ok())
                .ok_or_else(|| NotAMac(text.to_owned()))?;
        }
        if parts.next().is_some() {
            return Err(NotAMac(text.to_owned()));
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Mac {
    type Error = NotAMac;

    fn try_from(text: String) -> Result<Self, NotAMac> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_survives_the_way_through_text() {
        let mac = Mac([0x0a, 0x58, 0, 1, 0xfe, 0xff]);
        assert_eq!(mac.to_string(), "0a:58:00:01:fe:ff");
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }

    #[test]
    fn text_that_is_no_mac_is_refused_by_name() {
        for text in [
            "",
            "0a:58:00:01:fe",
            "0a:58:00:01:fe:ff:00",
            "0a:58:00:01:fe:g0",
            "a:58:00:01:fe:ff",
            "+a:58:00:01:fe:ff",
        ] {
            let error = text.parse::<Mac>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("six pairs"), "{error}");
        }
    }

    #[test]
    fn a_derived_mac_is_local_and_unicast() {
        for bits in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mac = Mac::local(bits);
            assert!(mac.is_unicast() && mac.0[0] & 2 == 2, "{mac}");
        }
        assert!(!Mac([1, 0, 0, 0, 0, 1]).is_unicast());
    }
}
