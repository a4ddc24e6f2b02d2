//! Sixty-four neighbouring offsets: who holds or held them, and which are blocked.
//!
//! Only occupied offsets (held or cooling) use memory for a key and a sequence number: the n-th set bit owns
//! the n-th entry of two arrays. The arrays are separate so that a 16-byte key needs no padding.

/// One bit for each offset of a chunk.
pub(super) type Bits = u64;

/// Offsets in a chunk.
pub(super) const WIDTH: u32 = Bits::BITS;

/// How many bits of an offset give its position in its chunk.
pub(super) const POSITION_BITS: u32 = WIDTH.trailing_zeros();

/// The number of the last chunk of all offsets.
pub(super) const LAST_NUMBER: u128 = u128::MAX >> POSITION_BITS;

/// The chunk that an offset is in, and its position there.
pub(super) fn split(offset: u128) -> (u128, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is less than WIDTH")]
    (offset >> POSITION_BITS, (offset % u128::from(WIDTH)) as u32)
}

/// The offset at a position of a chunk.
pub(super) fn join(number: u128, position: u32) -> u128 {
    (number << POSITION_BITS) | u128::from(position)
}

#[derive(Debug)]
pub(super) struct Chunk<K> {
    /// Which chunk this is: its first offset divided by [`WIDTH`].
    pub(super) number: u128,
    /// Not to be assigned: unusable or reserved.
    pub(super) blocked: Bits,
    held: Bits,
    cooling: Bits,
    /// The holder, or last holder, of each occupied offset.
    keys: Vec<K>,
    /// The sequence number of each occupied offset's hold, or last hold.
    sequences: Vec<u64>,
}

impl<K> Chunk<K> {
    pub(super) fn new(number: u128, blocked: Bits) -> Self {
        Self { number, blocked, held: 0, cooling: 0, keys: Vec::new(), sequences: Vec::new() }
    }

    /// The offsets that may be assigned.
    pub(super) fn free(&self) -> Bits {
        !(self.blocked | self.occupied())
    }

    pub(super) fn held(&self) -> Bits {
        self.held
    }

    pub(super) fn occupied(&self) -> Bits {
        self.held | self.cooling
    }

    pub(super) fn is_held(&self, position: u32) -> bool {
        self.held >> position & 1 == 1
    }

    pub(super) fn is_cooling(&self, position: u32) -> bool {
        self.cooling >> position & 1 == 1
    }

    pub(super) fn is_blocked(&self, position: u32) -> bool {
        self.blocked >> position & 1 == 1
    }

    /// The holder, or last holder, of an occupied offset.
    pub(super) fn key(&self, position: u32) -> &K {
        &self.keys[self.rank(position)]
    }

    /// The sequence number of an occupied offset.
    pub(super) fn sequence(&self, position: u32) -> u64 {
        self.sequences[self.rank(position)]
    }

    /// Assigns the offset to a holder, whether it is free, cooling or held by somebody else.
    pub(super) fn hold(&mut self, position: u32, key: K, sequence: u64) {
        let rank = self.rank(position);
        if self.occupied() >> position & 1 == 1 {
            self.keys[rank] = key;
            self.sequences[rank] = sequence;
        } else {
            grow(&mut self.keys);
            grow(&mut self.sequences);
            self.keys.insert(rank, key);
            self.sequences.insert(rank, sequence);
        }
        self.held |= 1 << position;
        self.cooling &= !(1 << position);
    }

    /// Lets a held offset cool; its last holder stays visible.
    pub(super) fn cool(&mut self, position: u32) {
        self.held &= !(1 << position);
        self.cooling |= 1 << position;
    }

    /// Forgets the holder, or last holder, of an occupied offset.
    pub(super) fn vacate(&mut self, position: u32) {
        let rank = self.rank(position);
        self.keys.remove(rank);
        self.sequences.remove(rank);
        shrink(&mut self.keys);
        shrink(&mut self.sequences);
        self.held &= !(1 << position);
        self.cooling &= !(1 << position);
    }

    /// Bytes on the heap.
    pub(super) fn memory(&self) -> usize {
        self.keys.capacity() * size_of::<K>() + self.sequences.capacity() * size_of::<u64>()
    }

    /// How many occupied offsets are below this position.
    fn rank(&self, position: u32) -> usize {
        let below = self.occupied() & ((1 << position) - 1);
        below.count_ones() as usize
    }
}

/// Makes room for one more, in steps of a quarter: doubling would leave up to half of the memory unused.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        let room = WIDTH as usize - list.len();
        list.reserve_exact((list.len() / 4).max(4).min(room));
    }
}

/// Frees memory when more than half is unused. The margin keeps a hold and a release in turn from growing and
/// shrinking the list each time.
fn shrink<T>(list: &mut Vec<T>) {
    if list.len() * 2 + 8 < list.capacity() {
        list.shrink_to(list.len() + 4);
    }
}
