//! The CNI wire format, and the plugin's call to the node agent.
//!
//! A runtime's call comes in as a [`Call`]: environment and standard input. The answer goes out as a
//! [`CniResult`] or a [`Failure`], in the format of the version that the configuration asks for. In between
//! is one gRPC call to the agent ([`rpc`], [`tenure_grpc::client`]), or a [`tombstone`] if the agent is down
//! at a DEL. The program on top is thin: [`plugin::run`] is all of it.

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
