//! Reports to people: a log line each, and events on the objects that they would look at.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tenure_api::coil::{AddressBlock, AddressPool};
use tenure_ipam::Address;
use tenure_watch::{Note, about_node};
use tracing::{info, warn};

use super::{Shared, lock};
use crate::key::Pod;
use crate::node::{Fence, Leak, Report};

/// How many pods of one report get their own event.
const PODS: usize = 10;

impl Shared {
    /// Publishes a report.
    pub(super) fn report(&self, report: &Report) {
        match report {
            Report::Replayed { blocks, holds } => info!(blocks, holds, "replayed all holds"),
            // Somebody deleted the network's definition, or changed its slices: every node returns its own, as it should.
            Report::Fenced { block, realm, fence: Fence::Gone, holds, .. } if !realm.is_empty() => {
                info!(
                    slice = block,
                    holds = holds.len(),
                    "this slice assigns no more addresses: its network has given it up"
                );
            }
            Report::Fenced { block, uid, realm, fence, holds, .. } => {
                let why = words(fence);
                warn!(block, uid, why, holds = holds.len(), "this block assigns no more addresses");
                let still = if holds.is_empty() {
                    String::new()
                } else {
                    format!("; {} pods still use addresses of it", holds.len())
                };
                let slice = !realm.is_empty();
                let kind = if slice { "slice" } else { "AddressBlock" };
                let message = format!("{kind} {block:?} assigns no more addresses: {why}{still}");
                self.warn(self.node_reference(), "BlockFenced", message.clone());
                if slice {
                    // Its addresses are still reached, and nobody else gets them.
                    return;
                }
                if !matches!(fence, Fence::Gone | Fence::Replaced(_)) {
                    self.warn(block_reference(block, uid), "BlockFenced", message);
                }
                for held in holds.iter().take(PODS) {
                    let addresses = held.addresses;
                    let message = format!(
                        "AddressBlock {block:?} of {addresses} no longer belongs to this node: {why}; recreate the pod"
                    );
                    self.warn_pod(&held.pod, "BlockFenced", message);
                }
            }
            Report::Stray { key, pod, addresses, problem } => {
                let list = list(addresses);
                warn!(%key, %pod, addresses = list, problem, "a link uses addresses that it should not");
                let message = format!("{list} of {key}: {problem}; not assigned until it is released");
                self.warn(self.node_reference(), "StrayAddress", message.clone());
                self.warn_pod(pod, "StrayAddress", message);
            }
            Report::Invalid { block, subnet } => {
                warn!(block, ?subnet, "a block's networks cannot be used");
                let message = format!("node {:?} cannot use this block's networks", self.options.node);
                self.warn_block(block, "InvalidBlock", message);
            }
            Report::Overlap { block, other } => {
                warn!(block, other, "a block's networks overlap with another one's");
                let message =
                    format!("AddressBlock {block:?} overlaps with {other:?}; it assigns no addresses");
                self.warn(self.node_reference(), "BlockOverlap", message.clone());
                self.warn_block(block, "BlockOverlap", message);
            }
            Report::PoolRefused { pool, message } => {
                warn!(pool, message, "no block from this pool");
                let words = format!("no block of AddressPool {pool:?} for this node: {message}");
                self.warn(self.node_reference(), "NoBlock", words);
                self.warn_pool(
                    pool,
                    "NoBlock",
                    format!("no block for node {:?}: {message}", self.options.node),
                );
            }
            Report::PoolHealed { pool } => {
                info!(pool, "this pool has blocks again");
                let message = format!("AddressPool {pool:?} has blocks again");
                self.note(Note::normal(self.node_reference(), "BlocksAgain", message));
            }
            Report::JournalFailed { message } => {
                warn!(message, "the journal cannot be written; no addresses are assigned until it can");
                let message = format!("tenured cannot write its journal and assigns no addresses: {message}");
                self.warn(self.node_reference(), "JournalFailed", message);
            }
            Report::JournalHealed => {
                info!("the journal can be written again");
                let message = "tenured can write its journal again".to_owned();
                self.note(Note::normal(self.node_reference(), "JournalHealed", message));
            }
            Report::Leak { key, pod, addresses, leak } => {
                let list = list(addresses);
                let what = match leak {
                    Leak::NoInterface => "its interface is gone".to_owned(),
                    Leak::NoNamespace(path) => format!("its network namespace {path:?} is gone"),
                    Leak::NoHold => "its link exists, but no address is held for it".to_owned(),
                };
                warn!(%key, %pod, addresses = list, what, "removing a leak");
                let message = format!("{key} of pod {pod} with {list} leaked and is being removed: {what}");
                self.warn(self.node_reference(), "LeftOver", message);
            }
            Report::Routes { differences } => {
                let list = differences.join("; ");
                warn!(differences = list, "repairing routes to pods");
                let shown: Vec<&str> = differences.iter().map(String::as_str).take(PODS).collect();
                let message = format!(
                    "{} routes to pods were wrong and are being repaired: {}",
                    differences.len(),
                    shown.join("; ")
                );
                self.warn(self.node_reference(), "RoutesRepaired", message);
            }
        }
    }

    fn warn(&self, about: ObjectReference, reason: &'static str, message: String) {
        self.note(Note::warning(about, reason, message));
    }

    pub(super) fn warn_pod(&self, pod: &Pod, reason: &'static str, message: String) {
        if pod.name.is_empty() {
            return;
        }
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        };
        self.warn(about, reason, message);
    }

    fn warn_block(&self, name: &str, reason: &'static str, message: String) {
        let uid = lock(&self.own_blocks).uid(name).map(str::to_owned);
        if let Some(uid) = uid {
            self.warn(block_reference(name, &uid), reason, message);
        }
    }

    fn warn_pool(&self, name: &str, reason: &'static str, message: String) {
        let uid = lock(&self.pools).uid(name).map(str::to_owned);
        if let Some(uid) = uid {
            self.warn(reference::<AddressPool>(name, &uid), reason, message);
        }
    }

    fn note(&self, note: Note) {
        // Dropped if the queue is full: a flood of events must not block the agent.
        _ = self.notes.try_send(note);
    }

    fn node_reference(&self) -> ObjectReference {
        about_node(&self.options.node)
    }
}

fn block_reference(name: &str, uid: &str) -> ObjectReference {
    reference::<AddressBlock>(name, uid)
}

fn reference<K: Resource<DynamicType = ()>>(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

fn list(addresses: &[Address]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

fn words(fence: &Fence) -> String {
    match fence {
        Fence::Gone => "its object is gone".to_owned(),
        Fence::OtherNode(node) => format!("it belongs to node {node:?}"),
        Fence::Replaced(uid) => format!("another block has its name, with UID {uid}"),
        Fence::Changed => "its networks have changed".to_owned(),
        Fence::Returned => "it was returned".to_owned(),
        Fence::Before => "it was given up before tenured was started".to_owned(),
    }
}
