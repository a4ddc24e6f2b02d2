//! The index of holders: from a key to its spot.
//!
//! The table stores spots of four bytes and reads the keys from the chunks.

use std::hash::Hash;

use hashbrown::HashTable;

use crate::block::chunks::{Chunks, Spot};
use crate::hash::hash_of;

#[derive(Debug, Default)]
pub(super) struct Holders(HashTable<Spot>);

impl Holders {
    /// The spot that `key` holds; `hash` is the hash of the key.
    pub(super) fn find<K: Eq>(&self, hash: u64, key: &K, chunks: &Chunks<K>) -> Option<Spot> {
        self.0.find(hash, |spot| chunks.key(*spot) == key).copied()
    }

    /// Adds the holder of `spot`. Its key has this hash and is already in its chunk.
    pub(super) fn insert<K: Hash>(&mut self, hash: u64, spot: Spot, chunks: &Chunks<K>) {
        self.0.insert_unique(hash, spot, |spot| hash_of(chunks.key(*spot)));
    }

    /// Forgets the holder of `spot`, whose key has this hash and is still in its chunk.
    pub(super) fn remove<K: Hash>(&mut self, hash: u64, spot: Spot, chunks: &Chunks<K>) {
        if let Ok(entry) = self.0.find_entry(hash, |other| *other == spot) {
            entry.remove();
        }
        if self.0.len() * 8 + 64 < self.0.capacity() {
            let len = self.0.len();
            self.0.shrink_to(len * 2, |spot| hash_of(chunks.key(*spot)));
        }
    }

    /// How many holders there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.0.allocation_size()
    }
}
