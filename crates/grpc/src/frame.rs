//! HTTP/2 frames: nine bytes of header, then the payload (RFC 9113, section 4.1).

/// The first bytes of a client.
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length, kind, flags and stream of a frame.
pub(crate) const HEADER: usize = 9;
/// The largest payload that a peer accepts by default, and that we accept.
pub(crate) const LARGEST_PAYLOAD: usize = 16_384;
/// The default window of a stream and of a connection.
pub(crate) const INITIAL_WINDOW: i64 = 65_535;
/// The largest window, and the largest number of a stream.
pub(crate) const LARGEST: u32 = 0x7fff_ffff;

/// The parameters of SETTINGS.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Flags; their meaning depends on the kind of the frame.
pub(crate) mod flags {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// Why a stream or a connection ends (section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    NoError = 0,
    Protocol = 1,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    RefusedStream = 7,
    Compression = 9,
    EnhanceYourCalm = 11,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Headers,
    Priority,
    ResetStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    Other,
}

impl Kind {
    fn from_byte(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            _ => Self::Other,
        }
    }
}

/// A frame's payload does not match its kind and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {kind:?} frame of {length} bytes is malformed")]
pub(crate) struct Malformed {
    kind: Kind,
    length: usize,
    /// The reason for its sender.
    pub(crate) reason: Reason,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// The length of the payload.
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    pub(crate) stream: u32,
    flags: u8,
}

impl Header {
    pub(crate) fn read(bytes: [u8; HEADER]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind: Kind::from_byte(kind),
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & LARGEST,
            flags,
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A complete frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame at the start of `bytes`, if it is complete.
    pub(crate) fn first(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let header = Header::read(*header);
        Some(Self { header, payload: rest.get(..header.length)? })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.header.has(flag)
    }

    /// Four bytes of the payload as a number.
    pub(crate) fn u32_at(&self, position: usize) -> Result<u32, Malformed> {
        let bytes = self.payload.get(position..position + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| self.malformed(Reason::FrameSize))
    }

    /// The only number of a RST_STREAM or a WINDOW_UPDATE.
    pub(crate) fn number(&self) -> Result<u32, Malformed> {
        self.sized(4)?.u32_at(0)
    }

    /// The frame, if its payload has this size.
    pub(crate) fn sized(&self, size: usize) -> Result<&Self, Malformed> {
        if self.payload.len() == size { Ok(self) } else { Err(self.malformed(Reason::FrameSize)) }
    }

    /// The parameters of a SETTINGS frame.
    pub(crate) fn settings(&self) -> Result<impl Iterator<Item = (u16, u32)> + use<'a>, Malformed> {
        let (entries, []) = self.payload.as_chunks::<6>() else {
            return Err(self.malformed(Reason::FrameSize));
        };
        Ok(entries.iter().map(|[s0, s1, v0, v1, v2, v3]| {
            (u16::from_be_bytes([*s0, *s1]), u32::from_be_bytes([*v0, *v1, *v2, *v3]))
        }))
    }

    /// The payload without padding.
    pub(crate) fn unpadded(&self) -> Result<&'a [u8], Malformed> {
        if !self.has(flags::PADDED) {
            return Ok(self.payload);
        }
        let (padding, rest) = self.payload.split_first().ok_or_else(|| self.malformed(Reason::FrameSize))?;
        let size = rest.len().checked_sub(usize::from(*padding));
        Ok(&rest[..size.ok_or_else(|| self.malformed(Reason::Protocol))?])
    }

    /// The part of a header block that a HEADERS frame carries.
    pub(crate) fn header_fragment(&self) -> Result<&'a [u8], Malformed> {
        let skip = if self.has(flags::PRIORITY) { 5 } else { 0 };
        self.unpadded()?.get(skip..).ok_or_else(|| self.malformed(Reason::FrameSize))
    }

    fn malformed(&self, reason: Reason) -> Malformed {
        Malformed { kind: self.header.kind, length: self.payload.len(), reason }
    }
}

pub(crate) fn settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    header(out, entries.len() * 6, 0x4, 0, 0);
    for (setting, value) in entries {
        out.extend_from_slice(&setting.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn settings_ack(out: &mut Vec<u8>) {
    header(out, 0, 0x4, flags::ACK, 0);
}

pub(crate) fn ping_ack(out: &mut Vec<u8>, payload: &[u8]) {
    header(out, payload.len(), 0x6, flags::ACK, 0);
    out.extend_from_slice(payload);
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    header(out, 4, 0x8, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn reset_stream(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    header(out, 4, 0x3, 0, stream);
    out.extend_from_slice(&(reason as u32).to_be_bytes());
}

pub(crate) fn go_away(out: &mut Vec<u8>, last_stream: u32, reason: Reason, words: &str) {
    header(out, 8 + words.len(), 0x7, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&(reason as u32).to_be_bytes());
    out.extend_from_slice(words.as_bytes());
}

/// A header block, in as many frames as it needs.
pub(crate) fn headers(out: &mut Vec<u8>, stream: u32, block: &[u8], ends_stream: bool) {
    let mut chunks = block.chunks(LARGEST_PAYLOAD).peekable();
    let (mut kind, mut flag) = (0x1, if ends_stream { flags::END_STREAM } else { 0 });
    while let Some(chunk) = chunks.next() {
        let last = if chunks.peek().is_none() { flags::END_HEADERS } else { 0 };
        header(out, chunk.len(), kind, flag | last, stream);
        out.extend_from_slice(chunk);
        (kind, flag) = (0x9, 0);
    }
}

/// The header of a DATA frame; its payload follows.
pub(crate) fn data(out: &mut Vec<u8>, stream: u32, length: usize, ends_stream: bool) {
    header(out, length, 0x0, if ends_stream { flags::END_STREAM } else { 0 }, stream);
}

fn header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [_, l0, l1, l2] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
}
