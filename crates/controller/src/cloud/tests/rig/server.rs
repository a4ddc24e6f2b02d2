//! Performs writes as the API server would: with versions, finalizers and owners.

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, IPLedger};

use super::super::super::context::Planted;
use super::super::super::write::CloudWrite;
use super::Rig;

impl Rig {
    /// Performs a write. Returns whether it was done.
    pub(super) fn write(&mut self, write: &CloudWrite) -> bool {
        match write {
            CloudWrite::Create { ledger, .. } => {
                let owner = &ledger.owner_references()[0].uid;
                let stays = |pool: &AliasPool| {
                    pool.metadata.deletion_timestamp.is_none() && pool.metadata.uid.as_ref() == Some(owner)
                };
                let has_pool = self.pools.get(&ledger.spec.pool).is_some_and(stays);
                if self.ledgers.contains_key(&ledger.name_any()) || !has_pool {
                    return false;
                }
                self.store(ledger.as_ref().clone());
            }
            CloudWrite::Ledger { ledger, records, finalizers, missing, .. } => {
                let Some(known) = self.ledgers.get(&ledger.name) else { return false };
                let is_used = |node: &String| {
                    let bound = |pod: &Value| pod["spec"]["nodeName"] == json!(node);
                    self.nodes.contains_key(node) || self.pods.values().any(bound)
                };
                if known.resource_version().as_deref() != Some(&ledger.version) || missing.iter().any(is_used)
                {
                    return false;
                }
                let mut known = known.clone();
                known.spec.records.clone_from(records);
                known.metadata.finalizers = Some(finalizers.clone());
                self.store(known);
            }
            CloudWrite::Drop { ledger, finalizers, .. } => {
                let known = self.ledgers.get(&ledger.name);
                if known.and_then(ResourceExt::resource_version).as_deref() != Some(&ledger.version) {
                    return false;
                }
                assert!(finalizers.is_empty(), "nobody else has one");
                let known = self.ledgers.remove(&ledger.name).unwrap();
                self.world.observe(Event::Delete(known));
            }
            CloudWrite::Finalizers { pool, finalizers, last } => {
                let has_ledger = self.ledgers.values().any(|it| it.spec.pool == pool.name);
                let mut known = match self.pools.get(&pool.name) {
                    Some(known) if known.resource_version().as_deref() == Some(&pool.version) => {
                        known.clone()
                    }
                    _ => return false,
                };
                if *last && has_ledger && self.planted != Some(Planted::DropsPool) {
                    return false;
                }
                known.metadata.finalizers = Some(finalizers.clone());
                if *last {
                    self.pool_gone(&pool.name);
                    self.world.observe(Event::Delete(known));
                } else {
                    self.stamp(&mut known);
                    self.pools.insert(pool.name.clone(), known.clone());
                    self.world.observe(Event::Apply(known));
                }
            }
            CloudWrite::Node { node, status } => {
                let mut known = self.aliases[&node.name].clone();
                if known.resource_version().as_deref() != Some(&node.version) {
                    return false;
                }
                known.status = Some(status.as_ref().clone());
                self.stamp(&mut known);
                self.aliases.insert(node.name.clone(), known.clone());
                self.world.observe(Event::Apply(known));
            }
            CloudWrite::Forget { node } => {
                let known = self.aliases.get(&node.name);
                // A live read tells whether the node exists.
                if self.nodes.contains_key(&node.name)
                    || known.and_then(ResourceExt::resource_version).as_deref() != Some(&node.version)
                {
                    return false;
                }
                let known = self.aliases.remove(&node.name).unwrap();
                self.world.observe(Event::Delete(known));
            }
            CloudWrite::Pool { pool, status } => {
                let Some(mut known) = self.pools.get(&pool.name).cloned() else { return false };
                if known.resource_version().as_deref() != Some(&pool.version) {
                    return false;
                }
                known.status = Some(status.as_ref().clone());
                self.stamp(&mut known);
                self.pools.insert(pool.name.clone(), known.clone());
                self.world.observe(Event::Apply(known));
            }
            CloudWrite::Tell(wanted) => {
                self.driver.want(wanted);
                self.world.aliases_mut().note_told(wanted.clone());
            }
        }
        true
    }

    pub(in super::super) fn store(&mut self, mut ledger: IPLedger) {
        self.stamp(&mut ledger);
        self.ledgers.insert(ledger.name_any(), ledger.clone());
        self.world.observe(Event::Apply(ledger));
    }
}
