//! Ledgers: the holders recorded in `IPPool`s, and waiting requests as writes to them.
//!
//! A [`Network`] is the known state of one `network_name`: its pools and the reservations of its overlapping ranges, fed by
//! watches and by the answers to our own writes. [`Network::plan`] combines any number of waiting requests into at most one
//! write per object; [`Plan::settle`] says, after the answers to the writes, which requests are done and which must be planned
//! again with the new state.
//!
//! ```text
//!    objects seen ──▶ Network ──plan(requests)──▶ Plan: create, mark ─▶ (list, and plan again)
//!                        ▲                              reserve ─▶ write ─▶ unreserve
//!                        └────── answers ◀──────────────┘
//! ```
//!
//! What it promises:
//!
//! - An address has one holder, whoever else writes: every key of a write is guarded by its own test, and everything else that
//!   the decision relied on by the test of the object's [`State`].
//! - A request gets an address from each of its ranges or none. A refusal removes what an earlier attempt of it wrote.
//! - A release touches the records of its container, never those of a successor.
//! - Records of others are respected, even invalid ones, and stay in their object.
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
