//! The node agent.
//!
//! What decides is apart from what does:
//!
//! | module | owns |
//! |---|---|
//! | [`key`] | whose a hold is: network, container and interface |
//! | [`node`] | **what a node does**: a state machine without I/O; events and the time in, actions out |
//! | [`journal`] | what a node remembers over a restart of the agent, as a file under `/run` |
//! | [`drive`] | the loop around a node: events in, actions out, time |
//! | [`claims`] | addresses that outlive pods: which interface refers to which, and who has each |
//! | [`coil`] | Coil's dialect: addresses of routed pools |
//! | [`whereabouts`] | Whereabouts' dialect: addresses of ranges |
//! | [`pods`] | this node's pods: what they refer to and would like |
//! | [`serve`] | the gRPC service that the CNI plugin calls, and what a dialect is to it |
//! | [`objects`] | the API server: watches, asking for blocks and giving them back, which pool a pod gets |
//! | [`wire`] | the kernel's thread: interfaces, routes, what is exported |
//! | [`witness`] | those who can tell who uses which addresses when the journal cannot |
//! | [`inspect`] | what people and programs see: health, metrics, the node as JSON |
//! | [`run`] | all of it together: start, stop, tombstones |
//!
//! The rest carries events in and actions out, and decides nothing.

pub mod claims;
pub mod coil;
pub mod drive;
pub mod inspect;
pub mod journal;
pub mod key;
pub mod node;
pub mod objects;
pub mod pods;
pub mod run;
pub mod serve;
pub mod whereabouts;
pub mod wire;
pub mod witness;

#[cfg(test)]
mod testing;

pub use key::{HoldKey, HolderId, InvalidKey, Pod};
pub use node::{Action, Event, Node, Settings};
pub use run::Agent;
