//! IPv4 networks, as far as the fake needs them.

use std::fmt;
use std::net::Ipv4Addr;

/// An IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Net {
    first: u32,
    prefix: u8,
}

impl Net {
    /// Reads `A.B.C.D/N` or `A.B.C.D`. Host bits are refused, as the cloud refuses them.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
        let (address, prefix): (Ipv4Addr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        let net = Self::around(address.to_bits(), prefix)?;
        (net.first == address.to_bits()).then_some(net)
    }

    /// The network of that size with this address.
    pub(super) fn around(address: u32, prefix: u8) -> Option<Self> {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        (prefix <= 32).then_some(Self { first: address & mask, prefix })
    }

    fn last(self) -> u32 {
        self.first | u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0)
    }

    pub(super) fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last() <= self.last()
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.contains(other) || other.contains(self)
    }

    /// The first network of a size in this one that overlaps none of `taken`.
    pub(super) fn free_part(self, prefix: u8, taken: &[Self]) -> Option<Self> {
        let mut next = Some(self.first).filter(|_| prefix >= self.prefix);
        while let Some(part) =
            next.and_then(|first| Self::around(first, prefix)).filter(|part| self.contains(*part))
        {
            match taken
                .iter()
                .filter(|other| other.overlaps(part))
                .map(|other| other.last().max(part.last()))
                .max()
            {
                None => return Some(part),
                Some(last) => next = last.checked_add(1),
            }
        }
        None
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.first), self.prefix)
    }
}
