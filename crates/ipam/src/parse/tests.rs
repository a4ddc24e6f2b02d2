//! Text that is accepted, text that is not, and text that is anything.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::address::tests::any_address;

const BOTH: [Notation; 2] = [Notation::Strict, Notation::LeadingZeros];

#[test]
fn leading_zeros_are_decimal_where_they_are_accepted_and_refused_where_not() {
    let lenient = Notation::LeadingZeros;
    assert_eq!(lenient.cidr("00192.00168.1.0/24").unwrap(), Notation::Strict.cidr("192.168.1.0/24").unwrap());
    assert_eq!(lenient.address("010.000.0.01").unwrap(), "10.0.0.1".parse().unwrap());
    assert_eq!(lenient.address("00fd00::00001").unwrap(), "fd00::1".parse().unwrap());
    let error = Notation::Strict.cidr("010.0.0.1/32").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read a network from \"010.0.0.1/32\": \"010\" has a leading zero; accepted is an address and a \
         prefix length, such as 10.0.0.0/24 or fd00::/64"
    );
}

#[test]
fn a_dash_range_has_its_network_from_the_end() {
    for notation in BOTH {
        let range = notation.range("192.168.1.5-192.168.1.25/24").unwrap();
        assert_eq!(range.cidr, "192.168.1.0/24".parse().unwrap());
        assert_eq!(range.window, Some(("192.168.1.5".parse().unwrap(), "192.168.1.25".parse().unwrap())));
        assert_eq!(notation.range("fd00::/64").unwrap().window, None);
        let inverted = notation.range("192.168.1.5-192.168.1.2/24").unwrap();
        assert_eq!(inverted.window, Some(("192.168.1.5".parse().unwrap(), "192.168.1.2".parse().unwrap())));
    }
    let error = Notation::Strict.range("192.168.1.5-192.168.2.25/28").unwrap_err();
    assert!(
        error.to_string().contains("its first address 192.168.1.5 is outside 192.168.2.16/28"),
        "{error}"
    );
    for text in
        ["x-192.168.1.25/24", "192.168.1.5-nope", "10.0.0.1-fd00::1/64", "1.2.3.4-1.2.3.5", "-", "a-b-c/1"]
    {
        assert!(Notation::LeadingZeros.range(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_no_network_is_refused() {
    for text in [
        "192.168.0.1/123",
        "100::2::1/64",
        "10.0.0.1-10.0.0.5/24",
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "10.0.0/8",
        "10.0.0.0.0/8",
        "/8",
        "",
        "10.0.0.0/8/8",
        "fd00::/129",
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.0/24",
        " 10.0.0.0/8",
        "10.0.0.0/8 ",
        "10.0.0.256/8",
        "fe80::1%eth0/64",
        "１.0.0.0/8",
    ] {
        for notation in BOTH {
            assert!(notation.cidr(text).is_err(), "{text}");
        }
    }
}

#[test]
fn an_ipv4_address_written_as_ipv6_is_ipv4_or_refused() {
    assert_eq!(Notation::LeadingZeros.address("::ffff:10.0.0.1").unwrap(), "10.0.0.1".parse().unwrap());
    let error = Notation::Strict.address("::ffff:10.0.0.1").unwrap_err();
    assert!(error.to_string().contains("it is the IPv4 address 10.0.0.1 written as IPv6"), "{error}");
}

#[test]
fn a_network_with_host_bits_is_refused_where_they_matter() {
    assert_eq!(Notation::Strict.network("10.0.0.0/24").unwrap().prefix(), 24);
    let error = Notation::Strict.network("10.0.0.1/24").unwrap_err();
    assert!(error.to_string().contains("10.0.0.1 is not the network address, which is 10.0.0.0"), "{error}");
}

#[test]
fn a_prefix_length_comes_with_or_without_a_slash() {
    assert_eq!((prefix_length("/26").unwrap(), prefix_length("26").unwrap()), (26, 26));
    for text in ["", "/", "abc", "-1", "+1", "//26", "256", "2 6"] {
        assert!(prefix_length(text).is_err(), "{text}");
    }
}

#[test]
fn a_huge_text_is_not_repeated_in_the_error() {
    let error = Notation::Strict.address(&"é1".repeat(100_000)).unwrap_err();
    assert!(error.to_string().len() < 1_000);
}

/// Text made of what addresses are made of: far more often almost right than any other text.
fn almost_an_address() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just(".".to_owned()),
        Just(":".to_owned()),
        Just("::".to_owned()),
        Just("/".to_owned()),
        Just("-".to_owned()),
        Just("%".to_owned()),
        Just("0".to_owned()),
        Just("ffff".to_owned()),
        Just("é".to_owned()),
        (0_u32..300).prop_map(|number| number.to_string()),
        (0_u32..0x1_ffff).prop_map(|number| format!("{number:x}")),
    ];
    prop::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn invariant_10_no_text_makes_the_parser_panic(text in prop_oneof![".*", almost_an_address()]) {
        for notation in BOTH {
            let _ = (notation.address(&text), notation.range(&text), notation.network(&text));
            let _ = (notation.cidr_or_address(&text), prefix_length(&text));
        }
    }

    #[test]
    fn strict_accepts_what_the_standard_library_accepts(text in almost_an_address()) {
        let ours = Notation::Strict.address(&text).ok().map(IpAddr::from);
        let mapped = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        prop_assert_eq!(ours, text.parse().ok().filter(|ip| !mapped(ip)));
    }

    #[test]
    fn what_is_written_is_read_again(address in any_address(), prefix in 0_u8..=128) {
        for notation in BOTH {
            let mapped = matches!(address.to_ip(), IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
            prop_assert!(mapped || notation.address(&address.to_string()) == Ok(address));
            if let Some(cidr) = Cidr::new(address, prefix) {
                let written = cidr.to_string();
                prop_assert!(written.contains("::ffff:") || notation.network(&written) == Ok(cidr), "{}", written);
            }
        }
    }

    #[test]
    fn zeros_in_front_change_nothing(bits: u32, zeros in 0_usize..4) {
        let address = Address::new(Family::V4, bits.into()).unwrap();
        let pad = |octet: &str| format!("{}{octet}", "0".repeat(zeros));
        let padded: Vec<String> = address.to_string().split('.').map(pad).collect();
        prop_assert_eq!(Notation::LeadingZeros.address(&padded.join(".")), Ok(address));
    }
}
