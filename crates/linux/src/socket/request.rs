//! One request to the kernel: the message, how it is meant, and which refusals are as good as success.

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;

use super::describe;
use super::message::Message;

/// Length of a netlink header.
const HEADER: usize = 16;

/// A request that is answered for by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    message: Message,
    flags: u16,
    asks: bool,
    tolerated: &'static [Errno],
}

impl Request {
    /// Makes the object; refused with `EEXIST` if there is one already.
    pub fn create(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes the object, or turns the one that is there into it.
    pub fn put(message: impl Into<Message>) -> Self {
        Self::with(message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Changes an object that is there.
    pub fn change(message: impl Into<Message>) -> Self {
        Self::with(message, 0)
    }

    /// Removes an object; that it is gone already is as good.
    pub fn remove(message: impl Into<Message>) -> Self {
        Self::with(message, 0).tolerating(&[
            Errno::ESRCH,
            Errno::ENOENT,
            Errno::ENODEV,
            Errno::ENXIO,
            Errno::EADDRNOTAVAIL,
        ])
    }

    /// Asks for one object.
    pub fn get(message: impl Into<Message>) -> Self {
        Self { asks: true, ..Self::with(message, 0) }
    }

    fn with(message: impl Into<Message>, flags: u16) -> Self {
        Self { message: message.into(), flags: flags | NLM_F_REQUEST, asks: false, tolerated: &[] }
    }

    /// The same request, answered with the object as it is then, by kernels that know how to (for links, since 6.2).
    #[must_use]
    pub fn echoed(mut self) -> Self {
        self.flags |= NLM_F_ECHO;
        self
    }

    /// Whether it asks for something, so that it is always answered or refused.
    pub(super) fn asks(&self) -> bool {
        self.asks
    }

    /// The same request, content with being refused for one of these reasons.
    #[must_use]
    pub fn tolerating(mut self, tolerated: &'static [Errno]) -> Self {
        self.tolerated = tolerated;
        self
    }

    /// Whether being refused with `errno` is as good as success.
    pub fn tolerates(&self, errno: Errno) -> bool {
        self.tolerated.contains(&errno)
    }

    /// The message that is sent.
    pub fn message(&self) -> Result<RouteNetlinkMessage, DecodeError> {
        self.message.read()
    }

    /// What is asked for, in words.
    pub fn describe(&self) -> String {
        match self.message() {
            Ok(message) => describe::message(&message),
            Err(_) => format!("send a message of type {}", self.message.kind()),
        }
    }

    /// Appends the request as it travels. One that is not to be answered for is heard of again only if it asks for something or
    /// is refused.
    pub fn encode(&self, sequence: u32, answered: bool, buffer: &mut Vec<u8>) {
        let flags = if answered && !self.asks { self.flags | NLM_F_ACK } else { self.flags };
        let length = HEADER + self.message.body().len();
        // Every part of a message is padded to four bytes already, so that the next one starts aligned.
        buffer.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        buffer.extend_from_slice(&self.message.kind().to_ne_bytes());
        buffer.extend_from_slice(&flags.to_ne_bytes());
        buffer.extend_from_slice(&sequence.to_ne_bytes());
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(self.message.body());
    }
}
