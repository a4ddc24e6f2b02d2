//! Calls, and the harm that a test does to some of them.

use std::time::Duration;

use http::Method;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `instances.get`
    GetInstance,
    /// `instances.aggregatedList`
    ListInstances,
    /// `instances.updateNetworkInterface`
    UpdateInterface,
    /// `zoneOperations.get`, `regionOperations.get`
    GetOperation,
    /// `zoneOperations.wait`, `regionOperations.wait`
    WaitOperation,
    /// `zoneOperations.list`
    ListOperations,
    /// `subnetworks.get`
    GetSubnet,
    /// `subnetworks.patch`
    PatchSubnet,
    /// `internalRanges.get`
    GetInternalRange,
    /// `internalRanges.create`
    CreateInternalRange,
    /// `internalRanges.delete`
    DeleteInternalRange,
    /// `operations.get` of the Network Connectivity API.
    GetReservation,
    /// Anything of a metadata server.
    Metadata,
    /// Nothing that the fake has.
    Unknown,
}

impl Call {
    /// The call of a path, split at slashes after the API's version.
    pub(super) fn of(method: &Method, path: &[&str]) -> Self {
        match (method.as_str(), path) {
            ("GET", ["projects", _, "zones", _, "instances", _]) => Self::GetInstance,
            ("GET", ["projects", _, "aggregated", "instances"]) => Self::ListInstances,
            ("PATCH", ["projects", _, "zones", _, "instances", _, "updateNetworkInterface"]) => {
                Self::UpdateInterface
            }
            ("GET", ["projects", _, "zones" | "regions", _, "operations", _]) => Self::GetOperation,
            ("POST", ["projects", _, "zones" | "regions", _, "operations", _, "wait"]) => Self::WaitOperation,
            ("GET", ["projects", _, "zones" | "regions", _, "operations"]) => Self::ListOperations,
            ("GET", ["projects", _, "regions", _, "subnetworks", _]) => Self::GetSubnet,
            ("PATCH", ["projects", _, "regions", _, "subnetworks", _]) => Self::PatchSubnet,
            ("GET", ["projects", _, "locations", "global", "internalRanges", _]) => Self::GetInternalRange,
            ("POST", ["projects", _, "locations", "global", "internalRanges"]) => Self::CreateInternalRange,
            ("DELETE", ["projects", _, "locations", "global", "internalRanges", _]) => {
                Self::DeleteInternalRange
            }
            ("GET", ["projects", _, "locations", "global", "operations", _]) => Self::GetReservation,
            _ => Self::Unknown,
        }
    }

    /// Whether it is counted as a write.
    pub(super) fn is_write(self) -> bool {
        matches!(
            self,
            Self::UpdateInterface | Self::PatchSubnet | Self::CreateInternalRange | Self::DeleteInternalRange
        )
    }
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Harm {
    /// It is not performed, and the connection ends.
    LostRequest,
    /// It is performed, and the connection ends without an answer.
    LostAnswer,
    /// It is refused.
    Refused {
        /// The status.
        status: u16,
        /// The reason, such as `rateLimitExceeded`.
        reason: String,
        /// The message.
        message: String,
    },
    /// Its operation fails.
    FailedOperation {
        /// The code, such as `INTERNAL_ERROR`.
        code: String,
        /// The message.
        message: String,
    },
    /// Its operation ends so much later.
    Late(Duration),
    /// Its operation never ends, unless the fake is told to calm down.
    Endless,
}

/// Harm to the next calls of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls.
    pub call: Call,
    /// What happens.
    pub harm: Harm,
    /// How often.
    pub times: usize,
}

impl Fault {
    /// The next call of the kind is refused.
    pub fn refused(call: Call, status: u16, reason: &str, message: &str) -> Self {
        let harm = Harm::Refused { status, reason: reason.to_owned(), message: message.to_owned() };
        Self { call, harm, times: 1 }
    }

    /// This happens to the next call of the kind.
    pub fn once(call: Call, harm: Harm) -> Self {
        Self { call, harm, times: 1 }
    }
}

/// Takes the harm for a call out of the list.
pub(super) fn take(faults: &mut Vec<Fault>, call: Call) -> Option<Harm> {
    let at = faults.iter().position(|fault| fault.call == call && fault.times > 0)?;
    let fault = faults.get_mut(at)?;
    fault.times -= 1;
    let harm = fault.harm.clone();
    faults.retain(|fault| fault.times > 0);
    Some(harm)
}
