//! Where it all happens: machines of a cloud, the API, whose answers are waited for also while it is down, and what was promised to pods.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ClusterResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, NodeAliases};
use tenure_handles::{Clock, SystemClock};
use tenure_testbed::compute::{Call, Fault, Harm};
use tenure_tests::agent::{Cluster, Machine};
use tenure_tests::chaos::course::now;
use tenure_tests::chaos::objects::{Struck, ask};
use tenure_tests::cloud::{Cloud, POOL, Promise};
use tenure_tests::moves::Network;

use crate::plan::Weather;

/// The zone of each node.
pub const ZONES: [&str; 3] = ["europe-west4-a", "europe-west4-b", "europe-west4-a"];
/// Where pods are.
pub const NAMESPACE: &str = "default";
/// Where thieves are.
pub const ELSEWHERE: &str = "elsewhere";
/// So many free addresses each node keeps ready.
pub const WARM: usize = 2;
/// How near the next minute has to be for a cloud that refuses until then.
const NEAR: u64 = 12_000;

/// The machines, the API, and what must not have happened.
pub struct ChaosBed<'a> {
    pub cluster: &'a Cluster,
    pub machines: &'a [Machine<'a>],
    pub cloud: &'a Cloud,
    pub network: &'a Network,
    promises: Mutex<Vec<Promise>>,
    wrong: Mutex<Vec<String>>,
    pub moves: AtomicUsize,
}

impl<'a> ChaosBed<'a> {
    pub fn new(
        cluster: &'a Cluster,
        machines: &'a [Machine<'a>],
        cloud: &'a Cloud,
        network: &'a Network,
    ) -> Self {
        let (promises, wrong, moves) = (Mutex::default(), Mutex::default(), AtomicUsize::new(0));
        Self { cluster, machines, cloud, network, promises, wrong, moves }
    }

    /// Something happened that must not.
    pub fn blame(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Promise>> {
        self.promises.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that pods were told so far.
    pub fn promises(&self) -> Vec<Promise> {
        self.kept().clone()
    }

    /// A pod was told an address.
    pub fn told(&self, pod: &str, node: usize, address: IpAddr) {
        let instance = self.machines[node].name.clone();
        self.kept().push(Promise { address, instance, pod: pod.to_owned(), told: now(), until: None });
    }

    /// A pod begins to end, or to move: from now on its address may go.
    pub fn ends(&self, pod: &str) {
        let moment = now();
        for promise in self.kept().iter_mut().filter(|it| it.pod == pod) {
            promise.until.get_or_insert(moment);
        }
    }

    pub fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    /// Makes a pod of this node. Its UID.
    pub fn make_pod(&self, namespace: &str, name: &str, node: usize, annotations: &Value) -> String {
        let pod = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": self.machines[node].name, "containers": [{"name": "c", "image": "i"}]},
        });
        let (pod, pods): (Pod, _) = (serde_json::from_value(pod).unwrap(), self.pods(namespace));
        ask(self.cluster, &[409], async || pods.create(&PostParams::default(), &pod).await);
        let made = ask(self.cluster, &[404], async || pods.get(name).await);
        made.and_then(|pod| pod.uid()).unwrap_or_default()
    }

    pub fn annotate(&self, pod: &str, annotations: &Value) {
        let (pods, patch) =
            (self.pods(NAMESPACE), Patch::Merge(json!({"metadata": {"annotations": annotations}})));
        ask(self.cluster, &[404], async || pods.patch(pod, &PatchParams::default(), &patch).await);
    }

    pub fn delete_pod(&self, namespace: &str, pod: &str) {
        let (pods, at_once) = (self.pods(namespace), DeleteParams::default().grace_period(0));
        ask(self.cluster, &[404], async || pods.delete(pod, &at_once).await);
    }

    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.cluster.client.clone());
        let found = ask(self.cluster, &[], async || api.list(&ListParams::default()).await);
        found.map(|list| list.items).unwrap_or_default()
    }

    /// Whether the agent of a node has said that an address leaves with its pod, or the controller has heard it.
    pub fn is_leaving(&self, node: usize, address: IpAddr) -> bool {
        let objects: Api<NodeAliases> = Api::all(self.cluster.client.clone());
        let object = ask(self.cluster, &[404], async || objects.get(&self.machines[node].name).await);
        object.is_some_and(|object| {
            let alias = object.status.as_ref().and_then(|it| it.aliases.get(&format!("{address}/32")));
            object.spec.leaving.contains_key(&address.to_string())
                || alias.is_some_and(|alias| alias.pod.is_some())
        })
    }

    /// Changes the pool.
    pub fn change_pool(&self, spec: &Value) {
        let pools: Api<AliasPool> = Api::all(self.cluster.client.clone());
        let patch = Patch::Merge(json!({"spec": spec}));
        ask(self.cluster, &[], async || pools.patch(POOL, &PatchParams::default(), &patch).await);
    }

    /// Lets the cloud do one thing after the other, each when so many steps are done, and until somebody met it.
    pub fn weather(&self, all: &[(usize, Weather)], done: &AtomicUsize, over: &AtomicBool, struck: &Struck) {
        let is_over = || over.load(Ordering::SeqCst);
        for (after, weather) in all {
            while done.load(Ordering::SeqCst) < *after && !is_over() {
                sleep(Duration::from_millis(10));
            }
            self.cloud.fake.harm(fault(*weather));
            while self.cloud.fake.harm_left() > 0 && !is_over() {
                sleep(Duration::from_millis(10));
            }
            if self.cloud.fake.harm_left() == 0 {
                struck.count(weather.name());
            }
            if let Weather::Endless(lasts) = weather {
                sleep(*lasts);
            }
            self.cloud.fake.calm();
        }
    }
}

fn fault(weather: Weather) -> Fault {
    let refused =
        |status, reason: &str, message: &str| Fault::refused(Call::UpdateInterface, status, reason, message);
    let failed = |code: &str, message: &str| Harm::FailedOperation {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    let harm = match weather {
        Weather::Stale => return refused(412, "conditionNotMet", "Invalid fingerprint."),
        Weather::NotReady => return refused(400, "resourceNotReady", "The resource is not ready"),
        // One of these keeps everybody waiting until the next minute, the other for five seconds.
        Weather::TooMany if 60_000 - SystemClock.now().as_millis() % 60_000 < NEAR => {
            return refused(403, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries'.");
        }
        Weather::TooMany => {
            return refused(403, "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "Too many operations.");
        }
        Weather::LostPoll => return Fault::refused(Call::GetOperation, 503, "backendError", "Not now."),
        Weather::LostRead => return Fault::once(Call::GetInstance, Harm::LostAnswer),
        Weather::LostRequest => Harm::LostRequest,
        Weather::LostAnswer => Harm::LostAnswer,
        Weather::Late(late) => Harm::Late(late),
        Weather::Endless(_) => Harm::Endless,
        Weather::Failed => failed("INTERNAL_ERROR", "Internal error."),
        Weather::InUse => {
            failed("IP_IN_USE_BY_ANOTHER_RESOURCE", "IP is already being used by another resource.")
        }
    };
    Fault::once(Call::UpdateInterface, harm)
}
