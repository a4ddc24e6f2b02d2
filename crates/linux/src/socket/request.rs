//! One request to the kernel: the message, its flags, and which refusals count as success.

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE,
    NLM_F_REQUEST,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;

use super::message::Message;

/// Length of a netlink header.
const HEADER: usize = 16;

/// A request with its own result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    message: Message,
    flags: u16,
    asks: bool,
    frame: bool,
    tolerated: &'static [Errno],
}

impl Request {
    /// Creates the object; refused with `EEXIST` if it exists.
    pub fn create(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Creates the object, or replaces the existing one.
    pub fn put(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Changes an existing object.
    pub fn change(message: impl Into<Message>) -> Self {
        Self::with(message, 0)
    }

    /// Removes an object; succeeds if it is gone already.
    pub fn remove(message: impl Into<Message>) -> Self {
        Self::with(message, 0).tolerating(&[
            Errno::ESRCH,
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::ENXIO,
            Errno::EADDRNOTAVAIL,
        ])
    }

    /// Requests one object.
    pub fn get(message: impl Into<Message>) -> Self {
        Self { asks: true, ..Self::with(message, 0) }
    }

    /// Creates the object, or changes the existing one, for kinds that the kernel never replaces, such as links.
    pub(crate) fn create_or_change(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_CREATE)
    }

    /// Creates the object at the end of its list.
    pub(crate) fn append(message: Message) -> Self {
        Self::with(message, NLM_F_CREATE | NLM_F_APPEND)
    }

    /// Requests all objects that match.
    pub(crate) fn list(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_DUMP)
    }

    /// The beginning or the end of a transaction, which is reported only if it is refused.
    pub(crate) fn frame(message: impl Into<Message>) -> Self {
        Self { frame: true, ..Self::with(message, 0) }
    }

    fn with(message: impl Into<Message>, flags: u16) -> Self {
        let flags = flags | NLM_F_REQUEST;
        Self { message: message.into(), flags, asks: false, frame: false, tolerated: &[] }
    }

    /// The same request, answered with the resulting object by kernels that support it (for links, since 6.2).
    #[must_use]
    pub fn echoed(mut self) -> Self {
        self.flags |= NLM_F_ECHO;
        self
    }

    /// Whether it is the beginning or the end of a transaction.
    pub(super) fn is_frame(&self) -> bool {
        self.frame
    }

    /// Whether it requests something, so that it is always answered or refused.
    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    /// The same request; refusals with one of these errors count as success.
    #[must_use]
    pub fn tolerating(mut self, tolerated: &'static [Errno]) -> Self {
        self.tolerated = tolerated;
        self
    }

    /// Whether a refusal with `errno` counts as success.
    pub fn tolerates(&self, errno: Errno) -> bool {
        self.tolerated.contains(&errno)
    }

    /// The message to send.
    pub fn message(&self) -> Result<RouteNetlinkMessage, DecodeError> {
        self.message.read()
    }

    /// A description of the request.
    pub fn describe(&self) -> String {
        self.message.describe()
    }

    /// Appends the encoded request. Without an acknowledgement it is reported only if it requests something or is refused.
    pub fn encode(&self, sequence: u32, answered: bool, buffer: &mut Vec<u8>) {
        let flags = if answered && !self.asks { self.flags | NLM_F_ACK } else { self.flags };
        let length = HEADER + self.message.body().len();
        // Every part of a message is padded to four bytes already, so the next one starts aligned.
        buffer.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        buffer.extend_from_slice(&self.message.kind().to_ne_bytes());
        buffer.extend_from_slice(&flags.to_ne_bytes());
        buffer.extend_from_slice(&sequence.to_ne_bytes());
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(self.message.body());
    }
}
