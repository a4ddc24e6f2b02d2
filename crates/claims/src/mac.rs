//! The hardware address that follows an address, so that a guest sees no new card after a migration.

use tenure_ipam::{Address, Family};

use tenure_api::digest::sha256;

/// The hardware address that belongs to addresses: `0a:58` and the IPv4 address, or else the first four bytes of the SHA-256
/// of the IPv6 address (its 16 bytes). The first of each family counts. OVN-Kubernetes and others form theirs alike. `None`
/// without addresses.
pub fn mac_of(addresses: impl IntoIterator<Item = Address>) -> Option<[u8; 6]> {
    let address = addresses.into_iter().min_by_key(|address| address.family())?;
    let bytes = address.bits().to_be_bytes();
    let last = match address.family() {
        Family::V4 => bytes[12..].to_vec(),
        Family::V6 => sha256(&bytes),
    };
    Some([0x0a, 0x58, *last.first()?, *last.get(1)?, *last.get(2)?, *last.get(3)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(addresses: &[&str]) -> Option<String> {
        let addresses: Vec<Address> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let bytes = mac_of(addresses)?;
        Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
    }

    #[test]
    fn the_hardware_address_follows_ipv4_else_ipv6() {
        assert_eq!(mac(&["10.128.20.8"]).unwrap(), "0a:58:0a:80:14:08");
        assert_eq!(mac(&["fd00::1", "10.0.0.1"]), mac(&["10.0.0.1"]), "in any order");
        let six = mac(&["fd00::1"]).unwrap();
        assert!(six.starts_with("0a:58:"), "{six}");
        assert_eq!(mac(&["fd00:0::0:1"]).unwrap(), six, "the address counts, not its spelling");
        assert_ne!(mac(&["fd00::2"]).unwrap(), six);
        assert_eq!(mac(&[]), None);
    }
}
