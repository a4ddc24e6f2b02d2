//! Handling of each frame of a caller.
//!
//! A peer that breaks a rule of a stream loses the stream; one that breaks a rule of the connection loses the
//! connection and is told why. Frames of closed streams are ignored: they may have been in flight when the
//! stream was closed.

use super::head::{Asks, Head, Verdict};
use super::stream::{State, Stream};
use super::{CONNECTION_WINDOW, Call, Connection, Event, LARGEST_HEAD, MOST_CALLS, STREAM_WINDOW, answer};
use crate::frame::{
    self, Frame, HEADER, Header, Kind, LARGEST, LARGEST_PAYLOAD, PREFACE, Reason, flags, setting,
};
use crate::status::{Code, Status};

/// The stages at the start of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Preface,
    Settings,
    Open,
}

/// An incomplete header block.
#[derive(Debug)]
pub(super) struct Block {
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
}

/// Why a connection cannot continue.
struct Fault(Reason, &'static str);

impl From<frame::Malformed> for Fault {
    fn from(malformed: frame::Malformed) -> Self {
        Self(malformed.reason, "a frame is malformed")
    }
}

impl Connection {
    /// Handles all complete frames; returns how many bytes they have.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        loop {
            match self.step(rest) {
                Ok(0) => return bytes.len() - rest.len(),
                Ok(taken) => rest = &rest[taken..],
                Err(Fault(reason, words)) => {
                    self.send_goaway(reason, words);
                    self.streams.clear();
                    self.closed = true;
                }
            }
        }
    }

    /// Handles the first frame, or the preface before all frames, if it is complete.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.closed {
            return Ok(0);
        }
        if self.phase == Phase::Preface {
            let there = bytes.len().min(PREFACE.len());
            if bytes[..there] != PREFACE[..there] {
                return Err(Fault(Reason::Protocol, "this is not HTTP/2"));
            }
            if there == PREFACE.len() {
                self.phase = Phase::Settings;
                return Ok(there);
            }
            return Ok(0);
        }
        let header = bytes.first_chunk::<HEADER>().map(|header| Header::read(*header));
        if header.is_some_and(|header| header.length > LARGEST_PAYLOAD) {
            return Err(Fault(Reason::FrameSize, "a frame is larger than was agreed on"));
        }
        let Some(frame) = Frame::first(bytes) else { return Ok(0) };
        self.frame(frame)?;
        self.settle();
        Ok(HEADER + frame.payload.len())
    }

    fn frame(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        let kind = frame.header.kind;
        if self.phase == Phase::Settings && (kind != Kind::Settings || frame.has(flags::ACK)) {
            return Err(Fault(Reason::Protocol, "the first frame is not SETTINGS"));
        }
        if self.block.is_some() && kind != Kind::Continuation {
            return Err(Fault(Reason::Protocol, "a header block is not continued"));
        }
        let of_connection = frame.header.stream == 0;
        match kind {
            Kind::Settings | Kind::Ping | Kind::GoAway if !of_connection => {
                Err(Fault(Reason::Protocol, "a frame of the connection is on a stream"))
            }
            Kind::Data | Kind::Headers | Kind::Priority | Kind::ResetStream | Kind::Continuation
                if of_connection =>
            {
                Err(Fault(Reason::Protocol, "a frame of a stream is on none"))
            }
            Kind::Data => self.data(frame),
            Kind::Headers => self.headers(frame),
            Kind::Continuation => self.continuation(frame),
            Kind::Settings => self.settings(frame),
            Kind::WindowUpdate => self.window_update(frame),
            Kind::ResetStream => {
                frame.number()?;
                if let Some(index) = self.known(frame)? {
                    self.drop_stream(index);
                }
                Ok(())
            }
            Kind::Ping => {
                frame.sized(8)?;
                if !frame.has(flags::ACK) {
                    frame::ping_ack(&mut self.out, frame.payload);
                    self.urgent = true;
                }
                Ok(())
            }
            Kind::GoAway => {
                frame.u32_at(4)?;
                self.peer_goes = true;
                Ok(())
            }
            Kind::Priority => Ok(frame.sized(5).map(drop)?),
            Kind::PushPromise => Err(Fault(Reason::Protocol, "only a server may promise")),
            Kind::Other => Ok(()),
        }
    }

    fn settings(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        if frame.has(flags::ACK) {
            return Ok(frame.sized(0).map(drop)?);
        }
        for (setting, value) in frame.settings()? {
            match setting {
                setting::ENABLE_PUSH if value > 1 => {
                    return Err(Fault(Reason::Protocol, "ENABLE_PUSH is neither 0 nor 1"));
                }
                setting::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - self.peers_window;
                    self.peers_window = i64::from(value);
                    for stream in &mut self.streams {
                        stream.window_out += change;
                    }
                    let largest = self.streams.iter().map(|stream| stream.window_out).max();
                    if largest.max(Some(self.peers_window)) > Some(i64::from(LARGEST)) {
                        return Err(Fault(Reason::FlowControl, "INITIAL_WINDOW_SIZE is too large"));
                    }
                }
                setting::MAX_FRAME_SIZE => match usize::try_from(value) {
                    Ok(size @ LARGEST_PAYLOAD..0x100_0000) => self.peers_frame = size,
                    _ => return Err(Fault(Reason::Protocol, "MAX_FRAME_SIZE is not what may be")),
                },
                // We use no table, open no streams, and send few headers.
                _ => {}
            }
        }
        self.phase = Phase::Open;
        frame::settings_ack(&mut self.out);
        self.push_answers();
        Ok(())
    }

    fn window_update(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        let increment = i64::from(frame.number()? & LARGEST);
        if frame.header.stream == 0 {
            self.window_out += increment;
            if increment == 0 {
                return Err(Fault(Reason::Protocol, "WINDOW_UPDATE is 0"));
            }
            if self.window_out > i64::from(LARGEST) {
                return Err(Fault(Reason::FlowControl, "the connection's window is too large"));
            }
        } else if let Some(index) = self.known(frame)? {
            let stream = &mut self.streams[index];
            stream.window_out += increment;
            if increment == 0 {
                self.reset(index, Reason::Protocol);
            } else if stream.window_out > i64::from(LARGEST) {
                self.reset(index, Reason::FlowControl);
            }
        }
        self.push_answers();
        Ok(())
    }

    fn headers(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        if frame.header.stream.is_multiple_of(2) {
            return Err(Fault(Reason::Protocol, "a client's streams have odd numbers"));
        }
        let (stream, ends_stream) = (frame.header.stream, frame.has(flags::END_STREAM));
        let fragment = frame.header_fragment()?;
        if frame.has(flags::END_HEADERS) {
            return self.head(stream, ends_stream, fragment);
        }
        self.block = Some(Block { stream, ends_stream, bytes: fragment.to_vec() });
        Ok(())
    }

    fn continuation(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        let Some(mut block) = self.block.take().filter(|block| block.stream == frame.header.stream) else {
            return Err(Fault(Reason::Protocol, "there is no header block to continue"));
        };
        block.bytes.extend_from_slice(frame.payload);
        if block.bytes.len() > LARGEST_HEAD {
            return Err(Fault(Reason::EnhanceYourCalm, "a header block is too large"));
        }
        if frame.has(flags::END_HEADERS) {
            return self.head(block.stream, block.ends_stream, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Handles a complete head: before a message, or after one.
    fn head(&mut self, stream: u32, ends_stream: bool, block: &[u8]) -> Result<(), Fault> {
        let mut head = Head::new(self.methods);
        let read = self.headers.decode(block, &mut |name, value| head.field(name, value));
        read.map_err(|_| Fault(Reason::Compression, "a header block cannot be decoded"))?;
        if let Some(index) = self.position(stream) {
            match self.streams[index].state {
                State::Asking if ends_stream && head.is_trailer() => self.complete(index),
                State::Refused if ends_stream => self.drop_stream(index),
                State::Asking | State::Refused => self.reset(index, Reason::Protocol),
                State::Asked | State::Answering => self.reset(index, Reason::StreamClosed),
            }
        } else if stream > self.last_stream && !self.goes {
            self.last_stream = stream;
            self.open(stream, ends_stream, head.verdict());
        }
        Ok(())
    }

    /// A new stream.
    fn open(&mut self, id: u32, ends_stream: bool, verdict: Verdict) {
        if self.streams.len() >= MOST_CALLS {
            return self.say_reset(id, Reason::RefusedStream);
        }
        let (asks, refused) = match verdict {
            Verdict::Malformed => return self.say_reset(id, Reason::Protocol),
            Verdict::Refused(http_status, status) => (Asks::default(), Some((http_status, status))),
            Verdict::Asks(asks) => (asks, None),
        };
        let index = self.streams.len();
        self.streams.push(Stream::new(id, asks, self.peers_window));
        match refused {
            Some((http_status, status)) => self.refuse(index, ends_stream, http_status, &status),
            None if ends_stream => self.complete(index),
            None => {}
        }
    }

    fn data(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        let (whole, data) = (i64::try_from(frame.payload.len()).unwrap_or(i64::MAX), frame.unpadded()?);
        self.window_in -= whole;
        if self.window_in < 0 {
            return Err(Fault(Reason::FlowControl, "more than the connection's window"));
        }
        if self.window_in < i64::from(CONNECTION_WINDOW / 2) {
            let used = i64::from(CONNECTION_WINDOW) - self.window_in;
            frame::window_update(&mut self.out, 0, u32::try_from(used).unwrap_or(0));
            self.window_in += used;
            self.urgent = true;
        }
        let Some(index) = self.known(frame)? else { return Ok(()) };
        let ends_stream = frame.has(flags::END_STREAM);
        let stream = &mut self.streams[index];
        stream.window_in -= whole;
        if stream.window_in < 0 {
            self.reset(index, Reason::FlowControl);
            return Ok(());
        }
        match stream.state {
            State::Asking => {
                self.unfinished += data.len();
                let extended = stream.extend(data).and_then(|()| {
                    if self.unfinished <= CONNECTION_WINDOW as usize {
                        return Ok(());
                    }
                    let message =
                        format!("unfinished calls have more than {CONNECTION_WINDOW} bytes together");
                    Err(Status::new(Code::ResourceExhausted, message))
                });
                match extended {
                    Err(status) => self.refuse(index, ends_stream, 200, &status),
                    Ok(()) if ends_stream => self.complete(index),
                    Ok(()) => self.widen(index),
                }
            }
            State::Refused if ends_stream => self.drop_stream(index),
            // It continues although it was answered.
            State::Refused if !data.is_empty() => self.reset(index, Reason::NoError),
            State::Refused => {}
            State::Asked | State::Answering => self.reset(index, Reason::StreamClosed),
        }
        Ok(())
    }

    /// The window is as large as the largest message; only padding needs more.
    fn widen(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if stream.window_in < 2 * i64::try_from(LARGEST_PAYLOAD).unwrap_or(0) {
            let used = i64::from(STREAM_WINDOW) - stream.window_in;
            frame::window_update(&mut self.out, stream.id, u32::try_from(used).unwrap_or(0));
            stream.window_in += used;
            self.urgent = true;
        }
    }

    /// The whole call has arrived.
    fn complete(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        if let Err(status) = stream.check() {
            return self.refuse(index, true, 200, &status);
        }
        stream.state = State::Asked;
        self.unfinished -= stream.body.len();
        let (body, Asks { path, timeout, traceparent }) =
            (std::mem::take(&mut stream.body), std::mem::take(&mut stream.asks));
        let call = Call { stream: stream.id, path, timeout, traceparent, body };
        self.events.push_back(Event::Call(call));
    }

    /// Refuses a call. The rest of it is still read, so that the caller gets the answer.
    fn refuse(&mut self, index: usize, ended: bool, http_status: u16, status: &Status) {
        answer::refusal(&mut self.out, self.streams[index].id, http_status, status);
        self.urgent = true;
        if ended {
            self.drop_stream(index);
        } else {
            let stream = &mut self.streams[index];
            self.unfinished -= stream.body.len();
            (stream.body, stream.state) = (Vec::new(), State::Refused);
        }
    }

    fn reset(&mut self, index: usize, reason: Reason) {
        self.say_reset(self.streams[index].id, reason);
        self.drop_stream(index);
    }

    fn say_reset(&mut self, stream: u32, reason: Reason) {
        frame::reset_stream(&mut self.out, stream, reason);
        self.urgent = true;
    }

    fn drop_stream(&mut self, index: usize) {
        let stream = self.streams.remove(index);
        self.unfinished -= stream.body.len();
        if stream.state == State::Asked {
            self.events.push_back(Event::Cancelled(stream.id));
        }
    }

    /// The stream of a frame; `None` if it is closed. A stream that was never opened may have no frames.
    fn known(&self, frame: Frame<'_>) -> Result<Option<usize>, Fault> {
        let stream = frame.header.stream;
        if stream > self.last_stream && !self.goes || stream.is_multiple_of(2) {
            return Err(Fault(Reason::Protocol, "a frame is on a stream that was never opened"));
        }
        Ok(self.position(stream))
    }
}
