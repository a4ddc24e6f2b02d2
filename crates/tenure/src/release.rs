//! `tenure release ADDRESS`: releases an address whose holder is gone, if nothing shows that it is in use.
//!
//! It writes only what any node may write: a record of a Whereabouts range that all nodes share, in the version that was read, and on
//! condition that the record is unchanged. What a node's agent or the controller owns, it leaves to them, and says what they wait for.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use tenure_api::claims::RECORD_PREFIX;
use tenure_api::whereabouts::{IPPool, OverlappingRangeIPReservation, reservation_name};
use tenure_handles::{Clock, SystemClock};
use tenure_ipam::{Address, Cidr};
use tenure_view::Hold;
use tenure_whereabouts::ledger::{Act, Network, Outcome, Request, Spread, State, Who};

use crate::query::{QueryOptions, Source};
use crate::ranges::Recorded;
use crate::snapshot::{PodFacts, Snapshot};
use crate::table::{COULD_NOT_LOOK, Output};

/// The exit code if the address stays.
const STAYS: u8 = 1;
/// How long an address that was released cools, as agents and controller have it by default.
const COOLING: Duration = Duration::from_secs(30);

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct ReleaseOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// An IPv4 or IPv6 address
    address: IpAddr,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// The output of `tenure release -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    address: IpAddr,
    #[serde(flatten)]
    decision: Decision,
    /// Whether it was released now.
    released: bool,
}

/// What can be done about the address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "state")]
enum Decision {
    /// Nobody has it.
    Free,
    /// Something shows that it is in use.
    InUse { signs: Vec<String> },
    /// Not all could be asked who may use it.
    Unknown { signs: Vec<String> },
    /// Somebody else releases it.
    Owned { by: String, advice: String },
    /// This record keeps it.
    #[serde(rename_all = "camelCase")]
    Record { ledger: String, key: String, holder: String },
}

/// Runs the verb.
pub(crate) async fn run(options: ReleaseOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let snapshot = Snapshot::of_everything(&source).await?;
    let decision = decide(&snapshot, options.address);
    let mut answer = Answer { address: options.address, decision, released: false };
    if let (Some(recorded), false) =
        (to_release(&snapshot, options.address, &answer.decision), options.dry_run)
    {
        forget(&source, &recorded).await?;
        answer.released = true;
    }
    let said = Output::either(options.query.output, &answer, || text(&answer))?;
    let code = match answer.decision {
        Decision::Free | Decision::Record { .. } => 0,
        Decision::Unknown { .. } => COULD_NOT_LOOK,
        Decision::InUse { .. } | Decision::Owned { .. } => STAYS,
    };
    Ok(Output { code, ..said })
}

/// What can be done, from what was read.
fn decide(snapshot: &Snapshot, ip: IpAddr) -> Decision {
    let address = Address::from(ip);
    let signs = signs(snapshot, ip);
    if !signs.is_empty() {
        return Decision::InUse { signs };
    }
    let silent = snapshot.nodes.iter().filter_map(|node| match snapshot.agents.get(node) {
        Some(Ok(told)) if told.ready => None,
        Some(Ok(_)) => Some(format!("the agent of node {node} has not read all holds yet")),
        Some(Err(problem)) => Some(format!("node {node}: {problem}")),
        None => Some(format!("node {node} has no agent")),
    });
    let silent: Vec<String> = silent.collect();
    if !silent.is_empty() {
        return Decision::Unknown { signs: silent };
    }
    if let Some((node, hold)) = holds(snapshot, ip).next() {
        let interface =
            hold.host_interface.as_ref().map(|name| format!("; the host's end of its interface is {name}"));
        return Decision::Owned {
            by: format!("the agent of node {node} holds it for {}, whose pod is gone{}", hold.holder, interface.unwrap_or_default()),
            advice: "the agent releases it within 5 minutes after the interface or the network namespace is gone; if the sandbox is \
                     still there, remove it on the node (crictl rmp)"
                .to_owned(),
        };
    }
    if let Some(it) = records(snapshot, address).find(|it| State::of(it.ledger) == State::Owned) {
        let node = it.node.unwrap_or_default();
        return Decision::Owned {
            by: format!(
                "IPPool {} is written by node {node} alone, and has it for {}",
                it.ledger.name_any(),
                it.record.podref
            ),
            advice: "its agent releases it within minutes; if the node is gone, the controller does"
                .to_owned(),
        };
    }
    let mut found = records(snapshot, address);
    match (found.next(), found.next()) {
        (None, _) => Decision::Free,
        (Some(_), Some(_)) => Decision::Owned {
            by: "several IPPools have it".to_owned(),
            advice: "the controller releases records whose pods are gone within minutes; see `tenure check`"
                .to_owned(),
        },
        (Some(it), None) => match key_of(&it) {
            Some(key) => {
                Decision::Record { ledger: it.ledger.name_any(), key, holder: it.record.podref.clone() }
            }
            None => Decision::Free,
        },
    }
}

/// What shows that it is in use.
fn signs(snapshot: &Snapshot, ip: IpAddr) -> Vec<String> {
    let address = Address::from(ip);
    let mut signs = Vec::new();
    let pods = || snapshot.pods.iter().flatten().filter(|pod| !pod.over);
    let with = pods().filter(|pod| pod.addresses.contains(&ip) || pod.networks.contains(&ip));
    signs.extend(with.map(|pod| format!("the status of pod {} has it", pod.label())));
    for (node, hold) in holds(snapshot, ip) {
        if hold.claim.is_some() || snapshot.pods.is_none() || pods().any(|pod| is_of(hold, pod)) {
            signs.push(format!("node {node} holds it for {}", hold.holder));
        }
    }
    for it in records(snapshot, address) {
        if it.record.id.starts_with(RECORD_PREFIX) {
            signs.push(format!("it belongs to claim {} (IPPool {})", it.record.podref, it.ledger.name_any()));
        } else if pods().any(|pod| pod.label() == it.record.podref) {
            signs.push(format!(
                "IPPool {} has it for pod {}, which exists",
                it.ledger.name_any(),
                it.record.podref
            ));
        } else if snapshot.pods.is_none() {
            signs.push(format!(
                "IPPool {} has it for {}, and nobody knows whether that exists",
                it.ledger.name_any(),
                it.record.podref
            ));
        }
    }
    for block in snapshot.blocks.iter().filter(|block| block.is_floating()) {
        for cidr in crate::snapshot::networks(block).filter(|cidr| cidr.contains(address)) {
            let offset =
                address.distance_from(cidr.first()).map(|offset| offset.to_string()).unwrap_or_default();
            let claim = block.spec.claims.get(&offset).filter(|record| record.freed.is_none());
            signs.extend(claim.map(|it| format!("it belongs to claim {}/{}", it.namespace, it.name)));
        }
    }
    let alias = snapshot.aliases.record_of(address).filter(|it| !it.cools());
    signs.extend(
        alias.map(|it| {
            format!("node {} has it as an alias (IPLedger {})", it.record.node, it.ledger.name_any())
        }),
    );
    let nodes = snapshot.node_pools.held().filter(|it| it.address == address && !it.released);
    signs.extend(nodes.map(|it| format!("node {} has it by policy {}", it.node, it.policy)));
    signs
}

fn holds(snapshot: &Snapshot, ip: IpAddr) -> impl Iterator<Item = (&String, &Hold)> {
    let told = snapshot.agents.iter().filter_map(|(node, told)| Some((node, told.as_ref().ok()?)));
    let holds = told.flat_map(|(node, told)| told.holds.iter().map(move |hold| (node, hold)));
    holds.filter(move |(_, hold)| hold.addresses.contains(&ip))
}

fn is_of(hold: &Hold, pod: &PodFacts) -> bool {
    let holder = hold.holder.pod.as_ref();
    holder.is_none_or(|it| {
        it.namespace == pod.namespace
            && it.name == pod.name
            && (it.uid == pod.uid || it.uid.is_empty() || pod.uid.is_empty())
    })
}

fn records(snapshot: &Snapshot, address: Address) -> impl Iterator<Item = Recorded<'_>> {
    snapshot.ranges.records().filter(move |it| it.address == address)
}

fn key_of(it: &Recorded<'_>) -> Option<String> {
    let cidr: Cidr = it.ledger.spec.cidr().ok()?;
    tenure_ipam::ledger::Offsets::of(&cidr).offset(it.address).ok().map(|offset| offset.to_string())
}

/// The record that is to be released.
fn to_release<'a>(snapshot: &'a Snapshot, ip: IpAddr, decision: &Decision) -> Option<Recorded<'a>> {
    let Decision::Record { ledger, .. } = decision else { return None };
    records(snapshot, ip.into()).find(|it| it.ledger.name_any() == *ledger)
}

/// Removes the record on the version that was read; the object says that its address cools.
async fn forget(source: &Source, it: &Recorded<'_>) -> Result<()> {
    let client: &Client = source.client()?;
    let namespace = it.ledger.namespace().unwrap_or_default();
    let (name, key) = (it.ledger.name_any(), key_of(it).unwrap_or_default());
    let act = || format!("removing the record {key} of IPPool {namespace}/{name}");
    let mut network = Network::new(&it.network);
    if network.see_pool(it.ledger, |_| true).is_none() {
        bail!("{}: the object does not look like one of network {:?}", act(), it.network);
    }
    let reservations: Api<OverlappingRangeIPReservation> = Api::namespaced(client.clone(), &namespace);
    if let Ok(reservation) = reservation_name(&it.network, it.address.to_ip())
        && let Some(reservation) = reservations.get_opt(&reservation).await.with_context(act)?
    {
        network.see_reservation(&reservation);
    }
    let who = Who {
        id: it.record.id.clone(),
        podref: it.record.podref.clone(),
        uid: String::new(),
        ifname: it.record.ifname.clone().unwrap_or_default(),
    };
    let request = Request {
        who,
        act: Act::Forget { object: name.clone(), key: key.clone(), record: it.record.clone() },
    };
    let plan = network.plan_with_rest(vec![request], COOLING, &Spread::of(""), SystemClock.now());
    let Some(after) = plan.write.first().and_then(|write| write.apply(it.ledger)) else {
        bail!("{}: the record has changed; run it again", act());
    };
    let ledgers: Api<IPPool> = Api::namespaced(client.clone(), &namespace);
    // The object has the version that was read.
    ledgers.replace(&name, &PostParams::default(), &after).await.with_context(act)?;
    for unreserve in plan.unreserve(|_| Outcome::Written) {
        let exactly = Preconditions { uid: unreserve.uid.clone(), resource_version: None };
        // What is left is found as a reservation without a record, which the controller deletes.
        let _ = reservations.delete(&unreserve.name, &DeleteParams::default().preconditions(exactly)).await;
    }
    Ok(())
}

fn text(answer: &Answer) -> String {
    let address = answer.address;
    let list = |signs: &[String]| signs.iter().flat_map(|sign| ["    ", sign, "\n"]).collect::<String>();
    match &answer.decision {
        Decision::Free => format!("nobody has {address}: there is nothing to release\n"),
        Decision::InUse { signs } => {
            format!("{address} is not released, because it is in use:\n{}", list(signs))
        }
        Decision::Unknown { signs } => {
            format!(
                "{address} is not released, because not all could be asked whether they use it:\n{}",
                list(signs)
            )
        }
        Decision::Owned { by, advice } => format!("{address} is not released here: {by}\n    {advice}\n"),
        Decision::Record { ledger, key, holder } => {
            let act = if answer.released { "is released" } else { "would be released" };
            format!("{address} {act}: record {key} of IPPool {ledger} was for {holder}, which is gone\n")
        }
    }
}

#[cfg(test)]
mod tests;
