//! The node agent.
//!
//! Decisions and I/O are separate:
//!
//! | module | owns |
//! |---|---|
//! | [`key`] | the key of a hold: network, container and interface |
//! | [`node`] | **all decisions of a node**: a state machine without I/O; events and the time in, actions out |
//! | [`journal`] | what a node remembers across restarts of the agent, as a file under `/run` |
//! | [`history`] | who had which address when: the journal's records, told to a log that outlives them |
//! | [`drive`] | the loop around a node: events in, actions out, time |
//! | [`claims`] | addresses that outlive pods: which interface refers to which claim, and which pod has each |
//! | [`alias`] | alias addresses of a cloud's machines: the dialect `gcp-ipam`, and this node's alias ranges as blocks |
//! | [`coil`] | Coil's dialect: addresses of routed pools |
//! | [`whereabouts`] | Whereabouts' dialect: addresses of ranges |
//! | [`node_addresses`] | the node's own addresses, from policies: its interfaces, and the file that keeps them across a reboot |
//! | [`pods`] | this node's pods: which claims and addresses they ask for |
//! | [`part`] | **the seam**: what a part of the agent is beside the node |
//! | [`sources`] | the seam between pools and where their blocks come from |
//! | [`serve`] | the gRPC service that the CNI plugin calls, and the trait of dialects |
//! | [`objects`] | the API server: watches, block requests and returns, which pool a pod gets |
//! | [`wire`] | the kernel's thread: interfaces, routes, exported routes |
//! | [`evidence`] | who uses which addresses, from other sources when the journal cannot tell |
//! | [`inspect`] | what people and programs see: health, metrics, the node as JSON |
//! | [`remains`] | what an agent that has stopped left: who has addresses, and what is on the node's interfaces |
//! | [`run`] | everything together: start, stop, tombstones |
//!
//! All modules except [`node`] carry events in and actions out, and decide nothing.

pub mod alias;
pub mod claims;
pub mod coil;
pub mod drive;
pub mod egress;
pub mod evidence;
pub mod history;
pub mod inspect;
pub mod journal;
pub mod key;
pub mod node;
pub mod node_addresses;
pub mod objects;
pub mod part;
pub mod pods;
pub mod remains;
pub mod run;
pub mod serve;
pub mod sources;
pub mod whereabouts;
pub mod wire;

#[cfg(test)]
mod testing;

pub use key::{HoldKey, HolderId, InvalidKey, Pod};
pub use node::{Action, Event, Node, Settings};
pub use run::Agent;
