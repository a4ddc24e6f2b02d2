//! Entries as lines.
//!
//! ```text
//! line:  CRC-32 of the text, 8 hexadecimal digits │ space │ text: one JSON object │ newline
//! ```
//!
//! Text never contains a newline, so wherever a line is damaged, the next one begins after the next newline. Only bytes after the
//! last newline were torn by a crash. And people can read the log with `grep`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_view::Period;

use crate::checksum::crc32;

/// The digits of a checksum.
const DIGITS: usize = 8;

/// What is known of one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it was written.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// A period began.
    Held(Period),
    /// A period ended. The entry has the whole period.
    Ended(Period),
    /// An agent began to write.
    Started {
        /// Its node.
        node: String,
        /// The kernel's boot ID.
        boot: String,
        /// Its version.
        version: String,
    },
    /// The agent ended as it was told to.
    Stopped {},
    /// The agent runs, and nothing happened.
    Alive {},
    /// Entries are missing before this one.
    Lost {
        /// How many changes.
        count: u64,
        /// Since when.
        from: Timestamp,
    },
}

/// One line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The text of a line that is as it was written.
    Whole(&'a str),
    /// Something else.
    Damaged,
    /// This many bytes without an end.
    Torn(usize),
}

/// Appends an entry.
pub fn put(entry: &Entry, bytes: &mut Vec<u8>) {
    // Maps with text keys only: it has no reason to fail.
    let Ok(text) = serde_json::to_string(entry) else { return };
    bytes.extend_from_slice(format!("{:08x} ", crc32(text.as_bytes())).as_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(b'\n');
}

/// The entry in a line's text; `None` for one that a newer agent wrote and this one does not know.
pub fn entry(text: &str) -> Option<Entry> {
    serde_json::from_str(text).ok()
}

/// The lines in some bytes.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Some(Line::Torn(std::mem::take(&mut rest).len()));
        };
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(whole(line).map_or(Line::Damaged, Line::Whole))
    })
}

fn whole(line: &[u8]) -> Option<&str> {
    let (sum, text) = line.split_at_checked(DIGITS)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32(text) == sum).then(|| std::str::from_utf8(text).ok())?
}

#[cfg(test)]
mod tests;
