//! Error texts for pods that do not get their claim: which claim in which namespace, what is missing, and
//! what to do.

use tenure_api::claims::DEFAULT_INTERFACE;
use tenure_claims::{ClaimFacts, Reference, Refusal, Slot};
use tenure_cni::{Code, Failure};
use tenure_ipam::Address;

use super::claim_use::Interface;
use crate::node::{ClaimError, ClaimUse};

pub(super) fn pod_unknown(interface: Interface<'_>, problem: &str) -> Failure {
    let message = format!(
        "cannot read pod {}, which may refer to an IPAMClaim on network {:?}: {problem}",
        podref(interface),
        interface.network
    );
    later(message).detail("the pod is new to this node, and the API server cannot be asked about it now")
}

pub(super) fn pod_gone(interface: Interface<'_>) -> Failure {
    let message = format!(
        "pod {} of UID {} is gone, so that nobody knows which IPAMClaim its interface {} on network {:?} refers to",
        podref(interface),
        interface.pod.uid,
        interface.name,
        interface.network
    );
    later(message).detail("there is another pod of its name by now, which has its own interfaces")
}

pub(super) fn unreadable(refusal: &Refusal) -> Failure {
    Failure::new(Code::InvalidConfig, refusal.to_string())
}

/// The interface refers to a claim, and its network does not opt in as far as this call and this node know.
pub(super) fn not_let(
    interface: Interface<'_>,
    reference: &Reference,
    definition: Option<(&str, &str)>,
    problem: Option<String>,
) -> Failure {
    let message = format!(
        "{} refers to {}, and the configuration that the caller passed does not let addresses outlive pods; no other address is given \
         in place of the claim's",
        who(interface),
        claim_of(interface, reference)
    );
    let restart = "If that is so already, restart Multus: it keeps a copy of the configuration";
    later(message).detail(match (problem, definition) {
        (Some(problem), _) => problem,
        (None, Some((namespace, name))) => format!(
            "put \"allowPersistentIPs\": true into the configuration of NetworkAttachmentDefinition {namespace}/{name}, or remove the \
             reference. {restart}"
        ),
        (None, None) => format!(
            "start tenured with --persistent-ips (or put \"allowPersistentIPs\": true into the configuration of network {:?} on the node) \
             and tenure-controller with --cluster-network={}, or remove the reference. {restart}",
            interface.network, interface.network
        ),
    })
}

pub(super) fn not_read(interface: Interface<'_>, reference: &Reference) -> Failure {
    let message = format!(
        "this node has not read IPAMClaims yet, and {} refers to {}",
        who(interface),
        claim_of(interface, reference)
    );
    later(message).detail("is the API server there, and may tenured list ipamclaims.k8s.cni.cncf.io?")
}

pub(super) fn no_claim(interface: Interface<'_>, reference: &Reference) -> Failure {
    let message = format!(
        "there is no {} in namespace {:?}, to which {} refers",
        claim_of(interface, reference),
        interface.pod.namespace,
        who(interface)
    );
    later(message).detail(match reference {
        Reference::Named(_) => {
            "create it in the pod's own namespace, or remove the reference; claims of other namespaces are never used".to_owned()
        }
        Reference::Launcher { .. } if interface.name == DEFAULT_INTERFACE => format!(
            "tenure-controller makes it for the virtual machine: is it running, is its --cluster-network {:?}, and what do the events of \
             the VirtualMachine say?",
            interface.network
        ),
        Reference::Launcher { .. } => {
            "tenure-controller makes it for the virtual machine or, where it is installed, KubeVirt's ipam-extensions: are they running, \
             and what do the events of the VirtualMachine say?".to_owned()
        }
    })
}

pub(super) fn other_network(interface: Interface<'_>, claim: &ClaimFacts) -> Failure {
    let message = format!(
        "{} is for network {:?}, and {} is on another",
        name_of(claim),
        claim.network,
        who(interface)
    );
    Failure::new(Code::InvalidConfig, message)
        .detail(format!("accepted is a claim whose spec.network is {:?}", interface.network))
}

pub(super) fn no_addresses(interface: Interface<'_>, claim: &ClaimFacts) -> Failure {
    let why = match (&claim.problem, claim.addresses.as_slice()) {
        (Some(problem), _) => format!("has no addresses: {problem}"),
        (None, []) => "has no addresses yet".to_owned(),
        (None, addresses) => format!(
            "says {}, and nothing proves that these are on record for the claim of UID {}",
            list(addresses.iter().map(|(address, _)| *address)),
            claim.uid
        ),
    };
    let message = format!("{}, to which {} refers, {why}", name_of(claim), who(interface));
    later(message).detail(format!(
        "tenure-controller gives a claim its addresses: is it running? kubectl -n {} describe ipamclaim {} says more",
        claim.namespace, claim.name
    ))
}

pub(super) fn record_unread(interface: Interface<'_>, claim: &ClaimFacts, problem: &str) -> Failure {
    let message = format!(
        "cannot read whether {}, to which {} refers, is on record: {problem}",
        name_of(claim),
        who(interface)
    );
    later(message)
        .detail("the API server cannot be asked now, or tenured may not get AddressBlocks or IPPools")
}

pub(super) fn not_on_record(interface: Interface<'_>, claim: &ClaimFacts) -> Failure {
    let addresses = list(claim.addresses.iter().map(|(address, _)| *address));
    let message = format!(
        "{} says {addresses}, and no record says that the claim of UID {} has them and that {} was given them",
        name_of(claim),
        claim.uid,
        who(interface)
    );
    later(message).detail(
        "only what tenure-controller has on record counts, not what a claim's status or annotation says: is it running, and does \
         a claim of the same name that was deleted still have this pod? Then delete the pod",
    )
}

pub(super) fn other_address(interface: Interface<'_>, claim: &ClaimFacts, asked: Address) -> Failure {
    let has = list(claim.addresses.iter().map(|(address, _)| *address));
    let message = format!("{} asks for {asked} by ips, and {} has {has}", who(interface), name_of(claim));
    Failure::new(Code::InvalidConfig, message)
        .detail("accepted are ips that are the claim's, or none, in the pod's network selection")
}

pub(super) fn no_slot(interface: Interface<'_>, claim: &ClaimFacts) -> Failure {
    let on = |slot: &Slot| format!("{}/{} on node {:?}", claim.namespace, slot.pod, slot.node);
    match (&claim.slots.active, &claim.slots.incoming) {
        (Some(active), Some(incoming)) => {
            let message = format!(
                "{} is in use by pod {} and moves to pod {}; {} would be the third",
                name_of(claim),
                on(active),
                on(incoming),
                who(interface)
            );
            later(message).detail("accepted are two pods at most: it may be used when one of them is gone")
        }
        (used, _) => {
            let used =
                used.as_ref().map(|slot| format!("; now it is used by pod {}", on(slot))).unwrap_or_default();
            let message = format!("{} has not been let use {} yet{used}", who(interface), name_of(claim));
            later(message).detail("tenure-controller says who may use a claim: is it running?")
        }
    }
}

fn later(message: String) -> Failure {
    Failure::new(Code::TryAgainLater, message)
}

fn who(interface: Interface<'_>) -> String {
    format!("interface {} of pod {} on network {:?}", interface.name, podref(interface), interface.network)
}

fn podref(interface: Interface<'_>) -> String {
    format!("{}/{}", interface.pod.namespace, interface.pod.name)
}

fn claim_of(interface: Interface<'_>, reference: &Reference) -> String {
    match reference {
        Reference::Named(name) => format!("IPAMClaim {}/{name}", interface.pod.namespace),
        Reference::Launcher { vmi, .. } => {
            format!("IPAMClaim of virtual machine {vmi:?} for network {:?}", interface.network)
        }
    }
}

fn name_of(claim: &ClaimFacts) -> String {
    format!("IPAMClaim {}/{}", claim.namespace, claim.name)
}

pub(super) fn list(addresses: impl Iterator<Item = Address>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

/// Why a claim's addresses cannot be used on this node, as text.
pub(crate) fn failure(error: ClaimError) -> Failure {
    match error {
        ClaimError::Other { key, held, claim, asked } => {
            let whose = claim.map(|claim| format!(" of IPAMClaim {claim:?}")).unwrap_or_default();
            later(format!("{key} holds {held}{whose}, and cannot have {} as well", described(&asked)))
                .detail("what an attachment holds stays the same until it is deleted; delete the pod")
        }
        ClaimError::Unusable(claim) => later(format!("{} cannot be used", described(&claim))).detail(
            "accepted is a claim with a UID and at least one address, each with a prefix of its family",
        ),
        ClaimError::Crowded(claim) => {
            later(format!("{} has several addresses of a family", described(&claim)))
                .detail("an interface that Tenure makes takes one of each")
        }
        ClaimError::InTheWay { claim, problem } => {
            later(format!("{} cannot be used on this node: {problem}", described(&claim)))
                .detail("an address of a claim is nobody else's; tenure who ADDRESS says who has it")
        }
    }
}

fn described(claim_use: &ClaimUse) -> String {
    let addresses = claim_use.addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}"));
    let addresses: Vec<String> = addresses.collect();
    format!(
        "IPAMClaim {:?} (UID {:?}, addresses [{}])",
        claim_use.claim_name,
        claim_use.claim,
        addresses.join(", ")
    )
}
