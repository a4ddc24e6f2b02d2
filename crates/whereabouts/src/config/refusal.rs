//! Why a configuration is refused, and what of it was accepted without effect.

use tenure_cni::{Code, Failure};
use tenure_ipam::ParseError;

/// A value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value:?}: {problem}; accepted is {accepted}")]
pub struct Refusal {
    /// Where it stands, such as `ipam.ipRanges[1].range_start`.
    pub key: String,
    /// What stands there, shortened if it is very long.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would do.
    pub accepted: String,
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Something in it cannot be used.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// It asks another plugin for addresses, and is none of our business.
    #[error("ipam.type is {found:?}: this is no network of ours; accepted is \"whereabouts\"")]
    Other {
        /// Whom it asks; empty without `ipam`.
        found: String,
    },
    /// The version is none that we speak.
    #[error("{0}")]
    Version(Failure),
}

/// Something that was accepted and has no effect, or less than it seems to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Where it stands.
    pub key: String,
    /// What becomes of it.
    pub note: String,
}

/// Longer values are cut: whoever wrote them knows them, and they may be anything.
const LONGEST: usize = 160;

impl Refusal {
    /// Refuses `value` at `key`.
    pub fn new(key: &str, value: &str, problem: &str, accepted: &str) -> Self {
        let value = match value.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &value[..end]),
            None => value.to_owned(),
        };
        Self { key: key.to_owned(), value, problem: problem.to_owned(), accepted: accepted.to_owned() }
    }

    /// Refuses a text that is not what it should be.
    pub(crate) fn parse(key: &str, value: &str, error: &ParseError) -> Self {
        Self::new(key, value, &error.reason, error.accepted)
    }
}

impl From<Refusal> for ConfigError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code =
            if refusal.key.starts_with("CNI_ARGS") { Code::InvalidEnvironment } else { Code::InvalidConfig };
        let Refusal { key, value, problem, accepted } = refusal;
        Self::new(code, format!("{key} is {value:?}: {problem}")).detail(format!("accepted is {accepted}"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Refused(refusal) => (*refusal).into(),
            ConfigError::Version(failure) => failure,
            ConfigError::Other { .. } => Self::new(Code::InvalidConfig, error.to_string()),
        }
    }
}
