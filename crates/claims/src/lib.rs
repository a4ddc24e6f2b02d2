//! Claims without I/O: what agent and controller decide alike, and must decide alike.
//!
//! A claim is a hold that outlives pods. From the question to the answer:
//!
//! | module | owns |
//! |---|---|
//! | [`opt_in`] | whether a network lets addresses outlive pods |
//! | [`selection`] | a pod's annotation that lists its networks |
//! | [`PodFacts`], [`ClaimFacts`] | what matters of a pod and of an `IPAMClaim`, and nothing else of them |
//! | [`selection_of`] | which element of that list an interface is of |
//! | [`reference()`], [`references`] | which claim an interface of a pod is to have |
//! | [`Slots`] | which pods have a claim now: **one is active**, one more may be coming in |
//! | [`status`] | what a claim's status says, and where the record is |
//! | [`OnRecord`] | what the record says that a claim has, and which pods were given it |
//! | [`trace`] | whether a pod that was given an address may still use it |
//! | [`owners`] | which claims virtual machines and StatefulSets need |
//! | [`names`] | what claims and the interfaces of machines are called |
//!
//! Nothing here fails on what somebody wrote into an annotation: it is a refusal in words, which names the value.

#![forbid(unsafe_code)]

mod attached;
mod claim;
mod mac;
pub mod names;
pub mod opt_in;
pub mod owners;
mod pod;
mod record;
mod reference;
pub mod selection;
mod slots;
mod stamp;
pub mod status;

pub use attached::{Attached, elder_interfaces, selection_of};
pub use claim::ClaimFacts;
pub use mac::mac_of;
pub use opt_in::opts_in;
pub use pod::{DefaultNetwork, Launcher, PodFacts};
pub use record::{OnRecord, Trace, in_block, trace};
pub use reference::{CLUSTER_NETWORK, Reference, Refusal, Wanted, reference, references};
pub use selection::{Selection, SelectionError};
pub use slots::{Slot, Slots, SlotsError};
pub use stamp::Stamp;
pub use status::held_message;
