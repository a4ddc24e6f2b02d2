//! What Calico's IPAM has in objects of `crd.projectcalico.org/v1`: `IPPool`, `IPAMBlock` and `IPAMHandle`. Read without I/O
//! from objects; [`fetch`] lists them.
//!
//! A block's `allocations` has an entry for each address: nothing, or which of `attributes` tells about its holder. Every entry
//! counts as a use: pods, and also addresses of tunnels, reserved ones, and addresses that Calico lets cool. A handle counts a
//! holder's addresses by block; it adds blocks that are missing themselves.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenure_ipam::{Cidr, Family, Notation, Subnet};

use super::finding::quoted;
use super::records::{NodeBlock, Origin, PoolRecord, Records, Renames, Use};

const GROUP: &str = "crd.projectcalico.org";
/// Objects of a page.
const PAGE: u32 = 500;

/// Calico's objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) pools: Vec<DynamicObject>,
    pub(super) blocks: Vec<DynamicObject>,
    pub(super) handles: Vec<DynamicObject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    cidr: String,
    block_size: Option<u8>,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
struct BlockSpec {
    cidr: String,
    #[serde(default)]
    affinity: Option<String>,
    #[serde(default)]
    allocations: Vec<Option<usize>>,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    #[serde(default)]
    handle_id: Option<String>,
    #[serde(default)]
    secondary: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct HandleSpec {
    #[serde(default)]
    block: BTreeMap<String, i64>,
}

/// Lists the objects.
pub(super) async fn fetch(client: &Client) -> Result<Objects> {
    Ok(Objects {
        pools: every(client, "IPPool", "ippools").await?,
        blocks: every(client, "IPAMBlock", "ipamblocks").await?,
        handles: every(client, "IPAMHandle", "ipamhandles").await?,
    })
}

async fn every(client: &Client, kind: &str, plural: &str) -> Result<Vec<DynamicObject>> {
    let resource = ApiResource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{GROUP}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = api.list(&params).await.map_err(|error| {
            let help = match &error {
                kube::Error::Api(status) if status.code == 404 => {
                    "this cluster does not have Calico's IPAM with the Kubernetes datastore"
                }
                _ => "the API server refused, or does not answer",
            };
            anyhow::Error::new(error).context(format!("cannot list {plural}.{GROUP}: {help}"))
        })?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        found.extend(page.items);
        match next {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// The records that the objects mean.
pub(super) fn read(objects: &Objects, renames: &Renames) -> Records {
    let mut records = Records::of(Origin::Calico);
    for object in &objects.pools {
        pool(&mut records, object, renames);
    }
    if objects.pools.is_empty() {
        records.error("IPPools", "there is none", "accepted is a cluster whose addresses are Calico's");
    }
    let mut blocks = BTreeMap::new();
    for object in &objects.blocks {
        block(&mut records, object, &mut blocks);
    }
    for object in &objects.handles {
        handle(&mut records, object, &blocks);
    }
    let names: Vec<&str> = objects.pools.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
    renames.check(&names, &mut records);
    records
}

/// The `spec` of an object, or an error that shows it.
fn spec<T: DeserializeOwned>(records: &mut Records, at: &str, object: &DynamicObject) -> Option<T> {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let text = spec.to_string();
    serde_json::from_value(spec)
        .map_err(|error| {
            records.error(
                at,
                format!("cannot read spec {}: {error}", quoted(&text)),
                "accepted is what Calico writes",
            );
        })
        .ok()
}

fn network(records: &mut Records, at: &str, field: &str, text: &str) -> Option<Cidr> {
    Notation::Strict
        .cidr(text)
        .map_err(|error| {
            let problem = format!("{field}: {} is no network: {}", quoted(text), error.reason);
            records.error(at, problem, "accepted is such as 10.244.0.0/16 or fd00:10:244::/64");
        })
        .ok()
}

fn pool(records: &mut Records, object: &DynamicObject, renames: &Renames) {
    let at = format!("IPPool {}", quoted(&object.name_any()));
    let Some(pool) = spec::<PoolSpec>(records, &at, object) else { return };
    let Some(cidr) = network(records, &at, "spec.cidr", &pool.cidr) else { return };
    let (bits, usual) = match cidr.family() {
        Family::V4 => (32_u8, 26),
        Family::V6 => (128, 122),
    };
    let size = pool.block_size.unwrap_or(usual);
    let Some(block_bits) = bits.checked_sub(size) else {
        let problem = format!("spec.blockSize: {size} is no prefix length");
        return records.error(at, problem, format!("accepted is 0 to {bits}"));
    };
    if pool.disabled {
        records.note(&at, "it is disabled, and an AddressPool cannot be", "assign it to no namespace");
    }
    let name = renames.of(&object.name_any());
    records.pools.push(PoolRecord { at, name, block_bits, subnets: vec![Subnet::single(cidr)] });
}

fn block(records: &mut Records, object: &DynamicObject, known: &mut BTreeMap<Cidr, BTreeMap<String, i64>>) {
    let at = format!("IPAMBlock {}", quoted(&object.name_any()));
    let Some(block) = spec::<BlockSpec>(records, &at, object) else { return };
    let Some(cidr) = network(records, &at, "spec.cidr", &block.cidr) else { return };
    let node =
        block.affinity.as_deref().and_then(|affinity| affinity.strip_prefix("host:")).map(str::to_owned);
    let handles = known.entry(cidr).or_default();
    for (offset, allocation) in block.allocations.iter().enumerate() {
        let Some(attribute) = allocation else { continue };
        let address = cidr.nth(offset as u128);
        let Ok(address) = address else {
            let problem = format!("spec.allocations[{offset}] is beyond {cidr}");
            records.error(&at, problem, format!("accepted are at most {} entries", cidr.size()));
            break;
        };
        let Some(about) = block.attributes.get(*attribute) else {
            let problem = format!("spec.allocations[{offset}]: there is no spec.attributes[{attribute}]");
            let accepted = format!("accepted is 0 to {}", block.attributes.len().saturating_sub(1));
            records.error(&at, problem, accepted);
            continue;
        };
        if let Some(handle) = &about.handle_id {
            *handles.entry(handle.to_lowercase()).or_default() += 1;
        }
        let (holder, node) = about.holder();
        records.uses.push(Use { at: format!("{at} offset {offset}"), address, holder, node });
    }
    records.blocks.push(NodeBlock { at, network: cidr, node });
}

impl Attribute {
    /// Who has the address, for people, and on which node.
    fn holder(&self) -> (String, Option<String>) {
        let field = |name: &str| self.secondary.as_ref().and_then(|all| all.get(name)).map(String::as_str);
        let handle = || format!("handle {}", quoted(self.handle_id.as_deref().unwrap_or_default()));
        let holder = match (field("namespace"), field("pod"), field("type")) {
            (Some(namespace), Some(pod), _) => format!("pod {}", quoted(&format!("{namespace}/{pod}"))),
            (_, _, Some(kind)) => format!("{} {}", quoted(kind), handle()),
            _ => handle(),
        };
        (holder, field("node").map(str::to_owned))
    }
}

fn handle(records: &mut Records, object: &DynamicObject, known: &BTreeMap<Cidr, BTreeMap<String, i64>>) {
    let name = object.name_any();
    let at = format!("IPAMHandle {}", quoted(&name));
    let Some(handle) = spec::<HandleSpec>(records, &at, object) else { return };
    for (text, count) in &handle.block {
        let Some(cidr) = network(records, &at, "spec.block", text) else { continue };
        match known.get(&cidr) {
            None => {
                records.note(
                    &at,
                    format!("it has {count} addresses of {cidr}, of which there is no IPAMBlock"),
                    "all of that block is reserved",
                );
                records.blocks.push(NodeBlock { at: at.clone(), network: cidr, node: None });
            }
            // The block is what counts, and it is reserved as a whole.
            Some(handles) if handles.get(&name.to_lowercase()).copied().unwrap_or(0) != *count => records
                .note(
                    &at,
                    format!("it has {count} addresses of {cidr}, and the IPAMBlock has another number"),
                    "the IPAMBlock counts; all of it is reserved",
                ),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
