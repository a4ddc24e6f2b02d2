//! Arithmetic on addresses: the cases of Whereabouts, and the laws behind them.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn the_next_address_carries_over_octets_and_wraps_only_when_told_to() {
    for (ip, next) in [
        ("192.168.2.255", "192.168.3.0"),
        ("192.168.255.255", "192.169.0.0"),
        ("255.255.255.255", "0.0.0.0"),
        ("ff02::ff", "ff02::100"),
        ("ff02::ffff", "ff02::1:0"),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::"),
    ] {
        assert_eq!(address(ip).wrapping_next(), address(next));
    }
    assert_eq!(address("255.255.255.255").next(), None);
    assert_eq!(address("192.168.2.255").next(), Some(address("192.168.3.0")));
}

#[test]
fn the_previous_address_borrows_from_octets_and_wraps_only_when_told_to() {
    for (ip, previous) in [
        ("192.168.2.23", "192.168.2.22"),
        ("192.168.3.0", "192.168.2.255"),
        ("0.0.0.0", "255.255.255.255"),
        ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("ff02::1:0", "ff02::ffff"),
    ] {
        assert_eq!(address(ip).wrapping_previous(), address(previous));
    }
    assert_eq!(address("::").previous(), None);
    assert_eq!(address("ff02::2").previous(), Some(address("ff02::1")));
}

#[test]
fn a_distance_has_all_128_bits_and_borrows_correctly() {
    for (a, b, distance) in [
        ("192.168.1.1", "192.168.1.0", 1),
        ("192.168.2.255", "192.168.2.1", 254),
        ("ff02::1:0", "ff02::1", 65_535),
        ("10.0.1.5", "10.0.0.250", 11),
        ("2001:db8:1::", "2001:db8::", 1 << 80),
    ] {
        assert_eq!(address(a).distance_from(address(b)), Ok(distance));
        assert_eq!(address(b).plus(distance), Ok(address(a)));
    }
}

#[test]
fn a_distance_that_does_not_exist_is_an_error_that_names_both() {
    let error = address("10.0.0.1").distance_from(address("10.0.0.2")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot compute the distance from 10.0.0.2 up to 10.0.0.1: 10.0.0.1 is the lower one"
    );
    let error = address("10.0.0.1").distance_from(address("fd00::1")).unwrap_err();
    assert!(error.to_string().contains("one is IPv6 and the other IPv4"), "{error}");
}

#[test]
fn an_address_beyond_the_family_is_an_error_and_not_another_address() {
    for offset in [4_294_967_295, 4_294_967_294, u128::MAX] {
        let error = address("10.0.0.0").plus(offset).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot add {offset} to 10.0.0.0: the highest IPv4 address is 255.255.255.255")
        );
    }
    assert_eq!(address("0.0.0.0").plus(4_294_967_295), Ok(address("255.255.255.255")));
}

#[test]
fn an_address_is_between_both_ends_and_never_between_those_of_the_other_family() {
    for (ip, first, last, inside) in [
        ("192.169.0.0", "192.168.0.0", "192.169.0.0", true),
        ("192.168.0.0", "192.168.0.0", "192.169.0.0", true),
        ("192.169.0.1", "192.168.0.0", "192.169.0.0", false),
        ("192.167.255.255", "192.168.0.0", "192.169.0.0", false),
        ("2000:1::1", "2000::", "2000:1::", false),
        ("2001:db8:480:603d:304:403::", "2001:db8:480:603d::1", "2001:db8:480:603e::4", true),
        ("10.0.0.1", "::", "ffff::", false),
    ] {
        assert_eq!(address(ip).is_between(address(first), address(last)), inside, "{ip}");
    }
}

pub(crate) fn any_address() -> impl Strategy<Value = Address> {
    prop_oneof![
        any::<u32>().prop_map(|bits| (Family::V4, bits.into())),
        any::<u128>().prop_map(|bits| (Family::V6, bits))
    ]
    .prop_map(|(family, bits)| Address { family, bits })
}

proptest! {
    #[test]
    fn next_and_previous_undo_each_other(address in any_address()) {
        prop_assert_eq!(address.wrapping_next().wrapping_previous(), address);
        prop_assert_eq!(address.next().map_or(address, |next| next.previous().unwrap()), address);
    }

    #[test]
    fn adding_and_measuring_undo_each_other(address in any_address(), offset: u128, shift in 0_u32..128) {
        let offset = offset >> shift;
        match address.plus(offset) {
            Ok(sum) => prop_assert_eq!(sum.distance_from(address), Ok(offset)),
            Err(_) => prop_assert!(offset > address.family().max() - address.bits()),
        }
    }

    #[test]
    fn the_order_is_that_of_the_standard_library(a in any_address(), b in any_address()) {
        prop_assert_eq!(a.cmp(&b), IpAddr::from(a).cmp(&IpAddr::from(b)));
        prop_assert_eq!(Address::from(IpAddr::from(a)), a);
    }
}
