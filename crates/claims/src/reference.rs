//! Which claim an interface of a pod gets. Agent and controller use the same function, for one interface or for all at once,
//! and so never disagree.
//!
//! | interface | claim |
//! |---|---|
//! | of an element of the networks annotation | its `ipam-claim-reference` |
//! | `eth0`, the default network's | annotation `tenure/claim`, or that of `v1.multus-cni.io/default-network` |
//! | any, of KubeVirt's launcher pod | that of its machine for the network and the interface |
//! | any, of a StatefulSet that opts in | `<pod>.<network>.<interface>` |
//!
//! The first row that applies counts. A claim is always in the pod's own namespace.

use tenure_api::claims::{DEFAULT_INTERFACE, annotation};
use tenure_ipam::Address;

use crate::claim::ClaimFacts;
use crate::names;
use crate::pod::PodFacts;
use crate::selection::Selection;

/// Namespace and name by which [`references`] asks for the cluster's own default network, which has no
/// attachment definition.
pub const CLUSTER_NETWORK: (&str, &str) = ("", "");

/// How to find a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reference {
    /// By its name.
    Named(String),
    /// By the machine, and the interface of its launcher pod.
    Launcher {
        /// The VirtualMachineInstance.
        vmi: String,
        /// The interface in the pod.
        interface: String,
    },
}

/// What an interface gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The claim.
    pub reference: Reference,
    /// The addresses that the pod's annotation asks for. A claim that has addresses must contain these.
    pub ips: Vec<Address>,
}

/// Why it is unclear what an interface gets. The pod must be changed or recreated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An annotation cannot be read.
    #[error("pod {pod}: {problem}")]
    Unreadable {
        /// `namespace/name`.
        pod: String,
        /// Which annotation, what is wrong with it, and what would be accepted.
        problem: String,
    },
    /// It is unclear which element of the networks annotation an interface belongs to, and some refer to
    /// claims.
    #[error(
        "pod {pod}: nobody can say which element of annotation {} interface \"{interface}\" on network \"{network}\" is of, and some \
         refer to claims; accepted is an \"interface\" in each element for that network",
        annotation::NETWORKS
    )]
    Unclear {
        /// `namespace/name`.
        pod: String,
        /// The network.
        network: String,
        /// The interface.
        interface: String,
    },
    /// Two interfaces refer to one claim.
    #[error(
        "pod {pod}: interfaces \"{one}\" and \"{other}\" refer to the same claim \"{claim}\"; accepted is a claim for each"
    )]
    Shared {
        /// `namespace/name`.
        pod: String,
        /// The claim.
        claim: String,
        /// An interface.
        one: String,
        /// Another.
        other: String,
    },
    /// Two annotations name different claims for the default network.
    #[error(
        "pod {pod}: annotation {} names the claim \"{one}\", and {} the claim \"{other}\"; accepted is one of them",
        annotation::CLAIM,
        annotation::DEFAULT_NETWORK
    )]
    Differ {
        /// `namespace/name`.
        pod: String,
        /// The claim of our annotation.
        one: String,
        /// The claim of Multus'.
        other: String,
    },
}

/// What an interface of a pod on a network that opts in gets: `None` is an ordinary address. The interface
/// has the name in the list's element, whatever Multus calls it ([`crate::selection_of`]).
pub fn reference(pod: &PodFacts, network: &str, interface: &str) -> Result<Option<Wanted>, Refusal> {
    let selection = pod.selections.iter().find(|selection| selection.interface == interface);
    let by_default = interface == DEFAULT_INTERFACE && selection.is_none();
    for name in concerns(by_default) {
        if let Some(problem) = pod.problems.get(name) {
            return Err(Refusal::Unreadable { pod: podref(pod), problem: problem.clone() });
        }
    }
    let of_default = by_default.then(|| default_claim(pod)).transpose()?.flatten();
    let named = selection.and_then(|selection| selection.claim.clone()).or(of_default);
    let ips = match selection {
        Some(selection) => selection.ips.clone(),
        None if by_default => default_selection(pod).map(|it| it.ips.clone()).unwrap_or_default(),
        None => Vec::new(),
    };
    if let Some(claim) = named {
        only_once(pod, &claim, interface)?;
        return Ok(Some(Wanted { reference: Reference::Named(claim), ips }));
    }
    if let Some(launcher) = &pod.launcher {
        let reference = Reference::Launcher { vmi: launcher.vmi.clone(), interface: interface.to_owned() };
        return Ok(Some(Wanted { reference, ips }));
    }
    let of_set = pod.stateful_set.as_ref().map(|_| names::pod_claim(&pod.name, network, interface));
    Ok(of_set.map(|name| Wanted { reference: Reference::Named(name), ips }))
}

/// What all interfaces of a pod get, each with its network and its name. `network_of` returns the name of the
/// network for an attachment definition's namespace and name, if it opts in; [`CLUSTER_NETWORK`] asks for the
/// cluster's default network. Interfaces with unclear annotations are left out: the agent refuses them.
pub fn references(
    pod: &PodFacts,
    network_of: impl Fn(&str, &str) -> Option<String>,
) -> Vec<(String, String, Wanted)> {
    let of_pod = |selection: &Selection| {
        network_of(selection.namespace.as_deref().unwrap_or(&pod.namespace), &selection.name)
    };
    let additional = pod.selections.iter().map(|it| (of_pod(it), it.interface.as_str()));
    let by_default = match &pod.default_network {
        Some(it) => network_of(&it.namespace, &it.selection.name),
        None => network_of(CLUSTER_NETWORK.0, CLUSTER_NETWORK.1),
    };
    std::iter::once((by_default, DEFAULT_INTERFACE))
        .chain(additional)
        .filter_map(|(network, interface)| {
            let network = network?;
            let wanted = reference(pod, &network, interface).ok().flatten()?;
            Some((network, interface.to_owned(), wanted))
        })
        .collect()
}

impl Reference {
    /// Whether this is the claim, for an interface on this network. The caller compares the namespace,
    /// because only the pod's counts.
    pub fn is(&self, claim: &ClaimFacts, network: &str) -> bool {
        match self {
            Self::Named(name) => claim.name == *name && claim.network == network,
            Self::Launcher { vmi, interface } => {
                claim.vm.as_deref() == Some(vmi)
                    && claim.network == network
                    && (claim.interface == *interface || is_by_name(claim, vmi, interface))
            }
        }
    }
}

/// KubeVirt's ipam-extensions leaves a claim's interface empty: then its name says which of the machine's
/// networks it is for.
fn is_by_name(claim: &ClaimFacts, vmi: &str, interface: &str) -> bool {
    let network = claim.name.strip_prefix(vmi).and_then(|rest| rest.strip_prefix('.'));
    claim.interface.is_empty()
        && (interface == DEFAULT_INTERFACE
            || network.is_some_and(|it| names::machine_interface(it) == interface))
}

fn concerns(by_default: bool) -> &'static [&'static str] {
    if by_default { &[annotation::CLAIM, annotation::DEFAULT_NETWORK] } else { &[annotation::NETWORKS] }
}

fn default_selection(pod: &PodFacts) -> Option<&Selection> {
    pod.default_network.as_ref().map(|network| &network.selection)
}

fn default_claim(pod: &PodFacts) -> Result<Option<String>, Refusal> {
    let of_multus = default_selection(pod).and_then(|selection| selection.claim.as_ref());
    match (&pod.default_claim, of_multus) {
        (Some(one), Some(other)) if one != other => {
            Err(Refusal::Differ { pod: podref(pod), one: one.clone(), other: other.clone() })
        }
        (one, other) => Ok(one.as_ref().or(other).cloned()),
    }
}

/// A claim is for one interface: otherwise two interfaces of a pod would have one address.
fn only_once(pod: &PodFacts, claim: &str, interface: &str) -> Result<(), Refusal> {
    let additional =
        pod.selections.iter().filter(|it| it.claim.as_deref() == Some(claim)).map(|it| it.interface.as_str());
    let of_multus = default_selection(pod).and_then(|it| it.claim.as_deref());
    let by_default = pod.default_claim.as_deref() == Some(claim) || of_multus == Some(claim);
    let mut all = additional.chain(by_default.then_some(DEFAULT_INTERFACE)).filter(|it| *it != interface);
    match all.next() {
        None => Ok(()),
        Some(other) => Err(Refusal::Shared {
            pod: podref(pod),
            claim: claim.to_owned(),
            one: interface.to_owned(),
            other: other.to_owned(),
        }),
    }
}

pub(crate) fn podref(pod: &PodFacts) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}

#[cfg(test)]
mod tests;
