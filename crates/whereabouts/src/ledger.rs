//! Ledgers: `IPPool`s as who holds what, and waiting requests as writes to them.
//!
//! A [`Network`] is what is known of one `network_name`: its pools and the reservations of its overlapping ranges, fed
//! by watches and by the answers to our own writes. [`Network::plan`] puts any number of waiting requests into at most
//! one write an object; [`Plan::settle`] says, once the writes were answered, which requests are done and which are to be
//! planned again with what is new.
//!
//! ```text
//!    objects seen ──▶ Network ──plan(requests)──▶ Plan: create, mark ─▶ (list, and plan again)
//!                        ▲                              reserve ─▶ write ─▶ unreserve
//!                        └────── answers ◀──────────────┘
//! ```
//!
//! What it promises:
//!
//! - An address is in one hand, whoever else writes: every key of a write is guarded by its own test, and whatever else
//!   the decision relied on by the test of the object's [`State`].
//! - A request gets an address of each of its ranges or none. What an earlier attempt of it has written is taken back
//!   with the refusal.
//! - A release touches the records of its container, never those of a successor.
//! - Records of others are held, also those that make no sense to us, and stay in the object where they are.
//!
//! A pool that outgrows one object has more of them: see [`PoolId::home`].

mod cooling;
mod index;
pub mod memory;
mod network;
mod object;
mod owned;
mod plan;
mod pool;
mod request;
mod spread;

pub use cooling::{COOLING, cooling_after, cooling_of};
pub use network::{Network, Usage};
pub use object::{OPENED, STATE, State};
pub use owned::{Adopted, OwnedError, adopt, owned_object};
pub use plan::{Mark, Outcome, Plan, PoolWrite, Reserve, Settled, Unreserve};
pub(crate) use pool::OWNER_IN_NAMES;
pub use pool::{ADDRESSES_IN_AN_OBJECT, LARGEST_OBJECT, PoolId};
pub use request::{Act, Answer, LedgerRefusal, Request, Want, Who};
pub use spread::Spread;

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
