//! What can be seen of claims: their objects, their records, and which node answers for an address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, bail, ensure};
use ipnet::IpNet;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use tenure_api::claims::IPAMClaim;
use tenure_testbed::hosts::Host;
use tenure_testbed::wait::{PATIENCE, eventually};

use crate::kubevirt::kinds::Nic;
use crate::place::{Running, ScenarioNamespace};
use tenure_tests::claim_records::records;

/// Tables of routes to the node's pods, and of what a routing daemon exports.
const POD_TABLE: &str = "116";
const EXPORT_TABLE: &str = "119";

/// A claim with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub name: String,
    pub uid: String,
    pub addresses: BTreeSet<IpAddr>,
    pub owner_pod: Option<String>,
}

/// The condition that says whether a claim has its addresses: status and reason.
pub fn condition(claim: &IPAMClaim) -> (String, String, String) {
    let status = claim.status.clone().unwrap_or_default();
    let found = status.condition("IPsAllocated");
    found.map(|it| (it.status.clone(), it.reason.clone(), it.message.clone())).unwrap_or_default()
}

/// The addresses of a claim whose status says that it has them.
pub fn claimed(claim: &IPAMClaim) -> Result<Claimed> {
    let (status, reason, message) = condition(claim);
    ensure!(
        status == "True" && reason == "SuccessfulAllocation",
        "{}: {reason}: {message}",
        claim.name_any()
    );
    let mut addresses = BTreeSet::new();
    let told = claim.status.clone().unwrap_or_default();
    for text in &told.ips {
        let net: IpNet = text.parse().with_context(|| text.clone())?;
        addresses.insert(net.addr());
    }
    ensure!(!addresses.is_empty(), "{claim:?}");
    let owner_pod = told.owner_pod.and_then(|pod| pod.name);
    Ok(Claimed { name: claim.name_any(), uid: claim.uid().context("a UID")?, addresses, owner_pod })
}

impl ScenarioNamespace<'_> {
    /// A claim, when it has its addresses.
    pub async fn claimed(&self, name: &str) -> Result<Claimed> {
        eventually(&format!("claim {}/{name} has addresses", self.namespace), async || {
            claimed(&self.claims().get(name).await?).map(Some)
        })
        .await
    }

    /// The claims of a machine, by the names of its networks, when all of them have addresses: as many as the networks have
    /// families.
    pub async fn claims_of(&self, machine: &str, nics: &[Nic]) -> Result<BTreeMap<&'static str, Claimed>> {
        let mut all = BTreeMap::new();
        for nic in nics {
            let claim = self.claimed(&format!("{machine}.{}", nic.name)).await?;
            let families: BTreeSet<bool> = claim.addresses.iter().map(IpAddr::is_ipv4).collect();
            ensure!(families.len() == claim.addresses.len(), "two of one family: {claim:?}");
            all.insert(nic.name, claim);
        }
        let distinct: BTreeSet<&str> = all.values().map(|claim| claim.uid.as_str()).collect();
        ensure!(distinct.len() == nics.len(), "{all:?}");
        Ok(all)
    }

    /// The claims say that this pod has them now.
    pub async fn owner_is(&self, claims: impl IntoIterator<Item = &Claimed>, pod: &str) -> Result<()> {
        for claim in claims {
            eventually(&format!("{pod} is the owner of {}", claim.name), async || {
                let now = claimed(&self.claims().get(&claim.name).await?)?;
                ensure!(
                    now.addresses == claim.addresses && now.uid == claim.uid,
                    "{now:?} and not {claim:?}"
                );
                ensure!(now.owner_pod.as_deref() == Some(pod), "it is {:?}", now.owner_pod);
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Claims are gone, and so is what was on record for them.
    pub async fn are_freed<'a>(&self, claims: impl IntoIterator<Item = &'a Claimed>) -> Result<()> {
        for claim in claims {
            eventually(&format!("claim {} is gone", claim.name), async || {
                let now = self.claims().get_opt(&claim.name).await?;
                Ok(now.is_none_or(|now| now.uid().as_deref() != Some(&claim.uid)).then_some(()))
            })
            .await?;
            eventually(&format!("the addresses of {} are freed", claim.name), async || {
                let records = records(&self.stage.client).await?;
                let left: Vec<_> = records.iter().filter(|(_, holder)| holder.contains(&claim.uid)).collect();
                ensure!(left.is_empty(), "on record: {left:?}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Claims are there, each with its addresses on record.
    pub async fn are_held<'a>(&self, claims: impl IntoIterator<Item = &'a Claimed>) -> Result<()> {
        let records = records(&self.stage.client).await?;
        for claim in claims {
            for address in &claim.addresses {
                let holder = records.get(address);
                ensure!(
                    holder.is_some_and(|it| it.contains(&claim.uid)),
                    "{address} of {claim:?} is of {holder:?}"
                );
            }
        }
        Ok(())
    }

    /// The pod on this node has the address on the pods' own network, as all nodes see it: the node has a route to it in both
    /// tables, no other node has one, and everybody reaches it.
    pub async fn is_delivered_at(&self, addresses: &BTreeSet<IpAddr>, at: &str) -> Result<()> {
        for address in addresses {
            eventually(&format!("{address} is delivered at {at}"), async || {
                for node in self.stage.cluster.nodes() {
                    let mut tables = tables(node.host(), *address)?;
                    tables.retain(|table| [POD_TABLE, EXPORT_TABLE].contains(&table.as_str()));
                    let expected = if node.name() == at { 2 } else { 0 };
                    ensure!(tables.len() == expected, "{} has routes in {tables:?}", node.name());
                }
                Ok(Some(()))
            })
            .await?;
            // Nodes have no IPv6 addresses by which blocks of others could be reached.
            for node in self.stage.cluster.nodes().filter(|node| address.is_ipv4() || node.name() == at) {
                let reached = tokio::task::block_in_place(|| node.host().ping(*address, PATIENCE));
                reached.with_context(|| format!("from {} to {address} at {at}", node.name()))?;
            }
        }
        Ok(())
    }

    /// The host on a network that is no pod reaches the addresses, and finds them at this hardware address.
    pub async fn answers_at(&self, network: &str, addresses: &BTreeSet<IpAddr>, mac: &str) -> Result<()> {
        let host = self.stage.hosts.get(network).context("a host on the network")?;
        for address in addresses {
            tokio::task::block_in_place(|| host.ping(*address, PATIENCE))?;
            eventually(&format!("{address} of {network} answers at {mac}"), async || {
                let neighbours =
                    host.namespace().ip_json(&["neighbour", "show", "to", &address.to_string()])?;
                let found = neighbours[0]["lladdr"].as_str();
                ensure!(found == Some(mac), "it answers at {found:?}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Everything of a pod is where packets for it arrive.
    pub async fn is_active(&self, pod: &Running, nics: &[Nic]) -> Result<()> {
        for nic in nics {
            let addresses = &pod.interfaces[nic.interface()?];
            match &nic.definition {
                None => self.is_delivered_at(addresses, &pod.node).await?,
                Some(definition) => {
                    let network = definition.rsplit('/').next().unwrap_or_default();
                    self.answers_at(network, addresses, &pod.macs[nic.interface()?]).await?;
                }
            }
        }
        Ok(())
    }

    /// What was refused to a pod, in words, on an additional network.
    pub async fn is_refused(&self, pod: &str, words: &[&str]) -> Result<()> {
        eventually(&format!("{pod} is refused"), async || {
            let uid = self.pods().get(pod).await?.uid().context("a UID")?;
            let seen = self.stage.multus.seen(&uid);
            let said = seen.refusal.with_context(|| format!("it is not, and has {:?}", seen.interfaces))?;
            if let Some(missing) = words.iter().find(|word| !said.contains(**word)) {
                bail!("{missing:?} is not in {said:?}");
            }
            Ok(Some(()))
        })
        .await
    }

    /// What a kubelet was told when it asked for the pod's own network.
    pub async fn is_kept_waiting(&self, pod: &str, words: &[&str]) -> Result<()> {
        eventually(&format!("{pod} is kept waiting"), async || {
            let events: Api<k8s_openapi::api::core::v1::Event> =
                Api::namespaced(self.stage.client.clone(), &self.namespace);
            let of_pod = ListParams::default().fields(&format!("involvedObject.name={pod}"));
            let told: Vec<String> =
                events.list(&of_pod).await?.items.into_iter().filter_map(|it| it.message).collect();
            let found = told.iter().any(|it| words.iter().all(|word| it.contains(word)));
            ensure!(found, "{words:?} is not in {told:?}");
            Ok(Some(()))
        })
        .await
    }
}

/// The pod's interfaces have exactly the addresses of the machine's claims.
pub fn has(pod: &Running, nics: &[Nic], claims: &BTreeMap<&'static str, Claimed>) -> Result<()> {
    for nic in nics {
        let has = pod.interfaces.get(nic.interface()?);
        ensure!(has == Some(&claims[nic.name].addresses), "{pod:?} and not {:?}", claims[nic.name]);
    }
    Ok(())
}

/// The tables in which a host has a route to this one address.
fn tables(host: &Host, address: IpAddr) -> Result<BTreeSet<String>> {
    let family = if address.is_ipv4() { "-4" } else { "-6" };
    // Of a table that is empty the kernel says that there is none.
    let shown = host.namespace().ip_json(&[family, "route", "show", "table", "all"])?;
    let all = shown.as_array().into_iter().flatten();
    let is_it = |route: &&Value| route["dst"].as_str().and_then(|dst| dst.parse().ok()) == Some(address);
    Ok(all.filter(is_it).filter_map(|route| route["table"].as_str().map(str::to_owned)).collect())
}
