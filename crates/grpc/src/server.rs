//! The agent's end of a connection, as a state machine: bytes and answers in, calls and bytes out.
//!
//! ```text
//!   bytes read ──▶ receive ──▶ event ──▶ Call, Cancelled
//!   answers    ──▶ answer  ──▶ outgoing ──▶ bytes to write ──▶ wrote
//! ```
//!
//! The driver reads and writes, and decides when to write: the greeting is pending from the start, and may be written with the
//! first answer ([`Connection::may_wait`]). What a peer can make it keep is bounded: heads, unfinished messages, calls in
//! progress, and what the peer does not read ([`Connection::wants_input`]).
//!
//! The states of a stream (RFC 9113, section 5.1; we open no streams):
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

/// The most calls at once on a connection.
pub const MOST_CALLS: usize = 100;
/// The largest head, coded and decoded.
const LARGEST_HEAD: usize = 16 << 10;
/// A window as large as the largest call, so that no call waits in the middle.
const STREAM_WINDOW: u32 = (4 << 20) + (64 << 10);
const _: () = assert!(STREAM_WINDOW as usize >= LARGEST_MESSAGE + MESSAGE_PREFIX + 2 * LARGEST_PAYLOAD);
/// How much a connection may send before we reply, and how much of unfinished messages is kept.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// How much output may wait before reading stops: a peer that does not read is not read from.
const MOST_OUTGOING: usize = 256 << 10;
/// The size of a usual answer with its frames.
const USUAL_ANSWER: usize = 1024;
/// The largest buffer that is kept for the next connection.
const LARGEST_KEPT: usize = 16 << 10;

/// An event of a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// It makes a call.
    Call(Call),
    /// It no longer waits for the answer to the call on this stream.
    Cancelled(u32),
}

/// A complete call.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// The stream for the answer.
    pub stream: u32,
    /// One of the methods that the connection was made with.
    pub path: &'static str,
    /// How long the caller waits.
    pub timeout: Option<Duration>,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// The message with its prefix.
    body: Vec<u8>,
}

impl Call {
    /// The request, encoded.
    pub fn message(&self) -> &[u8] {
        self.body.get(MESSAGE_PREFIX..).unwrap_or_default()
    }
}

/// A caller's connection.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent")]
pub struct Connection {
    /// The paths of all methods.
    methods: &'static [&'static str],
    phase: Phase,
    /// The start of a frame.
    partial: Vec<u8>,
    /// An incomplete header block.
    block: Option<frames::Block>,
    headers: hpack::Decoder,
    events: VecDeque<Event>,
    streams: Vec<Stream>,
    last_stream: u32,
    /// How many bytes of incomplete messages are kept.
    unfinished: usize,
    /// How much the peer may still send.
    window_in: i64,

    out: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Whether the peer may be waiting for it.
    urgent: bool,
    /// How much we may still send; then the peer's settings for new streams and frames.
    window_out: i64,
    peers_window: i64,
    peers_frame: usize,

    /// The peer sent GOAWAY.
    peer_goes: bool,
    /// We sent GOAWAY.
    goes: bool,
    /// Nothing is read any more, and nothing written except pending output.
    closed: bool,
}

impl Connection {
    /// A new connection. `methods` are the paths of all methods.
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

    /// Handles bytes that were read.
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

    /// The next event of the peer.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Answers a call; does nothing if its caller no longer waits.
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

    /// Accepts no new calls; the connection ends when those in progress are answered.
    pub fn shut_down(&mut self) {
        if !self.closed && !self.goes {
            self.send_goaway(Reason::NoError, "");
        }
        self.settle();
    }

    /// The bytes to write.
    pub fn outgoing(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or_default()
    }

    /// Records that this many of them were written.
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

    /// Whether everyone who waits for the pending output also waits for an answer.
    pub fn may_wait(&self) -> bool {
        !self.urgent && self.streams.iter().all(|stream| stream.state == State::Asked)
    }

    /// Whether to read more: not while the peer leaves too much unread.
    pub fn wants_input(&self) -> bool {
        !self.closed && self.outgoing().len() < MOST_OUTGOING
    }

    /// Whether the peer will make no more calls, and need not send anything to get its answers.
    pub fn is_all_asked(&self) -> bool {
        self.peer_goes && self.streams.iter().all(|stream| stream.state == State::Asked)
    }

    /// Whether everything is done and written.
    pub fn is_over(&self) -> bool {
        self.closed && self.outgoing().is_empty()
    }

    /// How many bytes it keeps that depend on the peer.
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

    /// Sends as much of all answers as the windows and the output limit allow: a frame of each in turn.
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

    /// Ends a connection that is shutting down with the last of its calls.
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
