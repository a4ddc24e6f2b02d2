//! The chunks that are not empty, found by number or by slot, and iterated in address order.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::block::chunk::{Bits, Chunk, POSITION_BITS, WIDTH, join};
use crate::intervals::tree_memory;

/// Where an occupied offset is stored: the slot of its chunk, and the position in the chunk. A spot stays the
/// same while the offset is occupied. It takes four bytes, which is all that the index of keys stores for a
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spot(u32);

impl Spot {
    pub(super) fn slot(self) -> usize {
        (self.0 >> POSITION_BITS) as usize
    }

    pub(super) fn position(self) -> u32 {
        self.0 & (WIDTH - 1)
    }
}

/// How many slots a [`Spot`] can name.
const SLOTS: usize = 1 << (u32::BITS - POSITION_BITS);

#[derive(Debug)]
pub(super) struct Chunks<K> {
    slots: Vec<Chunk<K>>,
    /// Slots whose chunk was dropped.
    vacant: Vec<u32>,
    /// Chunk number → slot.
    directory: BTreeMap<u128, u32>,
    /// An empty chunk that is kept until the next one becomes empty, so that a single holder that comes and
    /// goes does not create and drop a chunk each time.
    idle: Option<u32>,
    /// The chunk that was last found by number, and its slot.
    recent: Option<(u128, u32)>,
}

impl<K> Chunks<K> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new(), directory: BTreeMap::new(), idle: None, recent: None }
    }

    /// The chunk of that number.
    pub(super) fn find(&self, number: u128) -> Option<&Chunk<K>> {
        self.slot_of(number).map(|slot| &self.slots[slot as usize])
    }

    /// The spot of an offset, if its chunk is here.
    pub(super) fn spot(&self, number: u128, position: u32) -> Option<Spot> {
        self.slot_of(number).map(|slot| Spot(slot << POSITION_BITS | position))
    }

    /// The spot of an offset. Creates its chunk, with the bits that `blocked` returns, if there is none.
    /// `None` if there are already chunks for 2^32 addresses.
    pub(super) fn make(
        &mut self,
        number: u128,
        position: u32,
        blocked: impl FnOnce() -> Bits,
    ) -> Option<Spot> {
        let slot = match self.slot_of(number) {
            Some(slot) => slot,
            None => self.add(Chunk::new(number, blocked()))?,
        };
        self.recent = Some((number, slot));
        if self.idle == Some(slot) {
            self.idle = None;
        }
        Some(Spot(slot << POSITION_BITS | position))
    }

    pub(super) fn get(&self, spot: Spot) -> &Chunk<K> {
        &self.slots[spot.slot()]
    }

    pub(super) fn get_mut(&mut self, spot: Spot) -> &mut Chunk<K> {
        &mut self.slots[spot.slot()]
    }

    /// The holder, or last holder, of an occupied spot.
    pub(super) fn key(&self, spot: Spot) -> &K {
        self.get(spot).key(spot.position())
    }

    /// The offset of a spot.
    pub(super) fn offset(&self, spot: Spot) -> u128 {
        join(self.get(spot).number, spot.position())
    }

    /// Records that the chunk of this spot became empty.
    pub(super) fn retire(&mut self, spot: Spot) {
        let slot = spot.0 >> POSITION_BITS;
        if let Some(idle) = self.idle.replace(slot).filter(|idle| *idle != slot) {
            self.drop_chunk(idle);
        }
    }

    /// The chunks whose number is in `numbers`, in address order.
    pub(super) fn iter_between(&self, numbers: RangeInclusive<u128>) -> impl Iterator<Item = &Chunk<K>> {
        self.directory.range(numbers).map(|(_, slot)| &self.slots[*slot as usize])
    }

    /// The spots of the offsets in `bits` of each chunk, in address order.
    pub(super) fn spots<'a>(
        &'a self,
        bits: impl Fn(&Chunk<K>) -> Bits + 'a,
    ) -> impl Iterator<Item = Spot> + 'a {
        self.directory.values().flat_map(move |slot| {
            let mut left = bits(&self.slots[*slot as usize]);
            std::iter::from_fn(move || {
                let position = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(Spot(*slot << POSITION_BITS | position))
            })
        })
    }

    /// Calls `change` with each chunk whose number is in `numbers`.
    pub(super) fn change_each(
        &mut self,
        numbers: RangeInclusive<u128>,
        mut change: impl FnMut(&mut Chunk<K>),
    ) {
        for slot in self.directory.range(numbers).map(|(_, slot)| *slot) {
            change(&mut self.slots[slot as usize]);
        }
    }

    /// Bytes used in total.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Chunk<K>>()
            + self.slots.iter().map(Chunk::memory).sum::<usize>()
            + self.vacant.capacity() * size_of::<u32>()
            + tree_memory::<u128, u32>(self.directory.len())
    }

    fn slot_of(&self, number: u128) -> Option<u32> {
        match self.recent {
            Some((recent, slot)) if recent == number => Some(slot),
            _ => self.directory.get(&number).copied(),
        }
    }

    fn add(&mut self, chunk: Chunk<K>) -> Option<u32> {
        let number = chunk.number;
        let slot = if let Some(slot) = self.vacant.pop() {
            self.slots[slot as usize] = chunk;
            slot
        } else {
            let slot = u32::try_from(self.slots.len()).ok().filter(|_| self.slots.len() < SLOTS)?;
            if self.slots.len() == self.slots.capacity() {
                // Steps of an eighth: doubling would leave up to half of the memory unused.
                self.slots.reserve_exact((self.slots.len() / 8).max(4));
            }
            self.slots.push(chunk);
            slot
        };
        self.directory.insert(number, slot);
        Some(slot)
    }

    fn drop_chunk(&mut self, slot: u32) {
        let number = self.slots[slot as usize].number;
        self.directory.remove(&number);
        self.slots[slot as usize] = Chunk::new(number, 0);
        self.vacant.push(slot);
        if self.recent == Some((number, slot)) {
            self.recent = None;
        }
    }
}
