//! Everything that decides an address. Pure: no I/O, no async, no Kubernetes; time comes in as an argument.
#![forbid(unsafe_code)]

mod address;
pub mod assign;
pub mod block;
mod cidr;
mod hash;
mod intervals;
pub mod ledger;
pub mod parse;
mod pool;
mod range;
mod runs;
mod slices;
mod space;
mod wire;

pub use address::{Address, AddressError, Family};
pub use block::{
    Block, Choice, Counts, Granted, Hold, MoveId, Release, Sequence, Settled, Slot, SnapshotKey, State,
};
pub use cidr::Cidr;
pub use intervals::IntervalSet;
pub use parse::{Notation, ParseError, RangeText};
pub use pool::{GrowthError, Pool, PoolError, Subnet};
pub use range::{Exclusion, Range, RangeError, Usable};
pub use slices::{DivideError, FreeSlices, SliceError, Slices};
pub use space::{Addresses, Space, SpaceError};
