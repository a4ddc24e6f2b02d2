//! Writes about claims: records and statuses, users, and claims for owners.

mod moves;
mod owners;
mod records;

pub use moves::MoveWrite;
pub use owners::{Owner, OwnerWrite};
pub use records::{ClaimId, ClaimWrite, Gone, PodId, Renamed};

/// The name of the part.
pub(super) const PART: &str = "claims";
