//! Addresses, networks and ranges from text.
//!
//! Two notations share one implementation. [`Notation::Strict`] is for all new fields of ours.
//! [`Notation::LeadingZeros`] also accepts what Whereabouts accepts in `range`, `range_start` and `range_end`
//! (`00192.00168.1.0/24`, and IPv4 written as IPv6, `::ffff:10.0.0.1`). Both read octets as decimal: a
//! leading zero never means octal.

use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::address::{Address, Family};
use crate::cidr::Cidr;

/// Which spellings of an address are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// Only the usual one.
    Strict,
    /// Also leading zeros in IPv4 octets and IPv6 groups, and IPv4-mapped IPv6 addresses (which become IPv4).
    LeadingZeros,
}

/// The text of a range: a network, and for `FIRST-LAST/PREFIX` the two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeText {
    /// The network, masked.
    pub cidr: Cidr,
    /// First and last address, if they were written. Both lie in the network; `first` may be above `last`
    /// (Whereabouts loads that and ignores `last`; [`crate::Range::between`] refuses it).
    pub window: Option<(Address, Address)>,
}

/// Why a text could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what} from {value:?}: {reason}; accepted is {accepted}")]
pub struct ParseError {
    /// What was expected, with its article.
    pub what: &'static str,
    /// The text, shortened if it is very long.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
    /// An example or description of what would be accepted.
    pub accepted: &'static str,
}

const ADDRESS: &str = "an IPv4 address such as 10.0.0.1 or an IPv6 address such as fd00::1";
const CIDR: &str = "an address and a prefix length, such as 10.0.0.0/24 or fd00::/64";
const NETWORK: &str = "a network address and a prefix length, such as 10.0.0.0/24 or fd00::/64";
const RANGE: &str = "a network such as 10.0.0.0/24, or a first and a last address with the network's prefix length, \
                     such as 10.0.0.10-10.0.0.20/24";
const PREFIX: &str = "a decimal number of bits with or without a slash, such as /26";

/// A longer input is never an address and not worth repeating in full.
const LONGEST: usize = 128;

impl Notation {
    /// One address.
    pub fn address(self, text: &str) -> Result<Address, ParseError> {
        let failed = |reason: String| ParseError::new("an address", text, reason, ADDRESS);
        if text.len() > LONGEST {
            return Err(failed(format!("it is {} bytes long", text.len())));
        }
        if text.contains(':') { self.ipv6(text) } else { self.ipv4(text) }.map_err(failed)
    }

    /// A network; host bits are masked.
    pub fn cidr(self, text: &str) -> Result<Cidr, ParseError> {
        self.address_and_cidr(text).map(|(_, cidr)| cidr)
    }

    /// An address with the prefix of its network, both kept.
    pub fn address_and_cidr(self, text: &str) -> Result<(Address, Cidr), ParseError> {
        let failed = |reason: String| ParseError::new("a network", text, reason, CIDR);
        let Some((address, prefix)) = text.rsplit_once('/') else {
            return Err(failed("it has no prefix length".into()));
        };
        let written_as_ipv6 = address.contains(':');
        let address = self.address(address).map_err(|error| failed(error.reason))?;
        if written_as_ipv6 && address.family() == Family::V4 {
            return Err(failed(format!("it is the IPv4 address {address} written as IPv6")));
        }
        let bits = address.family().bits();
        let prefix = decimal(prefix).filter(|prefix| *prefix <= bits);
        match prefix.and_then(|prefix| Cidr::new(address, prefix)) {
            Some(cidr) => Ok((address, cidr)),
            None => Err(failed(format!("its prefix length is not a number from 0 to {bits}"))),
        }
    }

    /// A network whose host bits must be zero.
    pub fn network(self, text: &str) -> Result<Cidr, ParseError> {
        let (address, cidr) = self.address_and_cidr(text)?;
        if address == cidr.first() {
            return Ok(cidr);
        }
        let reason = format!("{address} is not the network address, which is {}", cidr.first());
        Err(ParseError::new("a network", text, reason, NETWORK))
    }

    /// A network, or a single address as the network of that address.
    pub fn cidr_or_address(self, text: &str) -> Result<Cidr, ParseError> {
        if text.contains('/') { self.cidr(text) } else { self.address(text).map(Cidr::host) }
    }

    /// A network, or `FIRST-LAST/PREFIX`.
    pub fn range(self, text: &str) -> Result<RangeText, ParseError> {
        let Some((first, last_and_prefix)) = text.split_once('-') else {
            return self.cidr(text).map(|cidr| RangeText { cidr, window: None });
        };
        let failed = |reason: String| ParseError::new("a range", text, reason, RANGE);
        let first = self.address(first).map_err(|error| failed(error.reason))?;
        let (last, cidr) = self.address_and_cidr(last_and_prefix).map_err(|error| failed(error.reason))?;
        if !cidr.contains(first) {
            return Err(failed(format!("its first address {first} is outside {cidr}")));
        }
        Ok(RangeText { cidr, window: Some((first, last)) })
    }

    fn ipv4(self, text: &str) -> Result<Address, String> {
        let mut bits = 0_u128;
        let mut octets = 0;
        for octet in text.split('.') {
            let significant = match self {
                Self::LeadingZeros if !octet.is_empty() => octet.trim_start_matches('0'),
                _ if octet.len() > 1 && octet.starts_with('0') => {
                    return Err(format!("{octet:?} has a leading zero"));
                }
                _ => octet,
            };
            let value =
                if significant.is_empty() && !octet.is_empty() { Some(0) } else { decimal(significant) };
            let Some(value) = value else {
                return Err(format!("{octet:?} is not a number from 0 to 255"));
            };
            bits = (bits << 8) | u128::from(value);
            octets += 1;
        }
        match Address::new(Family::V4, bits) {
            Some(address) if octets == 4 => Ok(address),
            _ => Err(format!("it has {octets} parts, not 4")),
        }
    }

    fn ipv6(self, text: &str) -> Result<Address, String> {
        let not_ipv6 = || "it is not an IPv6 address".to_owned();
        let ip = match self {
            Self::Strict => text.parse::<Ipv6Addr>().map_err(|_| not_ipv6())?,
            Self::LeadingZeros => without_zeros(text).parse::<Ipv6Addr>().map_err(|_| not_ipv6())?,
        };
        match (self, ip.to_ipv4_mapped()) {
            (Self::Strict, Some(ipv4)) => Err(format!("it is the IPv4 address {ipv4} written as IPv6")),
            (Self::LeadingZeros, Some(ipv4)) => Ok(ipv4.into()),
            (_, None) => Ok(ip.into()),
        }
    }
}

/// The same IPv6 text with each group, and each octet of an IPv4 tail, without leading zeros.
fn without_zeros(text: &str) -> String {
    let trim = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        significant => significant.to_owned(),
    };
    let groups = text.split(':').map(|group| group.split('.').map(trim).collect::<Vec<_>>().join("."));
    groups.collect::<Vec<_>>().join(":")
}

/// The length of a prefix, with or without its slash: `/26` or `26`.
pub fn prefix_length(text: &str) -> Result<u8, ParseError> {
    decimal(text.strip_prefix('/').unwrap_or(text)).ok_or_else(|| {
        ParseError::new("a prefix length", text, "it is not a number of at most 255".into(), PREFIX)
    })
}

/// Decimal digits only (no sign, which `u8::from_str` would take).
fn decimal(text: &str) -> Option<u8> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl ParseError {
    fn new(what: &'static str, text: &str, reason: String, accepted: &'static str) -> Self {
        let value = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        Self { what, value, reason, accepted }
    }
}

impl FromStr for Address {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Notation::Strict.address(text)
    }
}

impl FromStr for Cidr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Notation::Strict.cidr(text)
    }
}

#[cfg(test)]
mod tests;
