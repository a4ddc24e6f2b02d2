//! Any history of nodes, holds and changes of the range, compared with what must never happen.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Clone, Debug)]
enum Change {
    Joins(u8),
    Leaves(u8),
    /// The node holds an address of its slice.
    Holds(u8, u8),
    /// All of the node's addresses are released.
    Drains(u8),
    Cuts(u8, u8),
    /// The definition is deleted and created again.
    Replaced,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0_u8..8).prop_map(Change::Joins),
        2 => (0_u8..8).prop_map(Change::Leaves),
        3 => ((0_u8..8), any::<u8>()).prop_map(|(node, at)| Change::Holds(node, at)),
        2 => (0_u8..8).prop_map(Change::Drains),
        1 => (24_u8..=26, 26_u8..=28).prop_map(|(range, size)| Change::Cuts(range, size)),
        1 => Just(Change::Replaced),
    ]
}

fn definition(range: u8, size: u8) -> AttachmentDefinition {
    let ipam = json!({"type": "whereabouts", "range": format!("10.0.0.0/{range}"), "node_slice_size": format!("/{size}")});
    let config = json!({"cniVersion": "1.0.0", "name": "net", "type": "macvlan", "ipam": ipam}).to_string();
    AttachmentDefinition {
        namespace: "x".into(),
        name: "net".into(),
        config,
        ..AttachmentDefinition::default()
    }
}

fn run(
    attachments: &[AttachmentDefinition],
    nodes: &BTreeSet<String>,
    pools: &mut Vec<NodeSlicePool>,
    held: &[HeldSpan],
) -> usize {
    let now = Timestamp::from_millis(7);
    let plan = plan(&Inputs {
        namespace: "x",
        attachments,
        flat: None,
        nodes,
        pools,
        held,
        shared: &[],
        owned: &[],
        floating: &BTreeMap::new(),
        now,
    });
    for write in &plan.writes {
        match write {
            SliceWrite::Create(pool) | SliceWrite::Replace(pool) => *pools = vec![(**pool).clone()],
            SliceWrite::Delete { .. } => pools.clear(),
            SliceWrite::Seal { .. } | SliceWrite::Unseal { .. } => {}
        }
    }
    plan.writes.len()
}

/// Node → slice.
fn owners(pools: &[NodeSlicePool]) -> BTreeMap<String, Cidr> {
    let slices = pools.iter().filter_map(|pool| pool.status.as_ref()).flat_map(|status| &status.allocations);
    let taken = slices.filter(|slice| !slice.node_name.is_empty());
    let mut owners = BTreeMap::new();
    for slice in taken {
        let again = owners.insert(slice.node_name.clone(), slice.slice_range.parse().unwrap());
        assert_eq!(again, None, "{} has two slices", slice.node_name);
    }
    owners
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_slice_has_one_node_and_what_is_held_is_nobody_elses(changes in prop::collection::vec(change(), 1..40)) {
        let (mut attachments, mut nodes, mut held) = (vec![definition(24, 26)], BTreeSet::new(), Vec::<HeldSpan>::new());
        let mut pools = Vec::new();
        run(&attachments, &nodes, &mut pools, &held);
        for change in changes {
            let before = owners(&pools);
            let cut = pools.first().map(|pool| pool.spec.clone());
            match change {
                Change::Joins(node) => { nodes.insert(format!("n{node}")); }
                Change::Leaves(node) => { nodes.remove(&format!("n{node}")); }
                Change::Holds(node, at) => {
                    let node = format!("n{node}");
                    if let Some(slice) = before.get(&node).filter(|_| nodes.contains(&node)) {
                        let address = slice.nth(u128::from(at) % slice.size()).unwrap();
                        held.push(HeldSpan { network: String::new(), node, first: address, last: address });
                    }
                }
                Change::Drains(node) => held.retain(|span| span.node != format!("n{node}")),
                Change::Cuts(range, size) => attachments = vec![definition(range, size)],
                Change::Replaced => { run(&[], &nodes, &mut pools, &held); }
            }
            let writes = run(&attachments, &nodes, &mut pools, &held);
            prop_assert!(writes <= 1);
            if pools.first().map(|pool| pool.spec.clone()) == cut && !matches!(change, Change::Replaced) {
                for (node, slice) in owners(&pools) {
                    let from = before.iter().find(|(_, before)| **before == slice).map(|(node, _)| node);
                    prop_assert!(from.is_none_or(|from| *from == node), "{} has {:?}'s {} with one write", node, from, slice);
                }
            }
            prop_assert!(run(&attachments, &nodes, &mut pools, &held) <= writes, "what was left is given with a second write");
            prop_assert_eq!(run(&attachments, &nodes, &mut pools, &held), 0, "another look changes nothing");

            let after = owners(&pools);
            let same_cut = pools.first().map(|pool| pool.spec.clone()) == cut && !matches!(change, Change::Replaced);
            for (node, slice) in &after {
                let kept = before.get(node) == Some(slice);
                if same_cut && before.contains_key(node) && nodes.contains(node) {
                    prop_assert!(kept, "{} lost its slice while it lives", node);
                }
                for span in held.iter().filter(|span| slice.contains(span.first) && span.node != *node) {
                    prop_assert!(kept, "{} got {}, of which {} holds {}", node, slice, span.node, span.first);
                }
                prop_assert!(nodes.contains(node) || held.iter().any(|span| span.node == *node), "{} is dead and holds nothing", node);
            }
            // No node lacks a slice while one is free.
            let status = pools[0].status.clone().unwrap();
            let free = status.allocations.iter().filter(|slice| slice.node_name.is_empty()).filter(|slice| {
                let cidr: Cidr = slice.slice_range.parse().unwrap();
                !held.iter().any(|span| cidr.contains(span.first))
            });
            let without = nodes.iter().filter(|node| !after.contains_key(*node)).count();
            prop_assert!(without == 0 || free.count() == 0, "{} nodes without a slice", without);
        }
    }
}
