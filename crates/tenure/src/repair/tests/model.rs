//! A model of what steps do: to objects, and to agents. And the proof that no plan gives an address a second holder, whatever of the
//! system was seen when the plan was made.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kube::ResourceExt;
use proptest::prelude::*;
use tenure_api::coil::{AddressBlock, FINALIZER, label};
use tenure_api::drain::is_draining;
use tenure_ipam::Address;

use super::super::plan::plan;
use super::super::step::{AGENT, Operation, Step};
use crate::check::compare;
use crate::snapshot::example::{agent, block, hold, moment, pod, pool};
use crate::snapshot::{Snapshot, has, networks};

/// The nodes that could assign an address from now on, beside whoever holds it. Any node could get the block of an address that is in
/// no block.
pub(super) fn givers(snapshot: &Snapshot, ip: IpAddr) -> BTreeSet<String> {
    let address = Address::from(ip);
    let blocks: Vec<&AddressBlock> = snapshot.blocks.iter().filter(|block| has(block, address)).collect();
    if blocks.is_empty() {
        return snapshot.nodes.clone();
    }
    let giving = blocks.into_iter().filter(|block| !is_draining(*block));
    giving.filter_map(AddressBlock::node).map(str::to_owned).collect()
}

/// Performs a step, and what the agents do because of it.
pub(super) fn perform_in(snapshot: &mut Snapshot, step: &Step) {
    let name = step.object.name.clone();
    let is = |kind: &str, it: &str| step.object.kind == kind && name == it;
    match &step.operation {
        Operation::AddFinalizer => {
            for pool in snapshot.pools.iter_mut().filter(|pool| is("AddressPool", &pool.name_any())) {
                pool.finalizers_mut().push(FINALIZER.to_owned());
            }
        }
        Operation::RemoveFinalizer | Operation::Delete => {
            snapshot.blocks.retain(|it| !is("AddressBlock", &it.name_any()));
            snapshot.requests.retain(|it| !is("BlockRequest", &it.name_any()));
            snapshot.ranges.ledgers.retain(|it| !is("IPPool", &it.name_any()));
        }
        Operation::Label(key, value) => {
            for block in snapshot.blocks.iter_mut().filter(|block| is("AddressBlock", &block.name_any())) {
                block.labels_mut().insert((*key).to_owned(), value.clone());
            }
        }
        Operation::Annotate(key, value) => {
            for block in snapshot.blocks.iter_mut().filter(|block| is("AddressBlock", &block.name_any())) {
                block.annotations_mut().insert((*key).to_owned(), value.clone());
            }
            return_drained(snapshot);
        }
        Operation::DropRecords(keys) => {
            for ledger in snapshot.ranges.ledgers.iter_mut().filter(|it| is("IPPool", &it.name_any())) {
                ledger.spec.allocations.retain(|key, _| !keys.contains(key));
            }
        }
        Operation::Carve(made) => {
            let mut made = made.as_ref().clone();
            made.metadata.uid = Some(format!("{name}-made"));
            snapshot.blocks.push(made);
            let node = snapshot.blocks.last().and_then(AddressBlock::node).unwrap_or_default().to_owned();
            read_again(snapshot, &node);
        }
        Operation::Reserve(reservation) => snapshot.ranges.reservations.push(reservation.as_ref().clone()),
        Operation::RestartAgent => {
            assert_eq!(step.object.kind, AGENT);
            read_again(snapshot, &name);
        }
    }
}

/// Agents return blocks that drain and of which nobody holds an address.
fn return_drained(snapshot: &mut Snapshot) {
    let agents = snapshot.agents.clone();
    let returned = |block: &AddressBlock| {
        let told = block.node().and_then(|node| agents.get(node)).and_then(|told| told.as_ref().ok());
        let holds = told.is_some_and(|told| {
            told.holds.iter().any(|hold| hold.addresses.iter().any(|ip| has(block, Address::from(*ip))))
        });
        is_draining(block) && told.is_some() && !holds
    };
    let gone: BTreeSet<String> =
        snapshot.blocks.iter().filter(|it| returned(it)).filter_map(ResourceExt::uid).collect();
    snapshot.blocks.retain(|block| block.uid().is_none_or(|uid| !gone.contains(&uid)));
    for told in snapshot.agents.values_mut().filter_map(|told| told.as_mut().ok()) {
        told.blocks.retain(|block| !gone.contains(&block.uid));
    }
}

/// An agent sees the objects that name its node, and takes its holds over into them.
fn read_again(snapshot: &mut Snapshot, node: &str) {
    let own: Vec<AddressBlock> =
        snapshot.blocks.iter().filter(|block| block.node() == Some(node)).cloned().collect();
    let Some(Ok(told)) = snapshot.agents.get_mut(node) else { return };
    told.blocks = own
        .iter()
        .map(|block| tenure_view::Block {
            name: block.name_any(),
            uid: block.uid().unwrap_or_default(),
            pool: block.pool().unwrap_or_default().to_owned(),
            networks: networks(block).map(|network| network.to_string().parse().unwrap()).collect(),
            usable: true,
            ..tenure_view::Block::default()
        })
        .collect();
    for hold in &mut told.holds {
        let of = own.iter().find(|block| hold.addresses.iter().any(|ip| has(block, Address::from(*ip))));
        hold.block = of.map(ResourceExt::name_any);
    }
}

/// A block of a random world: its number, its owner, and which agents know it.
type Carved = (u32, Option<u8>, [bool; 3], bool);
/// A hold: its node, its address, and whether its pod is in the API.
type Held = (u8, u8, bool);

const NODES: u8 = 3;
const BLOCKS: u32 = 4;

fn name_of(node: u8) -> String {
    format!("node{node}")
}

/// The world as it can be seen, and every hold in it.
fn world(blocks: &[Carved], holds: &[Held], seen: [bool; 3]) -> (Snapshot, Vec<(String, IpAddr)>) {
    let mut snapshot = Snapshot::empty(moment("2026-11-15T12:00:00Z"));
    snapshot.pools = vec![pool("default", "10.64.0.0/24", 1)];
    snapshot.nodes = (0..NODES).map(name_of).collect();
    let mut carved: BTreeSet<u32> = BTreeSet::new();
    for (number, owner, ..) in blocks {
        if carved.insert(*number) {
            let owner = owner.map(name_of);
            let network = format!("10.64.0.{}/28", number * 16);
            let mut object = block("default", *number, owner.as_deref().unwrap_or_default(), &network);
            if owner.is_none() {
                object.labels_mut().remove(label::NODE);
            }
            snapshot.blocks.push(object);
        }
    }
    let mut truth = Vec::new();
    let mut pods = Vec::new();
    for node in 0..NODES {
        let name = name_of(node);
        let mut told = agent(&name, "none", "10.64.0.0/28", Vec::new());
        told.blocks.clear();
        told.kernel = None;
        for (number, owner, known, fenced) in blocks {
            let name = format!("default-{number}");
            if known[usize::from(node)] && !told.blocks.iter().any(|it| it.name == name) {
                told.blocks.push(tenure_view::Block {
                    uid: format!("{name}-uid"),
                    name,
                    pool: "default".into(),
                    networks: vec![format!("10.64.0.{}/28", number * 16).parse().unwrap()],
                    fenced: (*fenced || *owner != Some(node)).then(|| "lost".to_owned()),
                    ..tenure_view::Block::default()
                });
            }
        }
        for (count, (_, address, has_pod)) in holds.iter().enumerate().filter(|(_, it)| it.0 == node) {
            let (pod_name, ip) = (format!("p{node}-{count}"), format!("10.64.0.{}", address % 64));
            let of = format!("default-{}", u32::from(address % 64) / 16);
            let of = told.blocks.iter().any(|it| it.name == of).then_some(of);
            let held = tenure_view::Hold { block: of, ..hold(&pod_name, "", &ip) };
            truth.push((name.clone(), held.addresses[0]));
            told.holds.push(held);
            if *has_pod {
                pods.push(pod(&pod_name, &name, &ip));
            }
        }
        let counts: Vec<(String, u64)> = told
            .blocks
            .iter()
            .map(|it| {
                (
                    it.name.clone(),
                    told.holds.iter().filter(|hold| hold.block.as_ref() == Some(&it.name)).count() as u64,
                )
            })
            .collect();
        for (name, held) in counts {
            if let Some(block) = told.blocks.iter_mut().find(|it| it.name == name) {
                block.addresses.held = held;
            }
        }
        let answer = if seen[usize::from(node)] { Ok(told) } else { Err("no answer".to_owned()) };
        snapshot.agents.insert(name, answer);
    }
    snapshot.pods = Some(pods);
    (snapshot, truth)
}

proptest! {
    /// Whatever is wrong, and whoever cannot be asked: an address that nobody but its holder could assign before a plan can be assigned by
    /// nobody else after any step of it.
    #[test]
    fn no_plan_gives_an_address_a_second_holder(
        blocks in prop::collection::vec((0..BLOCKS, prop::option::of(0..NODES), any::<[bool; 3]>(), any::<bool>()), 0..6),
        holds in prop::collection::vec((0..NODES, 0_u8..64, any::<bool>()), 0..6),
        seen in any::<[bool; 3]>(),
        drains in any::<bool>(),
    ) {
        let (mut snapshot, truth) = world(&blocks, &holds, seen);
        if drains && let Some(first) = snapshot.blocks.first_mut() {
            first.spec.index = 9;
        }
        let others = |snapshot: &Snapshot, (holder, ip): &(String, IpAddr)| {
            let mut others = givers(snapshot, *ip);
            others.remove(holder);
            others
        };
        let safe: Vec<&(String, IpAddr)> = truth.iter().filter(|held| others(&snapshot, held).is_empty()).collect();
        let findings = compare(&snapshot);
        let plan = plan(&snapshot, &findings.differences);
        for (_, step) in plan.steps() {
            perform_in(&mut snapshot, step);
            for held in &safe {
                let new = others(&snapshot, held);
                prop_assert!(new.is_empty(), "{held:?} could be assigned by {new:?} after {step:?}");
            }
        }
    }
}
