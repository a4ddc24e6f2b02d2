//! Why something was not done: a word for the agent, and a sentence that names the interface and what to do.

use serde_json::{Value, json};

/// The kinds of failures. The agent writes them into the enactment and decides by them whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The command line or the protocol was not followed.
    Usage,
    /// There is no D-Bus or no NetworkManager.
    NetworkManagerMissing,
    /// There is one, and it does not answer, or not to this program.
    NetworkManagerSilent,
    /// It is older than what this was tried with.
    NetworkManagerTooOld,
    /// NetworkManager leaves the interface alone.
    Unmanaged,
    /// The interface does not exist and is not of a kind that can be created.
    InterfaceAbsent,
    /// The desired state has something that is not understood, or that contradicts itself.
    Unsupported,
    /// A profile that is not active has an address that shall go.
    ProfileInactive,
    /// Somebody else is changing the network right now.
    CheckpointOpen,
    /// NetworkManager refused, or nmstate failed.
    ApplyFailed,
    /// It was applied, and something else was found afterwards.
    VerificationFailed,
    /// The decision came too late, or not at all.
    TimedOut,
    /// The state before could not be restored.
    RollbackFailed,
}

impl Reason {
    /// The word in the answer.
    fn word(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NetworkManagerMissing => "networkManagerMissing",
            Self::NetworkManagerSilent => "networkManagerSilent",
            Self::NetworkManagerTooOld => "networkManagerTooOld",
            Self::Unmanaged => "unmanaged",
            Self::InterfaceAbsent => "interfaceAbsent",
            Self::Unsupported => "unsupported",
            Self::ProfileInactive => "profileInactive",
            Self::CheckpointOpen => "checkpointOpen",
            Self::ApplyFailed => "applyFailed",
            Self::VerificationFailed => "verificationFailed",
            Self::TimedOut => "timedOut",
            Self::RollbackFailed => "rollbackFailed",
        }
    }

    /// Whether the same order may succeed later although nobody changes it or the host's configuration.
    fn retry(self) -> bool {
        match self {
            Self::Usage | Self::NetworkManagerTooOld | Self::Unmanaged | Self::Unsupported => false,
            Self::NetworkManagerMissing
            | Self::NetworkManagerSilent
            | Self::InterfaceAbsent
            | Self::ProfileInactive
            | Self::CheckpointOpen
            | Self::ApplyFailed
            | Self::VerificationFailed
            | Self::TimedOut
            | Self::RollbackFailed => true,
        }
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    reason: Reason,
    interface: Option<String>,
    message: String,
}

impl Failure {
    /// A failure of the host, or of all that was ordered.
    pub(crate) fn new(reason: Reason, message: String) -> Self {
        Self { reason, interface: None, message }
    }

    /// A failure because of one interface, which the message names, too.
    pub(crate) fn of(interface: &str, reason: Reason, message: String) -> Self {
        Self { reason, interface: Some(interface.to_owned()), message }
    }

    /// The sentence.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The line for the caller.
    pub(crate) fn line(&self) -> Value {
        let mut error =
            json!({ "reason": self.reason.word(), "retry": self.reason.retry(), "message": self.message });
        if let Some(interface) = &self.interface {
            error["interface"] = json!(interface);
        }
        json!({ "error": error })
    }

    /// The answer to `managed`. Without a NetworkManager nothing is managed; of a silent one nothing is known.
    pub(crate) fn as_answer(&self, interfaces: &[&str]) -> Value {
        let (about, word) = if self.reason == Reason::NetworkManagerMissing {
            (json!({ "running": false, "reason": self.message }), "unmanaged")
        } else {
            (json!({ "running": true, "supported": false, "reason": self.message }), "unknown")
        };
        let interfaces: serde_json::Map<String, Value> =
            interfaces.iter().map(|name| ((*name).to_owned(), json!(word))).collect();
        json!({ "networkManager": about, "interfaces": interfaces })
    }
}
