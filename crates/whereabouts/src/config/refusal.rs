//! Why a configuration is refused, and which settings have no effect.

use tenure_cni::{Code, Failure};
use tenure_ipam::ParseError;

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value:?}: {problem}; accepted is {accepted}")]
pub struct Refusal {
    /// The path of the key, such as `ipam.ipRanges[1].range_start`.
    pub key: String,
    /// The value, shortened if it is very long.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be accepted.
    pub accepted: String,
}

/// Why there is no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// It has an invalid value.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// It uses another plugin for addresses, and does not belong to this dialect.
    #[error("ipam.type is {found:?}: this is no network of ours; accepted is \"whereabouts\"")]
    Other {
        /// That plugin; empty without `ipam`.
        found: String,
    },
    /// The version is not supported.
    #[error("{0}")]
    Version(Failure),
}

/// An accepted setting that has no effect, or less than it seems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The path of the key.
    pub key: String,
    /// The effect.
    pub note: String,
}

/// Longer values are cut: their author knows them, and they may be anything.
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

    /// Refuses a text that cannot be parsed.
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
