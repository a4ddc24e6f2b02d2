//! A message as it travels, written straight into place.
//!
//! What every pod waits for is written here, attribute after attribute; trees of attributes, as other messages are made of,
//! take several times as long to build, measure, write and take down.

use netlink_packet_core::{DecodeError, Emitable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;

/// Length and kind of an attribute.
const ATTRIBUTE_HEAD: usize = 4;
/// What most messages are shorter than.
const USUAL: usize = 96;

/// A message without its netlink header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    body: Vec<u8>,
}

impl Message {
    /// One of this kind (`RTM_…`) with its fixed part, which ends at a multiple of four bytes.
    pub(crate) fn new<const N: usize>(kind: u16, fixed: [u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4)) };
        let mut body = Vec::with_capacity(USUAL);
        body.extend_from_slice(&fixed);
        Self { kind, body }
    }

    /// With one more attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.put(kind, |body| body.extend_from_slice(value));
        self
    }

    /// With one more attribute that is a number.
    pub(crate) fn with_number(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// With one more attribute that is a text, which the kernel wants to end with a zero.
    pub(crate) fn with_text(mut self, kind: u16, text: &str) -> Self {
        self.put(kind, |body| {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        });
        self
    }

    /// With one more attribute that is made of what `inner` begins with and its attributes.
    pub(crate) fn with_nested(
        mut self,
        kind: u16,
        fixed: &[u8],
        inner: impl FnOnce(Message) -> Message,
    ) -> Self {
        let (outer, start) = (self.kind, self.body.len());
        self.put(kind, |body| body.extend_from_slice(fixed));
        let mut filled = inner(self);
        filled.kind = outer;
        filled.close(start);
        filled
    }

    fn put(&mut self, kind: u16, value: impl FnOnce(&mut Vec<u8>)) {
        let start = self.body.len();
        self.body.extend_from_slice(&[0; 2]);
        self.body.extend_from_slice(&kind.to_ne_bytes());
        value(&mut self.body);
        self.close(start);
    }

    /// Says how long the attribute is that begins at `start` and ends here.
    fn close(&mut self, start: usize) {
        // No attribute comes near: the longest has a name of at most 256 bytes in it.
        let length = u16::try_from(self.body.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.body.get_mut(start..start + size_of::<u16>()) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        debug_assert!(usize::from(length) >= ATTRIBUTE_HEAD);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    pub(super) fn kind(&self) -> u16 {
        self.kind
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// What it says.
    pub(super) fn read(&self) -> Result<RouteNetlinkMessage, DecodeError> {
        RouteNetlinkMessage::parse_with_param(self.body.as_slice(), self.kind)
    }
}

impl From<RouteNetlinkMessage> for Message {
    fn from(message: RouteNetlinkMessage) -> Self {
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        Self { kind: message.message_type(), body }
    }
}
