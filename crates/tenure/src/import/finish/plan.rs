//! Which reserved blocks are in use, without I/O.
//!
//! A pod uses an address if its status or its network status names it, as long as the pod exists: annotations and phases are written by
//! others, so they may add a use and never remove one. Only a pod that has ended and whose node answers counts as gone.
//! A node uses the addresses of Calico's tunnels, which it has in annotations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use tenure_api::coil::AddressBlock;
use tenure_ipam::Address;

use crate::snapshot::{PodFacts, has};

/// The prefix of annotations in which Calico keeps a node's own addresses.
const OF_CALICO: &str = "projectcalico.org/";
/// The taint of a node that an administrator has declared dead.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Whether a block can go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// These use addresses of it.
    Used(Vec<String>),
    /// Nobody does, as far as the API knows, but containers may run on a node that does not answer.
    Kept(Vec<String>),
    /// Nobody does.
    Unused,
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Used(_) => "used",
            Self::Kept(_) => "kept",
            Self::Unused => "unused",
        }
    }

    pub(super) fn because(&self) -> &[String] {
        match self {
            Self::Used(because) | Self::Kept(because) => because,
            Self::Unused => &[],
        }
    }
}

/// One observation.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Reserved blocks that were imported.
    pub(super) blocks: Vec<AddressBlock>,
    /// Who uses which address.
    users: Vec<(Address, String)>,
    /// Nodes that do not answer.
    silent: BTreeSet<String>,
    /// How long addresses rest, by pool.
    rests: HashMap<String, Duration>,
}

impl State {
    /// What follows from the objects.
    pub(super) fn of(
        blocks: Vec<AddressBlock>,
        pods: &[Pod],
        nodes: &[Node],
        rests: HashMap<String, Duration>,
    ) -> Self {
        // Whoever took the label off has given the block to its node.
        let mut blocks: Vec<AddressBlock> = blocks.into_iter().filter(AddressBlock::is_reserved).collect();
        blocks.sort_by_key(|block| (block.pool().map(str::to_owned), block.spec.index));
        let silent: BTreeSet<String> =
            nodes.iter().filter(|node| is_silent(node)).map(ResourceExt::name_any).collect();
        let mut users = Vec::new();
        for pod in pods.iter().filter_map(PodFacts::of) {
            if pod.over && !silent.contains(&pod.node) {
                continue;
            }
            let label = format!("pod {}", pod.label());
            let addresses = pod.addresses.iter().chain(&pod.networks);
            users.extend(addresses.map(|address| ((*address).into(), label.clone())));
        }
        for node in nodes {
            let of_calico = node.annotations().iter().filter(|(key, _)| key.starts_with(OF_CALICO));
            let addresses = of_calico.filter_map(|(_, value)| value.parse::<IpAddr>().ok());
            users.extend(addresses.map(|address| (address.into(), format!("node {}", node.name_any()))));
        }
        users.sort();
        users.dedup();
        Self { blocks, users, silent, rests }
    }

    /// Whether each block can go, by its name.
    pub(super) fn verdicts(&self) -> BTreeMap<String, Verdict> {
        self.blocks.iter().map(|block| (block.name_any(), self.verdict(block))).collect()
    }

    fn verdict(&self, block: &AddressBlock) -> Verdict {
        let users = self.users.iter().filter(|(address, _)| has(block, *address));
        let users: Vec<String> = users.map(|(address, user)| format!("{user} ({address})")).collect();
        if !users.is_empty() {
            return Verdict::Used(users);
        }
        if crate::snapshot::subnet(block).is_none() {
            return Verdict::Kept(vec!["its addresses cannot be read".to_owned()]);
        }
        match block.node() {
            Some(node) if self.silent.contains(node) => {
                Verdict::Kept(vec![format!("node {node} is not ready: its containers may run")])
            }
            _ => Verdict::Unused,
        }
    }

    /// Whether a block with this UID is there.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.blocks.iter().any(|block| block.uid().as_deref() == Some(uid))
    }

    /// How long a block has to be unused.
    pub(super) fn rest_of(&self, block: &AddressBlock, least: Duration) -> Duration {
        let of_pool = block.pool().and_then(|pool| self.rests.get(pool)).copied();
        of_pool.unwrap_or_default().max(least)
    }
}

/// Whether a node exists that does not answer, and of which nobody said that it is off.
fn is_silent(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.filter(|condition| condition.type_ == "Ready").any(|ready| ready.status == "True");
    !ready && !taints.into_iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

#[cfg(test)]
mod tests;
