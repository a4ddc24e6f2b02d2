//! Records as bytes, and back, whatever the bytes are.
//!
//! ```text
//! file:   "TENUREJ" version │ frame(origin) │ frame(record) │ frame(record) │ ...
//! frame:  length │ CRC-32 of the length │ body │ CRC-32 of the body           (numbers: 32 bits, little endian)
//! ```
//!
//! The length has a checksum of its own. Without it, damage to a length would look like a tail that was torn, and all
//! records behind it would be dropped without a word. So: a file that ends within a frame whose length is sound, or
//! within the length, was torn by a crash while it was written, and what is torn was never reported as committed.
//! Everything else is damage.

use prost::Message as _;

use super::checksum::crc32;
use super::file::Origin;
use super::image::Image;
use super::message::{self, HeaderMessage};
use super::record::Record;

/// What every journal begins with; the last byte is the version.
const HEAD: [u8; 8] = *b"TENUREJ\x01";
const NUMBER: usize = size_of::<u32>();
/// Length and checksum of the length.
const FRAME_HEAD: usize = 2 * NUMBER;
/// No record is larger, because no call is; a length beyond this is damage even if its checksum is right.
const LARGEST: usize = 16 << 20;

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where the journal comes from.
    pub origin: Origin,
    /// What its records say.
    pub image: Image,
    /// How many records were read.
    pub records: u64,
    /// Up to which byte it is whole.
    pub whole: usize,
    /// How many bytes of a torn record follow.
    pub torn: usize,
    /// How many bytes in between are damaged. They were passed over, and what they said is not in the image.
    pub damaged: usize,
}

/// Why bytes are no journal to read.
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
        /// The version they say.
        found: u8,
    },
    /// They do not say where they come from.
    #[error("the beginning of the journal, which says where it comes from, is damaged")]
    Origin,
}

/// The beginning of a journal.
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
                    // Behind damage nothing tells a torn frame from more damage.
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
    /// Its content is damaged; the next frame can be looked for after `len` bytes.
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
    // Longer than any record is: names and keys are bounded by those who ask.
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
