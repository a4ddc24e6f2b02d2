//! The kernel's refusal of one request, with the explanation from its extended acknowledgement.

use netlink_packet_core::{
    DoneMessage, ErrorMessage, NLM_F_ACK_TLVS, NLM_F_CAPPED, NlasIterator, parse_string, parse_u32,
};
use nix::errno::Errno;

use super::error::{Kind, kind_of};
use super::{Request, describe};

/// `NLMSGERR_ATTR_MSG`: the explanation, a string.
const EXPLANATION: u16 = 1;
/// Length of a netlink header.
const HEADER: usize = 16;

/// One request that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{act}{}: {errno}{}", self.place(), self.explained())]
pub struct Refusal {
    /// A description of the request.
    pub act: String,
    /// The position of the request in the exchange, from 0.
    pub position: usize,
    /// How many requests the exchange had.
    pub total: usize,
    /// The error number.
    pub errno: Errno,
    /// The kernel's own explanation, if it gave one.
    pub explanation: Option<String>,
}

impl Refusal {
    /// What this refusal means.
    pub fn kind(&self) -> Kind {
        kind_of(self.errno)
    }

    fn place(&self) -> String {
        if self.total > 1 {
            format!(" ({})", describe::position(self.position, self.total))
        } else {
            String::new()
        }
    }

    fn explained(&self) -> String {
        self.explanation.as_ref().map_or_else(String::new, |text| format!(", {text}"))
    }

    /// Decodes an acknowledgement; `None` if it reports success.
    pub(super) fn read(
        error: &ErrorMessage,
        flags: u16,
        request: &Request,
        position: usize,
        total: usize,
    ) -> Option<Self> {
        let errno = Errno::from_raw(error.code?.get().wrapping_neg());
        let explanation = explanation_of(&error.header, flags);
        Some(Self { act: request.describe(), position, total, errno, explanation })
    }

    /// Decodes the refusal of a dump.
    pub(super) fn read_dump(error: &ErrorMessage, flags: u16, filter: &Request) -> Option<Self> {
        let errno = Errno::from_raw(error.code?.get().wrapping_neg());
        let explanation = explanation_of(&error.header, flags);
        Some(Self { act: filter.describe(), position: 0, total: 1, errno, explanation })
    }

    /// Decodes the end of a dump, which has an error if the dump failed.
    pub(super) fn read_done(done: &DoneMessage, filter: &Request) -> Option<Self> {
        if done.code >= 0 {
            return None;
        }
        let explanation = find_explanation(&done.extended_ack);
        let errno = Errno::from_raw(done.code.wrapping_neg());
        Some(Self { act: filter.describe(), position: 0, total: 1, errno, explanation })
    }
}

/// `refused` follows the error number: the header of the refused request, its body unless omitted (`NLM_F_CAPPED`), and
/// attributes if there are any (`NLM_F_ACK_TLVS`).
fn explanation_of(refused: &[u8], flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let skip = if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        (parse_u32(refused.get(..4)?).ok()? as usize).next_multiple_of(4)
    };
    find_explanation(refused.get(skip..)?)
}

fn find_explanation(attributes: &[u8]) -> Option<String> {
    NlasIterator::new(attributes)
        .map_while(Result::ok)
        .find(|attribute| attribute.kind() == EXPLANATION)
        .and_then(|attribute| parse_string(attribute.value()).ok())
}
