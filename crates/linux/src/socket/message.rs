//! Writes a netlink message directly into a buffer.
//!
//! Every ADD waits for these messages. A tree of attributes, as other messages use, takes several times as long to build,
//! measure, write and drop.

use netlink_packet_core::{DecodeError, Emitable, ParseableParametrized};
use netlink_packet_route::RouteNetlinkMessage;

use super::describe;

/// Length and kind of an attribute.
const ATTRIBUTE_HEAD: usize = 4;
/// Most messages are shorter than this.
const USUAL: usize = 96;

/// A message without its netlink header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    body: Vec<u8>,
    /// A description of the request, if the message itself does not tell.
    act: Option<String>,
}

impl Message {
    /// A message of this type (`RTM_…`) with its fixed part, which ends at a multiple of four bytes.
    pub(crate) fn new<const N: usize>(kind: u16, fixed: [u8; N]) -> Self {
        const { assert!(N.is_multiple_of(4)) };
        let mut body = Vec::with_capacity(USUAL);
        body.extend_from_slice(&fixed);
        Self { kind, body, act: None }
    }

    /// Adds a description of the request, for families that `describe` cannot read.
    pub(crate) fn named(self, act: impl Into<String>) -> Self {
        Self { act: Some(act.into()), ..self }
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.put(kind, |body| body.extend_from_slice(value));
        self
    }

    /// Adds a number attribute.
    pub(crate) fn with_number(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// Adds a number attribute in network order.
    pub(crate) fn with_big(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_be_bytes())
    }

    /// Adds a text attribute, terminated by a zero byte.
    pub(crate) fn with_text(mut self, kind: u16, text: &str) -> Self {
        self.put(kind, |body| {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        });
        self
    }

    /// Adds a nested attribute: a fixed part and attributes.
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

    /// Writes the length of the attribute that begins at `start` and ends here.
    fn close(&mut self, start: usize) {
        // No attribute gets near the limit: the longest contains a name of at most 256 bytes.
        let length = u16::try_from(self.body.len() - start).unwrap_or(u16::MAX);
        if let Some(place) = self.body.get_mut(start..start + size_of::<u16>()) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
        debug_assert!(usize::from(length) >= ATTRIBUTE_HEAD);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }

    /// A description of the request.
    pub(super) fn describe(&self) -> String {
        match (&self.act, self.read()) {
            (Some(act), _) => act.clone(),
            (None, Ok(message)) => describe::message(&message),
            (None, Err(_)) => format!("send a message of type {}", self.kind),
        }
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
        Self { kind: message.message_type(), body, act: None }
    }
}
