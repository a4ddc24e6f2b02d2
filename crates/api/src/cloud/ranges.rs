//! The addresses of an alias pool, and which ledger has the record of each.
//!
//! Ledgers are numbered through the pool's ranges: each has 256 addresses, or all of a smaller range. So the ledger of an address is
//! computed, never looked up, and stays the same while ranges are appended.

use tenure_ipam::{Address, Cidr, Exclusion, IntervalSet, Notation, ParseError, Range, RangeError, Usable};

use super::pool::AliasPoolSpec;
use crate::coil::conversion::exclusion;
use crate::names::{NameError, is_object_name};

/// So many addresses a ledger has at most.
pub const LEDGER_SIZE: u128 = 1 << LEDGER_BITS;
const LEDGER_BITS: u8 = 8;

/// The addresses of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranges {
    ranges: Vec<OneRange>,
}

#[derive(Clone, Debug, PartialEq)]
struct OneRange {
    usable: Range,
    name: String,
    /// The number of its first ledger.
    first_ledger: u128,
}

/// Where the record of an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerOffset {
    /// The number of the ledger.
    pub ledger: u128,
    /// The distance of the address from the ledger's first.
    pub offset: u8,
}

/// Why a pool has no addresses. The schema refuses such pools.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RangesError {
    /// A field does not parse.
    #[error("spec.{field}: {source}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong with it.
        source: Box<ParseError>,
    },
    /// A range is too small.
    #[error("spec.{field}: {source}")]
    Range {
        /// The field.
        field: String,
        /// What is wrong with it.
        source: Box<RangeError>,
    },
}

impl Ranges {
    /// The addresses of a pool.
    pub fn of(spec: &AliasPoolSpec) -> Result<Self, RangesError> {
        let parse = |field: &str| {
            let field = field.to_owned();
            move |source| RangesError::Field { field, source: Box::new(source) }
        };
        let exclude: Vec<Exclusion> = spec
            .exclude
            .iter()
            .map(|text| exclusion(text))
            .collect::<Result<_, _>>()
            .map_err(parse("exclude"))?;
        let first = [("cidr".to_owned(), &spec.cidr, &spec.secondary_range_name)];
        let more = spec.ranges.iter().enumerate();
        let more =
            more.map(|(at, range)| (format!("ranges[{at}].cidr"), &range.cidr, &range.secondary_range_name));
        let (mut ranges, mut first_ledger) = (Vec::new(), 0);
        for (field, text, name) in first.into_iter().chain(more) {
            let cidr = Notation::Strict.cidr(text).map_err(parse(&field))?;
            let usable = Range::new(cidr, Usable::WithoutEdges)
                .map_err(|source| RangesError::Range { field, source: Box::new(source) })?
                .without(exclude.iter().copied());
            ranges.push(OneRange { usable, name: name.clone(), first_ledger });
            first_ledger += ledgers_of(&cidr);
        }
        Ok(Self { ranges })
    }

    /// What nobody gets of them.
    pub fn exclusions(&self) -> impl Iterator<Item = Exclusion> {
        self.ranges.iter().flat_map(|range| range.usable.exclusions())
    }

    /// How many addresses pods can have.
    pub fn capacity(&self) -> u128 {
        self.ranges.iter().map(|range| range.usable.count()).sum()
    }

    /// The ranges, each with the number of addresses of it that pods can have.
    pub fn networks(&self) -> impl Iterator<Item = (Cidr, u128)> {
        self.ranges.iter().map(|range| (range.usable.cidr(), range.usable.count()))
    }

    /// How many ledgers the pool has when it is full.
    pub fn ledgers(&self) -> u128 {
        self.ranges.last().map_or(0, |last| last.first_ledger + ledgers_of(&last.usable.cidr()))
    }

    /// The addresses of a ledger, and the name of the subnet's range that they are of (empty: the primary one).
    pub fn ledger(&self, index: u128) -> Option<(Cidr, &str)> {
        let range = self.ranges.iter().rfind(|range| range.first_ledger <= index)?;
        let within = index - range.first_ledger;
        let cidr = range.usable.cidr();
        let first = cidr.nth(within * LEDGER_SIZE).ok()?;
        Some((Cidr::new(first, cidr.prefix().max(32 - LEDGER_BITS))?, &range.name))
    }

    /// Where the record of an address is, if the address is the pool's.
    pub fn place(&self, address: Address) -> Option<LedgerOffset> {
        let range = self.ranges.iter().find(|range| range.usable.cidr().contains(address))?;
        let distance = address.distance_from(range.usable.cidr().first()).ok()?;
        let offset = u8::try_from(distance % LEDGER_SIZE).ok()?;
        Some(LedgerOffset { ledger: range.first_ledger + distance / LEDGER_SIZE, offset })
    }

    /// The address of a record.
    pub fn address(&self, place: LedgerOffset) -> Option<Address> {
        self.ledger(place.ledger)?.0.nth(u128::from(place.offset)).ok()
    }

    /// Whether a pod can have one of the addresses from `first` to `last`.
    pub fn has_usable(&self, first: Address, last: Address) -> bool {
        let none = IntervalSet::new();
        let mut lowest = self.ranges.iter().filter_map(|range| range.usable.next_free(&none, first));
        lowest.any(|address| address.is_between(first, last))
    }

    /// Whether a pod can have the address: it is the pool's, not excluded, and neither first nor last of its range.
    pub fn is_usable(&self, address: Address) -> bool {
        self.ranges.iter().any(|range| range.usable.contains(address))
    }
}

fn ledgers_of(cidr: &Cidr) -> u128 {
    cidr.size().div_ceil(LEDGER_SIZE)
}

/// The name of a pool's ledger: `<pool>-<index>`.
pub fn ledger_name(pool: &str, index: u128) -> Result<String, NameError> {
    let name = format!("{pool}-{index}");
    if is_object_name(&name) {
        return Ok(name);
    }
    Err(NameError { object: "a ledger of a pool", field: "pool", value: pool.to_owned(), name })
}

#[cfg(test)]
mod tests;
