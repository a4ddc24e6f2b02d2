//! A node as a whole: how its agent is, what it has, and what it knows to be wrong.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Block, Cooling, Hold, Pool, Waiting};

/// A node, as its agent sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub node: String,
    /// The version of its agent.
    #[serde(default)]
    pub version: String,
    /// When this was told.
    pub time: Timestamp,
    /// When the agent was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// Whether all that is held was replayed, so that addresses are assigned.
    #[serde(default)]
    pub ready: bool,
    /// Why a pod could not get an address now, if so: what CNI's STATUS answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What its agent hears of the API server.
    #[serde(default)]
    pub api: Api,
    /// Its journal.
    #[serde(default)]
    pub journal: Journal,
    /// The pools, by name.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Blocks that it owns, or owned as long as anything is held in them; by name.
    #[serde(default)]
    pub blocks: Vec<Block>,
    /// What is held, by network, container and interface.
    #[serde(default)]
    pub holds: Vec<Hold>,
    /// What was freed and is not yet assigned again.
    #[serde(default)]
    pub cooling: Vec<Cooling>,
    /// Who waits for an address.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// What the kernel has, compared with what is held. Nothing if it was not looked at yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
}

/// What an agent hears of the API server. It works without, as long as its blocks last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    /// When it last answered anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// What is watched.
    #[serde(default)]
    pub watches: Vec<Watch>,
}

/// A watch of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Watch {
    /// Of what.
    pub kind: String,
    /// What does not work, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a node remembers over a restart of its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// Why it cannot be written, if so. Nothing new is assigned then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What the kernel was found to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kernel {
    /// When it was looked at.
    pub looked: Timestamp,
    /// What is not as it should be.
    #[serde(default)]
    pub differences: Vec<Difference>,
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// What it is about: an address, a network, an interface, a pod.
    pub subject: String,
    /// What is wrong with it.
    pub problem: String,
}
