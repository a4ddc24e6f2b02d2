//! One call of a connection: its incoming message and its outgoing answer.

use super::head::Asks;
use super::{LARGEST_MESSAGE, MESSAGE_PREFIX, STREAM_WINDOW};
use crate::frame;
use crate::status::{Code, Status};

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its message is incomplete.
    Asking,
    /// It is being answered.
    Asked,
    /// Its answer is being sent.
    Answering,
    /// It was refused before it was complete; the rest of it is ignored.
    Refused,
}

/// A call.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) state: State,
    pub(super) asks: Asks,
    /// Its message with the prefix.
    pub(super) body: Vec<u8>,
    /// How much the peer may still send.
    pub(super) window_in: i64,
    /// How much we may still send.
    pub(super) window_out: i64,
    pub(super) answer: Vec<u8>,
    /// How much of the answer and its prefix was sent.
    sent: usize,
}

impl Stream {
    pub(super) fn new(id: u32, asks: Asks, window_out: i64) -> Self {
        Self {
            id,
            state: State::Asking,
            asks,
            body: Vec::new(),
            window_in: i64::from(STREAM_WINDOW),
            window_out,
            answer: Vec::new(),
            sent: 0,
        }
    }

    /// Appends more of the message.
    pub(super) fn extend(&mut self, data: &[u8]) -> Result<(), Status> {
        self.body.extend_from_slice(data);
        let Some((flag, length)) = prefix(&self.body) else { return Ok(()) };
        match flag {
            0 => {}
            1 => {
                return Err(Status::new(
                    Code::Unimplemented,
                    "the message is compressed: accepted is identity",
                ));
            }
            flag => {
                let message =
                    format!("the message begins with {flag}: accepted is 0, for one that is not compressed");
                return Err(Status::new(Code::Internal, message));
            }
        }
        if length > LARGEST_MESSAGE {
            let message = format!("the message has {length} bytes: accepted are {LARGEST_MESSAGE}");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        if self.body.len() > MESSAGE_PREFIX + length {
            return Err(Status::new(Code::Internal, "there is more than one message: accepted is one"));
        }
        Ok(())
    }

    /// Whether there is exactly one message.
    pub(super) fn check(&self) -> Result<(), Status> {
        let problem = match prefix(&self.body) {
            Some((_, length)) if self.body.len() == MESSAGE_PREFIX + length => return Ok(()),
            None if self.body.is_empty() => "there is no message: accepted is one",
            _ => "the stream ends in the middle of the message",
        };
        Err(Status::new(Code::Internal, problem))
    }

    /// Appends a frame of the answer, as large as the windows allow; returns its size.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, window: i64, largest_frame: usize) -> i64 {
        if self.state != State::Answering || self.is_answered() {
            return 0;
        }
        let allowed = usize::try_from(window.min(self.window_out)).unwrap_or(0);
        let size = (MESSAGE_PREFIX + self.answer.len() - self.sent).min(allowed).min(largest_frame);
        if size == 0 {
            return 0;
        }
        frame::data(out, self.id, size, false);
        let [l0, l1, l2, l3] = u32::try_from(self.answer.len()).unwrap_or(u32::MAX).to_be_bytes();
        let prefix = [0, l0, l1, l2, l3];
        let end = self.sent + size;
        out.extend_from_slice(&prefix[self.sent.min(MESSAGE_PREFIX)..end.min(MESSAGE_PREFIX)]);
        let [begin, stop] = [self.sent, end].map(|place| place.saturating_sub(MESSAGE_PREFIX));
        out.extend_from_slice(&self.answer[begin..stop]);
        self.sent = end;
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        self.window_out -= size;
        size
    }

    /// Whether the whole answer was sent.
    pub(super) fn is_answered(&self) -> bool {
        self.state == State::Answering && self.sent >= MESSAGE_PREFIX + self.answer.len()
    }
}

/// The prefix of a message: whether it is compressed, and its length.
fn prefix(body: &[u8]) -> Option<(u8, usize)> {
    let [flag, length @ ..] = body.first_chunk::<MESSAGE_PREFIX>()?;
    Some((*flag, u32::from_be_bytes(*length) as usize))
}
