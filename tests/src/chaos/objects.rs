//! Trouble with objects in the API, by those who may: nodes are deleted and made again while their containers run, and pools
//! grow into each other. The API may be down; then it is asked again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::AddressPool;
use tenure_testbed::wait::PATIENCE;

use super::course::{Moment, now};
use crate::agent::{Cluster, Machine};

/// No answer takes longer than this from a server that is there.
const ANSWER: Duration = Duration::from_secs(5);

/// How often something went wrong, by what: a fault that never happened proves nothing.
#[derive(Default)]
pub struct Struck {
    counted: Mutex<BTreeMap<&'static str, usize>>,
    forgot: Mutex<Vec<Forgot>>,
}

/// An agent was started that had lost its journal.
struct Forgot {
    node: usize,
    at: Moment,
    /// The routes to pods that were there.
    routes: BTreeSet<String>,
}

impl Struck {
    pub fn count(&self, what: &'static str) {
        self.count_all(what, 1);
    }

    pub fn count_all(&self, what: &'static str, times: usize) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += times;
    }

    /// All of it.
    pub fn counted(&self) -> BTreeMap<&'static str, usize> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The agent of this node lost its journal, and is started again; these routes to pods are there.
    pub fn forgets(&self, node: usize, routes: BTreeSet<String>) {
        let forgot = Forgot { node, at: now(), routes };
        self.forgot.lock().unwrap_or_else(PoisonError::into_inner).push(forgot);
    }

    /// Whether the agent of this node has lost a journal since then.
    pub fn has_forgotten(&self, node: usize, since: Moment) -> bool {
        self.forgot_routes(node, since).is_some()
    }

    /// The routes to pods that were there when the agent of this node last lost a journal, if it has since then.
    pub fn forgot_routes(&self, node: usize, since: Moment) -> Option<BTreeSet<String>> {
        let forgot = self.forgot.lock().unwrap_or_else(PoisonError::into_inner);
        forgot.iter().rfind(|it| it.node == node && it.at >= since).map(|it| it.routes.clone())
    }

    /// That each of these happened.
    #[track_caller]
    pub fn assert_each(&self, expected: &[&str]) {
        let counted = self.counted();
        for what in expected {
            assert!(counted.get(what).is_some_and(|count| *count > 0), "{what}: never, of {counted:?}");
        }
    }
}

/// Asks until there is an answer, or a refusal that stays one: these codes.
pub fn ask<T, F: Future<Output = kube::Result<T>>>(
    cluster: &Cluster,
    finally: &[u16],
    act: impl Fn() -> F,
) -> Option<T> {
    let began = now();
    loop {
        match cluster.runtime.block_on(async { tokio::time::timeout(ANSWER, act()).await }) {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(kube::Error::Api(status))) if finally.contains(&status.code) => return None,
            other => {
                let problem = other.map(|it| it.err().map(|error| error.to_string()));
                assert!(now().saturating_sub(began) < PATIENCE, "waited {PATIENCE:?}: {problem:?}");
            }
        }
        sleep(Duration::from_millis(100));
    }
}

/// Deletes the object of a node, and makes another of that name later: with another UID, and the same addresses.
pub fn remove_node(cluster: &Cluster, machine: &Machine<'_>, lasts: Duration, struck: &Struck) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let Some(before) = ask(cluster, &[404], async || nodes.get(&machine.name).await) else { return };
    ask(cluster, &[404], async || nodes.delete(&machine.name, &DeleteParams::default()).await);
    sleep(lasts);
    let labels = before.labels();
    let node = json!({"metadata": {"name": machine.name, "labels": labels}});
    let node: Node = serde_json::from_value(node).unwrap();
    ask(cluster, &[409], async || nodes.create(&PostParams::default(), &node).await);
    let addresses = machine.addresses.map(|address| json!({"type": "InternalIP", "address": address}));
    let status = Patch::Merge(json!({"status": {"addresses": addresses}}));
    let after =
        ask(cluster, &[], async || nodes.patch_status(&machine.name, &PatchParams::default(), &status).await);
    if after.is_some_and(|after| after.uid() != before.uid()) {
        struck.count("nodes made again");
    }
}

/// Adds a subnet to a pool.
pub fn grow(cluster: &Cluster, pool: &str, subnet: &Value, struck: &Struck) {
    let pools = cluster.pools();
    let subnet = serde_json::from_value(subnet.clone()).unwrap();
    let grown = ask(cluster, &[422], async || {
        let mut now: AddressPool = pools.get(pool).await?;
        if !now.spec.subnets.contains(&subnet) {
            now.spec.subnets.push(subnet.clone());
            now = pools.replace(pool, &PostParams::default(), &now).await?;
        }
        Ok(now)
    });
    assert!(grown.is_some(), "pool {pool} may not grow by {subnet:?}");
    struck.count("pools grown");
}
