//! Everything held comes back, and everything read is either an entry or reported.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::range::proptests::small_cidr;

fn almost_an_offset() -> impl Strategy<Value = String> {
    prop_oneof![
        (0_u32..80).prop_map(|number| number.to_string()),
        (0_u32..80).prop_map(|number| format!("0{number}")),
        any::<i128>().prop_map(|number| number.to_string()),
        "[0-9+ -]{0,45}",
        ".{0,4}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_same_addresses_come_back_from_every_spelling(
        cidr in small_cidr(),
        held in prop::collection::btree_set(0_u128..64, 0..64),
        shuffled: bool,
    ) {
        let offsets = Offsets::of(&cidr);
        let held: BTreeSet<Address> = held.into_iter().filter_map(|offset| cidr.nth(offset).ok()).collect();
        let mut list: Vec<Address> = held.iter().copied().collect();
        if shuffled {
            list.reverse();
        }
        let expected: Vec<(Address, ())> = held.iter().map(|address| (*address, ())).collect();

        let map = offsets.encode_map(list.iter().map(|address| (*address, address.to_string()))).unwrap();
        let with_values: Vec<_> = held.iter().map(|address| (*address, address.to_string())).collect();
        prop_assert_eq!(offsets.decode_map(map).complete(), Ok(with_values));
        let numbers = offsets.encode_list(list.clone()).unwrap();
        prop_assert!(numbers.is_sorted());
        prop_assert_eq!(offsets.decode_list(numbers).complete(), Ok(expected.clone()));
        let bitmap = offsets.encode_bitmap(list).unwrap();
        prop_assert_eq!(offsets.decode_bitmap(&bitmap).complete(), Ok(expected));
    }

    #[test]
    fn invariant_10_every_key_of_a_map_is_an_entry_or_reported(
        cidr in small_cidr(),
        map in prop::collection::btree_map(almost_an_offset(), any::<u8>(), 0..20),
    ) {
        let decoded = Offsets::of(&cidr).decode_map(&map);
        prop_assert_eq!(decoded.entries.len() + decoded.refused.len(), map.len());
        // What was read is what the keys say, without a thought for how the reader does it.
        let mut expected = BTreeMap::new();
        for (key, value) in &map {
            let digits = key.chars().all(|c| c.is_ascii_digit()).then(|| key.parse::<u128>().ok()).flatten();
            if let Some(address) = digits.and_then(|offset| cidr.nth(offset).ok()) {
                expected.entry(address).or_insert(value);
            }
        }
        prop_assert_eq!(decoded.entries, expected.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn invariant_10_no_text_makes_the_bitmap_reader_panic(
        cidr in small_cidr(),
        text in prop_oneof![".*", "[A-Za-z0-9+/]{0,40}={0,2}"],
    ) {
        let decoded = Offsets::of(&cidr).decode_bitmap(&text);
        prop_assert!(decoded.entries.iter().all(|(address, ())| cidr.contains(*address)));
    }
}
