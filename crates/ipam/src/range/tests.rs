//! Ranges as Whereabouts cuts them, and as we refuse to.

use super::*;

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

fn l2(text: &str) -> Range {
    Range::new(text.parse().unwrap(), Usable::WithoutEdges).unwrap()
}

#[test]
fn an_l2_range_is_without_its_first_and_last_address_in_both_families() {
    for (cidr, first, last) in [
        ("192.168.21.100/30", "192.168.21.101", "192.168.21.102"),
        ("192.168.2.200/27", "192.168.2.193", "192.168.2.222"),
        ("fd:db8:abcd:12::/96", "fd:db8:abcd:12::1", "fd:db8:abcd:12::ffff:fffe"),
        ("2001::/116", "2001::1", "2001::ffe"),
        ("0.0.0.0/0", "0.0.0.1", "255.255.255.254"),
        ("::/0", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"),
    ] {
        let range = l2(cidr);
        assert_eq!((range.first(), range.last()), (address(first), address(last)), "{cidr}");
    }
}

#[test]
fn a_network_of_one_or_two_addresses_is_refused_without_edges_and_whole_with_them() {
    for (cidr, count) in [("10.0.0.0/31", 2), ("10.0.0.5/32", 1), ("fd00::/127", 2), ("fd00::1/128", 1)] {
        let cidr: Cidr = cidr.parse().unwrap();
        let error = Range::new(cidr, Usable::WithoutEdges).unwrap_err();
        assert!(error.to_string().starts_with("net mask is too short"), "{error}");
        assert_eq!(Range::every(cidr).count(), count);
    }
}

#[test]
fn an_end_that_is_not_usable_is_refused_by_name() {
    let error = l2("10.0.0.0/24").between(Some(address("10.0.0.0")), None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the first address 10.0.0.0 is not one of the usable addresses 10.0.0.1 to 10.0.0.254 of 10.0.0.0/24"
    );
    let error =
        l2("10.0.0.0/24").between(Some(address("10.0.0.20")), Some(address("10.0.0.10"))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "10.0.0.20 to 10.0.0.10 is not a range: accepted are two addresses of one family, the lower one first"
    );
    assert!(l2("10.0.0.0/24").between(None, Some(address("fd00::1"))).is_err());
}

#[test]
fn an_exclusion_of_the_other_family_or_outside_changes_nothing() {
    let range = l2("10.0.0.0/24");
    let excluded = ["fd00::/64", "10.0.1.0/24"].map(|text| text.parse::<Cidr>().unwrap().into());
    assert_eq!(range.clone().without(excluded), range);
}

#[test]
fn half_of_ipv6_is_passed_in_one_step() {
    let half: Cidr = "::/1".parse().unwrap();
    let range = l2("::/0").without([half.into()]);
    assert_eq!(range.next_free(&IntervalSet::new(), address("::")), Some(address("8000::")));
    assert_eq!(range.nth(0), Some(address("8000::")));
    assert_eq!(range.count(), (1 << 127) - 1);
}

#[test]
fn an_exclusion_up_to_the_last_address_of_a_family_does_not_wrap() {
    let all: Cidr = "255.255.255.0/24".parse().unwrap();
    let range = l2("255.255.255.0/24").without([all.into()]);
    let free = range.next_free(&IntervalSet::new(), address("0.0.0.0"));
    assert_eq!((range.count(), range.nth(0), free), (0, None, None));
}

#[test]
fn an_exclusion_needs_its_ends_in_order() {
    assert!(Exclusion::between(address("10.0.0.2"), address("10.0.0.1")).is_err());
    assert!(Exclusion::between(address("10.0.0.2"), address("fd00::")).is_err());
}
