//! One unary gRPC call over a unix socket, blocking.
//!
//! A complete gRPC client takes almost half of the millisecond that an ADD may take, most of it for features
//! that a program with one call never uses. This one writes preface, settings, headers and message at once,
//! then reads frames until the stream ends. It replies to frames only before it waits for more: frames that
//! came together with the end need no reply. It honours the peer's flow control and otherwise only what
//! HTTP/2 requires of a correct client. After the message it sends GOAWAY, so that the peer can close the
//! connection with its answer.

mod head;

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::frame::{self, Frame, HEADER, Header, Kind, LARGEST_PAYLOAD, Reason, flags, setting};
use crate::{LARGEST_MESSAGE, MESSAGE_PREFIX, hpack};
use head::Head;

/// A call and its timeout.
#[derive(Clone, Copy, Debug)]
pub struct UnaryCall<'a> {
    /// `/package.Service/Method`.
    pub path: &'a str,
    /// The request, encoded.
    pub message: &'a [u8],
    /// The W3C trace context to pass on.
    pub traceparent: Option<&'a str>,
    /// How long the peer may be silent before the call fails; also sent as the call's deadline.
    pub patience: Duration,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens: the peer is not running.
    #[error("cannot connect to {socket}")]
    Connect {
        /// The socket's path.
        socket: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The connection broke, or the peer was silent for too long.
    #[error("the connection broke while {act}")]
    Broken {
        /// What was being done.
        act: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The peer does not speak HTTP/2 or gRPC as it should.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The peer answered with a gRPC status other than OK.
    #[error("the peer refused the call with gRPC status {code}: {message}")]
    Refused {
        /// The status code.
        code: u32,
        /// The status message.
        message: String,
    },
}

impl From<frame::Malformed> for CallError {
    fn from(malformed: frame::Malformed) -> Self {
        Self::Protocol(malformed.to_string())
    }
}

const STREAM: u32 = 1;

impl UnaryCall<'_> {
    /// Connects to `socket`, makes the call and returns the answer's message.
    pub fn send(&self, socket: &Path) -> Result<Vec<u8>, CallError> {
        let stream = UnixStream::connect(socket)
            .map_err(|source| CallError::Connect { socket: socket.display().to_string(), source })?;
        let broken = |source| CallError::Broken { act: "setting timeouts", source };
        stream.set_read_timeout(Some(self.patience)).map_err(broken)?;
        stream.set_write_timeout(Some(self.patience)).map_err(broken)?;
        self.over(stream)
    }

    /// Makes the call over an existing connection.
    pub fn over(&self, stream: impl Read + Write) -> Result<Vec<u8>, CallError> {
        let mut connection = Connection::new(stream, self.framed_message());
        connection.open(&self.headers())?;
        connection.converse()
    }

    fn framed_message(&self) -> Vec<u8> {
        let mut framed = Vec::with_capacity(self.message.len() + MESSAGE_PREFIX);
        framed.push(0);
        framed.extend_from_slice(&u32::try_from(self.message.len()).unwrap_or(u32::MAX).to_be_bytes());
        framed.extend_from_slice(self.message);
        framed
    }

    fn headers(&self) -> Vec<u8> {
        let timeout = format!("{}m", self.patience.as_millis().clamp(1, 99_999_999));
        let mut block = head::request_line(self.path);
        for (name, value) in
            [("te", "trailers"), ("content-type", "application/grpc"), ("grpc-timeout", &timeout)]
        {
            hpack::literal(&mut block, name, value);
        }
        if let Some(traceparent) = self.traceparent {
            hpack::literal(&mut block, "traceparent", traceparent);
        }
        block
    }
}

/// The size of a read: more than an answer has, and less than would need a separate memory mapping.
const READ: usize = 2048;

/// One connection with one stream on it.
struct Connection<S> {
    stream: BufReader<S>,
    /// What to write before waiting.
    replies: Vec<u8>,
    /// The part of the request that is not sent yet.
    outgoing: Vec<u8>,
    /// Whether the whole request was sent.
    is_asked: bool,
    /// How much the peer allows on the connection and on the stream.
    connection_window: i64,
    stream_window: i64,
    peers_initial_window: i64,
    answer: Vec<u8>,
    head: Head,
    headers: hpack::Decoder,
}

impl<S: Read + Write> Connection<S> {
    fn new(stream: S, outgoing: Vec<u8>) -> Self {
        Self {
            stream: BufReader::with_capacity(READ, stream),
            replies: Vec::new(),
            outgoing,
            is_asked: false,
            connection_window: frame::INITIAL_WINDOW,
            stream_window: frame::INITIAL_WINDOW,
            peers_initial_window: frame::INITIAL_WINDOW,
            answer: Vec::new(),
            head: Head::default(),
            headers: hpack::Decoder::default(),
        }
    }

    /// Writes preface, settings, headers and as much of the message as an unknown peer allows, in one write.
    fn open(&mut self, headers: &[u8]) -> Result<(), CallError> {
        let mut bytes = frame::PREFACE.to_vec();
        frame::settings(
            &mut bytes,
            &[
                (setting::HEADER_TABLE_SIZE, 0),
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, frame::LARGEST),
            ],
        );
        frame::window_update(&mut bytes, 0, frame::LARGEST - 65_535);
        frame::headers(&mut bytes, STREAM, headers, false);
        self.push_data(&mut bytes);
        self.replies = bytes;
        self.reply()
    }

    /// Reads frames and replies to them until the stream ends; returns the message.
    fn converse(&mut self) -> Result<Vec<u8>, CallError> {
        loop {
            if self.stream.buffer().is_empty() {
                self.reply()?;
            }
            let (header, payload) = self.read()?;
            if self.receive(Frame { header, payload: &payload })? {
                return self.finish();
            }
        }
    }

    /// The next frame.
    fn read(&mut self) -> Result<(Header, Vec<u8>), CallError> {
        let broken = |source| CallError::Broken { act: "waiting for the answer", source };
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).map_err(broken)?;
        let header = Header::read(header);
        if header.length > LARGEST_PAYLOAD {
            let length = header.length;
            return Err(CallError::Protocol(format!("a frame of {length} bytes exceeds {LARGEST_PAYLOAD}")));
        }
        let mut payload = vec![0; header.length];
        self.stream.read_exact(&mut payload).map_err(broken)?;
        Ok((header, payload))
    }

    /// Handles one frame; true if it ended the stream.
    fn receive(&mut self, frame: Frame<'_>) -> Result<bool, CallError> {
        match frame.header.kind {
            Kind::Settings if frame.has(flags::ACK) => {}
            Kind::Settings => {
                for (setting, value) in frame.settings()? {
                    if setting == setting::INITIAL_WINDOW_SIZE {
                        let value = i64::from(value);
                        self.stream_window += value - self.peers_initial_window;
                        self.peers_initial_window = value;
                    }
                }
                frame::settings_ack(&mut self.replies);
            }
            Kind::Ping if !frame.has(flags::ACK) => frame::ping_ack(&mut self.replies, frame.payload),
            Kind::WindowUpdate => {
                let window = if frame.header.stream == 0 {
                    &mut self.connection_window
                } else {
                    &mut self.stream_window
                };
                *window += i64::from(frame.u32_at(0)? & frame::LARGEST);
            }
            Kind::Headers if frame.header.stream == STREAM => {
                let (block, ends) = self.header_block(frame)?;
                let head = &mut self.head;
                let read = self.headers.decode(&block, &mut |name, value| head.field(name, value));
                read.map_err(|malformed| CallError::Protocol(malformed.to_string()))?;
                return Ok(ends);
            }
            Kind::Data if frame.header.stream == STREAM => {
                self.answer.extend_from_slice(frame.unpadded()?);
                if self.answer.len() > LARGEST_MESSAGE + MESSAGE_PREFIX {
                    return Err(CallError::Protocol(format!(
                        "the answer is larger than {LARGEST_MESSAGE} bytes"
                    )));
                }
                return Ok(frame.has(flags::END_STREAM));
            }
            Kind::ResetStream if frame.header.stream == STREAM => {
                return Err(CallError::Protocol(format!(
                    "it reset the stream with code {}",
                    frame.u32_at(0)?
                )));
            }
            Kind::GoAway if frame.u32_at(0)? < STREAM || frame.u32_at(4)? != 0 => {
                return Err(CallError::Protocol(format!("it went away with code {}", frame.u32_at(4)?)));
            }
            _ => {}
        }
        let mut replies = std::mem::take(&mut self.replies);
        self.push_data(&mut replies);
        self.replies = replies;
        Ok(false)
    }

    /// A header block with its continuations; true if the stream ends with it.
    fn header_block(&mut self, frame: Frame<'_>) -> Result<(Vec<u8>, bool), CallError> {
        let ends_stream = frame.has(flags::END_STREAM);
        let mut complete = frame.has(flags::END_HEADERS);
        let mut block = frame.header_fragment()?.to_vec();
        while !complete {
            let (header, payload) = self.read()?;
            if header.kind != Kind::Continuation || block.len() > LARGEST_MESSAGE {
                return Err(CallError::Protocol("a header block was not continued".into()));
            }
            complete = header.has(flags::END_HEADERS);
            block.extend_from_slice(&payload);
        }
        Ok((block, ends_stream))
    }

    /// Appends as many data frames as the peer's windows allow, and GOAWAY after the last of them.
    fn push_data(&mut self, bytes: &mut Vec<u8>) {
        while !self.outgoing.is_empty() {
            let allowed = usize::try_from(self.connection_window.min(self.stream_window)).unwrap_or(0);
            let size = self.outgoing.len().min(allowed).min(LARGEST_PAYLOAD);
            if size == 0 {
                return;
            }
            let last = size == self.outgoing.len();
            frame::data(bytes, STREAM, size, last);
            bytes.extend(self.outgoing.drain(..size));
            if last {
                frame::go_away(bytes, frame::LARGEST, Reason::NoError, "");
            }
            let sent = i64::try_from(size).unwrap_or(i64::MAX);
            self.connection_window -= sent;
            self.stream_window -= sent;
        }
    }

    /// Writes pending replies. A peer that has the whole request need not read any more, and may already have
    /// closed after its answer.
    fn reply(&mut self) -> Result<(), CallError> {
        if self.replies.is_empty() {
            return Ok(());
        }
        let sent = self.stream.get_mut().write_all(&self.replies);
        self.replies.clear();
        match sent {
            Err(error) if self.is_asked && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(source) => Err(CallError::Broken { act: "sending", source }),
            Ok(()) => {
                self.is_asked = self.outgoing.is_empty();
                Ok(())
            }
        }
    }

    /// The stream ended: the status decides, then the message is taken out of its frame.
    fn finish(&mut self) -> Result<Vec<u8>, CallError> {
        match (self.head.grpc_status, self.head.http_status) {
            (Some(0), _) => {}
            (Some(code), _) => {
                let message = std::mem::take(&mut self.head.grpc_message);
                return Err(CallError::Refused { code, message });
            }
            (None, status) => {
                return Err(CallError::Protocol(format!(
                    "it ended without a gRPC status (HTTP status {status:?})"
                )));
            }
        }
        match self.answer.split_first_chunk::<5>() {
            Some(([0, length @ ..], message)) if message.len() == u32::from_be_bytes(*length) as usize => {
                Ok(message.to_vec())
            }
            Some(([1, ..], _)) => {
                Err(CallError::Protocol("the answer is compressed, which was not offered".into()))
            }
            _ => Err(CallError::Protocol(format!("{} bytes are not one message", self.answer.len()))),
        }
    }
}
