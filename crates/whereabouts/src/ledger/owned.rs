//! A node's slice: one object with one writer, written after the node's decisions.

use tenure_api::whereabouts::{IPPool, IPPoolSpec, Reservation};
use tenure_ipam::Address;
use tenure_ipam::ledger::LedgerError;

use super::{PoolId, State};

/// What a node finds when it takes a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adopted {
    /// Its own records, which stay held.
    pub held: Vec<Reservation>,
    /// Addresses of the slice that others have: assigned from the whole range before it was divided. They
    /// return to the slice one by one, when those records are removed.
    pub reserved: Vec<Address>,
    /// Invalid records, as text. They stay in the object and nobody has them.
    pub refused: Vec<String>,
}

/// What a node has to know before it hands anything out of a slice: its own object, and those of every pool of the
/// network that shares addresses with the slice (the whole range's, if it was used before it was cut).
pub fn adopt<'p>(
    slice: &PoolId,
    own: Option<&IPPool>,
    others: impl IntoIterator<Item = &'p IPPool>,
) -> Adopted {
    let mut adopted = Adopted::default();
    if let Some(own) = own {
        match own.spec.reservations() {
            Ok(decoded) => {
                adopted.held = decoded.entries.into_iter().map(|(_, held)| held).collect();
                adopted.refused.extend(decoded.refused.iter().map(ToString::to_string));
            }
            Err(error) => adopted.refused.push(error.to_string()),
        }
    }
    for other in others {
        if let Ok(decoded) = other.spec.reservations() {
            let inside = decoded.entries.into_iter().map(|(address, _)| address);
            adopted.reserved.extend(inside.filter(|address| slice.range.contains(*address)));
        }
    }
    adopted.reserved.sort_unstable();
    adopted.reserved.dedup();
    adopted
}

/// The object with a node's holds in its slice: [`State::Owned`] while the slice is the node's,
/// [`State::Unique`] afterwards, when only the remaining holds keep others away. `base` is the cached object;
/// its records whose keys are no address of the slice stay.
pub fn owned_object<'r>(
    slice: &PoolId,
    state: State,
    held: impl IntoIterator<Item = &'r Reservation>,
    base: Option<&IPPool>,
) -> Result<IPPool, OwnedError> {
    let mut spec = IPPoolSpec::of(&slice.range, held)?;
    let mut object = slice.empty_object(0, state)?;
    if let Some(base) = base {
        let readable = |key: &String| {
            let decimal = key.bytes().all(|byte| byte.is_ascii_digit());
            decimal && key.parse::<u128>().is_ok_and(|offset| offset <= slice.range.last_offset())
        };
        let senseless = base.spec.allocations.iter().filter(|(key, _)| !readable(key));
        spec.allocations.extend(senseless.map(|(key, record)| (key.clone(), record.clone())));
        let mut metadata = base.metadata.clone();
        metadata.labels.get_or_insert_default().extend(object.metadata.labels.unwrap_or_default());
        metadata.annotations.get_or_insert_default().extend(object.metadata.annotations.unwrap_or_default());
        object.metadata = metadata;
    }
    object.spec = spec;
    Ok(object)
}

/// Why a slice's object cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnedError {
    /// An address is outside the slice, or held twice.
    #[error("writing a slice's records: {0}")]
    Record(#[from] LedgerError),
    /// The object's name is invalid.
    #[error("naming a slice's object: {0}")]
    Name(#[from] tenure_api::whereabouts::WhereaboutsNameError),
}
