//! `tenure who ADDRESS`: who has it, who had it while it cools, or why nobody has it.

use std::net::IpAddr;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use tenure_api::claims::IPAMClaim;
use tenure_api::coil::{AddressBlock, ClaimRecord, EnginePool, block_name};
use tenure_claims::{ClaimFacts, Slot, Slots};
use tenure_ipam::{Address, Subnet};
use tenure_view::{Hold, Holder};

use crate::history::{self, PastOptions};
use crate::query::{QueryOptions, Source};
use crate::snapshot::{self, PodFacts, Snapshot, has};
use crate::table::{self, COULD_NOT_LOOK, Format, Output};

mod aliases;
mod ledgers;
mod nodes;

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct WhoOptions {
    #[command(flatten)]
    query: QueryOptions,
    #[command(flatten)]
    past: PastOptions,
    /// Who had it when, as far as nodes remember
    #[arg(long, conflicts_with = "at")]
    history: bool,
    /// An IPv4 or IPv6 address
    address: IpAddr,
}

/// The state of an address, as `tenure who -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    address: IpAddr,
    state: State,
    /// One sentence with the answer.
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// The claim that it belongs to, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    /// The pod of the claim that packets arrive at.
    #[serde(skip_serializing_if = "Option::is_none")]
    active: Option<User>,
    /// The pod that they will arrive at next, or did before, while the claim moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<User>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// All addresses of the same hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_interface: Option<String>,
    /// Until when it cools.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// Who had it last, while it cools.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Holder>,
    /// Pods whose status has the address, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods: Vec<String>,
}

/// A pod that has a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct User {
    /// As `namespace/name`.
    pod: String,
    node: String,
}

impl User {
    fn of(claim: &str, slot: &Slot) -> Self {
        let namespace = claim.split_once('/').map_or("", |(namespace, _)| namespace);
        Self { pod: format!("{namespace}/{}", slot.pod), node: slot.node.clone() }
    }
}

impl std::fmt::Display for User {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} on node {}", self.pod, self.node)
    }
}

/// The state of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    /// Somebody has it.
    Held,
    /// It was freed and cools.
    Cooling,
    /// Its node may assign it.
    Free,
    /// Its pool excludes it.
    Excluded,
    /// It is in a block that nothing is assigned from.
    KeptBack,
    /// It is in a pool, and in no block yet.
    Uncarved,
    /// It is in no pool.
    Outside,
    /// The agent that would know could not be asked.
    Unknown,
}

/// Runs the verb.
pub(crate) async fn run(options: WhoOptions) -> Result<Output> {
    let (source, format) = (options.query.source().await?, options.query.output);
    if options.past.at.is_some() || options.history {
        return history::who(&source, options.address, &options.past, format).await;
    }
    anyhow::ensure!(
        options.past.nodes.is_empty(),
        "--node is for the past: who has an address now is known by its block; accepted is --node with --at or --history"
    );
    look(&source, options.address, format).await
}

/// The same for a known source.
pub(crate) async fn look(source: &Source, address: IpAddr, format: Format) -> Result<Output> {
    let snapshot = gather(source, address).await?;
    let answer = answer(&snapshot, address);
    let said = Output::either(format, &answer, || text(&answer, snapshot.now))?;
    let code = if answer.state == State::Unknown { COULD_NOT_LOOK } else { 0 };
    Ok(Output { code, ..said })
}

/// Asks only those who can know: the agent of the block's node, the pods with the address in their status,
/// and those that have its claim.
async fn gather(source: &Source, address: IpAddr) -> Result<Snapshot> {
    let mut snapshot = match source.client() {
        Ok(_) => Snapshot::of_objects(source).await?,
        // A host of a cluster: its agent knows its own part.
        Err(_) => Snapshot::empty(snapshot::now()),
    };
    if source.cluster {
        snapshot.pods = pods_with(source, address).await;
    }
    if let (Ok(client), Some(claim)) = (source.client(), claim_of(&snapshot, address.into()))
        && let Some(slots) = slots_of(client, &claim).await
    {
        snapshot.claims.insert(claim, slots);
    }
    let owners =
        snapshot.blocks.iter().filter(|block| has(block, address.into())).filter_map(AddressBlock::node);
    let pods = snapshot.pods.iter().flatten().map(|pod| pod.node.as_str());
    let slices = snapshot.ranges.slices().filter(|slice| slice.cidr.contains(address.into()));
    let slices: Vec<&str> = slices.map(|slice| slice.node).collect();
    let slots = snapshot.claims.values().flat_map(|slots| slots.active.iter().chain(&slots.incoming));
    let users = slots.map(|slot| slot.node.as_str());
    let alias = snapshot.aliases.record_of(address.into()).map(|it| it.record.node.as_str());
    let asked = owners.chain(pods).chain(slices).chain(users).chain(alias);
    let mut asked: Vec<String> = asked.map(str::to_owned).collect();
    asked.sort();
    asked.dedup();
    if !source.cluster {
        asked = vec![String::new()];
    }
    for node in asked {
        let told = source.agents.one(&node).await;
        match &told {
            Ok(view) => _ = snapshot.agents.insert(view.node.clone(), told),
            Err(problem) if node.is_empty() => {
                for owner in snapshot.owners() {
                    snapshot.agents.insert(owner, Err(problem.clone()));
                }
                anyhow::ensure!(source.client().is_ok(), "cannot ask the agent: {problem}");
            }
            Err(_) => _ = snapshot.agents.insert(node, told),
        }
    }
    Ok(snapshot)
}

/// Pods whose status has the address; `None` if the server cannot tell.
async fn pods_with(source: &Source, address: IpAddr) -> Option<Vec<PodFacts>> {
    let pods: Api<Pod> = Api::all(source.client().ok()?.clone());
    let listed = pods.list(&ListParams::default().fields(&format!("status.podIP={address}"))).await.ok()?;
    let facts = listed.iter().filter_map(PodFacts::of);
    Some(facts.filter(|pod| !pod.over && pod.addresses.contains(&address)).collect())
}

/// The claim that an address belongs to, as `namespace/name`.
fn claim_of(snapshot: &Snapshot, address: Address) -> Option<String> {
    let mut blocks = snapshot.blocks.iter().filter(|block| has(block, address));
    let record = blocks.find_map(|block| record_of(block, address)).filter(|record| record.freed.is_none());
    let on_record = record.map(|record| format!("{}/{}", record.namespace, record.name));
    on_record.or_else(|| ledgers::claim_of(snapshot, address))
}

/// Which pods have a claim; `None` if the server cannot tell.
async fn slots_of(client: &Client, claim: &str) -> Option<Slots> {
    let (namespace, name) = claim.split_once('/')?;
    let claims: Api<IPAMClaim> = Api::namespaced(client.clone(), namespace);
    Some(ClaimFacts::of(&claims.get_opt(name).await.ok()??).slots)
}

/// The answer, from what was read.
pub(crate) fn answer(snapshot: &Snapshot, ip: IpAddr) -> Answer {
    let address = Address::from(ip);
    let pods = snapshot.pods.iter().flatten().filter(|pod| pod.addresses.contains(&ip));
    let mut answer = Answer {
        address: ip,
        state: State::Outside,
        summary: String::new(),
        pool: None,
        block: None,
        node: None,
        claim: claim_of(snapshot, address),
        active: None,
        other: None,
        holder: None,
        addresses: Vec::new(),
        since: None,
        host_interface: None,
        until: None,
        last: None,
        pods: pods.map(PodFacts::label).collect(),
    };
    if let Some(block) = snapshot.blocks.iter().find(|block| has(block, address)) {
        answer.block = Some(block.name_any());
        answer.pool = block.pool().map(str::to_owned);
        answer.node = block.node().map(str::to_owned);
    }
    if let Some((claim, slots)) = answer.claim.as_ref().and_then(|claim| snapshot.claims.get_key_value(claim))
    {
        let user = |slot: &Option<Slot>| slot.as_ref().map(|slot| User::of(claim, slot));
        (answer.active, answer.other) = (user(&slots.active), user(&slots.incoming));
    }
    if !of_agents(snapshot, ip, &mut answer)
        && !nodes::find(snapshot, address, &mut answer)
        && !ledgers::find(snapshot, address, &mut answer)
        && (answer.block.is_some() || !aliases::find(snapshot, address, &mut answer))
    {
        (answer.state, answer.summary) = of_objects(snapshot, address, &mut answer);
    }
    if answer.holder.is_none() && !answer.pods.is_empty() {
        let pods = answer.pods.join(", ");
        answer.summary =
            format!("{}; but the status of pod {pods} has it: run `tenure check`", answer.summary);
    }
    answer
}

/// Held or cooling, according to an agent.
fn of_agents(snapshot: &Snapshot, ip: IpAddr, answer: &mut Answer) -> bool {
    let told = || snapshot.agents.values().filter_map(|told| told.as_ref().ok());
    let holds = told().flat_map(|node| node.holds.iter().map(move |hold| (node, hold)));
    let holds = holds.filter(|(_, hold)| hold.addresses.contains(&ip));
    // While a claim moves, two holders have it.
    let is_reached = |hold: &Hold| hold.claim.as_ref().is_some_and(|claim| claim.reached);
    if let Some((node, hold)) = holds.min_by_key(|(_, hold)| !is_reached(hold)) {
        answer.state = State::Held;
        answer.summary = format!("{ip} is held by {} on node {}", hold.holder, node.node);
        answer.node = Some(node.node.clone());
        answer.block.clone_from(&hold.block);
        answer.pool = Some(hold.pool.clone()).filter(|pool| !pool.is_empty()).or(answer.pool.take());
        answer.holder = Some(hold.holder.clone());
        answer.addresses.clone_from(&hold.addresses);
        answer.since = hold.since;
        answer.host_interface.clone_from(&hold.host_interface);
        return true;
    }
    let mut cooling = told().flat_map(|node| node.cooling.iter().map(move |it| (node, it)));
    if let Some((node, cooling)) = cooling.find(|(_, cooling)| cooling.addresses.contains(&ip)) {
        let last = cooling.last.as_ref().map(|last| format!(", and was held by {last}"));
        answer.state = State::Cooling;
        answer.summary = format!("{ip} cools on node {}{}", node.node, last.unwrap_or_default());
        answer.node = Some(node.node.clone());
        answer.block = Some(cooling.block.clone());
        answer.until = Some(cooling.until);
        answer.last.clone_from(&cooling.last);
        answer.addresses.clone_from(&cooling.addresses);
        return true;
    }
    false
}

/// Why nobody has it.
fn of_objects(snapshot: &Snapshot, address: Address, answer: &mut Answer) -> (State, String) {
    let engines = snapshot.engines();
    let Some(block) = snapshot.blocks.iter().find(|block| has(block, address)) else {
        return of_no_block(snapshot, &engines, address, answer);
    };
    let (name, node) = (block.name_any(), block.node().unwrap_or("no"));
    let engine = block.pool().and_then(|pool| engines.get(pool));
    let excluded = engine
        .zip(snapshot::subnet(block))
        .is_some_and(|(engine, subnet)| is_excluded(engine, &subnet, address));
    if block.is_floating() {
        return of_floating(block, address, excluded);
    }
    match snapshot.told(block) {
        _ if block.is_reserved() => (
            State::KeptBack,
            format!("{address} is in block {name}, which is reserved: nobody assigns from it"),
        ),
        _ if excluded => {
            let pool = block.pool().unwrap_or_default();
            (State::Excluded, format!("nobody has {address}: pool {pool} excludes it"))
        }
        Err(problem) => (
            State::Unknown,
            format!("{address} is in block {name} of node {node}, and who has it is not known: {problem}"),
        ),
        Ok(told) => match &told.fenced {
            Some(why) => (
                State::KeptBack,
                format!("nobody has {address}: nothing is assigned from block {name}, because {why}"),
            ),
            None if !told.usable => (
                State::KeptBack,
                format!("nobody has {address}: nothing is assigned from block {name} at present"),
            ),
            None => (State::Free, format!("nobody has {address}: it is free in block {name} of node {node}")),
        },
    }
}

/// What a block that no node owns has on record for an address.
fn record_of(block: &AddressBlock, address: Address) -> Option<&ClaimRecord> {
    let subnet = snapshot::subnet(block)?;
    let cidr = [subnet.ipv4, subnet.ipv6].into_iter().flatten().find(|cidr| cidr.contains(address))?;
    block.spec.claims.get(&address.distance_from(cidr.first()).ok()?.to_string())
}

/// Which claim has it: a block that no node owns says so itself.
fn of_floating(block: &AddressBlock, address: Address, excluded: bool) -> (State, String) {
    let (name, pool) = (block.name_any(), block.pool().unwrap_or_default());
    match record_of(block, address) {
        Some(record) => {
            let claim = format!("{}/{}", record.namespace, record.name);
            match &record.freed {
                None => {
                    (State::Held, format!("{address} belongs to claim {claim} (block {name} of pool {pool})"))
                }
                Some(_) => (
                    State::Cooling,
                    format!(
                        "{address} cools in block {name} of pool {pool}, and belonged to claim {claim}, which is gone"
                    ),
                ),
            }
        }
        None if excluded => (State::Excluded, format!("nobody has {address}: pool {pool} excludes it")),
        None => (
            State::Free,
            format!("nobody has {address}: it is free in block {name} of pool {pool}, which is for claims"),
        ),
    }
}

fn of_no_block(
    snapshot: &Snapshot,
    engines: &std::collections::BTreeMap<String, EnginePool>,
    address: Address,
    answer: &mut Answer,
) -> (State, String) {
    // What an agent knows without any object, as on a host of a cluster.
    let told = snapshot.agents.values().filter_map(|told| told.as_ref().ok());
    for node in told {
        if let Some(block) =
            node.blocks.iter().find(|it| it.networks.iter().any(|net| net.contains(&address.to_ip())))
        {
            (answer.block, answer.node) = (Some(block.name.clone()), Some(node.node.clone()));
            answer.pool = Some(block.pool.clone());
            let (name, node) = (&block.name, &node.node);
            return (State::Free, format!("nobody has {address}: it is in block {name} of node {node}"));
        }
    }
    for (name, engine) in engines {
        let Some(index) = engine.pool().index_of_address(address) else { continue };
        answer.pool = Some(name.clone());
        let subnet = engine.pool().block(index);
        if subnet.is_some_and(|subnet| is_excluded(engine, &subnet, address)) {
            return (State::Excluded, format!("nobody has {address}: pool {name} excludes it"));
        }
        let block = block_name(name, index);
        return (
            State::Uncarved,
            format!("nobody has {address}: no node owns its block {block} of pool {name}"),
        );
    }
    if engines.is_empty()
        && snapshot.pools.is_empty()
        && !snapshot.agents.is_empty()
        && snapshot.blocks.is_empty()
    {
        return (State::Outside, format!("{address} is in no block of this node"));
    }
    (
        State::Outside,
        format!(
            "{address} is in no pool; there are {}",
            table::list(snapshot.pools.iter().map(ResourceExt::name_any))
        ),
    )
}

fn is_excluded(engine: &EnginePool, subnet: &Subnet, address: Address) -> bool {
    let Ok(space) = engine.space(subnet) else { return false };
    space.offset_of(address).is_none_or(|offset| !space.is_usable(offset))
}

fn text(answer: &Answer, now: Timestamp) -> String {
    let other = answer.addresses.iter().filter(|it| **it != answer.address).map(ToString::to_string);
    let other: Vec<String> = other.collect();
    let container = answer
        .holder
        .as_ref()
        .map(|it| format!("{} of container {}, network {}", it.interface, it.container, it.network));
    let age = |at: Timestamp| format!("{at} ({} ago)", table::ago(at, now));
    let rows = table::fields([
        (
            "pod",
            answer
                .holder
                .as_ref()
                .and_then(|it| it.pod.as_ref())
                .map(ToString::to_string)
                .unwrap_or_default(),
        ),
        ("claim", answer.claim.clone().unwrap_or_default()),
        ("active pod", answer.active.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("other pod", answer.other.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("interface", container.unwrap_or_default()),
        ("host side", answer.host_interface.clone().unwrap_or_default()),
        ("node", answer.node.clone().unwrap_or_default()),
        ("block", answer.block.clone().unwrap_or_default()),
        ("pool", answer.pool.clone().unwrap_or_default()),
        ("since", answer.since.map(age).unwrap_or_default()),
        ("with", other.join(", ")),
        ("last holder", answer.last.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("cools for", answer.until.map(|until| table::ago(now, until)).unwrap_or_default()),
    ]);
    format!("{}\n{rows}", answer.summary)
}

#[cfg(test)]
mod tests;
