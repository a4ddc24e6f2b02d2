//! Claims that are created for machines and StatefulSets, and deleted with them.
//!
//! The name of a claim to create is its lock. Every other write names the version and UID of the claim that it was
//! decided on, and reads live whether the owners are still as they were.
//!
//! Claims of machines have KubeVirt's finalizer `kubevirt.io/persistent-ipam`, exactly like those of KubeVirt's
//! ipam-extensions. It keeps the address until the machine's last pod is gone, even if the machine is deleted in the
//! foreground. If Tenure is uninstalled while such claims exist, nobody removes the finalizer, and their machines
//! cannot be deleted in the foreground. Either ipam-extensions takes over (names, owners, label and finalizer are its
//! own), or one command removes the finalizer from all of them; the uninstall documentation has it:
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

/// One write about a claim of an owner.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerWrite {
    /// Creates the CRD of claims if there is none. An existing CRD stays as it is.
    Define,
    /// Creates a claim. If one of that name exists, that is the answer, whoever owns it.
    Create {
        /// `namespace/name`.
        name: String,
        /// The claim.
        claim: Box<IPAMClaim>,
    },
    /// Sets the finalizers of a claim.
    Finalizers {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// The finalizers that stay.
        stay: Vec<String>,
        /// The owners that it was created for.
        owner: Owner,
    },
    /// Sets the owner references of a claim.
    Owners {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// All its owners.
        owners: Vec<OwnerReference>,
        /// The owners that it was created for.
        owner: Owner,
    },
    /// Deletes a claim.
    Delete {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// The owners that it was created for.
        owner: Owner,
    },
}

/// The owners that a claim was created for, as they were when the plan was made. A live read has to confirm them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A machine and its instance, which have the same name.
    Machine {
        /// The name of both.
        name: String,
        /// The VirtualMachine, if it existed.
        machine: Option<Box<MachineFacts>>,
        /// The VirtualMachineInstance, if it existed.
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
            // An object that does not exist yet has only a name.
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
