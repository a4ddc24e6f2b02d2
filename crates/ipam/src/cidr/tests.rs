//! Networks at both ends of both families.

use super::*;

fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

#[test]
fn a_network_masks_host_bits_and_knows_its_ends() {
    for (text, network, last) in [
        ("192.168.2.200/27", "192.168.2.192", "192.168.2.223"),
        ("2000::/126", "2000::", "2000::3"),
        ("10.0.0.5/32", "10.0.0.5", "10.0.0.5"),
        ("10.0.0.5/0", "0.0.0.0", "255.255.255.255"),
        ("fd00::1/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ] {
        let cidr = cidr(text);
        assert_eq!((cidr.first().to_string(), cidr.last().to_string()), (network.into(), last.into()));
    }
}

#[test]
fn the_size_is_exact_up_to_what_a_number_can_say() {
    assert_eq!(cidr("0.0.0.0/0").size(), 1 << 32);
    assert_eq!(cidr("::/1").size(), 1 << 127);
    assert_eq!(cidr("::/0").size(), u128::MAX);
    assert_eq!(cidr("::1/128").size(), 1);
}

#[test]
fn two_networks_overlap_if_one_covers_the_other() {
    assert!(cidr("10.0.0.0/8").covers(&cidr("10.1.0.0/16")));
    assert!(!cidr("10.1.0.0/16").covers(&cidr("10.0.0.0/8")));
    assert!(cidr("10.1.0.0/16").overlaps(&cidr("10.0.0.0/8")));
    assert!(!cidr("10.1.0.0/16").overlaps(&cidr("10.2.0.0/16")));
    assert!(!cidr("::/0").overlaps(&cidr("0.0.0.0/0")));
}

#[test]
fn a_prefix_longer_than_the_family_is_no_network() {
    assert_eq!(Cidr::new("10.0.0.0".parse().unwrap(), 33), None);
    assert_eq!(Cidr::new("fd00::".parse().unwrap(), 129), None);
}

#[test]
fn an_offset_beyond_the_network_has_no_address() {
    assert_eq!(cidr("10.0.0.0/24").nth(255), Ok("10.0.0.255".parse().unwrap()));
    assert!(cidr("10.0.0.0/24").nth(256).is_err());
    assert!(cidr("::/0").nth(u128::MAX).is_ok());
}
