//! What the controller writes of claims: records and statuses, who has them, and for whom they are made.

mod moves;
mod owners;
mod records;

pub use moves::MoveWrite;
pub use owners::{Owner, OwnerWrite};
pub use records::{ClaimId, ClaimWrite, Gone, PodId, Renamed};

/// The name of the part.
pub(super) const PART: &str = "claims";
