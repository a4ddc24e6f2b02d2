//! A growing mark: when somebody said that a pod should be the active one.
//!
//! Three forms are accepted: an integer, an RFC 3339 time, and the output of Go's `Time.String()`, which
//! KubeVirt's virt-controller writes.

mod go;

use std::fmt;
use std::str::FromStr;

use k8s_openapi::jiff;
use serde::{Deserialize, Serialize};

/// A time or a number. Times are nanoseconds since 1970, so that a time is newer than any small number; a
/// mover must use one or the other. Written as decimal text, because a number in JSON may lose digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stamp(i128);

/// A text that is not a stamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{value}\" is neither a time nor a number; accepted is an RFC 3339 time such as 2026-11-16T05:31:00Z, a time as Go writes \
     it such as 2026-11-16 05:31:00 +0000 UTC, or an integer"
)]
pub struct StampError {
    value: String,
}

impl Stamp {
    /// The stamp with this number.
    pub const fn new(number: i128) -> Self {
        Self(number)
    }
}

impl FromStr for Stamp {
    type Err = StampError;

    fn from_str(text: &str) -> Result<Self, StampError> {
        let text = text.trim();
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        let time = text.parse::<jiff::Timestamp>().ok().or_else(|| go::time(text));
        match time {
            Some(time) => Ok(Self(time.as_nanosecond())),
            None => Err(StampError { value: text.chars().take(64).collect() }),
        }
    }
}

impl TryFrom<String> for Stamp {
    type Error = StampError;

    fn try_from(text: String) -> Result<Self, StampError> {
        text.parse()
    }
}

impl From<Stamp> for String {
    fn from(stamp: Stamp) -> Self {
        stamp.to_string()
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_grow() {
        let stamp = |text: &str| text.parse::<Stamp>().unwrap();
        assert!(stamp("2026-11-16T05:31:01Z") > stamp("2026-11-16T05:31:00.9Z"));
        assert_eq!(stamp("2026-11-16T06:31:00+01:00"), stamp("2026-11-16T05:31:00Z"));
        assert!(stamp("2") > stamp("1") && stamp("0") > stamp("-5") && stamp(" 7 ") == stamp("7"));
        assert!(stamp("2026-11-16T05:31:00Z") > stamp("1000000"));
        assert_eq!(stamp(&stamp("2026-11-16T05:31:00Z").to_string()), stamp("2026-11-16T05:31:00Z"));
        for bad in ["", "now", "16.11.2026", "1e9", "0x1"] {
            let error = bad.parse::<Stamp>().unwrap_err().to_string();
            assert!(error.contains(bad) && error.contains("accepted is an RFC 3339 time"), "{error}");
        }
    }
}
