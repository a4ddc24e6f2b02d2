//! Compares agents with objects, with each other, and with their kernels.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kube::ResourceExt;
use tenure_api::coil::AddressBlock;
use tenure_view::{Hold, Node};

use super::Findings;
use crate::snapshot::Snapshot;

/// The prefix of an agent's pools of slices, before the name of the `NodeSlicePool`.
const SLICES: &str = "whereabouts/";
/// The prefix of an agent's pools of alias ranges. These are on record in `IPLedger`s, and compared there.
const ALIASES: &str = "alias/";
/// After this many seconds, a waiting pod waits for something that does not come by itself.
const LONG: i64 = 30;

pub(super) fn compare(snapshot: &Snapshot, findings: &mut Findings) {
    for (name, told) in &snapshot.agents {
        match told {
            Err(problem) => findings.unseen(format!("node {name}"), problem),
            Ok(node) => {
                state(snapshot, node, findings);
                blocks(snapshot, node, findings);
                holds(node, findings);
                let differences = node.kernel.iter().flat_map(|kernel| &kernel.differences);
                for difference in differences {
                    findings.differ(
                        "kernel",
                        format!("node {name}: {}", difference.subject),
                        &difference.problem,
                        "the agent repairs what it sees twice, within minutes; if it stays, see its log",
                    );
                }
            }
        }
    }
    held_twice(snapshot, findings);
}

fn state(snapshot: &Snapshot, node: &Node, findings: &mut Findings) {
    let subject = format!("node {}", node.node);
    if !node.ready {
        findings.unseen(&subject, "its agent has not read all holds yet");
    } else if let Some(problem) = &node.problem {
        findings.differ("agent", &subject, problem, "pods of this node get no address until this is solved");
    }
    if let Some(problem) = &node.journal.problem {
        findings.differ(
            "agent",
            &subject,
            format!("its journal: {problem}"),
            "see whether /run of this node is full",
        );
    }
    for watch in &node.api.watches {
        if let Some(problem) = &watch.problem {
            findings.differ(
                "agent",
                &subject,
                format!("its watch of {} does not work: {problem}", watch.kind),
                "see whether the node reaches the API server, and whether the agent may read this kind",
            );
        }
    }
    for waiting in &node.waiting {
        if snapshot.now.as_second() - waiting.since.as_second() > LONG {
            findings.differ(
                "waiting",
                format!("{subject}: {}", waiting.holder),
                format!("has waited for an address of pool {} for more than {LONG} s", waiting.pool),
                "see `tenure pools`, and whether a controller leads",
            );
        }
    }
}

/// Compares the node's blocks with the objects.
fn blocks(snapshot: &Snapshot, node: &Node, findings: &mut Findings) {
    let subject = |block: &str| format!("node {}: block {block}", node.node);
    let objects: BTreeMap<String, &AddressBlock> =
        snapshot.blocks.iter().filter_map(|block| Some((block.uid()?, block))).collect();
    for block in &node.blocks {
        let held = block.addresses.held;
        if let Some(pool) = block.pool.strip_prefix(SLICES) {
            let given = snapshot.ranges.slices().any(|slice| {
                let same = block.networks.iter().any(|net| net.to_string() == slice.cidr.to_string());
                slice.pool == pool && slice.node == node.node && same
            });
            if !given && block.fenced.is_none() {
                findings.differ(
                    "slice-unknown-to-api",
                    subject(&block.name),
                    format!(
                        "the agent assigns from it, and NodeSlicePool {pool} does not give it to this node"
                    ),
                    "see whether the agent's watch of slices works (`tenure node`)",
                );
            }
            continue;
        }
        match (objects.get(&block.uid), &block.fenced) {
            // The node has its object again: nobody else assigns from it, and it is returned when its pods have ended.
            (Some(object), Some(_)) if object.node() == Some(&node.node) => {}
            (_, Some(why)) if held > 0 => findings.differ(
                "held-in-lost-block",
                subject(&block.name),
                format!("{held} addresses are held in it, and nothing is assigned from it any more: {why}"),
                "delete these pods (`tenure node` lists them), so that they get addresses of a block of this node",
            ),
            (None, None) if !block.pool.starts_with(ALIASES) => findings.differ(
                "block-unknown-to-api",
                subject(&block.name),
                "the agent assigns from it, and there is no such object",
                "see whether the agent's watch of blocks works (`tenure node`)",
            ),
            (Some(object), None) if object.node() != Some(&node.node) => findings.differ(
                "block-of-two-nodes",
                subject(&block.name),
                format!("the agent assigns from it, and its object names node {:?}", object.node().unwrap_or_default()),
                "restart the agent of the node that the object does not name",
            ),
            _ => {}
        }
    }
    let ours = snapshot.blocks.iter().filter(|block| block.node() == Some(&node.node));
    for block in ours.filter(|_| node.ready) {
        let uid = block.uid().unwrap_or_default();
        if !node.blocks.iter().any(|known| known.uid == uid) {
            findings.differ(
                "block-unknown-to-agent",
                subject(&block.name_any()),
                "its object names this node, and the agent does not know it",
                "see whether the agent's watch of blocks works (`tenure node`)",
            );
        }
    }
}

/// Compares the node's holds with its blocks.
fn holds(node: &Node, findings: &mut Findings) {
    for hold in node.holds.iter().filter(|hold| hold.block.is_none()) {
        findings.differ(
            "hold-outside-blocks",
            format!("node {}: {}", node.node, hold.holder),
            format!("uses {}, which is in no block of this node", shown(hold)),
            "delete this pod, so that it gets an address of a block of this node",
        );
    }
    let networks: BTreeMap<&str, &tenure_view::Block> =
        node.blocks.iter().map(|block| (block.name.as_str(), block)).collect();
    for hold in &node.holds {
        let Some(block) = hold.block.as_deref().and_then(|name| networks.get(name)) else { continue };
        let outside = |address: &IpAddr| !block.networks.iter().any(|network| network.contains(address));
        for address in hold.addresses.iter().filter(|address| outside(address)) {
            findings.differ(
                "hold-outside-blocks",
                format!("node {}: {}", node.node, hold.holder),
                format!("holds {address} in block {}, which does not have it", block.name),
                "report this as a defect, with `tenure node -o json` of this node",
            );
        }
    }
}

/// An address has one holder among all nodes.
fn held_twice(snapshot: &Snapshot, findings: &mut Findings) {
    // Whereabouts' networks with names of their own may have the same addresses.
    let mut holders: BTreeMap<(String, IpAddr), Vec<String>> = BTreeMap::new();
    for node in snapshot.agents.values().filter_map(|told| told.as_ref().ok()) {
        for hold in &node.holds {
            for address in &hold.addresses {
                let realm = if hold.pool.starts_with(SLICES) { hold.pool.clone() } else { String::new() };
                holders
                    .entry((realm, *address))
                    .or_default()
                    .push(format!("{} on node {}", hold.holder, node.node));
            }
        }
    }
    for ((_, address), holders) in holders.into_iter().filter(|(_, holders)| holders.len() > 1) {
        findings.differ(
            "held-twice",
            address.to_string(),
            format!("is held by {}", holders.join(" and by ")),
            "delete the pods but one, and see whether their blocks overlap",
        );
    }
}

fn shown(hold: &Hold) -> String {
    hold.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}
