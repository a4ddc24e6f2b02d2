//! The scene of a cloud: a pod gets an alias address of its machine, and a pod on another machine takes the address over, while a client
//! asks who answers.
//!
//! The demo does what is missing here: it creates the pods' interfaces, as `ptp` does with an address of `gcp-ipam`.

use std::io::Write;
use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, annotation};
use tenure_linux::link::Link;
use tenure_linux::netns::NetNs;
use tenure_linux::route::Route;
use tenure_linux::segment::Segment;

use super::asking::{Answerer, Asking};
use super::cloud::{CIDR, Cloud, MAIN_TABLE, RANGE, STATIC};
use super::host::Pod;
use super::lab::{Lab, until_async};
use super::screen::{Screen, took};

/// The hosts of the pods and of the client.
const FROM: usize = 0;
const TO: usize = 1;
const CLIENT: usize = 2;
/// The least number of answers at each stage.
const SOME: u64 = 100;

/// Plays it.
pub(crate) async fn move_an_alias(lab: &mut Lab, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step(
        "The hosts are machines of a cloud (a fake of Google's). Move a pod's alias address to another machine.",
    )?;
    lab.cloud.carry_packets(&lab.hosts)?;
    let scene = Scene { lab, pods: Api::namespaced(lab.client.clone(), "default") };
    scene.make_pool().await?;
    let mut rows = Vec::new();
    let before = lab.cloud.updates();
    let source = scene.start("web-1", FROM, &json!({})).await?;
    let address = *source.pod.addresses.first().context("a pod has an address")?;
    let asking = Asking::begin(lab.hosts[CLIENT].namespace(), &[address])?;
    rows.push(scene.stage("web-1 is started", &asking, address, (before, FROM)).await?);
    let before = lab.cloud.updates();
    scene.annotate("web-1", annotation::MOVE_OUT, "true").await?;
    let wish = json!({annotation::ADDRESS: address.to_string(), annotation::ORIGINAL_INSTANCE: lab.hosts[FROM].name});
    let target = scene.start("web-2", TO, &wish).await?;
    rows.push(scene.stage("web-2 takes it over", &asking, address, (before, TO)).await?);
    ensure!(target.pod.addresses == source.pod.addresses, "web-2 has {:?}", target.pod.addresses);
    scene.end(source).await?;
    let before = lab.cloud.updates();
    rows.push(scene.stage("web-1 is deleted", &asking, address, (before, TO)).await?);
    let heard = asking.end()?;
    screen.table(["WHEN", "UPDATES OF THE CLOUD", "ALIAS IS ON", "ANSWERS COME FROM"], rows)?;
    screen.say(&format!(
        "The address is {address}, of IPPool {RANGE}. {} of {} questions were answered; the longest time between two answers was {}: \
         the cloud takes an alias off one machine before another gets it.",
        heard.answered(),
        heard.sent,
        took(heard.longest_gap)
    ))?;
    scene.end(target).await
}

struct Scene<'a> {
    lab: &'a Lab,
    pods: Api<PodObject>,
}

/// A pod that answers.
struct Running {
    host: usize,
    pod: Pod,
    _answers: Answerer,
    _cable: Segment,
}

impl Scene<'_> {
    /// A pool without a warm set, so that every update is one of these pods.
    async fn make_pool(&self) -> Result<()> {
        let pools: Api<AliasPool> = Api::all(self.lab.client.clone());
        let spec = json!({"cidr": CIDR, "subnet": Cloud::subnet(), "secondaryRangeName": RANGE, "warm": 0});
        let pool = AliasPool::new(RANGE, serde_json::from_value(spec)?);
        pools.create(&PostParams::default(), &pool).await.context("cannot create an IPPool")?;
        Ok(())
    }

    /// Starts a pod as a scheduler, a kubelet, a runtime and `ptp` would.
    async fn start(&self, name: &str, host: usize, annotations: &Value) -> Result<Running> {
        let machine = &self.lab.hosts[host];
        let object: PodObject = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": machine.name, "containers": [{"name": "main", "image": "none"}]},
        }))?;
        let object =
            self.pods.create(&PostParams::default(), &object).await.context("cannot create a pod")?;
        let mut pod = machine.make_pod(name)?;
        (pod.uid, pod.addresses_only) = (object.uid(), true);
        until_async("a pod's address", async || machine.add_or_wait(&mut pod)).await?;
        let address = *pod.addresses.first().context("a pod has an address")?;
        let status = json!({"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}});
        let written = self.pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        written.context("cannot write a pod's status")?;
        let cable = connect(name, machine.namespace(), &pod.namespace, address)?;
        let answers = Answerer::start(&pod.namespace, address, &machine.name)?;
        Ok(Running { host, pod, _answers: answers, _cable: cable })
    }

    async fn annotate(&self, pod: &str, key: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.pods.patch(pod, &PatchParams::default(), &patch).await.context("cannot annotate a pod")?;
        Ok(())
    }

    /// Waits until a host answers, and returns a row for the table, with the updates since `before`.
    async fn stage(
        &self,
        when: &str,
        asking: &Asking,
        address: IpAddr,
        (before, host): (usize, usize),
    ) -> Result<[String; 4]> {
        let name = &self.lab.hosts[host].name;
        let seen = asking.answers_of(name);
        until_async("answers", async || Ok(asking.answers_of(name) >= seen + SOME)).await?;
        let updates = self.lab.cloud.updates() - before;
        let alias = IpNet::from(address).to_string();
        let machine = self.lab.cloud.machine_of(&alias, &self.lab.hosts).unwrap_or_default();
        Ok([when.to_owned(), updates.to_string(), machine.to_owned(), name.clone()])
    }

    async fn end(&self, Running { host, pod, .. }: Running) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        self.pods.delete(&pod.name, &at_once).await.context("cannot delete a pod")?;
        self.lab.hosts[host].end_pod(&pod)?;
        Ok(())
    }
}

/// Connects a pod with its host, as `ptp` does: the host's end has the first address of the range, which is the pod's gateway.
fn connect(name: &str, host: &NetNs, pod: &NetNs, address: IpAddr) -> Result<Segment> {
    let gateway = IpAddr::V4(CIDR.parse::<Ipv4Net>()?.network());
    let mut cable = Segment::make()?;
    cable.connect(host, name, &[gateway.into()])?;
    cable.connect(pod, "eth0", &[address.into()])?;
    let (mut outside, mut inside) = (host.socket()?, pod.socket()?);
    let link = Link::by_name(&mut outside, name)?.context("the pod's link is gone")?.index;
    outside.apply(&[Route::on_link(address.into(), link, MAIN_TABLE, STATIC).put()])?;
    let link = Link::by_name(&mut inside, "eth0")?.context("the pod's link is gone")?.index;
    let default = Route::through("0.0.0.0/0".parse()?, gateway, MAIN_TABLE, STATIC);
    inside.apply(&[Route { link: Some(link), ..default }.put_on_link()])?;
    Ok(cable)
}
