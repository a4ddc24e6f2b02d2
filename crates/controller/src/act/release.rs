//! Marking and releasing what missing nodes have left: the live reads before, and the writes.
//!
//! Which pods live is read of the API server itself, not of a watch that may be late, before the mark and again before the
//! deletion.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::AddressBlock;
use tenure_api::read::Read;
use tenure_api::release::RELEASING;
use tenure_ipam::{Address, Subnet};

use super::ledgers::ledger;
use super::{Actor, Answer, Learned, Outcome, finalize, settle};
use crate::plan::is_out_of_service;
use crate::write::{At, Because};

impl Actor {
    /// Whether there is a node of this name, or a pod that lives is bound to it. Both are read live.
    pub(super) async fn node_is_in_use(&self, node: &str) -> Result<bool, kube::Error> {
        if Api::<Read<Node>>::all(self.client.clone()).get_opt(node).await?.is_some() {
            return Ok(true);
        }
        // Whatever addresses a pod says it has: those of interfaces that other plugins made are not in its status.
        self.has_user(node, None).await
    }

    /// Marks a block of a missing node.
    pub(super) async fn mark_block(&self, block: &At, node: &str, mark: &str) -> Answer {
        if self.node_is_in_use(node).await? {
            return Ok((Outcome::Superseded, None));
        }
        self.annotate_block(block, json!(mark)).await
    }

    /// Takes the mark off.
    pub(super) async fn unmark_block(&self, block: &At) -> Answer {
        self.annotate_block(block, Value::Null).await
    }

    /// Releases a block, or takes its mark off if somebody can use it after all.
    pub(super) async fn release_block(
        &self,
        block: &At,
        finalizers: &[String],
        node: &str,
        because: &Because,
    ) -> Answer {
        match because {
            Because::NodeIsGone if self.node_is_in_use(node).await? => {
                let (_, learned) = self.unmark_block(block).await?;
                Ok((Outcome::Superseded, learned))
            }
            Because::OutOfService { addresses }
                if self.is_in_use_out_of_service(node, addresses.as_ref()).await? =>
            {
                Ok((Outcome::Superseded, None))
            }
            _ => self.delete_block(block, finalizers).await,
        }
    }

    async fn annotate_block(&self, block: &At, mark: Value) -> Answer {
        let metadata = json!({"resourceVersion": block.version, "annotations": {RELEASING: mark}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = self.blocks.patch(&block.name, &PatchParams::default(), &patch).await;
        settle(&self.blocks, block, written, Learned::Block, Learned::BlockGone).await
    }

    /// Deletes that block at that version and no other; then takes our finalizer off. From the deletion on nobody hands out
    /// of it, and before it nothing was changed that its owner would have to put right.
    async fn delete_block(&self, at: &At, finalizers: &[String]) -> Answer {
        let exactly = Preconditions { uid: Some(at.uid.clone()), resource_version: Some(at.version.clone()) };
        let deleted = self.blocks.delete(&at.name, &DeleteParams::default().preconditions(exactly)).await;
        let deleting = match deleted {
            Ok(deleted) => deleted.left().filter(|block| !block.finalizers().is_empty()),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let there = self.blocks.get_opt(&at.name).await?;
                let learned = there.map_or_else(|| Learned::BlockGone(at.clone()), Learned::Block);
                return Ok((Outcome::Superseded, Some(learned)));
            }
            Err(error) => return Err(error),
        };
        let Some(deleting) = deleting else {
            return Ok((Outcome::Done, Some(Learned::BlockGone(at.clone()))));
        };
        let now = At { version: deleting.resource_version().unwrap_or_default(), ..at.clone() };
        let stripped = finalize::<AddressBlock>(&self.blocks, &now, finalizers).await;
        settle(&self.blocks, &now, stripped, Learned::Block, Learned::BlockGone).await
    }

    /// Marks the ledger of a missing node, or takes the mark off.
    pub(super) async fn mark_ledger(&self, pool: &At, node: &str, mark: Option<&str>) -> Answer {
        if mark.is_some() && self.node_is_in_use(node).await? {
            return Ok((Outcome::Superseded, None));
        }
        let metadata = json!({"resourceVersion": pool.version, "annotations": {RELEASING: mark}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let written = self.ledgers.patch(&pool.name, &PatchParams::default(), &patch).await;
        settle(&self.ledgers, pool, written, ledger, Learned::LedgerGone).await
    }

    /// Releases the ledger of a node that is missing or out of service, or takes its mark off if somebody can use it after all.
    pub(super) async fn release_ledger(&self, pool: &At, node: &str) -> Answer {
        if self.is_in_use_out_of_service(node, None).await? {
            let (_, learned) = self.mark_ledger(pool, node, None).await?;
            return Ok((Outcome::Superseded, learned));
        }
        self.drop_object(&self.ledgers, pool, ledger, Learned::LedgerGone).await
    }

    /// Whether anybody can use what a node has that is missing, or that an administrator has declared out of service.
    pub(super) async fn is_in_use_out_of_service(
        &self,
        node: &str,
        addresses: Option<&Subnet>,
    ) -> Result<bool, kube::Error> {
        let live = Api::<Read<Node>>::all(self.client.clone()).get_opt(node).await?;
        // One that cannot be read says nothing of taints.
        if !live.is_none_or(|live| live.is().as_ref().is_some_and(is_out_of_service)) {
            return Ok(true);
        }
        self.has_user(node, addresses).await
    }

    /// Whether a pod that is bound to a node has, or may still get, an address out of these; any at all if none are given.
    async fn has_user(&self, node: &str, addresses: Option<&Subnet>) -> Result<bool, kube::Error> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Read<Pod>>::all(self.client.clone()).list(&of_node).await?;
        // One that cannot be read may use anything.
        Ok(pods.iter().any(|pod| pod.as_result().map_or(true, |pod| may_use(pod, addresses))))
    }
}

/// Whether a pod has, or may still get, an address out of these.
fn may_use(pod: &Pod, addresses: Option<&Subnet>) -> bool {
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    if host_network || phase == "Succeeded" || phase == "Failed" {
        return false;
    }
    let ips = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    let Some(addresses) = addresses.filter(|_| !ips.is_empty()) else { return true };
    let within = |ip: &str| match ip.parse::<std::net::IpAddr>() {
        Ok(ip) => {
            let ip = Address::from(ip);
            [addresses.ipv4, addresses.ipv6].into_iter().flatten().any(|cidr| cidr.contains(ip))
        }
        Err(_) => true,
    };
    ips.iter().any(|ip| within(&ip.ip))
}
