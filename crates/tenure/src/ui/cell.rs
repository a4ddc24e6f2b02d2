//! A cell of the map: how many of its addresses are in which state, and whose they are.

use serde::Serializer;
use serde::ser::{Serialize, SerializeSeq};

use super::pieces::State;

/// Numbers above this are not exact in a browser.
const EXACT: u128 = 1 << 53;

/// Whose addresses are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Owner {
    /// Nobody's.
    #[default]
    Nobody,
    /// A node's.
    Node(u32),
    /// Of several owners.
    Several,
    /// For claims; no node owns them.
    Claims,
}

/// What is in a cell. What is in none of the states is free, if it is in a block at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) owner: Owner,
    /// How many are in blocks, slices and alias ranges.
    pub(super) carved: u128,
    pub(super) held: u128,
    pub(super) claimed: u128,
    pub(super) moving: u128,
    pub(super) cooling: u128,
    /// Nobody assigns them.
    pub(super) reserved: u128,
    pub(super) excluded: u128,
    /// The agent that would know does not answer.
    pub(super) unknown: u128,
}

impl Cell {
    /// Some of its addresses have this owner.
    pub(super) fn owned_by(&mut self, owner: Owner) {
        self.owner = match (self.owner, owner) {
            (Owner::Nobody, owner) => owner,
            (known, Owner::Nobody) => known,
            (known, owner) if known == owner => known,
            _ => Owner::Several,
        };
    }

    /// An address is used on a node. That makes the node the owner of what has none.
    pub(super) fn held_on(&mut self, node: u32) {
        if self.carved == 0 {
            self.owned_by(Owner::Node(node));
        }
    }

    /// One more address in a state.
    pub(super) fn count(&mut self, state: State) {
        *match state {
            State::Held => &mut self.held,
            State::Claimed => &mut self.claimed,
            State::Moving => &mut self.moving,
            State::Cooling => &mut self.cooling,
            State::Reserved => &mut self.reserved,
        } += 1;
    }

    /// When everything is counted: an address has one state, and what is known of it goes before what its area says.
    pub(super) fn settle(&mut self, bits: u8) {
        let size = 1_u128.checked_shl(u32::from(bits)).unwrap_or(u128::MAX);
        let mut room = size;
        for count in [
            &mut self.moving,
            &mut self.claimed,
            &mut self.held,
            &mut self.cooling,
            &mut self.excluded,
            &mut self.reserved,
            &mut self.unknown,
        ] {
            *count = (*count).min(room);
            room -= *count;
        }
        self.carved = self.carved.min(size);
    }

    /// The numbers that a browser gets: owner, addresses in blocks, then the states. Zeros at the end are left out.
    fn numbers(&self) -> Vec<u128> {
        let states =
            [self.held, self.claimed, self.moving, self.cooling, self.reserved, self.excluded, self.unknown];
        let mut numbers: Vec<u128> = std::iter::once(self.carved).chain(states).collect();
        while numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    }

    fn owner_number(&self) -> i64 {
        match self.owner {
            Owner::Nobody => -1,
            Owner::Several => -2,
            Owner::Claims => -3,
            Owner::Node(node) => i64::from(node),
        }
    }
}

/// Equal cells in a row: `[first cell, how many, owner, addresses in blocks, held, claimed, moving, cooling, reserved, excluded,
/// unknown]`. An owner is the number of a node, or -1 for nobody, -2 for several, -3 for claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) cell: Cell,
}

/// Cells in order as runs.
pub(super) fn runs(cells: impl IntoIterator<Item = (u32, Cell)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (number, cell) in cells {
        match runs.last_mut() {
            Some(run) if run.first + run.count == number && run.cell == cell => run.count += 1,
            _ => runs.push(Run { first: number, count: 1, cell }),
        }
    }
    runs
}

impl Serialize for Run {
    #[expect(clippy::cast_precision_loss, reason = "a browser has no other numbers, and draws shares")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let numbers = self.cell.numbers();
        let mut list = serializer.serialize_seq(Some(numbers.len() + 3))?;
        list.serialize_element(&self.first)?;
        list.serialize_element(&self.count)?;
        list.serialize_element(&self.cell.owner_number())?;
        for number in numbers {
            match u64::try_from(number) {
                Ok(small) if number <= EXACT => list.serialize_element(&small)?,
                _ => list.serialize_element(&(number as f64))?,
            }
        }
        list.end()
    }
}
