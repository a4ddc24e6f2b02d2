//! The scene of egress: pods ask a server outside of the cluster which address it sees, with and without the annotation that
//! names an Egress.
//!
//! The controller creates what runs the gateway. The demo does what is missing here: it starts the gateway's pod as a kubelet
//! would, and gives the Service an address. There is no kube-proxy, so that is the address of the one gateway.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod as PodObject, Service};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::egress::{ANNOTATION_PREFIX, EgressSpec};
use tenure_api::coil::{AddressPool, AddressPoolSpec, Egress, SubnetSet};
use tenure_handles::{Clock, SystemClock};
use tenure_linux::netns::NetNs;
use tenure_linux::route::Route;

use super::host::Pod;
use super::lab::{Lab, until_async};
use super::screen::{Screen, took};

/// The namespace of the gateway, and its pool.
const NAMESPACE: &str = "internet";
const EGRESS: &str = "nat";
/// The hosts of the clients and of the gateway.
const CLIENTS: usize = 0;
const GATEWAY: usize = 1;
/// The server outside.
const OUTSIDE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 100)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x100)),
];
const PORT: u16 = 7;
/// How long an answer may take before the question is asked again.
const ANSWER: Duration = Duration::from_millis(50);
/// The routes of the server outside: in the main table, as people make them.
const MAIN_TABLE: u32 = 254;
const STATIC: u8 = 4;

/// Plays it, or says why it cannot be played here.
pub(crate) async fn leave_by_a_gateway(lab: &mut Lab, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step("Ask a server outside which address it sees, from pods with and without an Egress.")?;
    let datapath = match datapath(lab).await? {
        Ok(datapath) => datapath,
        Err(reason) => return screen.say(&format!("Left out: {reason}.")),
    };
    let outside = Outside::start(lab)?;
    let scene = Scene { lab, outside };
    let (gateway, mut program) = scene.start_gateway().await?;
    screen.say(&format!(
        "The controller has created Deployment, Service and account of Egress {NAMESPACE}/{EGRESS}. Its gateway {} has {}; \
         datapath: {datapath}.",
        gateway.name,
        list(&gateway.addresses)
    ))?;
    let client = scene.start_pod("client", Some(EGRESS)).await?;
    let plain = scene.start_pod("plain", None).await?;
    let mut rows = Vec::new();
    rows.push(scene.row(&client, "has it", &gateway.addresses, &[]).await?);
    rows.push(scene.row(&plain, "does not have it", &plain.addresses, &[]).await?);
    scene.annotate("plain", Some(EGRESS)).await?;
    let began = SystemClock.elapsed();
    // Until its agent knows of the annotation, it appears as itself.
    let row = scene.row(&plain, "gets it while it runs", &gateway.addresses, &plain.addresses);
    rows.push(row.await?);
    let followed = SystemClock.elapsed().saturating_sub(began);
    screen.table(["POD", "ANNOTATION", "ITS ADDRESSES", "SEEN OUTSIDE"], rows)?;
    screen
        .say(&format!("The running pod was seen as the gateway {} after its annotation.", took(followed)))?;
    screen.say(&format!("The Egress says: {}.", scene.until_it_serves(&gateway).await?))?;
    for (host, namespace, pod) in
        [(CLIENTS, "default", client), (CLIENTS, "default", plain), (GATEWAY, NAMESPACE, gateway)]
    {
        scene.end(host, namespace, &pod).await?;
    }
    program.kill().and_then(|()| program.wait()).context("cannot end the gateway's program")?;
    Ok(())
}

/// The datapath of the hosts, or why there is none.
async fn datapath(lab: &Lab) -> Result<Result<String, String>> {
    let mut found = None;
    until_async("the agents to say how they do egress", async || {
        let node = lab.source().agents.one(&lab.hosts[GATEWAY].name).await.map_err(anyhow::Error::msg)?;
        let egress = node.egress.context("the agent does no egress")?;
        found = match (egress.datapath, egress.reason) {
            (datapath, _) if !datapath.is_empty() => Some(Ok(datapath)),
            (_, reason) if !reason.is_empty() => Some(Err(reason)),
            _ => None,
        };
        Ok(found.is_some())
    })
    .await?;
    found.context("nobody knows the datapath")
}

/// A server that tells everyone their address.
struct Outside {
    namespace: NetNs,
    stop: Arc<AtomicBool>,
}

impl Outside {
    fn start(lab: &mut Lab) -> Result<Self> {
        let namespace = NetNs::make()?;
        let [v4, v6] = OUTSIDE;
        lab.connect(&namespace, &[IpNet::new(v4, 24)?, IpNet::new(v6, 64)?])?;
        let stop = Arc::new(AtomicBool::new(false));
        for address in OUTSIDE {
            let socket = namespace.run(|| UdpSocket::bind((address, PORT)))?.context("cannot answer")?;
            socket.set_read_timeout(Some(ANSWER)).context("cannot set a socket's timeout")?;
            let stopped = Arc::clone(&stop);
            let answer = move || {
                while !stopped.load(Ordering::Relaxed) {
                    let Ok((_, from)) = socket.recv_from(&mut [0; 8]) else { continue };
                    // Who cannot be reached asks again.
                    let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
                }
            };
            std::thread::Builder::new()
                .name("outside".into())
                .spawn(answer)
                .context("cannot start a thread")?;
        }
        Ok(Self { namespace, stop })
    }

    /// Leads to a pod through its host, as a router between them would.
    fn route_to(&self, pod: &Pod, host: [IpNet; 2]) -> Result<()> {
        let route = |address: &IpAddr| {
            let router = host.iter().find(|net| net.addr().is_ipv4() == address.is_ipv4());
            let router = router.context("a host has an address of each family")?.addr();
            Ok(Route::through((*address).into(), router, MAIN_TABLE, STATIC).put())
        };
        let routes: Vec<_> = pod.addresses.iter().map(route).collect::<Result<_>>()?;
        Ok(self.namespace.socket()?.apply(&routes)?)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The lab, and the server outside of it.
struct Scene<'a> {
    lab: &'a Lab,
    outside: Outside,
}

impl Scene<'_> {
    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.lab.client.clone(), namespace)
    }

    /// A pool, a namespace that uses it, an Egress there, and the one gateway that its Deployment asks for.
    async fn start_gateway(&self) -> Result<(Pod, Child)> {
        let (client, plain) = (&self.lab.client, PostParams::default());
        let subnet =
            SubnetSet { ipv4: Some("203.0.113.16/28".into()), ipv6: Some("2001:db8:f::10/124".into()) };
        let spec = AddressPoolSpec { block_size_bits: 0, subnets: vec![subnet], ..Default::default() };
        let pools: Api<AddressPool> = Api::all(client.clone());
        pools.create(&plain, &AddressPool::new(NAMESPACE, spec)).await.context("cannot create a pool")?;
        let namespace: Namespace = serde_json::from_value(
            json!({"metadata": {"name": NAMESPACE, "annotations": {"coil.cybozu.com/pool": NAMESPACE}}}),
        )?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&plain, &namespace).await.context("cannot create a namespace")?;
        let destinations = OUTSIDE.map(|address| IpNet::from(address).to_string());
        let spec: EgressSpec = serde_json::from_value(json!({"destinations": destinations, "replicas": 1}))?;
        let egress = Egress::new(EGRESS, spec);
        self.api(NAMESPACE).create(&plain, &egress).await.context("cannot create an Egress")?;

        let (deployments, services): (Api<Deployment>, Api<Service>) =
            (self.api(NAMESPACE), self.api(NAMESPACE));
        let mut labels = None;
        until_async("the controller to create what runs the gateway", async || {
            let there = services.get_opt(EGRESS).await?.is_some();
            let deployment = deployments.get_opt(EGRESS).await?.and_then(|it| it.spec);
            labels = deployment.and_then(|spec| spec.template.metadata?.labels);
            Ok(there && labels.is_some())
        })
        .await?;
        let metadata = json!({"name": "nat-1", "labels": labels});
        let gateway = self.start(GATEWAY, NAMESPACE, &metadata).await?;
        let own = json!({"spec": {"clusterIP": gateway.addresses.first(), "clusterIPs": gateway.addresses}});
        services
            .patch(EGRESS, &PatchParams::default(), &Patch::Merge(own))
            .await
            .context("cannot give the Service an address")?;
        let program = self.lab.start_gateway(&gateway, EGRESS)?;
        Ok((gateway, program))
    }

    /// Starts a pod that may ask.
    async fn start_pod(&self, name: &str, egress: Option<&str>) -> Result<Pod> {
        let annotations = egress.map(|egress| json!({annotation(): egress}));
        self.start(CLIENTS, "default", &json!({"name": name, "annotations": annotations})).await
    }

    /// Starts a pod as a scheduler, a kubelet and a runtime would.
    async fn start(&self, host: usize, namespace: &str, metadata: &Value) -> Result<Pod> {
        let host = &self.lab.hosts[host];
        let pods: Api<PodObject> = self.api(namespace);
        let object: PodObject = serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"nodeName": host.name, "containers": [{"name": "main", "image": "none"}]},
        }))?;
        let object = pods.create(&PostParams::default(), &object).await.context("cannot create a pod")?;
        let name = object.name_any();
        let mut pod = host.make_pod(&name)?;
        namespace.clone_into(&mut pod.kubernetes_namespace);
        pod.uid = object.uid();
        until_async("a pod's addresses", async || host.add_or_wait(&mut pod)).await?;
        let ips: Vec<Value> = pod.addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"status": {"phase": "Running", "podIP": pod.addresses.first(), "podIPs": ips}});
        let written = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await;
        written.context("cannot write a pod's status")?;
        self.outside.route_to(&pod, host.addresses)?;
        Ok(pod)
    }

    async fn annotate(&self, pod: &str, egress: Option<&str>) -> Result<()> {
        let pods: Api<PodObject> = self.api("default");
        let patch = Patch::Merge(json!({"metadata": {"annotations": {annotation(): egress}}}));
        pods.patch(pod, &PatchParams::default(), &patch).await.context("cannot annotate a pod")?;
        Ok(())
    }

    /// Asks until the server outside has seen a pod as `expected`; returns a row for the table. At first it may also see it as
    /// `before`, and never as anything else.
    async fn row(
        &self,
        pod: &Pod,
        annotation: &str,
        expected: &[IpAddr],
        before: &[IpAddr],
    ) -> Result<[String; 4]> {
        let name = &pod.name;
        for (server, expected) in OUTSIDE.into_iter().zip(expected) {
            until_async(&format!("{name} to be seen as {expected}"), async || {
                let Some(seen) = ask(&pod.namespace, server)? else { return Ok(false) };
                ensure!(seen == *expected || before.contains(&seen), "{name} is seen as {seen}");
                Ok(seen == *expected)
            })
            .await?;
        }
        Ok([name.clone(), annotation.to_owned(), list(&pod.addresses), list(expected)])
    }

    /// What the Egress says once its Deployment says that the gateway is ready.
    async fn until_it_serves(&self, gateway: &Pod) -> Result<String> {
        let (deployments, egresses): (Api<Deployment>, Api<Egress>) =
            (self.api(NAMESPACE), self.api(NAMESPACE));
        let status = json!({"status": {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}});
        deployments
            .patch_status(EGRESS, &PatchParams::default(), &Patch::Merge(status))
            .await
            .context("cannot write a Deployment's status")?;
        let mut said = String::new();
        until_async("the Egress to say that it serves", async || {
            let status = egresses.get(EGRESS).await?.status.unwrap_or_default();
            let ready = status.condition("Ready").filter(|ready| ready.status == "True");
            let all = gateway.addresses.iter().all(|it| status.addresses.contains(&it.to_string()));
            said = ready
                .map(|ready| format!("{}, as {}", ready.message, status.addresses.join(", ")))
                .unwrap_or_default();
            Ok(all && !said.is_empty())
        })
        .await?;
        Ok(said)
    }

    async fn end(&self, host: usize, namespace: &str, pod: &Pod) -> Result<()> {
        let pods: Api<PodObject> = self.api(namespace);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&pod.name, &at_once).await.context("cannot delete a pod")?;
        self.lab.hosts[host].end_pod(pod)?;
        Ok(())
    }
}

fn annotation() -> String {
    format!("{ANNOTATION_PREFIX}{NAMESPACE}")
}

/// Asks once; nothing if there is no answer in time.
fn ask(namespace: &NetNs, server: IpAddr) -> Result<Option<IpAddr>> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = namespace.run(|| UdpSocket::bind((any, 0)))?.context("cannot ask")?;
    socket.set_read_timeout(Some(ANSWER)).context("cannot set a socket's timeout")?;
    let mut buffer = [0; 64];
    let asked = socket.send_to(b"?", SocketAddr::new(server, PORT)).and_then(|_| socket.recv(&mut buffer));
    let Ok(length) = asked else { return Ok(None) };
    let text = std::str::from_utf8(&buffer[..length]).context("cannot understand the answer")?;
    Ok(Some(text.parse().context("cannot understand the answer")?))
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
