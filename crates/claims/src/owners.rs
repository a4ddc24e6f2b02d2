//! Which claims virtual machines and StatefulSets need, and what becomes of those that are there. Pure: facts in, steps out.
//!
//! | made for | claims | owner | finalizer | goes |
//! |---|---|---|---|---|
//! | virtual machine | one for each interface on a network that opts in | the VirtualMachine, else the instance | KubeVirt's | with the machine, or when its interface is unplugged |
//! | StatefulSet that opts in | the same for each of its pods | the set, if its volume claims go with it | none | as its volume claims do |
//! | people | whatever they wrote | nobody | none | when they delete them |
//!
//! The steps are level-triggered: what was missed is found at the next look, and a step that was carried out is not said again.
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

/// The name of the webhook by which KubeVirt's ipam-extensions puts references into launcher pods: an entry of `webhooks` of some
/// MutatingWebhookConfiguration.
pub const EXTENSIONS_WEBHOOK: &str = "ipam-claims.k8s.cni.cncf.io";

/// One thing to do about claims.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make it.
    Create(Box<IPAMClaim>),
    /// One of that name is there and belongs to somebody else: look again when it is gone, and say so meanwhile.
    Wait {
        /// Its name.
        claim: String,
        /// Why, for people.
        words: String,
    },
    /// Take KubeVirt's finalizer off: nothing needs the claim any more.
    RemoveFinalizer {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
        /// The finalizers that stay.
        stay: Vec<String>,
    },
    /// Say anew who owns it.
    Own {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
        /// All its owners, in place of those that it has.
        owners: Vec<OwnerReference>,
    },
    /// Delete it.
    Delete {
        /// Its name.
        claim: String,
        /// Its UID.
        uid: String,
    },
    /// It cannot be said what is to be done. Ask again; say so meanwhile. Nothing is done in silence instead.
    Problem {
        /// What is wrong, for people.
        words: String,
    },
}

/// Who else makes claims for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nobody.
    Nobody,
    /// KubeVirt's ipam-extensions: for additional networks, and for the pods' own where an attachment definition of the namespace
    /// has the role `primary` (`primary`). For the cluster's default network and for what takes its place it makes none.
    Extensions {
        /// Whether the namespace has such a definition.
        primary: bool,
    },
}

impl Beside {
    /// Whether nobody else makes the claim of an interface.
    pub fn leaves(self, place: &NetworkSource) -> bool {
        match (self, place) {
            (Self::Nobody, _)
            | (Self::Extensions { .. }, NetworkSource::Definition { default: true, .. }) => true,
            (Self::Extensions { primary }, NetworkSource::Cluster) => !primary,
            (Self::Extensions { .. }, NetworkSource::Definition { default: false, .. }) => false,
        }
    }
}

/// Whether KubeVirt's own ipam-extensions is at work: then its claims are used, and only those are made that it does not make
/// ([`Beside`]); its own are not touched. `webhook` says
/// whether [`EXTENSIONS_WEBHOOK`] is configured, `None` if that cannot be read; then its claims give it away: of a machine, and
/// without an interface, which nobody else leaves empty.
pub fn extensions_at_work<'c>(webhook: Option<bool>, claims: impl IntoIterator<Item = &'c Existing>) -> bool {
    webhook.unwrap_or_else(|| claims.into_iter().any(Existing::is_of_extensions))
}

/// The name of a network whose definition opts in; words if it cannot be said, which is not the same as no.
pub type NetworkOf<'n> = &'n dyn Fn(&str, &str) -> Result<Option<String>, String>;
