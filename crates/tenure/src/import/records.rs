//! What another system has recorded, whichever system it was: pools, blocks of nodes, and addresses in use.

use std::collections::BTreeMap;

use serde::Serialize;
use tenure_ipam::{Address, Cidr, Subnet};

use super::finding::Finding;

/// The system that the records are of. The text is the value of the label on reserved blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    /// Coil v1, in etcd.
    CoilV1,
    /// The plugin host-local, in files on nodes.
    HostLocal,
    /// Calico, in objects.
    Calico,
}

impl Origin {
    /// The value of the label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::CoilV1 => "coil-v1",
            Self::HostLocal => "host-local",
            Self::Calico => "calico",
        }
    }
}

/// Everything that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Records {
    pub(super) origin: Origin,
    pub(super) pools: Vec<PoolRecord>,
    pub(super) blocks: Vec<NodeBlock>,
    pub(super) uses: Vec<Use>,
    /// Pools of namespaces, by namespace.
    pub(super) namespaces: BTreeMap<String, String>,
    /// What was found on the way.
    pub(super) findings: Vec<Finding>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolRecord {
    /// Where it is recorded.
    pub(super) at: String,
    /// Its name here; it may have had another one there.
    pub(super) name: String,
    /// A block has two to this power of addresses.
    pub(super) block_bits: u8,
    pub(super) subnets: Vec<Subnet>,
}

/// Addresses from which a node may have assigned, used or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeBlock {
    pub(super) at: String,
    pub(super) network: Cidr,
    /// The node, if it is one node's.
    pub(super) node: Option<String>,
}

/// An address in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) at: String,
    pub(super) address: Address,
    /// Who uses it, for people.
    pub(super) holder: String,
    /// Where, if that is recorded.
    pub(super) node: Option<String>,
}

impl Records {
    /// Nothing yet.
    pub(super) fn of(origin: Origin) -> Self {
        Self {
            origin,
            pools: Vec::new(),
            blocks: Vec::new(),
            uses: Vec::new(),
            namespaces: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn error(
        &mut self,
        at: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) {
        self.findings.push(Finding::error(at, problem, accepted));
    }

    pub(super) fn note(
        &mut self,
        at: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) {
        self.findings.push(Finding::note(at, problem, accepted));
    }
}

/// New names of pools, by the old ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Renames(pub(super) BTreeMap<String, String>);

impl Renames {
    /// The name of a pool here.
    pub(super) fn of(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    /// Notes the renames that were of no pool: they are mistyped.
    pub(super) fn check(&self, known: &[&str], records: &mut Records) {
        for (old, new) in &self.0 {
            if !known.contains(&old.as_str()) {
                records.error(
                    format!("--rename {old}={new}"),
                    "there is no such pool",
                    format!("accepted are {}", known.join(", ")),
                );
            }
        }
    }
}
