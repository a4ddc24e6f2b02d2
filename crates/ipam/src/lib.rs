//! Everything that decides an address.
//!
//! Pure: no I/O, no async, no Kubernetes, no unsafe. Time comes in as an argument, chance not at all, and the
//! same calls give the same answers in every process, so that a run replays from its seed.
//!
//! From the smallest idea to the largest:
//!
//! | module | owns |
//! |---|---|
//! | [`Address`], [`Cidr`] | arithmetic in all 128 bits |
//! | [`parse`] | text, strictly or as Whereabouts reads it |
//! | [`IntervalSet`] | sets of numbers as intervals: exclusions, reservations, what is full |
//! | [`CountedIntervals`] | the same where intervals overlap: what is taken, and by how many |
//! | [`Range`] | the addresses of one network that may be handed out |
//! | [`Space`] | one range, or an IPv4 and an IPv6 range side by side: offsets |
//! | [`Slices`] | a network in equal parts |
//! | [`Pool`] | a list of subnets in numbered blocks |
//! | [`block`] | **who holds which address**: the one allocator, with cooling |
//! | [`ledger`] | holds as the records that dialects keep them in |
//!
//! A pool's block becomes a space, and a space becomes a block that hands out:
//!
//! ```
//! use std::time::Duration;
//! use tenure_handles::Timestamp;
//! use tenure_ipam::{Block, Choice, Pool, Release, Subnet};
//!
//! let subnet = Subnet::dual("10.0.0.0/24".parse()?, "fd00::/120".parse()?);
//! let pool = Pool::new([subnet], 5)?;
//! let space = pool.block(3).and_then(|block| block.space()).ok_or("no such block")??;
//!
//! let now = Timestamp::from_millis(1_800_000_000_000);
//! let mut block: Block<String> = Block::new(space, Duration::from_secs(30));
//! let hold = block.hold("container-1/eth0".into(), Choice::NextAfterLast, now)?.hold();
//! assert_eq!(hold.addresses.to_string(), "10.0.0.96 and fd00::60");
//!
//! // Holding again answers the same; releasing names the hold's number, and twice is once.
//! assert!(!block.hold("container-1/eth0".into(), Choice::NextAfterLast, now)?.is_new());
//! assert_eq!(block.release(&"container-1/eth0".into(), hold.sequence, now), Release::Freed(hold));
//! assert_eq!(block.release(&"container-1/eth0".into(), hold.sequence, now), Release::Nothing);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod address;
pub mod block;
mod cidr;
mod counted;
mod hash;
mod intervals;
pub mod ledger;
pub mod parse;
mod pool;
mod range;
mod runs;
mod slices;
mod space;

pub use address::{Address, AddressError, Family};
pub use block::{
    Block, Choice, Counts, Granted, Hold, HoldError, Release, ReplayError, ReserveError, Sequence, State,
};
pub use cidr::Cidr;
pub use counted::CountedIntervals;
pub use intervals::IntervalSet;
pub use parse::{Notation, ParseError, RangeText};
pub use pool::{Pool, PoolError, Subnet};
pub use range::{Exclusion, Range, RangeError, Usable};
pub use slices::{DivideError, Slices};
pub use space::{Addresses, Space, SpaceError};
