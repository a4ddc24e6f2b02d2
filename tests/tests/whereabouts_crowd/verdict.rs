//! Afterwards: who lives, and what pools, reservations, agents and their files say, are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kube::ResourceExt;
use tenure_api::whereabouts::IPPool;

use crate::networks::Network;
use crate::oracle::Living;
use crate::work::Machine;
use tenure_tests::whereabouts::{Bed, NETWORK, address_at};

/// Pod, interface and container.
type Owner = (String, String, String);

/// Everything that differs from those who live.
pub fn of(bed: &Bed, machines: &[Machine<'_>], networks: &[Network], living: &[Living]) -> Vec<String> {
    let mut found = Vec::new();
    of_ledgers(&bed.all_ledgers(), living, &mut found);
    of_reservations(bed, living, &mut found);
    for machine in machines {
        of_node(machine, networks, living, &mut found);
    }
    found
}

fn of_ledgers(pools: &[IPPool], living: &[Living], found: &mut Vec<String>) {
    let mut recorded: BTreeMap<(String, IpAddr), Owner> = BTreeMap::new();
    for pool in pools {
        let domain = pool.labels().get(NETWORK).cloned().unwrap_or_default();
        for (key, record) in &pool.spec.allocations {
            let name = pool.name_any();
            let Some(address) = address_at(&pool.spec.range, key) else {
                found.push(format!("{name} has a record {key}"));
                continue;
            };
            let owner = (record.podref.clone(), record.ifname.clone().unwrap_or_default(), record.id.clone());
            if let Some(other) = recorded.insert((domain.clone(), address), owner.clone()) {
                found.push(format!("{address} is {owner:?}'s in {name}, and {other:?}'s elsewhere"));
            }
        }
    }
    for it in living {
        let owner = (it.podref.clone(), it.ifname.clone(), it.container.clone());
        for address in &it.addresses {
            let held = recorded.remove(&(it.domain.to_owned(), *address));
            if held.as_ref() != Some(&owner) {
                found.push(format!("{address} of {owner:?} is on record for {held:?}"));
            }
        }
    }
    found.extend(recorded.iter().map(|(place, owner)| format!("{place:?} is on record for {owner:?}")));
}

/// Where ranges overlap, every address has its reservation, and no other address has one.
fn of_reservations(bed: &Bed, living: &[Living], found: &mut Vec<String>) {
    let mut reserved = bed.all_reservations();
    for it in living.iter().filter(|it| it.domain == "lapped") {
        for address in &it.addresses {
            let held = reserved.remove(&format!("lapped-{address}"));
            // The part of the wide range that is not the narrow one's needs none.
            if held.as_ref() != Some(&(it.podref.clone(), it.ifname.clone())) {
                found.push(format!("{address} of {it:?} is reserved for {held:?}"));
            }
        }
    }
    found.extend(reserved.iter().map(|it| format!("a reservation is left over: {it:?}")));
}

/// What an agent holds of slices is what lives there, and nothing waits to be done.
fn of_node(machine: &Machine<'_>, networks: &[Network], living: &[Living], found: &mut Vec<String>) {
    let name = &machine.node.name;
    if machine.node.tombstones() != 0 {
        found.push(format!("{name} has {} tombstones", machine.node.tombstones()));
    }
    let Some(holds) = machine.node.holds() else {
        found.push(format!("{name} has no agent"));
        return;
    };
    let here = living.iter().filter(|it| it.node == machine.number && networks[it.network].sliced);
    let expected: BTreeSet<(String, IpAddr)> = here
        .flat_map(|it| {
            let who = format!("{}/{}/{}", networks[it.network].name, it.container, it.ifname);
            it.addresses.iter().map(move |address| (who.clone(), *address))
        })
        .collect();
    let held: BTreeSet<(String, IpAddr)> = holds.into_iter().collect();
    found.extend(expected.difference(&held).map(|it| format!("{name} does not hold {it:?}")));
    found.extend(held.difference(&expected).map(|it| format!("{name} holds {it:?}")));
}
