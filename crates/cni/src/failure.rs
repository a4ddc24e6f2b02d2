//! Errors of the specification: a code, a sentence, and a remedy.

use std::fmt;

use serde_json::{Value, json};

/// The codes of the specification that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// 1: the configuration's version is not supported.
    IncompatibleVersion,
    /// 2: a field of the configuration is not supported.
    UnsupportedField,
    /// 3: the container is unknown or gone.
    UnknownContainer,
    /// 4: an environment variable is missing or invalid.
    InvalidEnvironment,
    /// 5: reading or writing failed.
    Io,
    /// 6: standard input is not JSON of the expected form.
    Decoding,
    /// 7: the network configuration is invalid.
    InvalidConfig,
    /// 11: try again later.
    TryAgainLater,
    /// 50: the plugin cannot serve an ADD now.
    NotAvailable,
    /// 51: the plugin cannot serve an ADD now, and existing attachments may lack connectivity.
    NotAvailableLimited,
    /// 999: anything else.
    Internal,
}

impl Code {
    /// The number in the error.
    pub const fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnsupportedField => 2,
            Self::UnknownContainer => 3,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decoding => 6,
            Self::InvalidConfig => 7,
            Self::TryAgainLater => 11,
            Self::NotAvailable => 50,
            Self::NotAvailableLimited => 51,
            Self::Internal => 999,
        }
    }
}

/// An error for the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// One of [`Code`], or a newer one that the agent knows and this plugin does not.
    pub code: u32,
    /// One sentence that names the act and the value.
    pub message: String,
    /// What would be accepted, or what to do next; may be empty.
    pub details: String,
}

impl Failure {
    /// A failure without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.number(), message: message.into(), details: String::new() }
    }

    /// The same failure with a remedy.
    #[must_use]
    pub fn detail(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The error for standard output. `version` is the configuration's own text, echoed even if it is
    /// unknown.
    pub fn to_json(&self, version: &str) -> Value {
        let mut error = json!({"cniVersion": version, "code": self.code, "msg": self.message});
        if !self.details.is_empty() {
            error["details"] = json!(self.details);
        }
        error
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (CNI error {})", self.message, self.code)?;
        if self.details.is_empty() { Ok(()) } else { write!(out, "; {}", self.details) }
    }
}

impl std::error::Error for Failure {}
