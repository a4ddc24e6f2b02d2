//! Claims that are made for machines and StatefulSets, and let go with them.
//!
//! A creation's name is its lock. Everything else names the version and the UID of the claim that it was decided on, and looks
//! again, live, whether those for whom the claim was made still are as they were then.
//!
//! Claims of machines have KubeVirt's finalizer `kubevirt.io/persistent-ipam`, exactly as those of KubeVirt's ipam-extensions:
//! it keeps the address until the machine's last pod is gone, also when the machine is deleted in the foreground. Where Tenure
//! is uninstalled while there are such claims, nobody takes it off any more, and their machines could not be deleted in the
//! foreground. Either ipam-extensions takes over (it knows these claims: names, owners, label and finalizer are its own), or one
//! command takes the finalizer off all of them; this is for the documentation of uninstalling:
//!
//! ```text
//! kubectl get ipamclaims -A -l kubevirt.io/vm -o go-template='{{range .items}}{{.metadata.namespace}} {{.metadata.name}}{{"\n"}}{{end}}' |
//!   while read namespace name; do
//!     kubectl patch ipamclaim -n "$namespace" "$name" --type=merge -p '{"metadata":{"finalizers":null}}'
//!   done
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_api::claims::IPAMClaim;
use tenure_claims::owners::{MachineFacts, StatefulFacts};

use super::PART;
use crate::write::{At, Operation, Rank};

/// One write about a claim that is made for somebody.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerWrite {
    /// Brings the definition of claims, where there is none. One that is there already, whoever brought it, stays as it is.
    Define,
    /// Makes a claim. If there is one of that name, that is the answer, whomever it belongs to.
    Create {
        /// `namespace/name`.
        name: String,
        /// The claim.
        claim: Box<IPAMClaim>,
    },
    /// Says which finalizers stay on a claim.
    Finalizers {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// All that stay.
        stay: Vec<String>,
        /// Those that it was made for.
        owner: Owner,
    },
    /// Says anew who owns a claim.
    Owners {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// All its owners.
        owners: Vec<OwnerReference>,
        /// Those that it was made for.
        owner: Owner,
    },
    /// Deletes a claim.
    Delete {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// Those that it was made for.
        owner: Owner,
    },
}

/// Those that a claim was made for, as they were when it was decided about: a live look has to confirm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A machine and its instance, of one name.
    Machine {
        /// The name of both.
        name: String,
        /// The VirtualMachine, if there was one.
        machine: Option<Box<MachineFacts>>,
        /// The VirtualMachineInstance, if there was one.
        instance: Option<Box<MachineFacts>>,
    },
    /// A StatefulSet.
    StatefulSet(Box<StatefulFacts>),
}

impl Operation for OwnerWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Define => "define_claims",
            Self::Create { .. } => "create_claim",
            Self::Finalizers { .. } => "claim_finalizers",
            Self::Owners { .. } => "claim_owners",
            Self::Delete { .. } => "delete_claim",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Define => "ipamclaims.k8s.cni.cncf.io",
            // What does not exist yet has only its name.
            Self::Create { name, .. } => name,
            Self::Finalizers { claim, .. } | Self::Owners { claim, .. } | Self::Delete { claim, .. } => {
                &claim.uid
            }
        }
    }

    fn rank(&self) -> Rank {
        Rank::Traffic
    }
}
