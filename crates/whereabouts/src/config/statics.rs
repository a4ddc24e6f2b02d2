//! Addresses that are passed on unchanged, without a record.

use tenure_cni::Version;
use tenure_ipam::{Address, Cidr, Notation};

use super::keys::Keys;
use super::{Notice, RangeConfig, Refusal};

/// An address that somebody else manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticAddress {
    /// The address.
    pub address: Address,
    /// Its network.
    pub cidr: Cidr,
    /// Its gateway.
    pub gateway: Option<Address>,
}

impl StaticAddress {
    /// Parses an address with its prefix length, and a gateway that may be empty.
    pub(super) fn parse(key: &str, text: &str, gateway: &str) -> Result<Self, Refusal> {
        let (address, cidr) = Notation::LeadingZeros
            .address_and_cidr(text)
            .map_err(|error| Refusal::parse(key, text, &error))?;
        let mut parsed = Self { address, cidr, gateway: None };
        if !gateway.is_empty() {
            let key = format!("{key} gateway");
            let found = Notation::LeadingZeros
                .address(gateway)
                .map_err(|error| Refusal::parse(&key, gateway, &error))?;
            if found.family() != address.family() {
                let problem = format!("it is {} and the address {text} is not", found.family());
                return Err(Refusal::new(&key, gateway, &problem, "a gateway of the address's family"));
            }
            parsed.gateway = Some(found);
        }
        Ok(parsed)
    }

    /// The form for a result.
    pub(super) fn to_result(self) -> tenure_cni::Address {
        tenure_cni::Address {
            address: format!("{}/{}", self.address, self.cidr.prefix()),
            gateway: self.gateway.map(Address::to_ip),
            interface: None,
        }
    }
}

/// `addresses`.
pub(super) fn read(keys: &Keys<'_>) -> Result<Vec<StaticAddress>, Refusal> {
    let entry = |(place, value): (usize, &serde_json::Value)| {
        let path = keys.path(&format!("addresses[{place}]"));
        let object = value.as_object().ok_or_else(|| {
            Refusal::new(&path, &value.to_string(), "it is no object", "{\"address\": \"10.0.0.5/24\"}")
        })?;
        let entry = Keys::new(&path, object);
        StaticAddress::parse(&entry.path("address"), &entry.text("address")?, &entry.text("gateway")?)
    };
    keys.list("addresses")?.iter().enumerate().map(entry).collect()
}

/// Assigns each gateway of `CNI_ARGS` to the addresses in whose network it lies.
pub(super) fn set_gateways(statics: &mut [StaticAddress], gateways: &[Address]) -> Result<(), Refusal> {
    for gateway in gateways {
        let mut found = false;
        for address in statics.iter_mut().filter(|address| address.cidr.contains(*gateway)) {
            address.gateway = Some(*gateway);
            found = true;
        }
        if !found {
            return Err(Refusal::new(
                "CNI_ARGS GATEWAY",
                &gateway.to_string(),
                "it lies in the network of no address of IP",
                "a gateway in the network of one of them",
            ));
        }
    }
    Ok(())
}

/// Versions before 0.3.0 have room for one address per family.
pub(super) fn check_room(version: Version, statics: &[StaticAddress]) -> Result<(), Refusal> {
    let families: Vec<_> = statics.iter().map(|address| address.address.family()).collect();
    let crowded = families.iter().enumerate().any(|(place, family)| families[..place].contains(family));
    if version >= Version::V0_3_0 || !crowded {
        return Ok(());
    }
    Err(Refusal::new(
        "cniVersion",
        version.as_str(),
        "it does not support more than 1 address per family",
        "0.3.0 or newer",
    ))
}

/// Notices static addresses that a range may also assign: nobody keeps the two apart.
pub(super) fn notice_overlaps(statics: &[StaticAddress], ranges: &[RangeConfig], notices: &mut Vec<Notice>) {
    for (place, fixed) in statics.iter().enumerate() {
        if let Some(range) = ranges.iter().find(|range| range.range.contains(fixed.address)) {
            let note = format!(
                "{} may be assigned from {} as well: put it into exclude",
                fixed.address,
                range.cidr()
            );
            notices.push(Notice { key: format!("static address {place}"), note });
        }
    }
}
