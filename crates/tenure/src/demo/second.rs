//! The scene of node addresses: all hosts get a second network, and one policy gives them static addresses on it, from a pool.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::json;
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy, condition,
};
use tenure_handles::{Clock, SystemClock};
use tenure_linux::segment::Segment;

use super::host::SECOND;
use super::lab::{Lab, until_async};
use super::ping::Pings;
use super::screen::{Screen, took};
use crate::table::Format;
use crate::who;

/// The pool and the policy.
const NAME: &str = "storage";
/// How long an echo request may take.
const ANSWER: Duration = Duration::from_secs(2);

/// Plays it.
pub(crate) async fn give_static_addresses(lab: &mut Lab, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen
        .step("Plug a second network into all hosts, and give them static addresses on it by one policy.")?;
    let mut network = Segment::make()?;
    for host in &lab.hosts {
        host.plug(&mut network)?;
    }
    make_pool(lab).await?;
    let began = SystemClock.elapsed();
    make_policy(lab).await?;
    let held = addresses(lab).await?;
    let all = SystemClock.elapsed().saturating_sub(began);
    let rows = held.iter().map(|(host, address)| [host.clone(), SECOND.to_owned(), address.to_string()]);
    screen.table(["HOST", "INTERFACE", "ADDRESS"], rows)?;
    screen.say(&format!(
        "All have theirs {} after the policy was created; 10.10.10.2 is excluded. Before an interface got its address, its host asked \
         the segment whether anybody else has it.",
        took(all)
    ))?;
    let mut slowest = Duration::ZERO;
    for host in &lab.hosts {
        for (other, address) in held.iter().filter(|(other, _)| **other != host.name) {
            let answered = Pings::from(host.namespace(), *address)?.once(ANSWER)?;
            let time = answered.with_context(|| format!("{other} does not answer {}", host.name))?;
            slowest = slowest.max(time);
        }
    }
    screen.say(&format!("They ping each other on it; the slowest answer took {}.", took(slowest)))?;
    let (host, address) = held.first_key_value().context("there are hosts")?;
    let said = who::look(&lab.source(), *address, Format::Table).await?;
    ensure!(said.text.contains(host), "it is not known that {host} has {address}: {}", said.text);
    screen.say(&said.text)?;
    let back = give_back(lab).await?;
    screen.say(&format!(
        "The policy is deleted: after {} no interface has an address of it, and the pool has them all back.",
        took(back)
    ))
}

async fn make_pool(lab: &Lab) -> Result<()> {
    let pools: Api<NodeIPPool> = Api::all(lab.client.clone());
    let range = json!({"cidr": "10.10.10.0/24", "end": "10.10.10.10", "exclude": ["10.10.10.2"]});
    let pool = NodeIPPool::new(NAME, serde_json::from_value(json!({"range": range}))?);
    pools.create(&PostParams::default(), &pool).await.context("cannot create a NodeIPPool")?;
    Ok(())
}

async fn make_policy(lab: &Lab) -> Result<()> {
    let policies: Api<NodeNetworkConfigurationPolicy> = Api::all(lab.client.clone());
    let address =
        json!({"ip": "{{ capture.address.ip }}", "prefix-length": "{{ capture.address.prefix-length }}"});
    let interface = json!({
        "name": SECOND, "type": "ethernet", "state": "up",
        "ipv4": {"enabled": true, "dhcp": false, "address": [address]},
    });
    let spec = json!({
        "maxUnavailable": "100%",
        "capture": {"address": format!("ippool.{NAME}.allocate")},
        "desiredState": {"interfaces": [interface]},
    });
    let policy = NodeNetworkConfigurationPolicy::new(NAME, serde_json::from_value(spec)?);
    policies.create(&PostParams::default(), &policy).await.context("cannot create a policy")?;
    Ok(())
}

/// The address of each host, once all have found theirs on their interfaces.
async fn addresses(lab: &Lab) -> Result<BTreeMap<String, IpAddr>> {
    let enactments: Api<NodeNetworkConfigurationEnactment> = Api::all(lab.client.clone());
    let mut found = BTreeMap::new();
    until_async("all hosts to have their addresses", async || {
        found.clear();
        for enactment in enactments.list(&ListParams::default()).await? {
            let available = enactment.condition(condition::AVAILABLE).is_some_and(NodeCondition::is_true);
            let applied = enactment.status.as_ref().and_then(|status| status.applied.as_ref());
            let address = applied.and_then(|applied| applied.addresses.first());
            let address = address.and_then(|it| it.address.split('/').next()?.parse().ok());
            if let (true, Some(node), Some(address)) = (available, enactment.node(), address) {
                found.insert(node.to_owned(), address);
            }
        }
        Ok(found.len() == lab.hosts.len())
    })
    .await?;
    Ok(found)
}

/// Deletes the policy; returns how long it took until every host had said that its address is off, and all were free.
async fn give_back(lab: &Lab) -> Result<Duration> {
    let policies: Api<NodeNetworkConfigurationPolicy> = Api::all(lab.client.clone());
    let enactments: Api<NodeNetworkConfigurationEnactment> = Api::all(lab.client.clone());
    let pools: Api<NodeIPPool> = Api::all(lab.client.clone());
    let began = SystemClock.elapsed();
    policies.delete(NAME, &DeleteParams::default()).await.context("cannot delete a policy")?;
    until_async("all hosts to give their addresses back", async || {
        let status = pools.get(NAME).await?.status.unwrap_or_default();
        let free = status.allocated_offsets.is_none_or(|offsets| offsets.is_empty());
        Ok(free && enactments.list(&ListParams::default()).await?.items.is_empty())
    })
    .await?;
    Ok(SystemClock.elapsed().saturating_sub(began))
}
