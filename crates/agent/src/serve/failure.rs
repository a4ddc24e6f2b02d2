//! Errors for the plugin's callers when the node refuses a call: CNI's codes, and text.

use tenure_cni::{Code, Failure};

use crate::node::{CallError, KernelError, KernelErrorKind};
use crate::{claims, coil, whereabouts};

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        let later = |message: &str| Self::new(Code::TryAgainLater, message);
        match error {
            CallError::NotRead(missing) => later(&format!("tenured has just started and has not yet read {missing}"))
                .detail("nothing is assigned before every existing hold is known; this usually takes less than a second"),
            CallError::Ending => later("tenured is ending"),
            CallError::Pool(error) => coil::failure(error),
            CallError::Claim(error) => claims::failure(error),
            CallError::Full(full) => whereabouts::slice_full(&full),
            CallError::Withheld(slice) => whereabouts::slice_withheld(&slice),
            CallError::BlockTaken(block) => {
                later(&format!("block {block:?} was taken away from this node while the pod was getting an address from it"))
                    .detail("the next attempt gets an address of another block")
            }
            CallError::Deleted => later("the attachment was deleted while it was being set up"),
            CallError::Journal(message) => Self::new(Code::Io, message)
                .detail("what was asked for is done when the journal can be written again; is /run full?"),
            CallError::JournalBroken => later("tenured cannot write its journal and assigns nothing until it can")
                .detail("is /run full?"),
            CallError::SameId { asked, other } => {
                let message = format!("the keys {asked} and {other} have the same 128-bit ID");
                Self::new(Code::Internal, message)
                    .detail("another container ID avoids this; it happens by chance once in 10^30 pods")
            }
            CallError::NothingHeld(key) => {
                Self::new(Code::UnknownContainer, format!("nothing is held for {key}"))
            }
            CallError::OtherAddress { key, expected, held } => {
                Self::new(Code::Internal, format!("{key} holds {held}, and not {expected} as its result says"))
            }
            CallError::Kernel(error) => error.into(),
            CallError::Differs(differences) => {
                let message = format!("the interface is not as it was set up: {}", differences.join("; "));
                Self::new(Code::Internal, message).detail("a repeated ADD repairs it")
            }
            CallError::Unswept { ended, errors } => {
                let texts: Vec<String> = errors.into_iter().map(|it| Self::from(it).to_string()).collect();
                later(&format!("{ended} holds ended, {} could not: {}", texts.len(), texts.join("; ")))
            }
        }
    }
}

impl From<KernelError> for Failure {
    fn from(KernelError { kind, message, remedy }: KernelError) -> Self {
        let code = match kind {
            KernelErrorKind::Retry => Code::TryAgainLater,
            KernelErrorKind::Gone => Code::UnknownContainer,
            KernelErrorKind::Invalid => Code::InvalidConfig,
            KernelErrorKind::Other => Code::Internal,
        };
        Self::new(code, message).detail(remedy)
    }
}
