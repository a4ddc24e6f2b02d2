//! A range: the addresses of one network that may be assigned.
//!
//! It has a [`Cidr`], what is [`Usable`] of it, optionally a first and a last address, and any number of
//! exclusions. Exclusions are merged once, when the range is created; after that, skipping one costs a single
//! step, whether it is one address or half of IPv6.

use std::ops::RangeInclusive;

use crate::address::{Address, Family};
use crate::cidr::Cidr;
use crate::intervals::IntervalSet;
use crate::runs::Runs;

/// Which addresses of a network may be assigned at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Usable {
    /// Every address: blocks and routed (L3) ranges, where network and broadcast address are nothing special.
    Every,
    /// All but the first and the last: L2 ranges. A network of one or two addresses would have none left and
    /// is refused.
    WithoutEdges,
}

/// The addresses of one network that may be assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    cidr: Cidr,
    usable: Usable,
    first: Address,
    last: Address,
    /// What remains of `first` to `last` after the exclusions, as address numbers.
    runs: Runs,
}

/// Addresses `first` to `last`, both included, that are not to be assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exclusion {
    first: Address,
    last: Address,
}

/// Why there is no such range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// A network of one or two addresses has no usable one between its edges.
    #[error(
        "net mask is too short: {cidr} has no usable address besides its first and last; accepted is a prefix of at \
         most {}, or a range where every address is usable",
        .cidr.family().bits() - 2
    )]
    TooSmall {
        /// The network.
        cidr: Cidr,
    },
    /// The first or last address is not usable.
    #[error(
        "the {which} address {address} is not one of the usable addresses {} to {} of {cidr}",
        .accepted.start(), .accepted.end()
    )]
    Outside {
        /// `first` or `last`.
        which: &'static str,
        /// The address that was given.
        address: Address,
        /// The lowest and the highest usable address.
        accepted: Box<RangeInclusive<Address>>,
        /// The network.
        cidr: Cidr,
    },
    /// The ends of an interval are swapped or of different families.
    #[error(
        "{first} to {last} is not a range: accepted are two addresses of one family, the lower one first"
    )]
    Inverted {
        /// What was given as the lower end.
        first: Address,
        /// What was given as the upper end.
        last: Address,
    },
}

impl Range {
    /// The usable addresses of a network.
    pub fn new(cidr: Cidr, usable: Usable) -> Result<Self, RangeError> {
        let (first, last) = match usable {
            Usable::Every => (cidr.first(), cidr.last()),
            Usable::WithoutEdges if cidr.host_bits() < 2 => return Err(RangeError::TooSmall { cidr }),
            Usable::WithoutEdges => (cidr.first().wrapping_next(), cidr.last().wrapping_previous()),
        };
        let runs = Runs::new(first.bits(), last.bits(), &IntervalSet::new());
        Ok(Self { cidr, usable, first, last, runs })
    }

    /// Every address of a network.
    pub fn every(cidr: Cidr) -> Self {
        let runs = Runs::new(cidr.first().bits(), cidr.last().bits(), &IntervalSet::new());
        Self { cidr, usable: Usable::Every, first: cidr.first(), last: cidr.last(), runs }
    }

    /// Only the addresses from `first` and up to `last`, where given. Refuses addresses that are not usable,
    /// and swapped ends.
    pub fn between(self, first: Option<Address>, last: Option<Address>) -> Result<Self, RangeError> {
        let outside = |which, address| RangeError::Outside {
            which,
            address,
            accepted: Box::new(self.first..=self.last),
            cidr: self.cidr,
        };
        for (which, end) in [("first", first), ("last", last)] {
            if let Some(address) = end.filter(|address| !address.is_between(self.first, self.last)) {
                return Err(outside(which, address));
            }
        }
        let (first, last) = (first.unwrap_or(self.first), last.unwrap_or(self.last));
        if first > last {
            return Err(RangeError::Inverted { first, last });
        }
        Ok(self.cut(first, last))
    }

    /// The range without these. Exclusions outside the range or of the other family change nothing.
    #[must_use]
    pub fn without(mut self, exclusions: impl IntoIterator<Item = Exclusion>) -> Self {
        let mut excluded = self.excluded();
        for Exclusion { first, last } in exclusions {
            if first.family() == self.family() {
                excluded.insert(first.bits(), last.bits());
            }
        }
        self.runs = Runs::new(self.first.bits(), self.last.bits(), &excluded);
        self
    }

    /// The network.
    pub fn cidr(&self) -> Cidr {
        self.cidr
    }

    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        self.cidr.family()
    }

    /// What is usable of the network.
    pub fn usable(&self) -> Usable {
        self.usable
    }

    /// The lowest address, ignoring exclusions.
    pub fn first(&self) -> Address {
        self.first
    }

    /// The highest address, ignoring exclusions.
    pub fn last(&self) -> Address {
        self.last
    }

    /// How many addresses may be assigned, 2^128 - 1 at most.
    pub fn count(&self) -> u128 {
        self.runs.count()
    }

    /// Whether the address may be assigned.
    pub fn contains(&self, address: Address) -> bool {
        address.family() == self.family() && self.runs.contains(address.bits())
    }

    /// The assignable address with `rank` assignable addresses below it.
    pub fn nth(&self, rank: u128) -> Option<Address> {
        self.runs.nth(rank).map(|bits| self.address(bits))
    }

    /// How many assignable addresses are below this one; `None` if it is not assignable itself.
    pub fn rank(&self, address: Address) -> Option<u128> {
        if address.family() == self.family() { self.runs.rank(address.bits()) } else { None }
    }

    /// The lowest assignable address from `from` on that is not in `taken` (addresses of this family as
    /// numbers), or else the lowest of all. Costs one lookup per run, however many are taken.
    pub fn next_free(&self, taken: &IntervalSet, from: Address) -> Option<Address> {
        let from = if from.family() == self.family() { from.bits() } else { self.first.bits() };
        let in_run =
            |run: RangeInclusive<u128>| taken.next_gap(*run.start()).filter(|free| free <= run.end());
        let free = self.runs.iter_from(from).find_map(in_run).or_else(|| self.runs.iter().find_map(in_run));
        free.map(|bits| self.address(bits))
    }

    /// The exclusions after merging, cut to the range, lowest first.
    pub fn exclusions(&self) -> impl Iterator<Item = Exclusion> {
        let excluded: Vec<_> = self.excluded().iter().collect();
        excluded.into_iter().map(|interval| Exclusion {
            first: self.address(*interval.start()),
            last: self.address(*interval.end()),
        })
    }

    /// The runs of addresses that may be assigned, as numbers.
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    fn excluded(&self) -> IntervalSet {
        let runs: IntervalSet = self.runs.iter().collect();
        runs.gaps_within(self.first.bits(), self.last.bits()).collect()
    }

    fn cut(mut self, first: Address, last: Address) -> Self {
        self.runs = Runs::new(first.bits(), last.bits(), &self.excluded());
        (self.first, self.last) = (first, last);
        self
    }

    fn address(&self, bits: u128) -> Address {
        Address::masked(self.family(), bits)
    }
}

impl Exclusion {
    /// Every address from `first` to `last`.
    pub fn between(first: Address, last: Address) -> Result<Self, RangeError> {
        if first.is_between(first, last) {
            Ok(Self { first, last })
        } else {
            Err(RangeError::Inverted { first, last })
        }
    }

    /// Its lowest address.
    pub fn first(&self) -> Address {
        self.first
    }

    /// Its highest address.
    pub fn last(&self) -> Address {
        self.last
    }
}

impl From<Address> for Exclusion {
    fn from(address: Address) -> Self {
        Self { first: address, last: address }
    }
}

impl From<Cidr> for Exclusion {
    fn from(cidr: Cidr) -> Self {
        Self { first: cidr.first(), last: cidr.last() }
    }
}

#[cfg(test)]
pub(crate) mod proptests;
#[cfg(test)]
mod tests;
