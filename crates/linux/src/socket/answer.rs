//! What the kernel answers with.

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;

use crate::link::Link;

/// `RTM_NEWLINK`, also the answer to a question about links.
const NEW_LINK: u16 = 16;

/// An object that the kernel described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A link. Its description is long, and different for every kind of link; ours reads only what we look at, so that
    /// nothing else can make it fail, in a tenth of the time.
    Link(Link),
    /// Anything else.
    Other(RouteNetlinkMessage),
}

impl NetlinkDeserializable for Answer {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        if header.message_type == NEW_LINK {
            return Link::parse(payload).map(Self::Link);
        }
        RouteNetlinkMessage::parse_with_param(payload, header.message_type).map(Self::Other)
    }
}
