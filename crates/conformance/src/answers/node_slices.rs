//! Attachment definitions and nodes → what the controller writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenure_api::whereabouts::{NodeSliceAllocation, NodeSlicePool, NodeSlicePoolSpec, NodeSlicePoolStatus};
use tenure_handles::Timestamp;
use tenure_ipam::{Cidr, Slices};
use tenure_whereabouts::slices::{AttachmentDefinition, Inputs, SlicePlan, SliceWrite, plan};

use super::{Answer, Input, refused};

const NAMESPACE: &str = "kube-system";

pub(super) fn node_slices(input: &Input) -> Answer {
    let nodes: BTreeSet<String> = input.texts("nodes").map(str::to_owned).collect();
    let mut cluster = Cluster { attachments: definitions(input), pools: Vec::new() };
    if let Some(pool) = existing(input, &nodes)? {
        let before = Cluster::of(&pool, input);
        // What is there is looked at once, so that only what the event changes is answered.
        let had: BTreeSet<String> = allocations(&pool).iter().map(|slice| slice.node_name.clone()).collect();
        let mut settled = Cluster { attachments: before, pools: vec![pool] };
        settled.step(&had);
        cluster.pools = settled.pools;
        if cluster.attachments.is_empty() {
            cluster.attachments = remaining(input, settled.attachments);
        }
    }
    let plan = cluster.step(&nodes);
    let words = plan.conflicts.iter().map(|conflict| conflict.message.clone());
    if let Some(words) = words.chain(plan.refused.into_values()).next() {
        return Err(words);
    }
    let (action, pool) = match plan.writes.first() {
        None => ("none", cluster.pools.first().cloned()),
        Some(SliceWrite::Create(pool)) => ("create", Some((**pool).clone())),
        Some(SliceWrite::Replace(pool)) => ("update", Some((**pool).clone())),
        Some(SliceWrite::Delete { .. }) => ("delete", None),
        Some(SliceWrite::Seal { .. } | SliceWrite::Unseal { .. }) => ("seal", None),
    };
    let mut answer = json!({ "action": action });
    if let Some(pool) = pool {
        let slices = allocations(&pool);
        let with_node: Vec<_> = slices.iter().filter(|slice| !slice.node_name.is_empty()).collect();
        let owners = pool.metadata.owner_references.unwrap_or_default();
        answer["pool"] = json!(pool.metadata.name);
        answer["range"] = json!(pool.spec.range);
        answer["slice_size"] = json!(pool.spec.slice_size);
        answer["first"] = json!(with_node);
        answer["count"] = json!(slices.len());
        answer["owners"] = json!(owners.into_iter().map(|owner| owner.name).collect::<Vec<_>>());
        answer["allocations"] = json!(slices);
    }
    Ok(answer)
}

struct Cluster {
    attachments: Vec<AttachmentDefinition>,
    pools: Vec<NodeSlicePool>,
}

impl Cluster {
    /// The definitions that a pool was made for.
    fn of(pool: &NodeSlicePool, input: &Input) -> Vec<AttachmentDefinition> {
        let owners: Vec<&str> = input.texts("existing_owners").collect();
        let owners = if owners.is_empty() { vec!["test"] } else { owners };
        let network = pool.metadata.name.as_deref().unwrap_or_default();
        let NodeSlicePoolSpec { range, slice_size } = &pool.spec;
        let ipam = json!({"network_name": network, "range": range, "node_slice_size": slice_size});
        owners.into_iter().map(|name| definition(name, ipam.clone())).collect()
    }

    fn step(&mut self, nodes: &BTreeSet<String>) -> SlicePlan {
        let plan = plan(&Inputs {
            namespace: NAMESPACE,
            attachments: &self.attachments,
            flat: None,
            nodes,
            pools: &self.pools,
            held: &[],
            shared: &[],
            owned: &[],
            floating: &BTreeMap::new(),
            now: Timestamp::from_millis(1_000),
        });
        for write in &plan.writes {
            match write {
                SliceWrite::Create(pool) | SliceWrite::Replace(pool) => {
                    self.pools.retain(|other| other.metadata.name != pool.metadata.name);
                    self.pools.push((**pool).clone());
                }
                SliceWrite::Delete { name, .. } => {
                    self.pools.retain(|pool| pool.metadata.name.as_ref() != Some(name));
                }
                SliceWrite::Seal { .. } | SliceWrite::Unseal { .. } => {}
            }
        }
        plan
    }
}

fn definition(name: &str, ipam: Value) -> AttachmentDefinition {
    let config = if ipam.is_null() {
        json!({"cniVersion": "0.3.1", "name": name, "type": "macvlan"})
    } else {
        let mut ipam = ipam;
        ipam["type"] = json!("whereabouts");
        json!({"cniVersion": "0.3.1", "name": name, "type": "macvlan", "ipam": ipam})
    };
    AttachmentDefinition {
        namespace: NAMESPACE.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: Timestamp::default(),
        edited: false,
        config: config.to_string(),
    }
}

/// The definitions of the question: those that it lists, or the one that it changes.
fn definitions(input: &Input) -> Vec<AttachmentDefinition> {
    if let Some(change) = input.get("change") {
        let mut ipam = change.clone();
        ipam["network_name"] = json!("test");
        return vec![definition("test", ipam)];
    }
    let listed = input.list("nads").map(|nad| {
        let name = nad.get("name").and_then(Value::as_str).unwrap_or("test");
        let ipam = nad.get("ipam").cloned().unwrap_or_else(|| {
            let mut ipam = nad.clone();
            ipam.as_object_mut().map(|ipam| ipam.remove("name"));
            ipam
        });
        definition(name, ipam)
    });
    listed.collect()
}

/// The pool that is there before: its slices, or its range and size with the nodes on the first of them.
fn existing(input: &Input, nodes: &BTreeSet<String>) -> Result<Option<NodeSlicePool>, String> {
    let name = input.list("nads").find_map(|nad| nad.get("network_name").and_then(Value::as_str));
    let name = name.filter(|name| !name.is_empty()).unwrap_or("test");
    let (cut, slices) = match input.get("existing") {
        Some(Value::Array(slices)) => {
            let slices: Vec<NodeSliceAllocation> = serde_json::from_value(json!(slices)).map_err(refused)?;
            (whole(&slices)?, slices)
        }
        Some(existing) => {
            let existing = Input(existing);
            let cut = Slices::parse(existing.text("range"), existing.text("size")).map_err(refused)?;
            let names = nodes.iter().cloned().chain(std::iter::repeat(String::new()));
            let slice = |(cidr, node_name): (Cidr, String)| NodeSliceAllocation {
                node_name,
                slice_range: cidr.to_string(),
            };
            (cut, cut.iter().zip(names).map(slice).collect())
        }
        None if input.get("existing_owners").is_some() => {
            let cut = Slices::parse("10.0.0.0/8", "/10").map_err(refused)?;
            let slice =
                |cidr: Cidr| NodeSliceAllocation { node_name: String::new(), slice_range: cidr.to_string() };
            (cut, cut.iter().map(slice).collect())
        }
        None => return Ok(None),
    };
    let spec = NodeSlicePoolSpec { range: cut.whole().to_string(), slice_size: format!("/{}", cut.prefix()) };
    let mut pool = NodeSlicePool::new(name, spec);
    pool.status = Some(NodeSlicePoolStatus { allocations: slices, conditions: Vec::new() });
    Ok(Some(pool))
}

/// The network that slices are all of.
fn whole(slices: &[NodeSliceAllocation]) -> Result<Slices, String> {
    let cidrs = slices.iter().map(|slice| slice.slice_range.parse::<Cidr>().map_err(refused));
    let cidrs = cidrs.collect::<Result<Vec<_>, _>>()?;
    let (first, last) =
        (cidrs.first().ok_or("there are no slices")?, cidrs.last().ok_or("there are no slices")?);
    let covers = |prefix: &u8| Cidr::new(first.first(), *prefix).is_some_and(|cidr| cidr.covers(last));
    let prefix = (0..=first.prefix()).rev().find(covers).ok_or("the slices are of no network")?;
    let whole = Cidr::new(first.first(), prefix).ok_or("the slices are of no network")?;
    Slices::new(whole, first.prefix()).map_err(refused)
}

/// Without a list of definitions: those of before, less those that the event says are deleted.
fn remaining(input: &Input, before: Vec<AttachmentDefinition>) -> Vec<AttachmentDefinition> {
    let event = input.text("event");
    if !event.contains("deleted") {
        return before;
    }
    let named = |name: &str| event.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name);
    if before.iter().any(|attachment| named(&attachment.name)) {
        return before.into_iter().filter(|attachment| !named(&attachment.name)).collect();
    }
    Vec::new()
}

fn allocations(pool: &NodeSlicePool) -> Vec<NodeSliceAllocation> {
    pool.status.as_ref().map(|status| status.allocations.clone()).unwrap_or_default()
}
