//! What the controller writes of claims: their records, and what their status says.
//!
//! Records of a floating block are written at the version that was read, all of them at once; those of a ledger that others
//! write, too, by patches that test each record; a status at the version of the claim. Whatever takes an address away from a
//! claim that nobody saw being deleted looks, live, whether it is there; and whether the pods that the record names are. Whatever
//! names a pod looks whether the claim is there: one that is gone, as the watch is late to say, would keep the pod for good.

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

/// A claim, whether it exists or not.
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
    /// That of a record.
    pub(crate) fn of_record(record: &ClaimRecord) -> Self {
        Self { namespace: record.namespace.clone(), name: record.name.clone(), uid: record.uid.clone() }
    }
}

/// A pod that a record names, which, as a live look has to confirm, has ended.
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
    /// Those that a record of a namespace names.
    pub(crate) fn all_of(namespace: &str, pods: &[PodRecord]) -> impl Iterator<Item = Self> {
        pods.iter().map(|pod| Self {
            namespace: namespace.to_owned(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }
}

/// A record of a ledger that gets other pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The decimal offset.
    pub key: String,
    /// The record as it was.
    pub before: Allocation,
    /// The pods that it is to name.
    pub pods: Vec<PodRecord>,
}

/// What a live look has to confirm before addresses are taken away.
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
        /// All of its records.
        records: BTreeMap<String, ClaimRecord>,
        /// All of its finalizers.
        finalizers: Vec<String>,
        /// What a live look has to confirm first.
        gone: Gone,
        /// Claims whose records name more pods than before, which, as a live look has to confirm, are there.
        named: Vec<ClaimId>,
    },
    /// Deletes a floating block that has no records but of what has been freed.
    DropBlock {
        /// The block.
        block: At,
        /// Its finalizers without ours.
        finalizers: Vec<String>,
        /// Whether it is being deleted already.
        deleting: bool,
    },
    /// Gives claims addresses of ranges that all nodes share, as a live look at their ledgers says.
    Hold {
        /// The network, in words that are its own.
        subject: String,
        /// The network.
        network: String,
        /// For each claim.
        requests: Vec<Request>,
    },
    /// Takes claims' records out of a ledger that others write, too.
    Forget {
        /// The ledger.
        ledger: At,
        /// The network that it is of.
        network: String,
        /// The records.
        records: Vec<Request>,
        /// What a live look has to confirm first.
        gone: Gone,
        /// How long what is freed rests.
        rest: Rest,
    },
    /// Writes the records of a slice that, as a live look has to confirm, is for claims.
    Slice {
        /// Its ledger.
        ledger: At,
        /// The `NodeSlicePool`.
        slices: String,
        /// The slice.
        slice: String,
        /// All of its records.
        records: BTreeMap<String, Allocation>,
        /// What a live look has to confirm first.
        gone: Gone,
        /// Claims whose records name more pods than before, which, as a live look has to confirm, are there.
        named: Vec<ClaimId>,
        /// What it is to say that rests, if that changes.
        cooling: Option<String>,
    },
    /// Writes which pods were given addresses of a ledger that others write, too.
    Name {
        /// The ledger.
        ledger: At,
        /// The records, each tested for what it was.
        records: Vec<Renamed>,
        /// Claims whose records name more pods than before, which, as a live look has to confirm, are there.
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
        /// Where, as a live look has to confirm, nothing is on record for the claim, though its status says so.
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
