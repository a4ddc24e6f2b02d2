//! Records as bytes and back, for any bytes.
//!
//! ```text
//! file:   "TENUREJ" version │ frame(origin) │ frame(record) │ frame(record) │ ...
//! frame:  length │ CRC-32 of the length │ body │ CRC-32 of the body           (numbers: 32 bits, little endian)
//! ```
//!
//! The length has its own checksum. Without it, a damaged length would look like a torn tail, and all later records would be
//! dropped silently. So a file that ends within a frame with a valid length, or within the length, was torn by a crash
//! during a write, and the torn record was never reported as committed. Everything else is damage.

use prost::Message as _;
use tenure_history::crc32;

use super::file::Origin;
use super::image::Image;
use super::message::{self, HeaderMessage};
use super::record::Record;

/// What every journal begins with; the last byte is the version.
const HEAD: [u8; 8] = *b"TENUREJ\x01";
const NUMBER: usize = size_of::<u32>();
/// Length and checksum of the length.
const FRAME_HEAD: usize = 2 * NUMBER;
/// No record is larger, because no call is. A larger length is damage even if its checksum is right.
const LARGEST: usize = 16 << 20;

/// The result of reading a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where the journal comes from.
    pub origin: Origin,
    /// The state that its records add up to.
    pub image: Image,
    /// How many records were read.
    pub records: u64,
    /// The number of bytes up to which the journal is complete.
    pub whole: usize,
    /// The number of bytes of a torn record at the end.
    pub torn: usize,
    /// How many bytes before that are damaged. They were skipped, and their contents are missing from the
    /// image.
    pub damaged: usize,
}

/// Why bytes cannot be read as a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// They are something else.
    #[error("these {len} bytes are not a journal")]
    Foreign {
        /// How many bytes there are.
        len: usize,
    },
    /// They are of another version.
    #[error("the journal is of version {found}, accepted is version {}", HEAD[7])]
    Version {
        /// The version that they name.
        found: u8,
    },
    /// The origin is missing.
    #[error("the beginning of the journal, which says where it comes from, is damaged")]
    Origin,
}

/// The bytes that a journal begins with.
pub fn begin(origin: &Origin) -> Vec<u8> {
    let mut bytes = HEAD.to_vec();
    let header = HeaderMessage { boot: origin.boot.clone(), node: origin.node.clone() };
    put_frame(&header.encode_to_vec(), &mut bytes);
    bytes
}

/// Appends a record.
pub fn put(record: &Record, bytes: &mut Vec<u8>) {
    put_frame(&message::encode(record), bytes);
}

/// Reads a journal.
pub fn read(bytes: &[u8]) -> Result<Reading, ReadError> {
    let (magic, version) = HEAD.split_at(HEAD.len() - 1);
    let rest = match bytes.strip_prefix(magic).and_then(<[u8]>::split_first) {
        None => return Err(ReadError::Foreign { len: bytes.len() }),
        Some((found, _)) if [*found] != *version => return Err(ReadError::Version { found: *found }),
        Some((_, rest)) => rest,
    };
    let Frame::Whole { body, len } = Frame::read(rest) else { return Err(ReadError::Origin) };
    let header = HeaderMessage::decode(body).map_err(|_| ReadError::Origin)?;
    let mut reading = Reading {
        origin: Origin { boot: header.boot, node: header.node },
        image: Image::default(),
        records: 0,
        whole: HEAD.len() + len,
        torn: 0,
        damaged: 0,
    };
    reading.take_records(bytes);
    Ok(reading)
}

impl Reading {
    fn take_records(&mut self, bytes: &[u8]) {
        let mut at = self.whole;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let taken = match Frame::read(rest) {
                Frame::Whole { body, len } => match message::decode(body) {
                    Some(record) => {
                        self.image.apply(record);
                        self.records += 1;
                        self.damaged += at - self.whole;
                        at += len;
                        self.whole = at;
                        continue;
                    }
                    None => len,
                },
                Frame::Torn => {
                    // After damage, a torn frame cannot be told from more damage.
                    let sound = at == self.whole;
                    *(if sound { &mut self.torn } else { &mut self.damaged }) += bytes.len() - self.whole;
                    return;
                }
                Frame::Broken { len } => len,
            };
            at += taken;
        }
        self.damaged += at - self.whole;
    }
}

enum Frame<'a> {
    Whole {
        body: &'a [u8],
        len: usize,
    },
    /// The bytes end within it.
    Torn,
    /// Its content is damaged; the next frame may start `len` bytes later.
    Broken {
        len: usize,
    },
}

impl<'a> Frame<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let Some((head, rest)) = bytes.split_first_chunk::<FRAME_HEAD>() else { return Self::Torn };
        let (length, sum) = head.split_at(NUMBER);
        let body_len = usize::try_from(number(length)).unwrap_or(usize::MAX);
        if crc32(length) != number(sum) || body_len > LARGEST {
            return Self::Broken { len: 1 };
        }
        let Some((body, rest)) = rest.split_at_checked(body_len) else { return Self::Torn };
        let Some((sum, _)) = rest.split_at_checked(NUMBER) else { return Self::Torn };
        if crc32(body) != number(sum) {
            return Self::Broken { len: 1 };
        }
        Self::Whole { body, len: FRAME_HEAD + body_len + NUMBER }
    }
}

fn put_frame(body: &[u8], bytes: &mut Vec<u8>) {
    // No record is that long: callers limit names and keys.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&crc32(&length).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(&crc32(body).to_le_bytes());
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
