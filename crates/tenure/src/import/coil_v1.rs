//! What Coil v1 has in etcd, read into records, without I/O.
//!
//! | key below the prefix | value |
//! |---|---|
//! | `pool/NAME` | `{"subnets": ["10.2.0.0/16"], "block_size": 5}`, the size as a power of two |
//! | `subnet/ADDRESS` | nothing: it keeps two pools from having the same subnet |
//! | `block/POOL/ADDRESS` | of the subnet with this address: `{"free": ["10.2.0.32/27"], "nodes": {"node1": ["10.2.0.0/27"]}}` |
//! | `ip/BLOCK/OFFSET` | `{"namespace": …, "pod": …, "container_id": …, "created_at": …}`, or before 1.0.2 `namespace/pod` |
//!
//! Coil v1 is IPv4 alone. What cannot be understood is an error, and so is what contradicts itself: both could hide an address
//! in use. What its own life leaves behind is a note: addresses of a removed pool, a used address in a block that is free again.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use tenure_ipam::{Address, Cidr, Family, Notation, Subnet};

use super::etcd::Entry;
use super::finding::quoted;
use super::records::{NodeBlock, Origin, PoolRecord, Records, Renames, Use};

/// The pool of namespaces that have none of their own.
const DEFAULT: &str = "default";

#[derive(Deserialize)]
struct PoolValue {
    subnets: Vec<String>,
    block_size: i64,
}

#[derive(Deserialize)]
struct BlockValue {
    #[serde(default)]
    free: Option<Vec<String>>,
    #[serde(default)]
    nodes: Option<BTreeMap<String, Option<Vec<String>>>>,
}

#[derive(Deserialize)]
struct Assignment {
    namespace: String,
    pod: String,
    #[serde(default)]
    container_id: String,
}

/// A pool that is understood.
struct Known {
    block_bits: u8,
    subnets: Vec<Cidr>,
}

/// What is being read.
struct Reading {
    records: Records,
    /// Pools by their names there.
    pools: BTreeMap<String, Known>,
    /// Pools that are not understood: errors of what belongs to them would only repeat that.
    spoiled: BTreeSet<String>,
    /// Blocks of nodes, and free ones.
    blocks: BTreeMap<Cidr, String>,
}

/// The records that the keys below `prefix` mean.
pub(super) fn read(prefix: &str, entries: &[Entry], renames: &Renames) -> Records {
    let mut reading = Reading {
        records: Records::of(Origin::CoilV1),
        pools: BTreeMap::new(),
        spoiled: BTreeSet::new(),
        blocks: BTreeMap::new(),
    };
    let mut rest = Vec::new();
    for entry in entries {
        let key = String::from_utf8_lossy(&entry.key);
        let below = key.strip_prefix(prefix).unwrap_or(&key);
        match below.strip_prefix("pool/") {
            Some(name) => reading.pool(&shown(&key), name, &entry.value, renames),
            None => rest.push((shown(&key), below.to_owned(), &entry.value)),
        }
    }
    if reading.pools.is_empty() && reading.spoiled.is_empty() {
        reading.records.error(
            shown(prefix),
            format!("there is no pool of Coil v1 among {} keys", entries.len()),
            "accepted is a prefix (--prefix) with keys such as pool/default",
        );
    }
    // Blocks first: they tell what a used address belongs to.
    for (at, below, value) in &rest {
        if let Some(path) = below.strip_prefix("block/") {
            reading.block(at, path, value);
        }
    }
    for (at, below, value) in &rest {
        match below.split_once('/') {
            Some(("block", _)) => {}
            Some(("ip", path)) => reading.address(at, path, value),
            Some(("subnet", address)) => reading.subnet(at, address),
            _ => reading.records.note(at, "is no key of Coil v1", "it is ignored"),
        }
    }
    let names: Vec<&str> = reading.pools.keys().chain(&reading.spoiled).map(String::as_str).collect();
    renames.check(&names, &mut reading.records);
    reading.records
}

/// A key for people.
fn shown(key: &str) -> String {
    let quoted = quoted(key);
    // Nearly all keys need no quotes.
    if quoted.len() == key.len() + 2 { key.to_owned() } else { quoted }
}

/// A value as JSON, or an error that shows it.
fn json<'v, T: Deserialize<'v>>(
    records: &mut Records,
    at: &str,
    value: &'v [u8],
    accepted: &str,
) -> Option<T> {
    serde_json::from_slice(value)
        .map_err(|error| {
            let value = quoted(&String::from_utf8_lossy(value));
            records.error(at, format!("cannot read {value}: {error}"), format!("accepted is {accepted}"));
        })
        .ok()
}

impl Reading {
    fn pool(&mut self, at: &str, name: &str, value: &[u8], renames: &Renames) {
        match self.pool_of(at, value) {
            Some(known) => {
                let here = renames.of(name);
                self.records.pools.push(PoolRecord {
                    at: at.to_owned(),
                    name: here.clone(),
                    block_bits: known.block_bits,
                    subnets: known.subnets.iter().map(|network| Subnet::single(*network)).collect(),
                });
                if name != DEFAULT || here != DEFAULT {
                    self.records.namespaces.insert(name.to_owned(), here);
                }
                self.pools.insert(name.to_owned(), known);
            }
            None => _ = self.spoiled.insert(name.to_owned()),
        }
    }

    fn pool_of(&mut self, at: &str, value: &[u8]) -> Option<Known> {
        const ACCEPTED: &str = r#"such as {"subnets": ["10.2.0.0/16"], "block_size": 5}"#;
        let pool: PoolValue = json(&mut self.records, at, value, ACCEPTED)?;
        let block_bits = u8::try_from(pool.block_size).ok().filter(|bits| *bits <= 32);
        if block_bits.is_none() {
            let problem = format!("block_size: {} is no power of two of addresses", pool.block_size);
            self.records.error(at, problem, "accepted is 0 to 32");
        }
        let mut subnets = Vec::new();
        for (position, text) in pool.subnets.iter().enumerate() {
            match ipv4(text) {
                Ok(network) => subnets.push(network),
                Err(problem) => {
                    let problem = format!("subnets[{position}]: {problem}");
                    self.records.error(at, problem, "accepted is an IPv4 network such as 10.2.0.0/16");
                }
            }
        }
        let whole = subnets.len() == pool.subnets.len();
        block_bits.filter(|_| whole).map(|block_bits| Known { block_bits, subnets })
    }

    fn block(&mut self, at: &str, path: &str, value: &[u8]) {
        const ACCEPTED: &str = r#"such as {"free": ["10.2.0.32/27"], "nodes": {"node1": ["10.2.0.0/27"]}}"#;
        let Some((pool, address)) = path.rsplit_once('/') else {
            return self.records.error(at, "names no subnet", "accepted is block/POOL/ADDRESS");
        };
        let blocks: Option<BlockValue> = json(&mut self.records, at, value, ACCEPTED);
        let Some(blocks) = blocks else { return };
        if self.spoiled.contains(pool) {
            return;
        }
        let known = self.pools.get(pool).map(|known| {
            let of_subnet = |network: &&Cidr| network.first().to_string() == address;
            (known.block_bits, known.subnets.iter().find(of_subnet).copied())
        });
        let (block_bits, subnet) = match known {
            Some((block_bits, Some(subnet))) => (block_bits, subnet),
            None => {
                let problem = format!("there is no pool {}", quoted(pool));
                return self.records.error(
                    at,
                    problem,
                    "accepted is a pool with a key pool/NAME; delete the key if the pool was removed",
                );
            }
            Some((_, None)) => {
                let problem = format!("pool \"{pool}\" has no subnet with the address {}", quoted(address));
                return self.records.error(
                    at,
                    problem,
                    "accepted is the first address of one of its subnets",
                );
            }
        };
        let owned = blocks.nodes.unwrap_or_default();
        let owned = owned.iter().flat_map(|(node, list)| {
            list.iter().flatten().map(move |text| (Some(node.as_str()), text.as_str()))
        });
        let free = blocks.free.iter().flatten().map(|text| (None, text.as_str()));
        for (node, text) in owned.chain(free) {
            self.one_block(at, (node, text), (block_bits, subnet));
        }
    }

    fn one_block(&mut self, at: &str, (node, text): (Option<&str>, &str), (block_bits, subnet): (u8, Cidr)) {
        let whose = node.map_or_else(|| "free".to_owned(), |node| format!("nodes[{}]", quoted(node)));
        let network = match ipv4(text) {
            Ok(network) => network,
            Err(problem) => {
                let accepted = format!("accepted is a block of {subnet}");
                return self.records.error(at, format!("{whose}: {problem}"), accepted);
            }
        };
        if network.host_bits() != block_bits || !subnet.covers(&network) {
            let problem = format!("{whose}: {network} is no block of this subnet");
            let size = 32_u8.saturating_sub(block_bits);
            return self.records.error(at, problem, format!("accepted is a /{size} inside {subnet}"));
        }
        if let Some(other) = self.blocks.insert(network, whose.clone()) {
            let problem = format!("{network} is listed twice: {other} and {whose}");
            return self.records.error(at, problem, "accepted is a block that is either free or one node's");
        }
        if let Some(node) = node {
            let node = Some(node.to_owned());
            self.records.blocks.push(NodeBlock { at: at.to_owned(), network, node });
        }
    }

    fn address(&mut self, at: &str, path: &str, value: &[u8]) {
        let holder = match holder(value) {
            Ok(holder) => holder,
            Err(problem) => {
                let accepted =
                    r#"accepted is such as {"namespace": "default", "pod": "web-0"}, or default/web-0"#;
                return self.records.error(at, problem, accepted);
            }
        };
        let place = path.split_once('/').and_then(|(block, offset)| {
            let first: Address = block.parse().ok().filter(|it: &Address| it.family() == Family::V4)?;
            // `007` and `+7` parse as well, but Coil never writes them.
            let number: u32 = offset.parse().ok().filter(|number: &u32| number.to_string() == offset)?;
            Some((first, number))
        });
        let Some((first, offset)) = place else {
            return self.records.error(
                at,
                "names no address",
                "accepted is ip/BLOCK/OFFSET, such as ip/10.2.0.32/7",
            );
        };
        let pool = self.pools.iter().find_map(|(name, known)| {
            known
                .subnets
                .iter()
                .any(|subnet| subnet.contains(first))
                .then_some((name.as_str(), known.block_bits))
        });
        let Some((pool, block_bits)) = pool else {
            if self.spoiled.is_empty() {
                self.records.note(
                    at,
                    format!(
                        "block {first} of {holder} is in no pool; it was left by a pool that was removed"
                    ),
                    "whoever creates a pool with it later has to exclude it",
                );
            }
            return;
        };
        let block = Cidr::new(first, 32_u8.saturating_sub(block_bits)).filter(|block| block.first() == first);
        let Some(block) = block else {
            let problem = format!("{first} is not the first address of a block of pool \"{pool}\"");
            let accepted = format!(
                "accepted are blocks of {} addresses; delete the key if no pod has the address",
                1_u64 << block_bits
            );
            return self.records.error(at, problem, accepted);
        };
        let address = block.nth(offset.into());
        let Ok(address) = address else {
            let problem = format!("offset {offset} is beyond block {block}");
            return self.records.error(at, problem, format!("accepted is 0 to {}", block.last_offset()));
        };
        if self.blocks.get(&block).is_none_or(|whose| whose == "free") {
            self.records.note(
                at,
                format!("{address} of {holder} is in block {block}, which no node has"),
                "the block is reserved",
            );
        }
        self.records.uses.push(Use { at: at.to_owned(), address, holder, node: None });
    }

    /// Says nothing of its own: the pool has its subnets. A leftover is told.
    fn subnet(&mut self, at: &str, address: &str) {
        let known = |known: &Known| known.subnets.iter().any(|subnet| subnet.first().to_string() == address);
        if self.spoiled.is_empty() && !self.pools.values().any(known) {
            self.records.note(at, "no pool has this subnet", "it is ignored");
        }
    }
}

fn ipv4(text: &str) -> Result<Cidr, String> {
    match Notation::Strict.cidr(text) {
        Ok(network) if network.family() == Family::V4 => Ok(network),
        Ok(network) => Err(format!("{network} is no IPv4 network")),
        Err(error) => Err(format!("{} is no network: {}", quoted(text), error.reason)),
    }
}

/// The holder that a value names.
fn holder(value: &[u8]) -> Result<String, String> {
    let unreadable = || format!("cannot read {}", quoted(&String::from_utf8_lossy(value)));
    if let Ok(it) = serde_json::from_slice::<Assignment>(value) {
        if it.namespace.is_empty() || it.pod.is_empty() {
            return Err(unreadable());
        }
        let container = if it.container_id.is_empty() {
            String::new()
        } else {
            format!(" (container {})", quoted(&it.container_id).trim_matches('"'))
        };
        return Ok(format!("pod {}{container}", plain(&format!("{}/{}", it.namespace, it.pod))));
    }
    let text = std::str::from_utf8(value).map_err(|_| unreadable())?;
    match text.split_once('/') {
        Some((namespace, pod))
            if !namespace.is_empty() && !pod.is_empty() && !pod.contains('/') && !text.starts_with('{') =>
        {
            Ok(format!("pod {}", plain(text)))
        }
        _ => Err(unreadable()),
    }
}

/// Text of others without what could forge a line.
fn plain(text: &str) -> String {
    quoted(text).trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests;
