//! HTTP/2 frames: nine bytes of header, then the payload (RFC 9113, section 4.1).

use std::io::Read;

use super::CallError;

/// The largest payload that a peer accepts without having said so.
pub(super) const LARGEST_PAYLOAD: usize = 16_384;
/// `SETTINGS_HEADER_TABLE_SIZE`.
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
/// `SETTINGS_ENABLE_PUSH`.
pub(super) const ENABLE_PUSH: u16 = 2;
/// `SETTINGS_INITIAL_WINDOW_SIZE`.
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

/// Flags; which of them a frame has depends on its kind.
pub(super) mod flags {
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// The kinds that a client has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    ResetStream,
    Settings,
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
            0x3 => Self::ResetStream,
            0x4 => Self::Settings,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            _ => Self::Other,
        }
    }
}

/// A frame that was read.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// The next frame.
    pub(super) fn read(stream: &mut impl Read) -> Result<Self, CallError> {
        let broken = |source| CallError::Broken { act: "waiting for the answer", source };
        let mut header = [0; 9];
        stream.read_exact(&mut header).map_err(broken)?;
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = header;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        if length > LARGEST_PAYLOAD {
            return Err(CallError::Protocol(format!("a frame of {length} bytes exceeds {LARGEST_PAYLOAD}")));
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).map_err(broken)?;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        Ok(Self { kind: Kind::from_byte(kind), flags, stream, payload })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn u32_at(&self, position: usize) -> Result<u32, CallError> {
        let bytes = self.payload.get(position..position + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_be_bytes).ok_or_else(|| self.too_short())
    }

    pub(super) fn settings(&self) -> Result<Vec<(u16, u32)>, CallError> {
        if !self.payload.len().is_multiple_of(6) {
            return Err(self.too_short());
        }
        let entry = |bytes: &[u8]| {
            let setting = u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?);
            Some((setting, u32::from_be_bytes(bytes.get(2..6)?.try_into().ok()?)))
        };
        Ok(self.payload.chunks_exact(6).filter_map(entry).collect())
    }

    /// The payload without padding.
    pub(super) fn unpadded(&self) -> Result<&[u8], CallError> {
        if !self.has(flags::PADDED) {
            return Ok(&self.payload);
        }
        let (padding, rest) = self.payload.split_first().ok_or_else(|| self.too_short())?;
        let size = rest.len().checked_sub(usize::from(*padding)).ok_or_else(|| self.too_short())?;
        Ok(&rest[..size])
    }

    /// The part of a header block that a HEADERS frame carries.
    pub(super) fn header_fragment(&self) -> Result<&[u8], CallError> {
        let fragment = self.unpadded()?;
        let skip = if self.has(flags::PRIORITY) { 5 } else { 0 };
        fragment.get(skip..).ok_or_else(|| self.too_short())
    }

    fn too_short(&self) -> CallError {
        CallError::Protocol(format!("a {:?} frame of {} bytes is malformed", self.kind, self.payload.len()))
    }
}

pub(super) fn settings(out: &mut Vec<u8>, entries: &[(u16, u32)]) {
    let mut payload = Vec::with_capacity(entries.len() * 6);
    for (setting, value) in entries {
        payload.extend_from_slice(&setting.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(out, 0x4, 0, 0, &payload);
}

pub(super) fn settings_ack(out: &mut Vec<u8>) {
    frame(out, 0x4, flags::ACK, 0, &[]);
}

pub(super) fn ping_ack(out: &mut Vec<u8>, payload: &[u8]) {
    frame(out, 0x6, flags::ACK, 0, payload);
}

pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    frame(out, 0x8, 0, stream, &increment.to_be_bytes());
}

/// A header block, in as many frames as it needs.
pub(super) fn headers(out: &mut Vec<u8>, stream: u32, block: &[u8]) {
    let mut chunks = block.chunks(LARGEST_PAYLOAD).peekable();
    let mut kind = 0x1;
    while let Some(chunk) = chunks.next() {
        let last = if chunks.peek().is_none() { flags::END_HEADERS } else { 0 };
        frame(out, kind, last, stream, chunk);
        kind = 0x9;
    }
}

pub(super) fn data(out: &mut Vec<u8>, stream: u32, payload: &[u8], last: bool) {
    frame(out, 0x0, if last { flags::END_STREAM } else { 0 }, stream, payload);
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}
