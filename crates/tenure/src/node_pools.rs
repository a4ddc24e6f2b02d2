//! Addresses of nodes: pools and enactments as they were read, who has what, and offsets. Next to kubernetes-nmstate the policies that
//! the controller generates have the place of enactments.

use std::collections::BTreeMap;

use anyhow::Result;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy, NodeRange,
    annotation, label,
};
use tenure_ipam::Address;

use crate::snapshot::every_if_known;

/// Pools, and what nodes have of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodePools {
    pub(crate) pools: Vec<NodeIPPool>,
    pub(crate) enactments: Vec<NodeNetworkConfigurationEnactment>,
    /// Those that the controller generates for kubernetes-nmstate; others are left out.
    pub(crate) generated: Vec<NodeNetworkConfigurationPolicy>,
}

/// An address that an enactment or a generated policy names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub(crate) pool: String,
    pub(crate) address: Address,
    /// The kind of what names it.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) enactment: String,
    pub(crate) node: &'a str,
    pub(crate) policy: &'a str,
    /// The interface on which the node has found it.
    pub(crate) interface: Option<&'a str>,
    /// Whether the node has said that it is off its interfaces.
    pub(crate) released: bool,
}

impl NodePools {
    /// Reads all of them.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let (pools, enactments, policies) = tokio::try_join!(
            every_if_known(client, "NodeIPPools"),
            every_if_known(client, "NodeNetworkConfigurationEnactments"),
            every_if_known(client, "NodeNetworkConfigurationPolicies"),
        )?;
        Ok(Self { pools, enactments, generated: policies.into_iter().filter(is_generated).collect() })
    }

    /// The pools that make sense, with their addresses.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&NodeIPPool, NodeRange)> {
        self.pools.iter().filter_map(|pool| Some((pool, NodeRange::of(&pool.spec.range).ok()?)))
    }

    /// Everything that enactments and generated policies name.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held<'_>> {
        self.of_enactments().chain(self.generated.iter().flat_map(|policy| self.of_generated(policy)))
    }

    fn of_enactments(&self) -> impl Iterator<Item = Held<'_>> {
        self.enactments.iter().flat_map(|enactment| {
            let status = enactment.status.as_ref();
            let applied = status.and_then(|status| status.applied.as_ref());
            let pools = status.into_iter().flat_map(|status| &status.ippool);
            pools.flat_map(move |(pool, held)| {
                held.allocated.iter().filter_map(move |text| {
                    let address: Address = text.parse().ok()?;
                    let found = applied.into_iter().flat_map(|applied| &applied.addresses);
                    let mut found = found.filter(|it| bare(&it.address) == Some(address));
                    Some(Held {
                        pool: pool.clone(),
                        address,
                        kind: "NodeNetworkConfigurationEnactment",
                        enactment: enactment.name_any(),
                        node: enactment.node().unwrap_or_default(),
                        policy: enactment.policy().unwrap_or_default(),
                        interface: found.next().map(|it| it.interface.as_str()),
                        released: enactment.metadata.deletion_timestamp.is_some()
                            && applied.is_some_and(|it| it.released),
                    })
                })
            })
        })
    }

    /// What a generated policy names. Where it is, kubernetes-nmstate says: whether it has applied this generation of the policy.
    fn of_generated<'a>(&'a self, policy: &'a NodeNetworkConfigurationPolicy) -> Vec<Held<'a>> {
        let text = policy.annotations().get(annotation::ADDRESSES);
        let named: BTreeMap<String, Vec<String>> =
            text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let owner = policy.owner_references().iter().find(|owner| owner.kind == "Node");
        let name = policy.name_any();
        let applied = self.enactments.iter().any(|it| {
            it.policy() == Some(name.as_str())
                && it.condition("Available").is_some_and(NodeCondition::is_true)
                && it.status.as_ref().and_then(|it| it.policy_generation) == policy.metadata.generation
        });
        let leaving = policy.annotations().contains_key(annotation::LEAVING);
        let all = named.into_iter().flat_map(|(pool, all)| all.into_iter().map(move |it| (pool.clone(), it)));
        let held = all.filter_map(|(pool, text)| {
            Some(Held {
                pool,
                address: text.parse().ok()?,
                kind: "NodeNetworkConfigurationPolicy",
                enactment: name.clone(),
                node: owner.map(|it| it.name.as_str()).unwrap_or_default(),
                policy: policy.labels().get(label::PARENT).map(String::as_str).unwrap_or_default(),
                interface: if applied { interface_of(policy, &text) } else { None },
                released: leaving && applied,
            })
        });
        held.collect()
    }

    /// The same by pool and address, without what was released.
    pub(crate) fn holders(&self) -> BTreeMap<(String, Address), Vec<Held<'_>>> {
        let mut holders: BTreeMap<(String, Address), Vec<Held<'_>>> = BTreeMap::new();
        for held in self.held().filter(|held| !held.released) {
            holders.entry((held.pool.clone(), held.address)).or_default().push(held);
        }
        holders
    }
}

/// Whether the controller generated a policy.
pub(crate) fn is_generated(policy: &NodeNetworkConfigurationPolicy) -> bool {
    policy.labels().contains_key(label::PARENT)
}

/// The interface to which a policy gives an address.
fn interface_of<'a>(policy: &'a NodeNetworkConfigurationPolicy, address: &str) -> Option<&'a str> {
    let interfaces = policy.spec.desired_state.as_ref()?.get("interfaces")?.as_array()?;
    let has = |it: &&Value| {
        let all = ["ipv4", "ipv6"].into_iter().filter_map(|family| it[family]["address"].as_array());
        all.flatten().any(|it| it["ip"] == address)
    };
    interfaces.iter().find(has)?["name"].as_str()
}

fn bare(text: &str) -> Option<Address> {
    text.split_once('/').map_or(text, |(address, _)| address).parse().ok()
}
