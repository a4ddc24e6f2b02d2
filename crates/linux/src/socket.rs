//! A synchronous netlink socket: of the route family, and raw ones of the generic and netfilter families.
//!
//! Several requests travel in one `sendmsg`, and each gets its own result. A refusal names the request, the error and the
//! kernel's explanation. The kernel filters dumps, and a dump is complete: an interrupted one is repeated from its start. A
//! socket belongs to the network namespace in which it was opened, whichever thread uses it.
//!
//! Of several requests only the last is acknowledged or answered. The kernel processes them in order and always reports
//! refusals, so requests without a report are done.

mod answer;
mod describe;
mod error;
mod message;
mod refusal;
mod request;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP_INTR, NetlinkBuffer, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    Parseable,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{SocketAddr, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use nix::libc::MSG_DONTWAIT;
use nix::sys::socket::{setsockopt, sockopt};

pub use self::answer::Answer;
pub(crate) use self::answer::Raw;
pub use self::error::{Error, Kind};
pub use self::message::Message;
pub use self::refusal::Refusal;
pub use self::request::Request;

/// The kernel's result for one request of an exchange: its answer, if any, or its refusal.
pub type Outcome<A = Answer> = Result<Option<A>, Refusal>;

/// Requests per `sendmsg`. Each acknowledgement takes up to a kilobyte of the receive buffer until it is read, and is lost
/// silently if there is no room; this many fit many times over.
const BATCH: usize = 128;
/// The kernel writes dumps in pieces of up to 32 KiB, if the reader offers that much room.
const READ: usize = 64 * 1024;
/// Room for messages that we have not read yet.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;
/// How often a dump is repeated. Links that come and go interrupt it. A hundred concurrent pod setups do so for some tens of
/// milliseconds; one attempt takes well under one.
const DUMP_ATTEMPTS: usize = 1_000;

/// A netlink socket in one network namespace: of the route family, unless its answers are [`Raw`].
pub struct Socket<A = Answer> {
    inner: netlink_sys::Socket,
    sequence: u32,
    memory: Memory,
    interruptions: u64,
    answers: PhantomData<fn() -> A>,
}

/// The buffers of a socket, for reuse.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl<A> std::fmt::Debug for Socket<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket").field("fd", &self.inner.as_raw_fd()).finish_non_exhaustive()
    }
}

impl<A> AsFd for Socket<A> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    pub fn open() -> Result<Self, Error> {
        Self::connect(NETLINK_ROUTE, Memory::default()).and_then(Self::widen).map_err(Error::Open)
    }

    /// Opens a socket in the calling thread's network namespace for a few changes, not for lists or hundreds of requests. It
    /// opens in half the time, and every ADD waits for one.
    pub(crate) fn open_for_changes(memory: Memory) -> Result<Self, Error> {
        Self::connect(NETLINK_ROUTE, memory).map_err(Error::Open)
    }

    /// All objects that match `filter`, as of one moment: a dump is repeated if something changed meanwhile.
    ///
    /// A filter for something that does not exist (a table without routes) matches nothing.
    pub fn dump(&mut self, filter: &RouteNetlinkMessage) -> Result<Vec<Answer>, Error> {
        self.list(&Request::list(filter.clone()))
    }
}

impl Socket<Raw> {
    /// Opens a socket of another family (`NETLINK_…`) in the calling thread's network namespace.
    pub(crate) fn open_raw(protocol: isize) -> Result<Self, Error> {
        Self::connect(protocol, Memory::default()).and_then(Self::widen).map_err(Error::Open)
    }
}

impl<A: NetlinkDeserializable<Error = DecodeError>> Socket<A> {
    /// Closes it and returns its buffers.
    pub(crate) fn into_memory(self) -> Memory {
        self.memory
    }

    fn connect(protocol: isize, mut memory: Memory) -> std::io::Result<Self> {
        let inner = netlink_sys::Socket::new(protocol)?;
        // Connected to the kernel, so that nobody else can answer. This also assigns the socket its address.
        inner.connect(&SocketAddr::new(0, 0))?;
        // Extended acknowledgements explain refusals.
        inner.set_ext_ack(true)?;
        memory.received.clear();
        memory.received.reserve(READ);
        Ok(Self { inner, sequence: 0, memory, interruptions: 0, answers: PhantomData })
    }

    fn widen(self) -> std::io::Result<Self> {
        // Acknowledgements do not repeat the request, and a dump with an unsupported filter is refused: without strict checking
        // the kernel ignores the filter and sends everything.
        self.inner.set_cap_ack(true)?;
        self.inner.set_netlink_get_strict_chk(true)?;
        // The common limit is 208 KiB. A process that may configure the network may exceed it; others use the limit.
        if setsockopt(&self.inner, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            setsockopt(&self.inner, sockopt::RcvBuf, &RECEIVE_BUFFER)?;
        }
        Ok(self)
    }

    /// Performs all `requests`; fails with the first refusal that its request does not tolerate.
    ///
    /// The kernel continues after a refusal: later requests of the same call may have been performed.
    pub fn apply(&mut self, requests: &[Request]) -> Result<(), Error> {
        let outcomes = self.exchange(requests)?;
        Self::judge(requests, outcomes)
    }

    /// The same in one message, however many there are: a transaction must not be split.
    pub(crate) fn apply_at_once(&mut self, requests: &[Request]) -> Result<(), Error> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let result = self.exchange_batch(requests, 0, requests.len(), &mut outcomes);
        if result.is_err() {
            self.drain();
        }
        result?;
        Self::judge(requests, outcomes)
    }

    fn judge(requests: &[Request], outcomes: Vec<Outcome<A>>) -> Result<(), Error> {
        for (request, outcome) in requests.iter().zip(outcomes) {
            if let Err(refusal) = outcome
                && !request.tolerates(refusal.errno)
            {
                return Err(Error::Refused(refusal));
            }
        }
        Ok(())
    }

    /// Sends all `requests`, in as few messages as is safe, and returns the result of each.
    pub fn exchange(&mut self, requests: &[Request]) -> Result<Vec<Outcome<A>>, Error> {
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

    /// Requests one object; `None` if it does not exist.
    pub fn get(&mut self, request: &Request) -> Result<Option<A>, Error> {
        match self.exchange(std::slice::from_ref(request))?.pop() {
            Some(Ok(Some(answer))) => Ok(Some(answer)),
            Some(Err(refusal)) if refusal.kind() == Kind::Gone => Ok(None),
            Some(Err(refusal)) => Err(Error::Refused(refusal)),
            Some(Ok(None)) | None => Err(Error::Unanswered { act: request.describe() }),
        }
    }

    /// All objects that answer a list request, like [`dump`](Socket::dump).
    pub(crate) fn list(&mut self, filter: &Request) -> Result<Vec<A>, Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = Vec::new();
            let attempt = self.dump_once(filter, |answer| found.push(answer));
            if !matches!(attempt, Ok(true)) {
                self.drain();
            }
            if attempt? {
                return Ok(found);
            }
            self.interruptions += 1;
        }
        Err(Error::Interrupted { act: filter.describe(), attempts: DUMP_ATTEMPTS })
    }

    /// Passes all objects that answer a list request to a callback, one by one: for long lists that need not be of one moment.
    pub(crate) fn each(&mut self, filter: &Request, show: impl FnMut(A)) -> Result<(), Error> {
        let attempt = self.dump_once(filter, show);
        if !matches!(attempt, Ok(true)) {
            self.drain();
        }
        attempt.map(drop)
    }

    /// How often a dump was repeated because something changed meanwhile.
    pub fn interruptions(&self) -> u64 {
        self.interruptions
    }

    fn exchange_batch(
        &mut self,
        batch: &[Request],
        start: usize,
        total: usize,
        outcomes: &mut Vec<Outcome<A>>,
    ) -> Result<(), Error> {
        let first = self.sequence.wrapping_add(1);
        self.memory.sent.clear();
        let last = batch.iter().rposition(|request| !request.is_frame()).unwrap_or_default();
        for (index, request) in batch.iter().enumerate() {
            self.sequence = self.sequence.wrapping_add(1);
            request.encode(self.sequence, index == last, &mut self.memory.sent);
        }
        self.send(|| batch.first().map_or_else(String::new, Request::describe))?;
        outcomes.resize_with(start + batch.len(), || Ok(None));
        // The first request without a known result.
        let mut next = 0;
        while next <= last {
            match self.receive() {
                Ok(()) => {}
                // A transaction that is refused at its beginning gets no further answers.
                Err(Errno::EAGAIN) if outcomes[start..].iter().any(Result::is_err) => break,
                // The kernel answers before `sendmsg` returns; what is not there now never comes.
                Err(Errno::EAGAIN) => {
                    let act = describe::position(start + next, total);
                    return Err(Error::Unanswered { act });
                }
                Err(Errno::ENOBUFS) => return Err(Error::Overrun),
                Err(errno) => return Err(Error::Receive(errno)),
            }
            for message in Messages::<A>::of(&self.memory.received) {
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

    /// One attempt at a dump; `false` if it was interrupted.
    fn dump_once(&mut self, filter: &Request, mut show: impl FnMut(A)) -> Result<bool, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        self.memory.sent.clear();
        filter.encode(self.sequence, false, &mut self.memory.sent);
        self.send(|| filter.describe())?;
        let mut interrupted = false;
        loop {
            match self.receive() {
                Ok(()) => {}
                Err(Errno::ENOBUFS) => return Ok(false),
                Err(Errno::EAGAIN) => return Err(Error::Unanswered { act: filter.describe() }),
                Err(errno) => return Err(Error::Receive(errno)),
            }
            for message in Messages::<A>::of(&self.memory.received) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
                let refusal = match message.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        show(inner);
                        continue;
                    }
                    NetlinkPayload::Done(done) => Refusal::read_done(&done, filter),
                    NetlinkPayload::Error(error) => Refusal::read_dump(&error, message.header.flags, filter),
                    _ => continue,
                };
                return match refusal {
                    None => Ok(!interrupted),
                    Some(refusal) if refusal.errno == Errno::EINTR => Ok(false),
                    Some(refusal) if refusal.kind() == Kind::Gone => Ok(true),
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

    /// Reads the rest of an exchange that cannot be finished, so that the next one starts clean.
    fn drain(&mut self) {
        while matches!(self.receive(), Ok(()) | Err(Errno::ENOBUFS)) {}
    }
}

/// The messages of one datagram, in order.
struct Messages<'a, A> {
    rest: &'a [u8],
    answers: PhantomData<fn() -> A>,
}

impl<'a, A> Messages<'a, A> {
    fn of(datagram: &'a [u8]) -> Self {
        Self { rest: datagram, answers: PhantomData }
    }
}

impl<A: NetlinkDeserializable<Error = DecodeError>> Iterator for Messages<'_, A> {
    type Item = Result<NetlinkMessage<A>, Error>;

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
