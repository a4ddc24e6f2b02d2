//! Keys as bytes.

use crate::wire::{put, take, take_bytes};

/// A key that can be part of a snapshot.
pub trait SnapshotKey: Sized {
    /// Appends the key.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Takes a key off the front; `None` if there is none.
    fn read(bytes: &mut &[u8]) -> Option<Self>;
}

impl SnapshotKey for u64 {
    fn write(&self, bytes: &mut Vec<u8>) {
        put(bytes, *self);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        take(bytes)
    }
}

/// Sixteen bytes, fixed: such a key is a UUID or a hash, which no encoding shortens.
impl SnapshotKey for u128 {
    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(Self::from_le_bytes(*key))
    }
}

impl SnapshotKey for String {
    fn write(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.len() as u128);
        bytes.extend_from_slice(self.as_bytes());
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(take_bytes(bytes)?).ok()?;
        Some(text.to_owned())
    }
}

impl<A: SnapshotKey, B: SnapshotKey> SnapshotKey for (A, B) {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?))
    }
}

impl<A: SnapshotKey, B: SnapshotKey, C: SnapshotKey> SnapshotKey for (A, B, C) {
    fn write(&self, bytes: &mut Vec<u8>) {
        self.0.write(bytes);
        self.1.write(bytes);
        self.2.write(bytes);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::read(bytes)?, B::read(bytes)?, C::read(bytes)?))
    }
}
