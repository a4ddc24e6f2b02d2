//! Shared by the test beds of this crate: waiting, an executor that commits at once, and a controller that tells nodes of their slices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tenure_api::whereabouts::{IPPool, NodeSlicePool, label};
use tenure_whereabouts::ledger::{PoolId, State};
use tenure_whereabouts::slices::{GIVEN, Given, Told, network_of, retold};

use crate::drive::{Executor, Handle};
use crate::journal::{Image, Record};
use crate::node::{Action, Event};
use crate::sources::BlockSource as _;
use crate::whereabouts::slices::Slices;

/// Much longer than anything takes, even on a busy machine.
pub(crate) const SOON: Duration = tenure_testbed::wait::PATIENCE;

/// Waits long enough for something wrong to happen.
pub(crate) async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// Waits for a value, with a limit.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, looking).await.unwrap_or_else(|_| panic!("waited {SOON:?} for {what}"))
}

/// The executor of a node that has only slices: commits everything at once and reports what changed.
pub(crate) struct Obedient {
    pub(crate) node: Handle,
    pub(crate) slices: Slices,
    pub(crate) journal: Arc<Mutex<Image>>,
    pub(crate) position: u64,
}

impl Executor for Obedient {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        for record in records {
            let uid = record.block().to_owned();
            self.journal.lock().unwrap().apply(record);
            self.slices.recorded(&uid);
        }
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        assert!(
            !matches!(
                action,
                Action::AskForBlock { .. } | Action::ReturnBlock { .. } | Action::KeepBlock { .. }
            ),
            "nobody is asked for slices: {action:?}"
        );
    }
}

/// What the controller does: tells a node of its slices in their own `IPPool`s.
pub(crate) async fn tell(client: &Client, namespace: &str, node: &str) {
    let pools: Api<NodeSlicePool> = Api::namespaced(client.clone(), namespace);
    let records: Api<IPPool> = Api::namespaced(client.clone(), namespace);
    let mut wanted: BTreeMap<String, (PoolId, Given)> = BTreeMap::new();
    for pool in pools.list(&ListParams::default()).await.unwrap().items {
        if let Some(slice) = pool.slice_of(node) {
            let id = PoolId::of_node(&network_of(&pool), node, slice.parse().unwrap());
            wanted.insert(id.name().unwrap(), (id, Given::of(&pool)));
        }
    }
    for record in records.list(&ListParams::default()).await.unwrap().items {
        let (name, owned) = (record.name_any(), State::of(&record) == State::Owned);
        let is_own = record.labels().get(label::NODE).is_some_and(|of| of == node);
        let says = match Told::by(&record) {
            Told::Given(_) => true,
            Told::Nothing => owned,
            Told::Withdrawn => false,
        };
        let patch = match wanted.remove(&name) {
            Some((_, given)) if Told::by(&record) == Told::Given(given.clone()) => continue,
            Some((id, given)) => retold(&id, Some(&given)).unwrap(),
            None if is_own && says => {
                if !owned && record.spec.allocations.is_empty() {
                    drop(records.delete(&name, &DeleteParams::default()).await);
                    continue;
                }
                json!({"annotations": {GIVEN: ""}})
            }
            None => continue,
        };
        // The agent may delete it just now.
        let patch = Patch::Merge(json!({"metadata": patch}));
        drop(records.patch(&name, &PatchParams::default(), &patch).await);
    }
    for (id, given) in wanted.into_values() {
        records.create(&PostParams::default(), &given.object(&id).unwrap()).await.unwrap();
    }
}
