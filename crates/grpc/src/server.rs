//! The agent's end of a connection, as a state machine: bytes and answers in, calls and bytes out.
//!
//! ```text
//!   bytes read ──▶ receive ──▶ event ──▶ Call, Cancelled
//!   answers    ──▶ answer  ──▶ outgoing ──▶ bytes to write ──▶ wrote
//! ```
//!
//! Whoever drives it reads and writes, and decides when to write: the greeting is outgoing from the beginning, and may travel
//! with the first answer ([`Connection::may_wait`]). What a peer can make it keep is bounded: heads, unfinished messages, calls
//! that are under way, and what the peer does not read ([`Connection::wants_input`]).
//!
//! A stream goes this way (RFC 9113, section 5.1; streams of ours there are none):
//!
//! ```text
//!               HEADERS            END_STREAM           answer          all of it sent
//!   (idle) ──────────────▶ Asking ────────────▶ Asked ─────────▶ Answering ──────────▶ (closed)
//!                            │ refused            │ RST_STREAM: Cancelled       RST_STREAM ▲
//!                            └──▶ Refused ────────┴────────────────────────────────────────┘
//!                                          END_STREAM, RST_STREAM
//! ```

mod answer;
mod frames;
mod head;
mod stream;

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use crate::frame::{self, LARGEST_PAYLOAD, Reason, setting};
use crate::{LARGEST_MESSAGE, MESSAGE_PREFIX, Status, hpack};
use frames::Phase;
use stream::{State, Stream};

/// How many calls a connection may have at once.
pub const MOST_CALLS: usize = 100;
/// How large a head may be, coded and decoded.
const LARGEST_HEAD: usize = 16 << 10;
/// A window as large as the largest call, so that nobody waits in the middle of one.
const STREAM_WINDOW: u32 = (4 << 20) + (64 << 10);
const _: () = assert!(STREAM_WINDOW as usize >= LARGEST_MESSAGE + MESSAGE_PREFIX + 2 * LARGEST_PAYLOAD);
/// How much a connection may send without hearing from us, and how much of unfinished messages is kept.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// How much may be outgoing before nothing more is read: who does not read is not listened to.
const MOST_OUTGOING: usize = 256 << 10;
/// An answer with all that is around it.
const USUAL_ANSWER: usize = 1024;
/// What buffers may keep from one connection to the next.
const LARGEST_KEPT: usize = 16 << 10;

/// What a peer did that somebody has to know of.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It asks.
    Call(Call),
    /// It does not wait any more for the answer to the call on this stream.
    Cancelled(u32),
}

/// A call, whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Where the answer goes to.
    pub stream: u32,
    /// One of the methods that the connection was made with.
    pub path: &'static str,
    /// How long the caller waits.
    pub timeout: Option<Duration>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The message, behind what every message has in front.
    body: Vec<u8>,
}

impl Call {
    /// The request, encoded.
    pub fn message(&self) -> &[u8] {
        self.body.get(MESSAGE_PREFIX..).unwrap_or_default()
    }
}

/// A connection of a caller.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Connection {
    /// The paths of all methods.
    methods: &'static [&'static str],
    phase: Phase,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// A header block of which more is to come.
    block: Option<frames::Block>,
    headers: hpack::Decoder,
    events: VecDeque<Event>,
    streams: Vec<Stream>,
    last_stream: u32,
    /// How much of messages that are not complete yet is kept.
    unfinished: usize,
    /// How much the peer may send still.
    window_in: i64,

    out: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Whether somebody may be waiting for it.
    urgent: bool,
    /// How much we may send still; then what the peer said about new streams and about frames.
    window_out: i64,
    peers_window: i64,
    peers_frame: usize,

    /// The peer said that it goes.
    peer_goes: bool,
    /// We said so.
    goes: bool,
    /// Nothing is heard any more, and nothing said but what is outgoing.
    closed: bool,
}

impl Connection {
    /// A connection on which nothing was said yet. `methods` are the paths of all methods that there are.
    pub fn new(methods: &'static [&'static str]) -> Self {
        let mut connection = Self { out: Vec::with_capacity(USUAL_ANSWER), ..Self::silent(methods) };
        connection.greet();
        connection
    }

    /// A new connection, with the buffers of this one.
    #[must_use]
    pub fn renewed(mut self) -> Self {
        for buffer in [&mut self.partial, &mut self.out] {
            buffer.clear();
            buffer.shrink_to(LARGEST_KEPT);
        }
        self.headers.clear();
        self.events.clear();
        self.streams.clear();
        let Self { methods, partial, headers, events, streams, out, .. } = self;
        let mut renewed = Self { partial, headers, events, streams, out, ..Self::silent(methods) };
        renewed.greet();
        renewed
    }

    fn silent(methods: &'static [&'static str]) -> Self {
        Self {
            methods,
            phase: Phase::Preface,
            partial: Vec::new(),
            block: None,
            headers: hpack::Decoder::default(),
            events: VecDeque::new(),
            streams: Vec::new(),
            last_stream: 0,
            unfinished: 0,
            window_in: i64::from(CONNECTION_WINDOW),
            out: Vec::new(),
            written: 0,
            urgent: false,
            window_out: frame::INITIAL_WINDOW,
            peers_window: frame::INITIAL_WINDOW,
            peers_frame: LARGEST_PAYLOAD,
            peer_goes: false,
            goes: false,
            closed: false,
        }
    }

    /// Takes what was read.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.partial.is_empty() {
            let taken = self.take(bytes);
            self.partial.extend_from_slice(&bytes[taken..]);
        } else {
            let mut whole = mem::take(&mut self.partial);
            whole.extend_from_slice(bytes);
            let taken = self.take(&whole);
            whole.drain(..taken);
            self.partial = whole;
        }
        if self.closed {
            self.partial.clear();
        }
    }

    /// What the peer did, one by one.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers a call; nothing if its caller does not wait any more.
    pub fn answer(&mut self, stream: u32, outcome: Result<Vec<u8>, Status>) {
        let Some(index) = self.position(stream).filter(|index| self.streams[*index].state == State::Asked)
        else {
            return;
        };
        match outcome {
            Ok(message) => {
                answer::begin(&mut self.out, stream);
                self.urgent = true;
                self.streams[index].answer = message;
                self.streams[index].state = State::Answering;
                self.push_answers();
            }
            Err(status) => {
                answer::refusal(&mut self.out, stream, 200, &status);
                self.urgent = true;
                self.streams.remove(index);
            }
        }
        self.settle();
    }

    /// Takes no new calls; when those that are under way are answered, it is over.
    pub fn shut_down(&mut self) {
        if !self.closed && !self.goes {
            self.send_goaway(Reason::NoError, "");
        }
        self.settle();
    }

    /// What is to be written.
    pub fn outgoing(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or_default()
    }

    /// So much of it is written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.out.len() {
            self.out.clear();
            self.written = 0;
            self.urgent = false;
            self.push_answers();
            self.settle();
        }
    }

    /// Whether nobody waits for what is outgoing who does not wait for an answer as well.
    pub fn may_wait(&self) -> bool {
        !self.urgent && self.streams.iter().all(|stream| stream.state == State::Asked)
    }

    /// Whether more is to be read: not while the peer leaves too much unread itself.
    pub fn wants_input(&self) -> bool {
        !self.closed && self.outgoing().len() < MOST_OUTGOING
    }

    /// Whether the peer has asked all that it will ask, and needs to say nothing more to be answered.
    pub fn is_all_asked(&self) -> bool {
        self.peer_goes && self.streams.iter().all(|stream| stream.state == State::Asked)
    }

    /// Whether all is said and written.
    pub fn is_over(&self) -> bool {
        self.closed && self.outgoing().is_empty()
    }

    /// How many bytes it keeps, of all that depends on the peer.
    pub fn kept(&self) -> usize {
        let streams = self.streams.iter().map(|stream| stream.body.len() + stream.answer.len());
        self.partial.len() + self.out.len() + streams.sum::<usize>()
    }

    fn greet(&mut self) {
        frame::settings(
            &mut self.out,
            &[
                (setting::MAX_CONCURRENT_STREAMS, u32::try_from(MOST_CALLS).unwrap_or(u32::MAX)),
                (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
                (setting::MAX_HEADER_LIST_SIZE, u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX)),
            ],
        );
        frame::window_update(&mut self.out, 0, CONNECTION_WINDOW - 65_535);
    }

    /// Sends as much of all answers as windows and the peer's patience with reading allow: a frame of each in turn.
    fn push_answers(&mut self) {
        let mut moved = true;
        while mem::take(&mut moved) {
            let mut index = 0;
            while let Some(stream) = self.streams.get_mut(index) {
                if self.out.len() - self.written >= MOST_OUTGOING {
                    return;
                }
                let sent = stream.push(&mut self.out, self.window_out, self.peers_frame);
                if sent > 0 {
                    self.urgent = true;
                    self.window_out -= sent;
                    moved = true;
                }
                if stream.is_answered() {
                    answer::end(&mut self.out, stream.id);
                    self.streams.remove(index);
                } else {
                    index += 1;
                }
            }
        }
    }

    /// A connection that somebody wants to end ends with the last of its calls.
    fn settle(&mut self) {
        if !self.closed && self.streams.is_empty() && (self.peer_goes || self.goes) {
            if !self.goes {
                self.send_goaway(Reason::NoError, "");
            }
            self.closed = true;
        }
    }

    fn send_goaway(&mut self, reason: Reason, words: &str) {
        frame::go_away(&mut self.out, self.last_stream, reason, words);
        (self.goes, self.urgent) = (true, true);
    }

    fn position(&self, stream: u32) -> Option<usize> {
        self.streams.iter().position(|known| known.id == stream)
    }
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
