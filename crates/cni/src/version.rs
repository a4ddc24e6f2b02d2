//! The supported versions of the CNI specification.

use crate::failure::{Code, Failure};

/// A version of the specification. Later ones compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.1.0; results have one address per family.
    V0_1_0,
    /// 0.2.0; as 0.1.0.
    V0_2_0,
    /// 0.3.0; lists of addresses and interfaces.
    V0_3_0,
    /// 0.3.1; as 0.3.0.
    V0_3_1,
    /// 0.4.0; adds CHECK.
    V0_4_0,
    /// 1.0.0; addresses no longer name their family.
    V1_0_0,
    /// 1.1.0; adds GC and STATUS.
    V1_1_0,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 7] =
        [Self::V0_1_0, Self::V0_2_0, Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// The version that a configuration names; without one it is 0.1.0, as the specification says.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        Self::ALL.into_iter().find(|version| version.as_str() == text).ok_or_else(|| {
            let accepted: Vec<&str> = Self::ALL.iter().map(|version| version.as_str()).collect();
            Failure::new(Code::IncompatibleVersion, format!("cniVersion {text:?} is not supported"))
                .detail(format!("accepted are {}", accepted.join(", ")))
        })
    }

    /// The text in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_reads_back_as_itself() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()).unwrap(), version);
        }
    }

    #[test]
    fn an_unknown_version_is_refused_with_the_accepted_ones() {
        let failure = Version::parse("2.0.0").unwrap_err();
        assert_eq!(failure.code, Code::IncompatibleVersion.number());
        assert!(failure.message.contains("2.0.0") && failure.details.contains("1.1.0"), "{failure:?}");
    }
}
