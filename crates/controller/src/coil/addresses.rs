//! Objects by their addresses, so that a pool finds those within its ranges without a walk over all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_ipam::{Address, Family};

/// An object that has addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A block, by name.
    Block(Arc<str>),
    /// A ledger, by name.
    Ledger(Arc<str>),
}

/// Objects and the first and last of their addresses.
///
/// Intervals may overlap. They are stored in levels by size: the lengths in one level differ by less than a factor of
/// two, so an interval that overlaps an address begins at most that far before it.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    levels: BTreeMap<(Family, u32), Level>,
}

/// First and last address, and the object.
type Level = BTreeSet<(u128, u128, Source)>;

impl Addresses {
    pub(super) fn insert(&mut self, source: Source, (first, last): (Address, Address)) {
        let entry = (first.bits(), last.bits(), source);
        self.levels.entry((first.family(), level(first, last))).or_default().insert(entry);
    }

    pub(super) fn remove(&mut self, source: Source, (first, last): (Address, Address)) {
        let place = (first.family(), level(first, last));
        if let Some(entries) = self.levels.get_mut(&place) {
            entries.remove(&(first.bits(), last.bits(), source));
            if entries.is_empty() {
                self.levels.remove(&place);
            }
        }
    }

    /// The objects with an address from `first` to `last`.
    pub(super) fn overlapping(&self, first: Address, last: Address) -> impl Iterator<Item = &Source> {
        let family = first.family();
        let (first, last) = (first.bits(), last.bits());
        self.levels.range((family, 0)..=(family, u128::BITS)).flat_map(move |((_, level), entries)| {
            let longest = u128::MAX.checked_shr(u128::BITS - level).unwrap_or(0);
            let from = (first.saturating_sub(longest), 0, Source::Block("".into()));
            let begin_before_the_end = entries.range(from..).take_while(move |(begins, ..)| *begins <= last);
            begin_before_the_end.filter(move |(_, ends, _)| *ends >= first).map(|(.., source)| source)
        })
    }
}

/// How many bits the distance from first to last takes.
fn level(first: Address, last: Address) -> u32 {
    u128::BITS - last.bits().saturating_sub(first.bits()).leading_zeros()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval() -> impl Strategy<Value = (Address, Address)> {
        let v4 = (0_u8..4, 0_u8..255, 0_u8..255).prop_map(|(net, one, other)| {
            let at = |host: u8| format!("10.0.{net}.{host}").parse().unwrap();
            (at(one.min(other)), at(one.max(other)))
        });
        let ends = ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
        let ends = ends.map(|end| end.parse().unwrap());
        let wide = prop::sample::select(vec![
            (ends[0], ends[1]),
            (ends[2], ends[3]),
            (ends[0], ends[0]),
            (ends[3], ends[3]),
        ]);
        prop_oneof![8 => v4, 1 => wide]
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_overlaps(
            all in prop::collection::vec((interval(), any::<bool>()), 0..40), asked in interval()
        ) {
            let mut addresses = Addresses::default();
            let source = |number: usize| Source::Block(number.to_string().into());
            for (number, (interval, _)) in all.iter().enumerate() {
                addresses.insert(source(number), *interval);
            }
            for (number, (interval, _)) in all.iter().enumerate().filter(|(_, (_, stays))| !stays) {
                addresses.remove(source(number), *interval);
            }
            let overlaps = |(first, last): (Address, Address)| {
                first.family() == asked.0.family() && first <= asked.1 && last >= asked.0
            };
            let expected = all.iter().enumerate().filter(|(_, (interval, stays))| *stays && overlaps(*interval));
            let expected: BTreeSet<Source> = expected.map(|(number, _)| source(number)).collect();
            let found: BTreeSet<Source> = addresses.overlapping(asked.0, asked.1).cloned().collect();
            prop_assert_eq!(found, expected);
        }
    }
}
