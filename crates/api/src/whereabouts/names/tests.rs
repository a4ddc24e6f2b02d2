use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_pool_is_named_as_whereabouts_names_it() {
    for (network, node, range, name) in [
        ("", "", "10.0.0.0/8", "10.0.0.0-8"),
        ("test", "", "10.0.0.0/8", "test-10.0.0.0-8"),
        ("", "testnode", "10.0.0.0/8", "testnode-10.0.0.0-8"),
        ("testnetwork", "testnode", "10.0.0.0/8", "testnetwork-testnode-10.0.0.0-8"),
        ("", "ip-10-0-0-1.ec2.internal", "10.0.16.0/20", "ip-10-0-0-1.ec2.internal-10.0.16.0-20"),
        ("", "", "2001:db8::/64", "2001-db8---64"),
        ("", "", "fd00:0:0:10::/64", "fd00-0-0-10---64"),
        ("", "", "192.168.2.225/28", "192.168.2.225-28"),
        ("net", "", "::/126", "net----126"),
    ] {
        assert_eq!(pool_name(network, node, range).as_deref(), Ok(name), "{network} {node} {range}");
    }
}

#[test]
fn a_pool_whose_range_starts_or_is_written_unlike_a_name_gets_an_equal_address() {
    assert_eq!(pool_name("", "", "::/126").as_deref(), Ok("0---126"));
    assert_eq!(pool_name("", "", "0::/126").as_deref(), Ok("0---126"), "the same range has the same name");
    assert_eq!(pool_name("", "", "::5:0/120").as_deref(), Ok("0--5-0-120"));
    assert_eq!(pool_name("", "", "FD00::/64").as_deref(), Ok("fd00---64"));
}

#[test]
fn a_network_that_no_name_can_contain_is_refused_and_named() {
    for (network, node, field) in [
        ("UPPER", "", "network_name \"UPPER\""),
        ("a_b", "", "network_name \"a_b\""),
        ("-a", "", "network_name \"-a\""),
        ("a.", "n", "network_name \"a.\""),
        ("ok", "Node", "node \"Node\""),
    ] {
        let message = pool_name(network, node, "10.0.0.0/8").unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("naming an IPPool: {field} would make the object name")),
            "{message}"
        );
        assert!(message.contains("accepted are names of lower-case letters"), "{message}");
    }
    let long = "n".repeat(250);
    let message = pool_name(&long, "", "10.0.0.0/8").unwrap_err().to_string();
    assert!(message.starts_with("naming an IPPool: network_name \"nnn"), "{message}");
}

#[test]
fn a_pool_of_something_that_is_no_range_is_refused() {
    for range in ["", "10.0.0.0", "10.0.0.0-8", "10.0.0.0/33", "ten/8"] {
        assert!(matches!(pool_name("", "", range), Err(WhereaboutsNameError::Range(_))), "{range}");
    }
}

#[test]
fn a_reservation_is_named_as_whereabouts_names_it() {
    for (network, address, name) in [
        ("", "10.0.0.1", "10.0.0.1"),
        ("net", "10.0.0.1", "net-10.0.0.1"),
        ("v6net", "fd00::1", "v6net-fd00--1"),
        ("", "fd00::", "fd00--0"),
        ("", "2001:db8:480:603d:304:403::", "2001-db8-480-603d-304-403--0"),
        ("", "::ffff:10.0.0.1", "10.0.0.1"),
    ] {
        assert_eq!(
            reservation_name(network, address.parse().unwrap()).as_deref(),
            Ok(name),
            "{network} {address}"
        );
    }
}

#[test]
fn a_reservation_of_an_address_that_starts_with_a_colon_gets_its_zero() {
    assert_eq!(reservation_name("", "::1".parse().unwrap()).as_deref(), Ok("0--1"));
    assert_eq!(reservation_name("", "::".parse().unwrap()).as_deref(), Ok("0--0"));
    let message = reservation_name("UPPER", "::1".parse().unwrap()).unwrap_err().to_string();
    assert!(message.contains("network_name \"UPPER\""), "{message}");
}

#[test]
fn a_slice_pool_is_named_for_its_network_or_else_its_configuration() {
    assert_eq!(slice_pool_name("net", "conf").as_deref(), Ok("net"));
    assert_eq!(slice_pool_name("", "conf").as_deref(), Ok("conf"));
    let message = slice_pool_name("", "My_Conf").unwrap_err().to_string();
    assert!(message.starts_with("naming a NodeSlicePool: name \"My_Conf\""), "{message}");
}

/// Addresses with many zeros, where the spellings are most alike.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
        proptest::collection::vec(prop_oneof![Just(0_u16), 0_u16..0x11, any::<u16>()], 8)
            .prop_map(|groups| IpAddr::V6(<[u16; 8]>::try_from(groups).unwrap().into())),
    ]
}

proptest! {
    #[test]
    fn every_address_has_a_valid_name_of_its_own(addresses in proptest::collection::vec(address(), 1..100)) {
        let mut seen = HashMap::new();
        for address in addresses {
            let name = reservation_name("", address).unwrap();
            prop_assert!(is_object_name(&name), "{}", name);
            let other = seen.insert(name.clone(), address.to_canonical());
            prop_assert!(other.is_none_or(|other| other == address.to_canonical()), "{} names two", name);
        }
    }

    #[test]
    fn every_range_has_a_valid_name_of_its_own(ranges in proptest::collection::vec((address(), 0_u8..=128), 1..100)) {
        let mut seen = HashMap::new();
        for (address, prefix) in ranges {
            // A range of IPv4-mapped addresses is refused, as everywhere.
            let prefix = if address.is_ipv4() { prefix % 33 } else { prefix };
            let range = format!("{address}/{prefix}");
            let Ok(name) = pool_name("", "", &range) else { continue };
            prop_assert!(is_object_name(&name), "{}", name);
            let other = seen.insert(name.clone(), range.clone());
            prop_assert!(other.is_none_or(|other| other == range), "{} names two", name);
        }
    }
}
