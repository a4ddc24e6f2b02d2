//! Where it all happens: the hosts, and the API, whose answers are waited for also while it is down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod as PodObject, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::coil::{Egress, EgressClients};
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::objects::ask;

use crate::plan::{EGRESSES, Named, destinations};

/// The namespace of Egresses and gateways.
pub const INTERNET: &str = "internet";
/// The namespace of clients.
pub const CLIENTS: &str = "default";

/// A client of an Egress, as an object lists it: node, UID of the pod, addresses.
pub type Listed = (String, String, BTreeSet<IpAddr>);

/// The hosts, the API, and what was promised.
pub struct ChaosBed<'a> {
    pub cluster: &'a Cluster,
    pub machines: &'a [Machine<'a>],
    /// Pods by UID, and the Egresses that each has ever named.
    named: Mutex<BTreeMap<String, Named>>,
    /// Which destinations each Egress has.
    choices: Mutex<[usize; 2]>,
    wrong: Mutex<Vec<String>>,
}

impl<'a> ChaosBed<'a> {
    pub fn new(cluster: &'a Cluster, machines: &'a [Machine<'a>]) -> Self {
        let (named, choices, wrong) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { cluster, machines, named, choices, wrong }
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    /// Something happened that must not.
    pub fn blame(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the object of a pod on a node: its UID.
    pub fn make_pod(&self, namespace: &str, name: &str, node: usize, metadata: &Value) -> String {
        let mut pod = json!({
            "metadata": metadata,
            "spec": {"nodeName": self.machines[node].name, "containers": [{"name": "c", "image": "none"}]},
        });
        pod["metadata"]["name"] = json!(name);
        let pod: PodObject = serde_json::from_value(pod).unwrap();
        let pods = self.api::<PodObject>(namespace);
        let made = ask(self.cluster, &[409], async || pods.create(&PostParams::default(), &pod).await);
        // A call before this one may have been answered to nobody.
        let made = made.or_else(|| ask(self.cluster, &[404], async || pods.get(name).await));
        made.and_then(|pod| pod.uid()).expect("a pod that was made")
    }

    pub fn delete_pod(&self, namespace: &str, name: &str) {
        let (pods, now) = (self.api::<PodObject>(namespace), DeleteParams::default().grace_period(0));
        ask(self.cluster, &[404], async || pods.delete(name, &now).await);
    }

    /// A pod is going to name these.
    pub fn will_name(&self, uid: &str, named: Named) {
        *self.named.lock().unwrap_or_else(PoisonError::into_inner).entry(uid.to_owned()).or_default() |=
            named;
    }

    pub fn annotate(&self, name: &str, named: Named) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations(named)}}));
        let pods = self.api::<PodObject>(CLIENTS);
        let plain = PatchParams::default();
        ask(self.cluster, &[], async || pods.patch(name, &plain, &patch).await);
    }

    /// Makes an Egress as it is to be now.
    pub fn make_egress(&self, egress: usize) {
        let choice = self.choice(egress);
        let spec = json!({"destinations": destinations(egress, choice), "replicas": 1});
        let object = Egress::new(EGRESSES[egress], serde_json::from_value(spec).unwrap());
        let egresses = self.api::<Egress>(INTERNET);
        ask(self.cluster, &[409], async || egresses.create(&PostParams::default(), &object).await);
    }

    pub fn delete_egress(&self, egress: usize) {
        let egresses = self.api::<Egress>(INTERNET);
        let plain = DeleteParams::default();
        ask(self.cluster, &[404], async || egresses.delete(EGRESSES[egress], &plain).await);
    }

    pub fn delete_service(&self, egress: usize) {
        let services = self.api::<Service>(INTERNET);
        let plain = DeleteParams::default();
        ask(self.cluster, &[404], async || services.delete(EGRESSES[egress], &plain).await);
    }

    pub fn choice(&self, egress: usize) -> usize {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)[egress]
    }

    /// Gives an Egress other destinations.
    pub fn choose(&self, egress: usize, choice: usize) {
        self.choices.lock().unwrap_or_else(PoisonError::into_inner)[egress] = choice;
        let patch = Patch::Merge(json!({"spec": {"destinations": destinations(egress, choice)}}));
        let egresses = self.api::<Egress>(INTERNET);
        let plain = PatchParams::default();
        ask(self.cluster, &[], async || egresses.patch(EGRESSES[egress], &plain, &patch).await);
    }

    /// The addresses of an Egress's Service.
    pub fn service(&self, egress: usize) -> Vec<IpAddr> {
        let services = self.api::<Service>(INTERNET);
        let found = ask(self.cluster, &[404], async || services.get(EGRESSES[egress]).await);
        let addresses = found.and_then(|service| service.spec?.cluster_ips).unwrap_or_default();
        addresses.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The clients that objects list, by Egress. Twice the same, or none at all in an object, is wrong.
    pub fn listed(&self) -> BTreeMap<String, BTreeSet<Listed>> {
        let mut found: BTreeMap<String, BTreeSet<Listed>> = BTreeMap::new();
        for object in self.list::<EgressClients>() {
            let egress = object.egress().unwrap_or_default().to_owned();
            for client in object.spec.clients {
                let addresses = client.addresses.iter().filter_map(|text| text.parse().ok()).collect();
                let listed = (object.spec.node_name.clone(), client.uid, addresses);
                found.entry(egress.clone()).or_default().insert(listed);
            }
        }
        found
    }

    /// That nobody is listed who never named the Egress. A pod may name one before it is known that it does.
    pub fn look(&self) {
        let listed = self.listed();
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (number, egress) in EGRESSES.iter().enumerate() {
            for (node, uid, addresses) in listed.get(*egress).into_iter().flatten() {
                if named.get(uid).is_none_or(|named| named & (1 << number) == 0) {
                    self.blame(format!(
                        "{node} lists {uid} {addresses:?}, which never named Egress {egress}"
                    ));
                }
            }
        }
    }

    /// Does what Kubernetes does: what an Egress owned that is gone goes, too.
    pub fn collect(&self) {
        let living: BTreeSet<String> = self.list::<Egress>().iter().filter_map(ResourceExt::uid).collect();
        self.collect_kind::<Service>(&living);
        self.collect_kind::<Deployment>(&living);
        self.collect_kind::<ServiceAccount>(&living);
        self.collect_kind::<Role>(&living);
        self.collect_kind::<RoleBinding>(&living);
        self.collect_kind::<EgressClients>(&living);
    }

    /// What belongs to Egresses, by kind and name.
    pub fn children(&self) -> Vec<String> {
        [
            names::<Service>(&self.list()),
            names::<Deployment>(&self.list()),
            names::<ServiceAccount>(&self.list()),
            names::<Role>(&self.list()),
            names::<RoleBinding>(&self.list()),
            names::<EgressClients>(&self.list()),
        ]
        .concat()
    }

    fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned,
        K: std::fmt::Debug,
    {
        let api = self.api::<K>(INTERNET);
        let all = ListParams::default();
        ask(self.cluster, &[], async || api.list(&all).await).map(|list| list.items).unwrap_or_default()
    }

    fn collect_kind<K>(&self, living: &BTreeSet<String>)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned,
        K: std::fmt::Debug,
    {
        let (api, plain) = (self.api::<K>(INTERNET), DeleteParams::default());
        for object in self.list::<K>() {
            let owners = object.owner_references();
            if !owners.is_empty() && owners.iter().all(|owner| !living.contains(&owner.uid)) {
                let name = object.name_any();
                ask(self.cluster, &[404], async || api.delete(&name, &plain).await);
            }
        }
    }
}

fn names<K: Resource<DynamicType = ()>>(objects: &[K]) -> Vec<String> {
    let owned = objects.iter().filter(|object| !object.owner_references().is_empty());
    owned.map(|object| format!("{} {}", K::kind(&()), object.name_any())).collect()
}

/// The annotations of a pod that names these.
pub fn annotations(named: Named) -> Value {
    let texts: Vec<&str> =
        (0..EGRESSES.len()).filter(|it| named & (1 << it) != 0).map(|it| EGRESSES[it]).collect();
    let text = (!texts.is_empty()).then(|| texts.join(","));
    json!({format!("egress.coil.cybozu.com/{INTERNET}"): text})
}
