//! The reasons for which a block refuses a call.

use crate::address::Address;
use crate::block::{Counts, Sequence};
use crate::range::RangeError;
use crate::space::Addresses;

/// The address is in no network of the block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not in {space}")]
pub struct NotInSpace {
    /// The address.
    pub address: Address,
    /// The network or networks.
    pub space: String,
}

/// Why no address was held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// Nothing is free, and nothing cools that could give way.
    #[error(
        "cannot hold an address of {space}: none of its {} is free ({} held, {} reserved)",
        .counts.capacity, .counts.held, .counts.reserved
    )]
    Exhausted {
        /// The network or networks.
        space: String,
        /// How many of its addresses are in each state.
        counts: Counts,
    },
    /// The named address is in no network of the block.
    #[error("cannot hold a named address: {0}")]
    NotInSpace(#[from] NotInSpace),
    /// The named address is excluded, outside first to last, or a network's first or last address.
    #[error("cannot hold {address}: it is excluded from its range")]
    NotUsable {
        /// The address.
        address: Address,
    },
    /// The named address is reserved.
    #[error("cannot hold {address}: it is reserved")]
    Reserved {
        /// The address.
        address: Address,
    },
    /// The named address has another holder.
    #[error("cannot hold {address}: it has a holder")]
    Taken {
        /// The address.
        address: Address,
    },
    /// The key already holds another address.
    #[error("cannot hold {asked}: the same holder has {held}, which it must release first")]
    HoldsAnother {
        /// What it holds.
        held: Addresses,
        /// What it asked for.
        asked: Address,
    },
    /// The block has as many chunks as it can have.
    #[error("cannot hold another address: the block keeps track of as many as it can")]
    Crowded,
}

/// Why addresses were not reserved or unreserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// Neither the first address nor any after it is in a network of the block.
    #[error("cannot change the reservation of addresses: {0}")]
    NotInSpace(#[from] NotInSpace),
    /// The ends are swapped or of different families.
    #[error("cannot change the reservation of addresses: {0}")]
    Ends(#[from] RangeError),
}

/// Why an existing hold was not replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The address is in no network of the block.
    #[error("cannot replay a hold: {0}")]
    NotInSpace(#[from] NotInSpace),
    /// Another key holds the address.
    #[error("cannot replay the hold of {address}: it has another holder")]
    Taken {
        /// The address.
        address: Address,
    },
    /// The key has another hold.
    #[error("cannot replay the hold of {address}: the same holder has {held} with number {sequence}")]
    HoldsAnother {
        /// The address.
        address: Address,
        /// What it holds.
        held: Addresses,
        /// The number of that hold.
        sequence: Sequence,
    },
    /// No block assigns such a sequence number.
    #[error("cannot replay the hold of {address} with number {sequence}: accepted is 1 to 2^63 - 1")]
    Sequence {
        /// The address.
        address: Address,
        /// The number.
        sequence: u64,
    },
    /// The block has as many chunks as it can have.
    #[error("cannot replay another hold: the block keeps track of as many as it can")]
    Crowded,
}
