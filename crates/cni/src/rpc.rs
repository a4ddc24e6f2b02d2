//! The messages of the call to the agent. `proto/tenure/cni/v1/cni.proto` is the contract; tests of the agent keep
//! the two equal.

use std::collections::HashMap;

use crate::call::{Call as PluginCall, Verb};
use crate::failure::Failure as PluginFailure;

/// The version of the protocol that this code implements.
pub const PROTOCOL: u32 = 1;
/// The agent's socket, unless the node's administrator sets another.
pub const SOCKET: &str = "/run/tenure/tenured.sock";

/// The runtime's call to the plugin, unchanged.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Call {
    /// The protocol version of the plugin.
    #[prost(uint32, tag = "1")]
    pub protocol: u32,
    /// `CNI_CONTAINERID`.
    #[prost(string, tag = "2")]
    pub container_id: String,
    /// `CNI_NETNS`.
    #[prost(string, tag = "3")]
    pub netns: String,
    /// `CNI_IFNAME`.
    #[prost(string, tag = "4")]
    pub ifname: String,
    /// `CNI_ARGS`, split.
    #[prost(map = "string, string", tag = "5")]
    pub args: HashMap<String, String>,
    /// `CNI_PATH`.
    #[prost(string, tag = "6")]
    pub path: String,
    /// Standard input, unchanged.
    #[prost(bytes = "vec", tag = "7")]
    pub config: Vec<u8>,
    /// The name that the plugin was started under.
    #[prost(string, tag = "8")]
    pub plugin: String,
    /// W3C trace context.
    #[prost(string, tag = "9")]
    pub traceparent: String,
}

/// The agent's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reply {
    /// The CNI result in the requested version; empty if the verb has none.
    #[prost(bytes = "vec", tag = "1")]
    pub result: Vec<u8>,
    /// Set when the call failed.
    #[prost(message, optional, tag = "2")]
    pub failure: Option<Failure>,
}

/// An error of the CNI specification.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Failure {
    /// The code.
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// One sentence.
    #[prost(string, tag = "2")]
    pub message: String,
    /// What would help.
    #[prost(string, tag = "3")]
    pub details: String,
}

impl Call {
    /// The message for a call of the plugin that runs under the name `plugin`.
    pub fn new(call: &PluginCall, plugin: &str) -> Self {
        Self {
            protocol: PROTOCOL,
            container_id: call.container_id.clone(),
            netns: call.netns.clone(),
            ifname: call.ifname.clone(),
            args: call.args.clone().into_iter().collect(),
            path: call.path.clone(),
            config: call.config.clone(),
            plugin: plugin.to_owned(),
            traceparent: call.traceparent.clone().unwrap_or_default(),
        }
    }
}

impl From<PluginFailure> for Failure {
    fn from(failure: PluginFailure) -> Self {
        Self { code: failure.code, message: failure.message, details: failure.details }
    }
}

impl From<Failure> for PluginFailure {
    fn from(failure: Failure) -> Self {
        Self { code: failure.code, message: failure.message, details: failure.details }
    }
}

/// The gRPC paths of all methods.
pub const METHODS: [&str; 5] = [
    "/tenure.cni.v1.CNI/Add",
    "/tenure.cni.v1.CNI/Del",
    "/tenure.cni.v1.CNI/Check",
    "/tenure.cni.v1.CNI/Status",
    "/tenure.cni.v1.CNI/Gc",
];

/// The gRPC path of a verb; `None` for VERSION, which the plugin answers itself.
pub fn path(verb: Verb) -> Option<&'static str> {
    let [add, del, check, status, gc] = METHODS;
    match verb {
        Verb::Add => Some(add),
        Verb::Del => Some(del),
        Verb::Check => Some(check),
        Verb::Status => Some(status),
        Verb::Gc => Some(gc),
        Verb::Version => None,
    }
}

/// The verb of a gRPC path.
pub fn verb(path: &str) -> Option<Verb> {
    let verbs = [Verb::Add, Verb::Del, Verb::Check, Verb::Status, Verb::Gc];
    verbs.into_iter().find(|verb| self::path(*verb) == Some(path))
}
