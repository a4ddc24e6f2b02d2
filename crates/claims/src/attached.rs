//! Which element of a pod's list of networks an interface belongs to.
//!
//! A plugin receives the network's name and the interface, but nothing of the list. An element that names its
//! interface is found by that name. Multus numbers the other interfaces by their position among *all* that it
//! attaches: `net1` is the first element, unless the cluster has `defaultNetworks`, which come before it, and
//! a plugin is not told how many there are. So such an element is found by its network, and several on one
//! network by their order, which is the order in which they are attached. Anything that does not fit is
//! refused, because a guess could give a pod the address of another interface.

use std::collections::BTreeSet;

use tenure_api::claims::{DEFAULT_INTERFACE, annotation};

use crate::pod::PodFacts;
use crate::reference::{Refusal, podref};
use crate::selection::Selection;

/// The prefix of Multus' default interface names.
const PREFIX: &str = "net";
/// More than Multus ever attaches to one pod.
const MOST: usize = 1024;

/// An attached interface.
#[derive(Clone, Copy, Debug)]
pub struct Attached<'a> {
    /// The network's name.
    pub network: &'a str,
    /// Its name in the pod.
    pub interface: &'a str,
    /// Which interfaces the same container already has on the same network.
    pub before: &'a BTreeSet<String>,
}

/// The names that earlier interfaces may have, if this one has a default name: their order tells which it is.
pub fn elder_interfaces(interface: &str) -> impl Iterator<Item = String> + use<> {
    (1..place_of(interface).unwrap_or_default()).map(|place| format!("{PREFIX}{place}"))
}

/// The element of the pod's list that an interface belongs to; `None` if it belongs to none, like the pod's
/// own interface and those of the cluster's `defaultNetworks`. `network_of` returns the network's name for a
/// definition's namespace and name; `None` if unknown.
pub fn selection_of<'p>(
    pod: &'p PodFacts,
    attached: Attached<'_>,
    network_of: impl Fn(&str, &str) -> Option<String>,
) -> Result<Option<&'p Selection>, Refusal> {
    if attached.interface == DEFAULT_INTERFACE
        && pod.selections.iter().all(|it| it.interface != DEFAULT_INTERFACE)
    {
        return Ok(None);
    }
    if let Some(problem) = pod.problems.get(annotation::NETWORKS) {
        return Err(Refusal::Unreadable { pod: podref(pod), problem: problem.clone() });
    }
    let definition = |selection: &'p Selection| {
        (selection.namespace.as_deref().unwrap_or(&pod.namespace), selection.name.as_str())
    };
    let network = |selection: &'p Selection| {
        let (namespace, name) = definition(selection);
        network_of(namespace, name)
    };
    let may_be = |selection: &'p Selection| network(selection).is_none_or(|it| it == attached.network);
    let named =
        pod.selections.iter().find(|it| it.is_named && it.interface == attached.interface && may_be(it));
    if named.is_some() {
        return Ok(named);
    }
    let unnamed: Vec<(usize, &Selection)> =
        pod.selections.iter().enumerate().filter(|(_, it)| !it.is_named && may_be(it)).collect();
    let refers = |selection: &Selection| {
        selection.claim.is_some() || pod.launcher.is_some() || pod.stateful_set.is_some()
    };
    if !unnamed.iter().any(|(_, it)| refers(it)) {
        return Ok(None);
    }
    let unclear = || Refusal::Unclear {
        pod: podref(pod),
        network: attached.network.to_owned(),
        interface: attached.interface.to_owned(),
    };
    let place = place_of(attached.interface).ok_or_else(unclear)?;
    // It comes before all of them, even if no default network comes first.
    if unnamed.iter().all(|(index, _)| *index >= place) {
        return Ok(None);
    }
    let one_definition = unnamed.iter().all(|(_, it)| definition(it) == definition(unnamed[0].1));
    if unnamed.iter().any(|(_, it)| network(it).is_none()) && !one_definition {
        return Err(unclear());
    }
    let elders = elder_interfaces(attached.interface).filter(|it| attached.before.contains(it)).count();
    let (index, selection) = *unnamed.get(elders).ok_or_else(unclear)?;
    // As many as come before the first element come before all of them.
    let shift = place.checked_sub(index + 1).ok_or_else(unclear)?;
    let in_order = |(index, _): &(usize, &Selection)| {
        attached.before.contains(&format!("{PREFIX}{}", shift + index + 1))
    };
    if unnamed.iter().take(elders).all(in_order) { Ok(Some(selection)) } else { Err(unclear()) }
}

/// The number in a default interface name.
fn place_of(interface: &str) -> Option<usize> {
    let digits = interface.strip_prefix(PREFIX)?;
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|place| plain && *place <= MOST)
}

#[cfg(test)]
mod tests;
