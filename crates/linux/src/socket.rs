//! A synchronous route netlink socket.
//!
//! It promises: several requests travel in one `sendmsg` and each is answered for by itself; a refusal names the
//! request, the error and the kernel's own explanation; a dump is filtered in the kernel and is whole, because an
//! interrupted one is taken again from its start. It belongs to the network namespace in which it was opened, wherever
//! it is used later.
//!
//! Of several requests only the last is acknowledged, or answered. The kernel takes them in order and always says what it
//! refuses, so that whatever it was silent about by then is done.

mod answer;
mod describe;
mod error;
mod message;
mod refusal;
mod request;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{
    Emitable, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::libc::MSG_DONTWAIT;
use nix::sys::socket::{setsockopt, sockopt};

pub use self::answer::Answer;
pub use self::error::{Error, Kind};
pub use self::message::Message;
pub use self::refusal::Refusal;
pub use self::request::Request;

/// What the kernel said to one request of an exchange: what it answered with, if anything, or its refusal.
pub type Outcome = Result<Option<Answer>, Refusal>;

/// Requests of one `sendmsg`. Each acknowledgement takes up to a kilobyte of the receive buffer until it is read, and
/// one that finds no room there is lost without notice; this many fit many times over.
const BATCH: usize = 128;
/// The kernel writes dumps in pieces of up to 32 KiB, if the reader offers as much room.
const READ: usize = 64 * 1024;
/// Room for what the kernel says before we read it.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;
/// How often a dump is begun again. Links that come and go restart it; a hundred pods set up at once do so for some
/// tens of milliseconds, and one attempt takes well under one.
const DUMP_ATTEMPTS: usize = 1_000;

/// A route netlink socket of one network namespace.
pub struct Socket {
    inner: netlink_sys::Socket,
    sequence: u32,
    memory: Memory,
    interruptions: u64,
}

/// The memory of a socket, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("fd", &self.inner.as_raw_fd()).finish_non_exhaustive()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, Error> {
        Self::connect(Memory::default()).and_then(Self::widen).map_err(Error::Open)
    }

    /// Opens one in the calling thread's network namespace that is good for some changes, and neither for lists nor for
    /// hundreds of requests: it is ready in half the time, and every pod waits for one.
    pub(crate) fn open_for_changes(memory: Memory) -> Result<Self, Error> {
        Self::connect(memory).map_err(Error::Open)
    }

    /// Closes it, and leaves its memory.
    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }

    fn connect(mut memory: Memory) -> std::io::Result<Self> {
        let inner = netlink_sys::Socket::new(NETLINK_ROUTE)?;
        // To the kernel, so that nobody else can answer. It gets an address of its own in passing.
        inner.connect(&SocketAddr::new(0, 0))?;
        // Refusals explain themselves.
        inner.set_ext_ack(true)?;
        memory.received.clear();
        memory.received.reserve(READ);
        Ok(Self { inner, sequence: 0, memory, interruptions: 0 })
    }

    fn widen(self) -> std::io::Result<Self> {
        // Refusals do not carry the request back, and a dump obeys its filter or is refused: without strict checking the
        // kernel ignores what it does not filter by and sends everything.
        self.inner.set_cap_ack(true)?;
        self.inner.set_netlink_get_strict_chk(true)?;
        // The limit for everyone is 208 KiB; whoever may configure the network may pass it, and others make do.
        if setsockopt(&self.inner, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&self.inner, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        Ok(self)
    }

    /// Carries out all `requests`; fails with the first refusal that its request does not tolerate.
    ///
    /// The kernel goes on after a refusal: later requests of the same call may have been carried out.
    pub fn apply(&mut self, requests: &[Request]) -> Result<(), Error> {
        let outcomes = self.exchange(requests)?;
        for (request, outcome) in requests.iter().zip(outcomes) {
            if let Err(refusal) = outcome
                && !request.tolerates(refusal.errno)
            {
                return Err(Error::Refused(refusal));
            }
        }
        Ok(())
    }

    /// Sends all `requests`, in as few messages as is safe, and says of each what came of it.
    pub fn exchange(&mut self, requests: &[Request]) -> Result<Vec<Outcome>, Error> {
        let mut outcomes = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            let start = outcomes.len();
            let result = self.exchange_batch(batch, start, requests.len(), &mut outcomes);
            if result.is_err() {
                self.drain();
            }
            result?;
        }
        Ok(outcomes)
    }

    /// Asks for one object; `None` if the kernel does not have it.
    pub fn get(&mut self, request: &Request) -> Result<Option<Answer>, Error> {
        match self.exchange(std::slice::from_ref(request))?.pop() {
            Some(Ok(Some(answer))) => Ok(Some(answer)),
            Some(Err(refusal)) if refusal.kind() == Kind::Gone => Ok(None),
            Some(Err(refusal)) => Err(Error::Refused(refusal)),
            Some(Ok(None)) | None => Err(Error::Unanswered { act: request.describe() }),
        }
    }

    /// All objects that match `filter`, as of one moment: a dump during which something changed is taken again.
    ///
    /// A filter that names what does not exist (a table without routes) matches nothing.
    pub fn dump(&mut self, filter: &RouteNetlinkMessage) -> Result<Vec<Answer>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let attempt = self.dump_once(filter);
            if !matches!(attempt, Ok(Some(_))) {
                self.drain();
            }
            if let Some(found) = attempt? {
                return Ok(found);
            }
            self.interruptions += 1;
        }
        Err(Error::Interrupted { act: describe::message(filter), attempts: DUMP_ATTEMPTS })
    }

    /// How often a dump was taken again because something changed meanwhile.
    pub fn interruptions(&self) -> u64 {
        self.interruptions
    }

    fn exchange_batch(
        &mut self,
        batch: &[Request],
        start: usize,
        total: usize,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let first = self.sequence.wrapping_add(1);
        self.memory.sent.clear();
        for (index, request) in batch.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            let last = index + 1 == batch.len();
            request.encode(self.sequence, last, &mut self.memory.sent);
        }
        self.send(|| batch.first().map_or_else(String::new, Request::describe))?;
        outcomes.resize_with(start + batch.len(), || Ok(None));
        // The first that is not known to be answered for.
        let mut next = 0;
        while next < batch.len() {
            match self.receive() {
                Ok(()) => {}
                // The kernel answers before `sendmsg` returns; what is not there now will never come.
                Err(Errno::EAGAIN) => {
                    let act = describe::position(start + next, total);
                    return Err(Error::Unanswered { act });
                }
                Err(Errno::ENOBUFS) => return Err(Error::Overrun),
                Err(errno) => return Err(Error::Receive(errno)),
            }
            for message in Messages::of(&self.memory.received) {
                let message = message?;
                let index = message.header.sequence_number.wrapping_sub(first) as usize;
                let (Some(request), Some(outcome)) = (batch.get(index), outcomes.get_mut(start + index))
                else {
                    continue; // left over from a call that ended early
                };
                match message.payload {
                    NetlinkPayload::Error(error) => {
                        next = index + 1;
                        if let Some(refusal) =
                            Refusal::read(&error, message.header.flags, request, start + index, total)
                        {
                            *outcome = Err(refusal);
                        }
                    }
                    NetlinkPayload::InnerMessage(inner) => {
                        if request.asks() {
                            next = index + 1;
                        }
                        *outcome = Ok(Some(inner));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// One attempt at a dump; `None` if it was interrupted.
    fn dump_once(&mut self, filter: &RouteNetlinkMessage) -> Result<Option<Vec<Answer>>, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        self.memory.sent.clear();
        encode(filter, NLM_F_REQUEST | NLM_F_DUMP, self.sequence, &mut self.memory.sent);
        self.send(|| describe::message(filter))?;
        let mut found = Vec::new();
        let mut interrupted = false;
        loop {
            match self.receive() {
                Ok(()) => {}
                Err(Errno::ENOBUFS) => return Ok(None),
                Err(Errno::EAGAIN) => return Err(Error::Unanswered { act: describe::message(filter) }),
                Err(errno) => return Err(Error::Receive(errno)),
            }
            for message in Messages::of(&self.memory.received) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                let refusal = match message.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        found.push(inner);
                        continue;
                    }
                    NetlinkPayload::Done(done) => Refusal::read_done(&done, filter),
                    NetlinkPayload::Error(error) => Refusal::read_dump(&error, message.header.flags, filter),
                    _ => continue,
                };
                return match refusal {
                    None => Ok((!interrupted).then_some(found)),
                    Some(refusal) if refusal.errno == Errno::EINTR => Ok(None),
                    Some(refusal) if refusal.kind() == Kind::Gone => Ok(Some(Vec::new())),
                    Some(refusal) => Err(Error::Refused(refusal)),
                };
            }
        }
    }

    fn send(&self, act: impl FnOnce() -> String) -> Result<(), Error> {
        loop {
            match self.inner.send(&self.memory.sent, 0) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Send { act: act(), source }),
            }
        }
    }

    fn receive(&mut self) -> Result<(), Errno> {
        loop {
            self.memory.received.clear();
            match self.inner.recv(&mut self.memory.received, MSG_DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw) {
                    Errno::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }

    /// Reads what is left of an exchange that cannot be finished, so that the next one starts clean.
    fn drain(&mut self) {
        while matches!(self.receive(), Ok(()) | Err(Errno::ENOBUFS)) {}
    }
}

/// Appends `message` with its netlink header to `buffer`.
fn encode(message: &RouteNetlinkMessage, flags: u16, sequence: u32, buffer: &mut Vec<u8>) {
    let mut header = NetlinkHeader::default();
    let length = header.buffer_len() + message.buffer_len();
    // Every part of a route message is padded to four bytes already, so that the next message starts aligned.
    header.length = u32::try_from(length).unwrap_or(u32::MAX);
    header.message_type = message.message_type();
    header.flags = flags;
    header.sequence_number = sequence;
    let start = buffer.len();
    buffer.resize(start + length, 0);
    header.emit(&mut buffer[start..]);
    message.emit(&mut buffer[start + header.buffer_len()..]);
}

/// The messages of one datagram, in order.
struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    fn of(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<NetlinkMessage<Answer>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let buffer = match NetlinkBuffer::new_checked(self.rest) {
            Ok(buffer) => buffer,
            Err(source) => {
                self.rest = &[];
                return Some(Err(Error::Decode(source)));
            }
        };
        let length = (buffer.length() as usize).next_multiple_of(4);
        let message = NetlinkMessage::parse(&NetlinkBuffer::new(&self.rest)).map_err(Error::Decode);
        self.rest = self.rest.get(length..).unwrap_or_default();
        Some(message)
    }
}
