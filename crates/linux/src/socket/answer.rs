//! Answers of the kernel.

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;

use crate::link::Link;

/// `RTM_NEWLINK`, also the answer to a question about links.
const NEW_LINK: u16 = 16;

/// An object described by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A link. Its description is long and differs for every kind of link. Our decoder reads only what we use, in a tenth of
    /// the time, so that nothing else can make it fail.
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

/// An answer of a family other than route, not decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    /// The message's type.
    pub(crate) kind: u16,
    /// What follows the netlink header.
    pub(crate) body: Vec<u8>,
}

impl NetlinkDeserializable for Raw {
    type Error = DecodeError;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self { kind: header.message_type, body: payload.to_owned() })
    }
}
