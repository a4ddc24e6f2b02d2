//! Conversion from text fields to the engine's types, and its errors.

use std::time::Duration;

use tenure_ipam::{Address, Cidr, Exclusion, Notation, ParseError, PoolError, SpaceError, Subnet};

use super::{AddressBlockSpec, SubnetSet};
use crate::names::NameError;

/// Why an object cannot be converted for the engine, or the engine's answer to an object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConversionError {
    /// A field does not parse.
    #[error("{field}: {source}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        source: Box<ParseError>,
    },
    /// The duration does not parse.
    #[error(
        "spec.cooling: cannot read a duration from \"{value}\"; accepted is 0s to 24h such as 30s or 1m30s"
    )]
    Cooling {
        /// Its value.
        value: String,
    },
    /// The block size is invalid.
    #[error("spec.blockSizeBits: {value} is no block size; accepted is 0 to 64")]
    BlockSize {
        /// Its value.
        value: i32,
    },
    /// The subnets form no pool.
    #[error("spec.subnets: {0}")]
    Pool(Box<PoolError>),
    /// The families of a block do not match.
    #[error(transparent)]
    Space(Box<SpaceError>),
    /// A block without a network.
    #[error("the block has neither ipv4 nor ipv6; accepted is one of them or both")]
    NoNetwork,
    /// The pool has no block of that number, or none that an object can represent.
    #[error("pool \"{pool}\" has no block {index} that can be carved; accepted is 0 to {last}")]
    NoBlock {
        /// The pool.
        pool: String,
        /// The number.
        index: u128,
        /// The last one.
        last: u128,
    },
    /// The object was never stored, so nothing can refer to it.
    #[error(
        "{kind} \"{name}\" has no UID to refer to; accepted is an object that was read from the API server"
    )]
    NotStored {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object cannot be named.
    #[error(transparent)]
    Name(Box<NameError>),
}

impl ConversionError {
    pub(super) fn field(field: impl Into<String>, source: ParseError) -> Self {
        Self::Field { field: field.into(), source: Box::new(source) }
    }
}

impl From<PoolError> for ConversionError {
    fn from(error: PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<SpaceError> for ConversionError {
    fn from(error: SpaceError) -> Self {
        Self::Space(Box::new(error))
    }
}

impl From<NameError> for ConversionError {
    fn from(error: NameError) -> Self {
        Self::Name(Box::new(error))
    }
}

impl SubnetSet {
    /// The entry as the engine's type. The families are not compared here; [`tenure_ipam::Pool`] does that.
    pub fn to_subnet(&self) -> Result<Subnet, ConversionError> {
        self.parse("")
    }

    pub(super) fn parse(&self, prefix: &str) -> Result<Subnet, ConversionError> {
        Ok(Subnet {
            ipv4: cidr(&format!("{prefix}ipv4"), self.ipv4.as_deref())?,
            ipv6: cidr(&format!("{prefix}ipv6"), self.ipv6.as_deref())?,
        })
    }
}

impl From<Subnet> for SubnetSet {
    fn from(subnet: Subnet) -> Self {
        Self {
            ipv4: subnet.ipv4.map(|cidr| cidr.to_string()),
            ipv6: subnet.ipv6.map(|cidr| cidr.to_string()),
        }
    }
}

impl AddressBlockSpec {
    /// The networks of the block.
    pub fn to_subnet(&self) -> Result<Subnet, ConversionError> {
        Ok(Subnet { ipv4: cidr("ipv4", self.ipv4.as_deref())?, ipv6: cidr("ipv6", self.ipv6.as_deref())? })
    }
}

pub(super) fn cidr(field: &str, text: Option<&str>) -> Result<Option<Cidr>, ConversionError> {
    let parse = |text: &str| Notation::Strict.cidr(text);
    text.map(parse).transpose().map_err(|source| ConversionError::field(field, source))
}

/// An entry of `exclude`. The ends of a range may be in either order, because a rule cannot compare them.
pub(crate) fn exclusion(text: &str) -> Result<Exclusion, ParseError> {
    let Some((one, other)) = text.split_once('-') else {
        return Notation::Strict.cidr_or_address(text).map(Into::into);
    };
    let (one, other): (Address, Address) = (one.parse()?, other.parse()?);
    Exclusion::between(one.min(other), one.max(other)).map_err(|error| ParseError {
        what: "a range of addresses",
        value: text.to_owned(),
        reason: error.to_string(),
        accepted: "two addresses of one family, such as 10.2.0.10-10.2.0.19",
    })
}

/// How long a freed address cools.
pub(crate) fn rest(text: Option<&str>) -> Result<Option<Duration>, ConversionError> {
    const LONGEST: Duration = Duration::from_hours(24);
    let Some(text) = text else { return Ok(None) };
    let rest = duration(text).filter(|rest| *rest <= LONGEST);
    rest.map(Some).ok_or_else(|| ConversionError::Cooling { value: text.to_owned() })
}

/// A duration in Go's format: `1h30m`, `1.5s`, `0`. Not read by kube, whose parser panics on some that are
/// negative or too long.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    loop {
        let unit = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(unit);
        let next = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(next);
        let seconds = match unit {
            "ns" => 1e-9,
            // The micro sign, and the Greek letter.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        if after.is_empty() {
            return Some(total);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_go_writes_it() {
        for (text, millis) in [
            ("0", 0),
            ("30s", 30_000),
            ("+1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("100ms", 100),
            ("24h", 86_400_000),
        ] {
            assert_eq!(rest(Some(text)).unwrap(), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(rest(None).unwrap(), None);
    }

    #[test]
    fn what_is_no_duration_or_too_long_a_one_is_refused_by_its_value() {
        let long = format!("{}h", "9".repeat(400));
        for text in [
            "", "-", "s", "5", "-1s", "-1s-1s", "1s-1s", "1e9s", "infs", "NaNs", "24h1ns", "1.1.1s", "1y",
            &long,
        ] {
            let error = rest(Some(text)).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
