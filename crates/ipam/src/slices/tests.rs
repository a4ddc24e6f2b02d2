//! Cutting networks.

use proptest::prelude::*;

use super::*;
use crate::range::proptests::small_cidr;

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

#[test]
fn a_network_is_cut_into_slices_of_either_family() {
    let texts = |network: &str, size: &str| -> Vec<String> {
        Slices::parse(network, size).unwrap().iter().map(|slice| slice.to_string()).collect()
    };
    assert_eq!(texts("10.0.0.0/8", "/10"), ["10.0.0.0/10", "10.64.0.0/10", "10.128.0.0/10", "10.192.0.0/10"]);
    assert_eq!(texts("10.0.0.0/24", "24"), ["10.0.0.0/24"]);
    assert_eq!(texts("fd00::/127", "/128"), ["fd00::/128", "fd00::1/128"]);
    assert_eq!(texts("0.0.0.0/0", "/1"), ["0.0.0.0/1", "128.0.0.0/1"]);
    let slices = Slices::parse("10.0.0.0/8", "/20").unwrap();
    assert_eq!((slices.count(), slices.iter().next_back()), (4096, Some(cidr("10.255.240.0/20"))));
}

#[test]
fn two_to_the_64th_slices_cost_nothing() {
    let slices = Slices::parse("fd00::/8", "/72").unwrap();
    assert_eq!(slices.count(), 1 << 64);
    assert_eq!(slices.get((1 << 64) - 1), Some(cidr("fdff:ffff:ffff:ffff:ff00::/72")));
    assert_eq!(slices.iter().nth(3), Some(cidr("fd00:0:0:0:300::/72")));
    let all = Slices::parse("::/0", "128").unwrap();
    assert_eq!(
        (all.count(), all.get(u128::MAX)),
        (u128::MAX, Some(Cidr::host(Address::highest(crate::Family::V6))))
    );
}

#[test]
fn a_cut_that_makes_no_sense_is_refused_with_what_would() {
    for (network, size) in [
        ("10.0.0.0/10", "/8"),
        ("10.0.0.1/24", "/28"),
        ("10.0.0.0/24", "/33"),
        ("10.0.0.0/24", "abc"),
        ("10.0.0.0/24", ""),
        ("not-a-cidr", "/24"),
        ("fd00::/112", "/129"),
        ("fd00::/112", "/255"),
    ] {
        assert!(Slices::parse(network, size).is_err(), "{network} by {size}");
    }
    let error = Slices::parse("10.0.0.0/24", "/33").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot cut 10.0.0.0/24 into slices of /33: accepted is a prefix length from 24 to 32"
    );
}

proptest! {
    #[test]
    fn every_slice_is_found_by_its_index_and_by_every_address(whole in small_cidr(), more in 0_u8..=6) {
        let prefix = whole.prefix() + more.min(whole.host_bits());
        let slices = Slices::new(whole, prefix).unwrap();
        let mut covered = Vec::new();
        for (index, slice) in (0_u128..).zip(slices.iter()) {
            prop_assert_eq!(slices.get(index), Some(slice));
            prop_assert_eq!(slices.index_of(&slice), Some(index));
            for offset in 0..=slice.last_offset() {
                prop_assert_eq!(slices.index_of_address(slice.nth(offset).unwrap()), Some(index));
                covered.push(slice.nth(offset).unwrap());
            }
        }
        let addresses: Vec<_> = (0..=whole.last_offset()).map(|offset| whole.nth(offset).unwrap()).collect();
        prop_assert_eq!(covered, addresses);
        prop_assert_eq!(slices.get(slices.count()), None);
    }
}
