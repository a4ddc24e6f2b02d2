//! What matters of an enactment, and nothing else of it.

use std::collections::BTreeMap;

use ipnet::IpNet;
use kube::ResourceExt;
use serde_json::Value;
use tenure_api::nmstate::{Applied, FINALIZER, NodeCondition, NodeNetworkConfigurationEnactment};
use tenure_node_addresses::Allocated;

/// One policy on this node, as the API server has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// The enactment's name.
    pub(super) name: String,
    /// Its UID: an enactment that is made again is another one, with other addresses.
    pub(super) uid: String,
    /// The version that writes are guarded by.
    pub(super) version: String,
    /// When it was made, in seconds: of two policies that want one interface the older enactment comes first.
    pub(super) created: i64,
    /// Its policy.
    pub(super) policy: String,
    /// The generation of the policy that is to be applied now.
    pub(super) generation: Option<i64>,
    /// The addresses that captures were given.
    pub(super) allocated: BTreeMap<String, Allocated>,
    /// Whether the controller made it. Where kubernetes-nmstate is installed, its enactments are of the same kind, and its handlers
    /// apply them.
    pub(super) ours: bool,
    /// Whether its addresses are to be given back.
    pub(super) deleting: bool,
    /// What its status says about the node.
    pub(super) said: Said,
}

/// What the status says that the agent writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) conditions: Vec<NodeCondition>,
    pub(super) desired: Option<Value>,
    pub(super) applied: Option<Applied>,
    pub(super) retries: BTreeMap<String, i64>,
}

impl Said {
    /// Status, reason and message of a condition.
    pub(super) fn condition(&self, type_: &str) -> Option<(&str, &str, &str)> {
        let found = self.conditions.iter().find(|it| it.type_ == type_)?;
        Some((
            found.status.as_str(),
            found.reason.as_deref().unwrap_or_default(),
            found.message.as_deref().unwrap_or_default(),
        ))
    }
}

impl Facts {
    /// Nothing if the enactment is not of this node, or of no policy.
    pub(super) fn of(enactment: &NodeNetworkConfigurationEnactment, node: &str) -> Option<Self> {
        if enactment.node() != Some(node) {
            return None;
        }
        let status = enactment.status.clone().unwrap_or_default();
        let allocated = status.captured_states.iter().filter_map(|(name, captured)| {
            let ip = captured.ip.as_deref()?.parse().ok()?;
            let prefix = u8::try_from(captured.prefix_length?).ok()?;
            Some((name.clone(), Allocated(IpNet::new(ip, prefix).ok()?)))
        });
        let created = enactment.creation_timestamp();
        Some(Self {
            name: enactment.name_any(),
            uid: enactment.uid().unwrap_or_default(),
            version: enactment.resource_version().unwrap_or_default(),
            created: created.map_or(i64::MAX, |time| time.0.as_second()),
            policy: enactment.policy()?.to_owned(),
            generation: status.policy_generation,
            allocated: allocated.collect(),
            ours: enactment.finalizers().iter().any(|it| it == FINALIZER),
            deleting: enactment.metadata.deletion_timestamp.is_some(),
            said: Said {
                conditions: status.conditions,
                desired: status.desired_state,
                applied: status.applied,
                retries: status.retry_count,
            },
        })
    }
}
