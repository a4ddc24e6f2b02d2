//! One family, and two side by side.

use super::*;
use crate::range::{Exclusion, Usable};

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn an_offset_of_a_pair_names_one_address_of_each_family() {
    let space = Space::pair(Range::every(cidr("10.0.0.0/27")), Range::every(cidr("fd00::/123"))).unwrap();
    let pair = space.addresses(31).unwrap();
    assert_eq!(pair.iter().collect::<Vec<_>>(), [address("10.0.0.31"), address("fd00::1f")]);
    assert_eq!(pair.to_string(), "10.0.0.31 and fd00::1f");
    assert_eq!(space.offset_of(address("10.0.0.31")), Some(31));
    assert_eq!(space.offset_of(address("fd00::1f")), Some(31));
    assert_eq!(space.offset_of(address("fd00::20")), None);
    assert_eq!(
        (space.addresses(32), space.capacity(), space.to_string()),
        (None, 32, "10.0.0.0/27 and fd00::/123".into())
    );
}

#[test]
fn an_offset_of_a_pair_is_usable_if_both_addresses_are() {
    let ipv4 = Range::new(cidr("10.0.0.0/29"), Usable::WithoutEdges).unwrap();
    let ipv6 = Range::every(cidr("fd00::/125")).without([Exclusion::from(address("fd00::3"))]);
    let space = Space::pair(ipv4, ipv6).unwrap();
    let usable: Vec<u128> = (0..10).filter(|offset| space.is_usable(*offset)).collect();
    assert_eq!((usable, space.capacity()), (vec![1, 2, 4, 5, 6], 5));
}

#[test]
fn networks_of_different_sizes_or_families_are_no_pair() {
    let pair = |a: &str, b: &str| Space::pair(Range::every(cidr(a)), Range::every(cidr(b)));
    let error = pair("10.0.0.0/24", "fd00::/64").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot pair 10.0.0.0/24 with fd00::/64: they have 8 and 64 host bits; accepted is an IPv6 prefix of 120"
    );
    assert!(matches!(pair("fd00::/120", "10.0.0.0/24"), Err(SpaceError::Families { .. })));
}

#[test]
fn the_whole_of_ipv6_is_a_space() {
    let space = Space::from(Range::every(cidr("::/0")));
    assert_eq!((space.capacity(), space.last_offset()), (u128::MAX, u128::MAX));
    assert_eq!(space.addresses(u128::MAX).unwrap().ipv6, Some(Ipv6Addr::from_bits(u128::MAX)));
}
