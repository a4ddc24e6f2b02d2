//! A block as bytes, and back.
//!
//! What it promises: the same state gives the same bytes, and a block that was restored gives the bytes it
//! was restored from. Bytes that are torn, damaged, of another version or not a snapshot at all are
//! refused, whatever they are; nothing here panics or allocates more than they hold.
//!
//! ```text
//! "TENUREB" version │ space │ rest │ next sequence │ cursor │ reserved │ holds │ moves │ cooling │ checksum
//! ```
//!
//! Numbers are of variable length ([`crate::wire`]), lists begin with their length, and offsets in
//! ascending lists are distances from the one before.

use std::hash::Hash;

use crate::block::Block;
use crate::wire::checksum;

mod key;
mod read;
mod write;

pub use key::SnapshotKey;

/// What every snapshot begins with; the last byte is the version.
const HEAD: [u8; 8] = *b"TENUREB\x01";
const CHECKSUM_LEN: usize = size_of::<u64>();

/// Why bytes are not a snapshot to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// They are something else.
    #[error("cannot restore a block: these {len} bytes are not a snapshot of one")]
    Foreign {
        /// How many bytes there are.
        len: usize,
    },
    /// They are of another version.
    #[error("cannot restore a block: the snapshot is of version {found}, accepted is version {}", HEAD[7])]
    Version {
        /// The version they say.
        found: u8,
    },
    /// They were cut short or damaged.
    #[error("cannot restore a block: the checksum of the snapshot is wrong, it was torn or damaged")]
    Damaged,
    /// They are whole, but say something that no block says.
    #[error("cannot restore a block: the snapshot's {part} make no sense")]
    Nonsense {
        /// Which part.
        part: &'static str,
    },
}

impl<K: Eq + Hash + SnapshotKey> Block<K> {
    /// The block as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        self.write(&mut bytes);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The block that gave these bytes.
    pub fn restore(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let (head, version) = (&HEAD[..HEAD.len() - 1], HEAD[HEAD.len() - 1]);
        match bytes.strip_prefix(head).and_then(<[u8]>::first) {
            None => return Err(SnapshotError::Foreign { len: bytes.len() }),
            Some(found) if *found != version => return Err(SnapshotError::Version { found: *found }),
            Some(_) => {}
        }
        let (content, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or(SnapshotError::Damaged)?;
        if checksum(content) != u64::from_le_bytes(*sum) {
            return Err(SnapshotError::Damaged);
        }
        Self::read(content.get(HEAD.len()..).ok_or(SnapshotError::Damaged)?)
    }
}

#[cfg(test)]
mod proptests;
