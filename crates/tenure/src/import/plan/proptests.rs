//! States of Coil v1 as it makes them, and as somebody damages them: no address in use is ever free to assign.
//!
//! The manifests of each state are given to what carves and assigns: `ipam`'s pools, and a block of the engine for every block that
//! the controller could still carve.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::json;
use tenure_api::coil::{AddressBlock, AddressPool, EnginePool, split_block_name};
use tenure_ipam::{Address, Cidr, IntervalSet};

use super::plan;
use crate::import::coil_v1;
use crate::import::etcd::Entry;
use crate::import::manifests;
use crate::import::records::Renames;

const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// What happened to a pool of Coil v1.
#[derive(Clone, Debug)]
struct OldPool {
    /// Subnets, as the third byte of their addresses and a prefix length.
    subnets: BTreeSet<u8>,
    prefix: u8,
    block_size: u8,
    /// Which blocks nodes have, by subnet and number, modulo how many there are.
    owned: Vec<(prop::sample::Index, u16, usize)>,
    /// Which addresses of them are used, by block and offset; whether in the old format.
    used: Vec<(prop::sample::Index, u16, bool)>,
    /// Addresses anywhere in the pool.
    anywhere: Vec<(prop::sample::Index, u16)>,
}

fn old_pool() -> impl Strategy<Value = OldPool> {
    let owned = vec((any::<prop::sample::Index>(), any::<u16>(), 0..NODES.len()), 0..8);
    let used = vec((any::<prop::sample::Index>(), any::<u16>(), any::<bool>()), 0..20);
    let anywhere = vec((any::<prop::sample::Index>(), any::<u16>()), 0..3);
    (btree_set(any::<u8>(), 1..4), 24_u8..=30, 0_u8..=5, owned, used, anywhere).prop_map(
        |(subnets, prefix, block_size, owned, used, anywhere)| OldPool {
            block_size: block_size.min(32 - prefix),
            subnets,
            prefix,
            owned,
            used,
            anywhere,
        },
    )
}

/// The keys of these pools, and the addresses in use.
fn keys(pools: &[OldPool]) -> (BTreeMap<String, Vec<u8>>, BTreeSet<Address>) {
    let (mut keys, mut addresses) = (BTreeMap::new(), BTreeSet::new());
    for (number, pool) in pools.iter().enumerate() {
        let name = if number == 0 { "default".to_owned() } else { format!("pool-{number}") };
        let networks: Vec<Cidr> = pool
            .subnets
            .iter()
            .map(|third| format!("10.{number}.{third}.0/{}", pool.prefix).parse().unwrap())
            .collect();
        let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let value = json!({"subnets": texts, "block_size": pool.block_size});
        keys.insert(format!("pool/{name}"), value.to_string().into_bytes());
        let length = 32 - pool.block_size;
        let blocks_of = |network: &Cidr| -> Vec<Cidr> {
            let count = network.size() >> pool.block_size;
            (0..count)
                .map(|at| Cidr::new(network.nth(at << pool.block_size).unwrap(), length).unwrap())
                .collect()
        };
        let mut owners: BTreeMap<Cidr, &str> = BTreeMap::new();
        for (subnet, block, node) in &pool.owned {
            let blocks = blocks_of(subnet.get(&networks));
            owners.insert(blocks[usize::from(*block) % blocks.len()], NODES[*node]);
        }
        for network in &networks {
            keys.insert(format!("subnet/{}", network.first()), Vec::new());
            let mut nodes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            let mut free = Vec::new();
            for block in blocks_of(network) {
                match owners.get(&block) {
                    Some(node) => nodes.entry(node).or_default().push(block.to_string()),
                    None => free.push(block.to_string()),
                }
            }
            let value = json!({"free": free, "nodes": nodes});
            keys.insert(format!("block/{name}/{}", network.first()), value.to_string().into_bytes());
        }
        let owned: Vec<Cidr> = owners.keys().copied().collect();
        let mut take = |block: Cidr, offset: u16, old: bool| {
            let offset = u128::from(offset) % block.size();
            let value = if old {
                b"ns/pod".to_vec()
            } else {
                br#"{"namespace": "ns", "pod": "pod", "container_id": "c"}"#.to_vec()
            };
            keys.insert(format!("ip/{}/{offset}", block.first()), value);
            addresses.insert(block.nth(offset).unwrap());
        };
        for (block, offset, old) in pool.used.iter().filter(|_| !owned.is_empty()) {
            take(*block.get(&owned), *offset, *old);
        }
        for (subnet, place) in &pool.anywhere {
            let blocks = blocks_of(subnet.get(&networks));
            take(blocks[usize::from(*place) % blocks.len()], *place, true);
        }
    }
    (keys, addresses)
}

fn entries(keys: &BTreeMap<String, Vec<u8>>) -> Vec<Entry> {
    let entry = |(key, value): (&String, &Vec<u8>)| Entry {
        key: format!("/coil/{key}").into_bytes(),
        value: value.clone(),
    };
    keys.iter().map(entry).collect()
}

/// The objects of the manifests, as the API server reads them.
fn parsed(yaml: &str) -> (Vec<AddressPool>, Vec<AddressBlock>) {
    let (mut pools, mut blocks) = (Vec::new(), Vec::new());
    for document in yaml.split("---\n").filter(|it| !it.is_empty()) {
        let value: serde_json::Value = serde_saphyr::from_str(document).unwrap();
        match value["kind"].as_str().unwrap() {
            "AddressPool" => pools.push(serde_json::from_value(value).unwrap()),
            "AddressBlock" => blocks.push(serde_json::from_value(value).unwrap()),
            kind => assert_eq!(kind, "Namespace"),
        }
    }
    (pools, blocks)
}

/// What must hold of manifests, whatever they were made of.
fn check(yaml: &str, used: &BTreeSet<Address>) -> Result<(), TestCaseError> {
    let (pools, blocks) = parsed(yaml);
    let mut reserved: Vec<Cidr> = blocks.iter().flat_map(crate::snapshot::networks).collect();
    reserved.sort();
    for pair in reserved.windows(2) {
        prop_assert!(!pair[0].overlaps(&pair[1]), "{} and {} overlap", pair[0], pair[1]);
    }
    let mut names = BTreeSet::new();
    for block in &blocks {
        prop_assert!(block.is_reserved());
        let name = block.name_any();
        prop_assert!(names.insert(name.clone()), "{name} is there twice");
        let (pool, index) = split_block_name(&name).unwrap();
        let pool = pools.iter().find(|it| it.name_any() == pool).unwrap();
        let engine = EnginePool::try_from(&pool.spec).unwrap();
        prop_assert_eq!(
            engine.pool().block(index),
            block.spec.to_subnet().ok(),
            "{} has its own addresses",
            name
        );
        prop_assert_eq!(i64::try_from(index).unwrap(), block.spec.index);
    }
    for pool in &pools {
        let engine = EnginePool::try_from(&pool.spec).unwrap();
        // A damaged prefix can make a pool that nobody walks through; its used addresses are looked at below.
        if engine.pool().block_count() > 1 << 16 {
            continue;
        }
        // What the controller can carve: every number that no object has.
        let mut taken: IntervalSet = blocks
            .iter()
            .filter(|block| block.pool() == Some(&pool.name_any()))
            .map(|block| {
                let index = u128::try_from(block.spec.index).unwrap();
                index..=index
            })
            .collect();
        while let Some(index) = engine.pool().lowest_free(&taken) {
            taken.insert(index, index);
            let subnet = engine.pool().block(index).unwrap();
            for network in [subnet.ipv4, subnet.ipv6].into_iter().flatten() {
                let assigned = used.range(network.first()..=network.last()).next();
                prop_assert_eq!(assigned, None, "block {} of {} can be carved", index, pool.name_any());
            }
        }
    }
    for address in used {
        let inside = pools.iter().any(|pool| {
            EnginePool::try_from(&pool.spec).unwrap().pool().index_of_address(*address).is_some()
        });
        prop_assert!(
            !inside || reserved.iter().any(|network| network.contains(*address)),
            "{address} is free to assign"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_used_address_of_coil_v1_is_ever_free_to_assign(pools in vec(old_pool(), 1..4)) {
        let (keys, used) = keys(&pools);
        let plan = plan(&coil_v1::read("/coil/", &entries(&keys), &Renames::default()));
        prop_assert_eq!(plan.errors().next(), None);
        let yaml = manifests::yaml(&plan).unwrap();
        check(&yaml, &used)?;
        let mut reversed = entries(&keys);
        reversed.reverse();
        let again = plan_of(&reversed);
        prop_assert_eq!(yaml, again, "whatever the order of the keys");
    }

    #[test]
    fn a_damaged_state_is_refused_or_reserves_what_is_used_all_the_same(
        pools in vec(old_pool(), 1..3),
        damages in vec((any::<prop::sample::Index>(), 0_u8..6, any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (mut keys, used) = keys(&pools);
        for (key, kind, place, byte) in damages {
            let names: Vec<String> = keys.keys().cloned().collect();
            let name = key.get(&names).clone();
            let mut value = keys.remove(&name).unwrap();
            match kind {
                0 => { keys.insert(name, Vec::new()); }
                1 => { value.truncate(place.index(value.len() + 1)); keys.insert(name, value); }
                2 if !value.is_empty() => { let at = place.index(value.len()); value[at] = byte; keys.insert(name, value); }
                3 => { keys.insert(format!("{name}{}", char::from(byte % 128)), value); }
                4 => { let other = place.get(&names).clone(); keys.insert(other, value); }
                _ => { keys.insert(name.replace('0', "1"), value); }
            }
        }
        let plan = plan(&coil_v1::read("/coil/", &entries(&keys), &Renames::default()));
        if plan.errors().next().is_none() {
            // The addresses whose records are still there, as they read now.
            let left = coil_v1::read("/coil/", &entries(&keys), &Renames::default());
            let left: BTreeSet<Address> = left.uses.iter().map(|it| it.address).collect();
            let untouched: BTreeSet<Address> = used.intersection(&left).copied().collect();
            check(&manifests::yaml(&plan).unwrap(), &left)?;
            check(&manifests::yaml(&plan).unwrap(), &untouched)?;
        }
    }
}

fn plan_of(entries: &[Entry]) -> String {
    manifests::yaml(&plan(&coil_v1::read("/coil/", entries, &Renames::default()))).unwrap()
}
