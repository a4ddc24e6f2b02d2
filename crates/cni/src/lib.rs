//! The CNI wire format, and the plugin's call to the node agent.
//!
//! What a runtime says to a plugin comes in as a [`Call`]: environment and standard input. What the plugin
//! says goes out as a [`CniResult`] or a [`Failure`], in the shape of the version that the configuration asks
//! for. Between the two is one gRPC call to the agent ([`rpc`], [`tenure_grpc::client`]), or, when the agent is down at a
//! DEL, a [`tombstone`]. The program on top is thin: [`plugin::run`] is all of it.

mod call;
mod config;
mod failure;
pub mod plugin;
mod result;
pub mod rpc;
pub mod tombstone;
mod version;

pub use call::{Call, Verb};
pub use config::{Attachment, NetworkConfig};
pub use failure::{Code, Failure};
pub use result::{Address, CniResult, Dns, Interface, Route};
pub use tenure_grpc as grpc;
pub use version::Version;
