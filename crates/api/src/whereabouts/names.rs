//! The names of Whereabouts' objects: its own wherever Kubernetes accepts them.
//!
//! Whereabouts replaces `:` and `/` by `-` without checking the result. If the result is no object name, its
//! write fails, so there we are free to choose: an address that starts with a colon is written with its
//! leading zero (`::1` as `0--1`). A network or node name that no object name can contain is refused instead
//! of changed, because two networks must never become one. `docs/whereabouts-differences.md` has the table.

use std::net::IpAddr;

use tenure_ipam::{Notation, ParseError};

use crate::names::{NameError, is_object_name};

/// Why an object cannot be named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhereaboutsNameError {
    /// Kubernetes would refuse the name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The range is invalid.
    #[error("naming an IPPool")]
    Range(#[source] ParseError),
}

/// The name of the `IPPool` (and in slice mode of its Lease): `[network-][node-]range`, as Whereabouts writes
/// it.
///
/// `network` is the configuration's `network_name` and `node` the node that owns the slice; each is empty if
/// there is none. The range is used as written: the configuration has already masked it.
pub fn pool_name(network: &str, node: &str, range: &str) -> Result<String, WhereaboutsNameError> {
    let (address, cidr) =
        Notation::LeadingZeros.address_and_cidr(range).map_err(WhereaboutsNameError::Range)?;
    let canonical = || format!("{}/{}", leading_zero(&address.to_string()), cidr.prefix());
    Ok(first_accepted("an IPPool", network, node, range, canonical)?)
}

/// The name of the `OverlappingRangeIPReservation` of an address: `[network-]address`, as Whereabouts writes it.
pub fn reservation_name(network: &str, address: IpAddr) -> Result<String, NameError> {
    // Whereabouts does not know IPv4-mapped IPv6 addresses: it treats them as IPv4.
    let mut text = address.to_canonical().to_string();
    if text.ends_with(':') {
        text.push('0');
    }
    first_accepted("an OverlappingRangeIPReservation", network, "", &text, || leading_zero(&text))
}

/// The name of the `NodeSlicePool`: the network's, or that of the CNI configuration for a network without
/// one.
pub fn slice_pool_name(network: &str, configuration: &str) -> Result<String, NameError> {
    let (field, value) = if network.is_empty() { ("name", configuration) } else { ("network_name", network) };
    if is_object_name(value) {
        return Ok(value.to_owned());
    }
    Err(NameError { object: "a NodeSlicePool", field, value: value.to_owned(), name: value.to_owned() })
}

/// The name as Whereabouts writes it, or else with the other form of the address, whichever Kubernetes
/// accepts.
fn first_accepted(
    object: &'static str,
    network: &str,
    node: &str,
    address: &str,
    other: impl Fn() -> String,
) -> Result<String, NameError> {
    let joined = |address: &str| {
        let address = address.replace([':', '/'], "-");
        let parts = [network, node, &address];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    };
    let name = joined(address);
    if is_object_name(&name) {
        return Ok(name);
    }
    let name = joined(&other());
    if is_object_name(&name) {
        return Ok(name);
    }
    let (field, value) = match () {
        () if !network.is_empty() && !is_object_name(network) => ("network_name", network),
        () if !node.is_empty() && !is_object_name(node) => ("node", node),
        () if network.len() >= node.len() => ("network_name", network),
        () => ("node", node),
    };
    Err(NameError { object, field, value: value.to_owned(), name })
}

/// `::1` as `0::1`: the same address, starting with a digit.
fn leading_zero(address: &str) -> String {
    if address.starts_with(':') { format!("0{address}") } else { address.to_owned() }
}

#[cfg(test)]
mod tests;
