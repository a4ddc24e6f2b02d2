//! Everything that decides an address. Pure: no I/O, no async, no Kubernetes; time comes in as an argument.
#![forbid(unsafe_code)]

mod address;
mod cidr;
mod intervals;
pub mod parse;
mod pool;
mod range;
mod runs;
mod slices;
mod space;

pub use address::{Address, AddressError, Family};
pub use cidr::Cidr;
pub use intervals::IntervalSet;
pub use parse::{Notation, ParseError, RangeText};
pub use pool::{GrowthError, Pool, PoolError, Subnet};
pub use range::{Exclusion, Range, RangeError, Usable};
pub use slices::{DivideError, FreeSlices, SliceError, Slices};
pub use space::{Addresses, Space, SpaceError};
