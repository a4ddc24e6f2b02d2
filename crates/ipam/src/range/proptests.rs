//! Ranges against a list of their addresses.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A network of at most 64 addresses, at the bottom, inside and at the top of a family.
pub(crate) fn small_cidr() -> impl Strategy<Value = Cidr> {
    let base = prop_oneof![Just(0_u128), Just(0x0a00_0000), Just(u128::MAX)];
    (base, any::<bool>(), 0_u8..=6).prop_map(|(base, v4, host_bits)| {
        let family = if v4 { Family::V4 } else { Family::V6 };
        Cidr::new(Address::masked(family, base), family.bits() - host_bits).unwrap()
    })
}

fn usable() -> impl Strategy<Value = Usable> {
    prop_oneof![Just(Usable::Every), Just(Usable::WithoutEdges)]
}

/// An address in or near a network, by its distance from 8 below the network.
fn near(cidr: Cidr, distance: u128) -> Option<Address> {
    let bits = cidr.first().bits().checked_add(distance)?.checked_sub(8)?;
    Address::new(cidr.family(), bits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn a_range_is_the_list_of_its_addresses(
        cidr in small_cidr(),
        usable in usable(),
        (start, end) in (prop::option::of(0_u128..80), prop::option::of(0_u128..80)),
        excluded in prop::collection::vec((0_u128..80, 0_u128..6), 0..12),
        late_window: bool,
        taken in prop::collection::vec((0_u128..80, 0_u128..6), 0..12),
    ) {
        let mut list: BTreeSet<Address> = (0..=cidr.last_offset()).map(|offset| cidr.nth(offset).unwrap()).collect();
        let Ok(range) = Range::new(cidr, usable) else {
            prop_assert!(usable == Usable::WithoutEdges && list.len() < 3);
            return Ok(());
        };
        if usable == Usable::WithoutEdges {
            list.pop_first();
            list.pop_last();
        }
        // An end that is not usable is refused: then the range is without it.
        let (start, end) = (start.and_then(|at| near(cidr, at)), end.and_then(|at| near(cidr, at)));
        let start = start.filter(|start| list.contains(start));
        prop_assert_eq!(range.clone().between(start, end).is_ok(), {
            let lowest = start.or(list.first().copied());
            end.is_none_or(|end| list.contains(&end) && lowest.is_some_and(|lowest| lowest <= end))
        });
        if let Some(start) = start {
            list = list.split_off(&start);
        }
        let end = end.filter(|end| list.contains(end));
        if let Some(end) = end {
            list.retain(|address| *address <= end);
        }
        let window = (*list.first().unwrap(), *list.last().unwrap());
        let mut exclusions = Vec::new();
        for (at, length) in excluded {
            if let (Some(first), Some(last)) = (near(cidr, at), near(cidr, at + length)) {
                list.retain(|address| !address.is_between(first, last));
                exclusions.push(Exclusion::between(first, last).unwrap());
            }
        }
        // Window and exclusions in either order are the same range.
        let range = if late_window {
            range.without(exclusions).between(start, end).unwrap()
        } else {
            range.between(start, end).unwrap().without(exclusions)
        };

        prop_assert_eq!((range.first(), range.last()), window);
        prop_assert_eq!(range.count(), list.len() as u128);
        for distance in 0..90 {
            let Some(address) = near(cidr, distance) else { continue };
            prop_assert_eq!(range.contains(address), list.contains(&address));
            let rank = list.contains(&address).then(|| list.range(..address).count() as u128);
            prop_assert_eq!(range.rank(address), rank);
            prop_assert_eq!(range.nth(distance), list.iter().nth(usize::try_from(distance).unwrap()).copied());
        }
        // The lowest one that is not taken, from anywhere on.
        let numbers = taken.iter().filter_map(|(at, length)| Some(near(cidr, *at)?.bits()..=near(cidr, at + length)?.bits()));
        let taken: IntervalSet = numbers.collect();
        let free: BTreeSet<Address> = list.iter().copied().filter(|address| !taken.contains(address.bits())).collect();
        for from in (0..90).filter_map(|distance| near(cidr, distance)) {
            let expected = free.range(from..).next().or(free.first()).copied();
            prop_assert_eq!(range.next_free(&taken, from), expected);
        }
        // What it tells of itself makes it again.
        let again = Range::new(cidr, usable).unwrap().between(Some(range.first()), Some(range.last())).unwrap();
        prop_assert_eq!(again.without(range.exclusions().collect::<Vec<_>>()), range);
    }
}
