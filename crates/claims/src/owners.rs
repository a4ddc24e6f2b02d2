//! Which claims virtual machines and StatefulSets need, and what becomes of those that are there. Pure: facts in, steps out.
//!
//! | made for | claims | owner | finalizer | goes |
//! |---|---|---|---|---|
//! | virtual machine | one for each interface on a network that opts in | the VirtualMachine, else the instance | KubeVirt's | with the machine, or when its interface is unplugged |
//! | StatefulSet that opts in | the same for each of its pods | the set, if its volume claims go with it | none | as its volume claims do |
//! | people | whatever they wrote | nobody | none | when they delete them |
//!
//! The steps are level-triggered: the next run finds what was missed, and a step that was performed is not returned again.
//! Each is guarded by the UID of the claim that it was decided on.

mod existing;
mod facts;
mod machine;
mod stateful;

pub use existing::{Existing, Owner};
pub use facts::{MachineFacts, MachineNetwork, NetworkSource};
pub use machine::{Machine, machine};
pub use stateful::{Retention, StatefulFacts, stateful_set};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_api::claims::IPAMClaim;

/// The name of the webhook by which KubeVirt's ipam-extensions adds references to launcher pods: an entry of
/// `webhooks` of some MutatingWebhookConfiguration.
pub const EXTENSIONS_WEBHOOK: &str = "ipam-claims.k8s.cni.cncf.io";

/// One action on a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create it.
    Create(Box<IPAMClaim>),
    /// A claim of that name exists and belongs to another owner: check again when it is gone, and report this
    /// meanwhile.
    Wait {
        /// Its name.
        claim: String,
        /// The reason, for people.
        words: String,
    },
    /// Remove KubeVirt's finalizer: nothing needs the claim any more.
    RemoveFinalizer {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
        /// The remaining finalizers.
        stay: Vec<String>,
    },
    /// Change its owners.
    Own {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
        /// All its owners, in place of the present ones.
        owners: Vec<OwnerReference>,
    },
    /// Delete it.
    Delete {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
    },
    /// The action cannot be decided. Ask again, and report this meanwhile; nothing is done silently instead.
    Problem {
        /// The problem, for people.
        words: String,
    },
}

/// Who else creates claims for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// KubeVirt's ipam-extensions: for additional networks, and for the pods' own if an attachment definition
    /// of the namespace has the role `primary` (`primary`). For the cluster's default network and its
    /// replacement it creates none.
    Extensions {
        /// Whether the namespace has such a definition.
        primary: bool,
    },
}

impl Beside {
    /// Whether nobody else creates the claim of an interface.
    pub fn leaves(self, place: &NetworkSource) -> bool {
        match (self, place) {
            (Self::Nobody, _)
            | (Self::Extensions { .. }, NetworkSource::Definition { default: true, .. }) => true,
            (Self::Extensions { primary }, NetworkSource::Cluster) => !primary,
            (Self::Extensions { .. }, NetworkSource::Definition { default: false, .. }) => false,
        }
    }
}

/// Whether KubeVirt's own ipam-extensions is active: then its claims are used unchanged, and only those are
/// created that it does not create ([`Beside`]). `webhook` says whether [`EXTENSIONS_WEBHOOK`] is configured;
/// `None` if that cannot be read. Then its claims reveal it: they are of a machine and have no interface,
/// which everybody else fills in.
pub fn extensions_at_work<'c>(webhook: Option<bool>, claims: impl IntoIterator<Item = &'c Existing>) -> bool {
    webhook.unwrap_or_else(|| claims.into_iter().any(Existing::is_of_extensions))
}

/// The name of a network whose definition opts in. An error means that this is unknown, which is not the same
/// as no.
pub type NetworkOf<'n> = &'n dyn Fn(&str, &str) -> Result<Option<String>, String>;
