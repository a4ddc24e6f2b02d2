//! Writes of records and statuses of claims.
//!
//! The records of a floating block are written together, at the version that was read. Records of a shared ledger are
//! written by patches that test each record, and a status at the version of the claim. A write that frees an address
//! of a claim whose deletion nobody saw reads live whether the claim and the pods of the record exist. A write that
//! names a pod reads whether the claim exists: a record of a deleted claim would keep the pod forever.

use std::collections::BTreeMap;

use tenure_api::claims::{IPAMClaimStatus, PodRecord};
use tenure_api::coil::ClaimRecord;
use tenure_api::whereabouts::Allocation;
use tenure_claims::status::RecordLocation;
use tenure_whereabouts::ledger::Request;

use super::super::events::of_claim;
use super::PART;
use crate::events::Note;
use crate::whereabouts::{DIVISIONS, Rest};
use crate::world::World;
use crate::write::{At, Operation, Rank};

/// A claim, existing or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl ClaimId {
    /// The claim of a record.
    pub(crate) fn of_record(record: &ClaimRecord) -> Self {
        Self { namespace: record.namespace.clone(), name: record.name.clone(), uid: record.uid.clone() }
    }
}

/// A pod that a record names and that has ended, as a live read has to confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodId {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl PodId {
    /// The pods that a record of this namespace names.
    pub(crate) fn all_of(namespace: &str, pods: &[PodRecord]) -> impl Iterator<Item = Self> {
        pods.iter().map(|pod| Self {
            namespace: namespace.to_owned(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }
}

/// A record of a ledger whose pods change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The decimal offset.
    pub key: String,
    /// The record before.
    pub before: Allocation,
    /// The pods that it should name.
    pub pods: Vec<PodRecord>,
}

/// What a live read has to confirm before addresses are freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// Claims that are gone.
    pub claims: Vec<ClaimId>,
    /// Pods that have ended.
    pub pods: Vec<PodId>,
}

/// One write about claims.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimWrite {
    /// Writes the records of a floating block.
    Records {
        /// The block.
        block: At,
        /// All its records.
        records: BTreeMap<String, ClaimRecord>,
        /// All its finalizers.
        finalizers: Vec<String>,
        /// What a live read has to confirm first.
        gone: Gone,
        /// Claims whose records name more pods than before. A live read has to confirm that they exist.
        named: Vec<ClaimId>,
    },
    /// Deletes a floating block that has only freed records.
    DropBlock {
        /// The block.
        block: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// Whether it is already in deletion.
        deleting: bool,
    },
    /// Assigns addresses of shared ranges to claims, as a live read of their ledgers allows.
    Hold {
        /// A text that identifies the network.
        subject: String,
        /// The network.
        network: String,
        /// One for each claim.
        requests: Vec<Request>,
    },
    /// Removes claims' records from a ledger that others write, too.
    Forget {
        /// The ledger.
        ledger: At,
        /// Its network.
        network: String,
        /// The records.
        records: Vec<Request>,
        /// What a live read has to confirm first.
        gone: Gone,
        /// How long freed addresses cool.
        rest: Rest,
    },
    /// Writes the records of a slice that is for claims, as a live read has to confirm.
    Slice {
        /// Its ledger.
        ledger: At,
        /// The `NodeSlicePool`.
        slices: String,
        /// The slice.
        slice: String,
        /// All its records.
        records: BTreeMap<String, Allocation>,
        /// What a live read has to confirm first.
        gone: Gone,
        /// Claims whose records name more pods than before. A live read has to confirm that they exist.
        named: Vec<ClaimId>,
        /// What it should list as cooling, if that changes.
        cooling: Option<String>,
    },
    /// Records which pods got addresses of a ledger that others write, too.
    Name {
        /// The ledger.
        ledger: At,
        /// The records, each tested for its previous value.
        records: Vec<Renamed>,
        /// Claims whose records name more pods than before. A live read has to confirm that they exist.
        named: Vec<ClaimId>,
    },
    /// Deletes the empty ledger of a slice that was for claims.
    DropLedger {
        /// The ledger.
        ledger: At,
    },
    /// Writes the status of a claim.
    Status {
        /// The namespace of the claim.
        namespace: String,
        /// The claim.
        claim: At,
        /// Its status.
        status: Box<IPAMClaimStatus>,
        /// Objects without a record for the claim though its status names them, as a live read has to confirm.
        unless: Vec<RecordLocation>,
    },
}

impl Operation for ClaimWrite {
    fn part(&self) -> &'static str {
        PART
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Records { .. } => "claim_records",
            Self::DropBlock { .. } => "drop_floating",
            Self::Hold { .. } => "claim_hold",
            Self::Forget { .. } => "claim_forget",
            Self::Slice { .. } => "claim_slice",
            Self::Name { .. } => "claim_name",
            Self::DropLedger { .. } => "drop_claim_ledger",
            Self::Status { .. } => "claim_status",
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Records { block: at, .. }
            | Self::DropBlock { block: at, .. }
            | Self::Forget { ledger: at, .. }
            | Self::Slice { ledger: at, .. }
            | Self::Name { ledger: at, .. }
            | Self::DropLedger { ledger: at }
            | Self::Status { claim: at, .. } => &at.uid,
            Self::Hold { subject, .. } => subject,
        }
    }

    fn rank(&self) -> Rank {
        match self {
            Self::Status { .. } => Rank::Status,
            _ => Rank::Record,
        }
    }

    fn sequence(&self) -> Option<&'static str> {
        matches!(self, Self::Slice { .. } | Self::DropLedger { .. }).then_some(DIVISIONS)
    }

    fn notes(&self, world: &World) -> Vec<Note> {
        of_claim(self, world)
    }
}
