//! From records to pools and reserved blocks, without I/O.
//!
//! What holds for every plan without errors, and is tested as a property: a used address, and an address from which a node may
//! have assigned, is in a reserved block if it is in any pool at all; no two blocks and no two pools share an address.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tenure_api::coil::{
    AddressBlock, AddressBlockSpec, AddressPool, AddressPoolSpec, EnginePool, block_name, label,
};
use tenure_api::names::is_object_name;
use tenure_api::overlap::shared_networks;
use tenure_ipam::{Address, Cidr};

use super::IMPORTED;
use super::finding::{Finding, quoted};
use super::records::{NodeBlock, Origin, PoolRecord, Records, Use};

/// The longest value of a label.
const LONGEST_LABEL: usize = 63;
/// The most subnets of a pool.
const MOST_SUBNETS: usize = 128;
/// The most reserved blocks: each is an object, and whoever means more has mistyped a prefix.
const MOST_BLOCKS: usize = 100_000;

/// The objects to create.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) origin: Origin,
    /// By name.
    pub(super) pools: Vec<AddressPool>,
    /// By pool and number.
    pub(super) blocks: Vec<Reserved>,
    /// Pools of namespaces, by namespace.
    pub(super) namespaces: BTreeMap<String, String>,
    pub(super) findings: Vec<Finding>,
}

/// A reserved block and who is in it.
#[derive(Clone, Debug)]
pub(super) struct Reserved {
    pub(super) object: AddressBlock,
    /// How many addresses of it are in use.
    pub(super) used: usize,
}

/// What is known of a block while planning.
#[derive(Debug, Default)]
struct Draft<'r> {
    /// Whose block it was.
    owners: BTreeSet<&'r str>,
    /// Where its addresses are used.
    users: BTreeSet<&'r str>,
    used: usize,
    at: &'r str,
}

/// Pools that are understood.
type Engines<'r> = BTreeMap<&'r str, (&'r PoolRecord, EnginePool)>;
/// Blocks by pool and number.
type Drafts<'r> = BTreeMap<(&'r str, u128), Draft<'r>>;

/// The objects that follow from the records.
pub(super) fn plan(records: &Records) -> Plan {
    let mut findings = records.findings.clone();
    let (pools, engines) = pools(records, &mut findings);
    let mut drafts = Drafts::new();
    for block in &records.blocks {
        add_block(&mut drafts, &engines, block, &mut findings);
        if drafts.len() > MOST_BLOCKS {
            let problem = format!("more than {MOST_BLOCKS} blocks would be reserved");
            findings.push(Finding::error(
                &block.at,
                problem,
                "accepted are larger blocks, or smaller networks",
            ));
            drafts.clear();
            break;
        }
    }
    add_uses(&mut drafts, &engines, &records.uses, &mut findings);
    let mut blocks = Vec::new();
    for ((pool, index), draft) in &drafts {
        let Some((_, engine)) = engines.get(pool) else { continue };
        match reserved(records.origin, pool, *index, engine, draft, &mut findings) {
            Ok(object) => blocks.push(Reserved { object, used: draft.used }),
            Err(finding) => findings.push(finding),
        }
    }
    findings.sort();
    findings.dedup();
    Plan { origin: records.origin, pools, blocks, namespaces: records.namespaces.clone(), findings }
}

impl Plan {
    /// The findings for which nothing is imported.
    pub(super) fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_error())
    }
}

fn pools<'r>(records: &'r Records, findings: &mut Vec<Finding>) -> (Vec<AddressPool>, Engines<'r>) {
    let (mut objects, mut engines) = (Vec::new(), Engines::new());
    for record in &records.pools {
        let PoolRecord { at, name, .. } = record;
        if !is_object_name(name) || name.len() > LONGEST_LABEL {
            findings.push(Finding::error(
                at,
                format!("an AddressPool cannot be named {}", quoted(name)),
                "accepted are at most 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends; \
                 choose a name with --rename OLD=NEW",
            ));
            continue;
        }
        if record.subnets.len() > MOST_SUBNETS {
            let problem = format!("it has {} subnets", record.subnets.len());
            findings.push(Finding::error(at, problem, format!("accepted are 1 to {MOST_SUBNETS}")));
            continue;
        }
        let spec = AddressPoolSpec {
            block_size_bits: record.block_bits.into(),
            subnets: record.subnets.iter().map(|subnet| (*subnet).into()).collect(),
            ..AddressPoolSpec::default()
        };
        let engine = match EnginePool::try_from(&spec) {
            Ok(engine) => engine,
            Err(error) => {
                findings.push(Finding::error(at, format!("it is no valid AddressPool: {error}"), ""));
                continue;
            }
        };
        if let Some((other, _)) = engines.insert(name, (record, engine)) {
            let problem = format!("pool \"{name}\" is recorded twice, the other time at {}", other.at);
            findings.push(Finding::error(at, problem, "give one of them another name with --rename OLD=NEW"));
            continue;
        }
        objects.push(AddressPool::new(name, spec));
    }
    refuse_overlaps(&engines, findings);
    objects.sort_by_key(ResourceExt::name_any);
    (objects, engines)
}

/// An address of two pools could be assigned from either.
fn refuse_overlaps(engines: &Engines<'_>, findings: &mut Vec<Finding>) {
    let records: Vec<&PoolRecord> = engines.values().map(|(record, _)| *record).collect();
    let networks = records.iter().enumerate().flat_map(|(pool, record)| {
        let networks = record.subnets.iter().flat_map(|subnet| [subnet.ipv4, subnet.ipv6]).flatten();
        networks.map(move |network| (network, pool))
    });
    for (shared, one, other) in shared_networks(networks.collect()) {
        if let (Some(one), Some(other)) = (records.get(one), records.get(other)) {
            let problem = format!("pools \"{}\" and \"{}\" both have {shared}", one.name, other.name);
            findings.push(Finding::error(
                &other.at,
                problem,
                "accepted are pools that share no address; remove the one that is not used",
            ));
        }
    }
}

/// Reserves what a node may have assigned from.
fn add_block<'r>(
    drafts: &mut Drafts<'r>,
    engines: &Engines<'r>,
    block: &'r NodeBlock,
    findings: &mut Vec<Finding>,
) {
    let mut inside = 0_u128;
    for (name, (_, engine)) in engines {
        let pool = engine.pool();
        for indexes in pool.indexes_overlapping(&block.network) {
            let count = indexes.end() - indexes.start();
            let size = 1_u128.checked_shl(pool.block_bits().into()).unwrap_or(u128::MAX);
            inside = inside.saturating_add(count.saturating_add(1).saturating_mul(size));
            if usize::try_from(count).map_or(true, |count| count > MOST_BLOCKS) {
                let problem = format!("{} has {count} blocks of pool \"{name}\"", block.network);
                findings.push(Finding::error(
                    &block.at,
                    problem,
                    format!("accepted are at most {MOST_BLOCKS}"),
                ));
                continue;
            }
            for index in indexes {
                let draft = drafts.entry((name, index)).or_default();
                draft.at = &block.at;
                draft.owners.extend(block.node.as_deref());
            }
        }
    }
    if inside < block.network.size() {
        findings.push(Finding::note(
            &block.at,
            format!("{} is not inside a pool that is imported", block.network),
            "whoever creates a pool with these addresses later has to exclude them",
        ));
    }
}

/// Reserves what is used.
fn add_uses<'r>(
    drafts: &mut Drafts<'r>,
    engines: &Engines<'r>,
    uses: &'r [Use],
    findings: &mut Vec<Finding>,
) {
    let mut seen: BTreeMap<Address, &Use> = BTreeMap::new();
    for used in uses {
        if let Some(other) = seen.insert(used.address, used) {
            findings.push(Finding::error(
                &used.at,
                format!(
                    "{} is used twice: by {} here, and by {} at {}",
                    used.address, used.holder, other.holder, other.at
                ),
                "accepted is one holder for each address; delete the record whose holder does not exist",
            ));
            continue;
        }
        let mut found = false;
        for (name, (_, engine)) in engines {
            let Some(index) = engine.pool().index_of_address(used.address) else { continue };
            found = true;
            let draft = drafts.entry((name, index)).or_default();
            if draft.used == 0 && draft.at.is_empty() {
                draft.at = &used.at;
            }
            draft.used += 1;
            draft.users.extend(used.node.as_deref());
        }
        if !found {
            findings.push(Finding::note(
                &used.at,
                format!("{} of {} is in no pool that is imported", used.address, used.holder),
                "whoever creates a pool with it later has to exclude it",
            ));
        }
    }
}

/// The object of a reserved block.
fn reserved(
    origin: Origin,
    pool: &str,
    index: u128,
    engine: &EnginePool,
    draft: &Draft<'_>,
    findings: &mut Vec<Finding>,
) -> Result<AddressBlock, Finding> {
    let name = block_name(pool, index);
    let number = i64::try_from(index).ok().zip(engine.pool().block(index));
    let Some((number, subnet)) = number else {
        return Err(Finding::error(
            draft.at,
            format!("block {index} of pool \"{pool}\" has too large a number for an AddressBlock"),
            format!("accepted is 0 to {}; make the pool's first subnet smaller", i64::MAX),
        ));
    };
    let node = node_of(&name, draft, findings)?;
    let spec = AddressBlockSpec {
        index: number,
        ipv4: subnet.ipv4.map(|network: Cidr| network.to_string()),
        ipv6: subnet.ipv6.map(|network: Cidr| network.to_string()),
        ..AddressBlockSpec::default()
    };
    let mut block = AddressBlock::new(&name, spec);
    let labels = block.labels_mut();
    labels.insert(label::POOL.to_owned(), pool.to_owned());
    labels.insert(label::RESERVED.to_owned(), "true".to_owned());
    labels.insert(IMPORTED.to_owned(), origin.label().to_owned());
    if let Some(node) = node {
        labels.insert(label::NODE.to_owned(), node.to_owned());
    }
    Ok(block)
}

/// The node that a block is routed to: its owner, or the only node where its addresses are used.
fn node_of<'r>(
    name: &str,
    draft: &Draft<'r>,
    findings: &mut Vec<Finding>,
) -> Result<Option<&'r str>, Finding> {
    let list = |nodes: &BTreeSet<&str>| nodes.iter().copied().collect::<Vec<_>>().join(", ");
    if draft.owners.len() > 1 {
        let problem = format!("block {name} has addresses of several nodes: {}", list(&draft.owners));
        return Err(Finding::error(
            draft.at,
            problem,
            "accepted is one node for each block; choose smaller blocks",
        ));
    }
    let node = draft.owners.first().copied();
    if node.is_none() && draft.users.len() > 1 {
        findings.push(Finding::note(
            draft.at,
            format!("addresses of block {name} are used on several nodes: {}", list(&draft.users)),
            "it is reserved, but routed to none of them; smaller blocks would be",
        ));
        return Ok(None);
    }
    let Some(node) = node.or_else(|| draft.users.first().copied()) else {
        findings.push(Finding::note(
            draft.at,
            format!("addresses of block {name} are in use, but no node has it"),
            "it is reserved, and routed to no node",
        ));
        return Ok(None);
    };
    if !is_object_name(node) || node.len() > LONGEST_LABEL {
        return Err(Finding::error(
            draft.at,
            format!("a block cannot name the node {}", quoted(node)),
            "accepted are names of Nodes with at most 63 characters",
        ));
    }
    Ok(Some(node))
}

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
