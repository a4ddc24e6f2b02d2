//! Pods with annotations, Egresses with Services, and what the API has of clients and events.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use k8s_openapi::api::core::v1::{Event, Pod as PodObject, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{Egress, EgressClients};
use tenure_tests::agent::{Called, Cluster, Machine, Pod};
use tenure_tests::reference;

/// The annotation for Egresses of a namespace.
pub fn annotation(namespace: &str) -> String {
    format!("egress.coil.cybozu.com/{namespace}")
}

/// A machine, and a namespace of Kubernetes for its pods and Egresses.
pub struct Bed<'a> {
    pub machine: Machine<'a>,
    pub namespace: String,
}

impl<'a> Bed<'a> {
    pub fn new(cluster: &'a Cluster, arguments: &[&str]) -> Self {
        let mut machine = Machine::new(cluster);
        machine.arguments = arguments.iter().map(|&it| it.to_owned()).collect();
        machine.start();
        let namespace = format!("egress-of-{}", machine.name);
        cluster.namespace(&namespace, None);
        Self { machine, namespace }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.machine.cluster.client.clone(), &self.namespace)
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T, kube::Error>>) -> T {
        self.machine.cluster.runtime.block_on(future).unwrap()
    }

    /// Makes an Egress with its Service.
    pub fn egress(&self, name: &str, destinations: &[&str]) -> Vec<String> {
        let spec = serde_json::from_value(json!({"destinations": destinations})).unwrap();
        let (egresses, plain) = (self.api::<Egress>(), PostParams::default());
        self.wait(egresses.create(&plain, &Egress::new(name, spec)));
        self.service(name)
    }

    /// Makes the Service of an Egress: its `ClusterIPs`.
    pub fn service(&self, name: &str) -> Vec<String> {
        let labels = json!({"app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress"});
        let service = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"ports": [{"port": 5555, "protocol": "UDP"}], "ipFamilyPolicy": "PreferDualStack"},
        });
        let service: Service = serde_json::from_value(service).unwrap();
        let made = self.wait(self.api::<Service>().create(&PostParams::default(), &service));
        made.spec.unwrap().cluster_ips.unwrap()
    }

    pub fn change_egress(&self, name: &str, spec: &Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.wait(self.api::<Egress>().patch(name, &PatchParams::default(), &patch));
    }

    pub fn delete_service(&self, name: &str) {
        self.wait(self.api::<Service>().delete(name, &DeleteParams::default()));
    }

    pub fn delete_egress(&self, name: &str) {
        self.wait(self.api::<Egress>().delete(name, &DeleteParams::default()));
    }

    /// Makes a pod of this node that names Egresses of the namespace, and its object.
    pub fn pod(&self, name: &str, egresses: Option<&str>) -> (Pod, String) {
        let annotations = egresses.map(|names| json!({annotation(&self.namespace): names}));
        let object = self.object(name, &json!({"annotations": annotations}), &json!({}));
        (self.machine.pod_in(&self.namespace, name), object.uid().unwrap())
    }

    /// Makes the object of a pod.
    pub fn object(&self, name: &str, metadata: &Value, spec: &Value) -> PodObject {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": self.machine.name, "containers": [{"name": "c", "image": "none"}]},
        });
        let merge = |into: &mut Value, from: &Value| {
            for (key, value) in from.as_object().unwrap() {
                into[key] = value.clone();
            }
        };
        merge(&mut object["metadata"], metadata);
        merge(&mut object["spec"], spec);
        let object: PodObject = serde_json::from_value(object).unwrap();
        self.wait(self.api::<PodObject>().create(&PostParams::default(), &object))
    }

    pub fn annotate(&self, pod: &str, egresses: Option<&str>) {
        let patch =
            Patch::Merge(json!({"metadata": {"annotations": {annotation(&self.namespace): egresses}}}));
        self.wait(self.api::<PodObject>().patch(pod, &PatchParams::default(), &patch));
    }

    pub fn call(&self, verb: &str, (pod, uid): &(Pod, String), config: &Value) -> Called {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={uid}",
            pod.namespace, pod.name
        );
        self.machine.exec(verb, &pod.container, &pod.path, &args, config)
    }

    pub fn add(&self, pod: &(Pod, String)) -> Called {
        self.call("ADD", pod, &tenure_tests::agent::config())
    }

    /// The UID of a pod that is there.
    pub fn uid(&self, pod: &str) -> String {
        self.wait(self.api::<PodObject>().get(pod)).uid().unwrap()
    }

    /// A metric of the agent, by its name and labels.
    pub fn metric(&self, name: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.machine.file("state.sock")).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: node\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (_, page) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(reference::metrics::wrong(page), Vec::<String>::new());
        page.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
    }

    /// The clients that this node says an Egress has: pod and addresses.
    pub fn clients(&self, egress: &str) -> Vec<(String, Vec<String>)> {
        let of_egress = ListParams::default().labels(&EgressClients::of_egress(egress));
        let found = self.wait(self.api::<EgressClients>().list(&of_egress));
        let clients = found.items.into_iter().flat_map(|object| object.spec.clients);
        clients.map(|client| (client.pod, client.addresses)).collect()
    }

    /// The reasons of events about a pod.
    pub fn events(&self, pod: &str) -> Vec<(String, String)> {
        let about = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        let found = self.wait(self.api::<Event>().list(&about));
        let texts = |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        found.items.into_iter().map(texts).collect()
    }
}
