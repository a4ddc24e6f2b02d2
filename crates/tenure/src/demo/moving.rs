//! The scene of the move: the addresses of a "virtual machine" move with it to another host, while a client
//! counts its answers.
//!
//! The machine is a claim with pods: two of them have its addresses, and traffic arrives at one.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::claims::{DEFAULT_INTERFACE, IPAMClaim, IPAMClaimSpec, annotation};
use tenure_handles::{Clock, SystemClock};

use super::asking::{Answerer, Asking};
use super::host::{NETWORK, Pod};
use super::lab::{Lab, until_async};
use super::screen::{Screen, took};
use crate::table::Format;
use crate::who;

const NAMESPACE: &str = "default";
/// The claim of the machine.
const CLAIM: &str = "vm";
/// The least number of answers at each stage.
const SOME: u64 = 100;

/// The machine: a claim, and the pods that have it.
struct Machine<'a> {
    lab: &'a Lab,
    claims: Api<IPAMClaim>,
    pods: Api<PodObject>,
    addresses: Vec<IpAddr>,
}

/// A pod and its answerers.
struct Running {
    host: usize,
    pod: Pod,
    _answers: Vec<Answerer>,
}

/// Plays it; `client` is a pod on another host.
pub(crate) async fn move_a_machine(
    lab: &mut Lab,
    client: &Pod,
    screen: &mut Screen<'_, impl Write>,
) -> Result<()> {
    screen.step(
        "Move a \"virtual machine\" to another host while a client on a third one counts its answers.",
    )?;
    lab.let_addresses_outlive_pods();
    let began = SystemClock.elapsed();
    let machine = Machine::claim(lab).await?;
    let shown: Vec<String> = machine.addresses.iter().map(ToString::to_string).collect();
    screen.say(&format!(
        "The network has allowPersistentIPs. Claim {CLAIM} gets {} in {}, before there is any pod.",
        shown.join(", "),
        took(SystemClock.elapsed().saturating_sub(began))
    ))?;
    let mut rows = Vec::new();
    let source = machine.start("vm-1", 0).await?;
    let [from, to] = [0, 1].map(|host: usize| lab.hosts[host].name.clone());
    let asking = Asking::begin(&client.namespace, &machine.addresses)?;
    rows.push(machine.stage("vm-1 is started", &asking, ["vm-1", ""], &from).await?);
    let before = machine.who().await?;
    let target = machine.start("vm-2", 1).await?;
    rows.push(machine.stage("vm-2 is started", &asking, ["vm-1", "vm-2"], &from).await?);
    let said = machine.annotate("vm-2", annotation::ACTIVE, "1").await?;
    rows.push(machine.stage("vm-2 gets tenure/active", &asking, ["vm-2", "vm-1"], &to).await?);
    let first = asking.first_of(&to).context("nobody answers")?.saturating_sub(said);
    machine.end(source).await?;
    rows.push(machine.stage("vm-1 is deleted", &asking, ["vm-2", ""], &to).await?);
    let heard = asking.end()?;
    let after = machine.who().await?;
    screen.table(["WHEN", "ACTIVE", "INCOMING", "ANSWERS COME FROM"], rows)?;
    let answered = heard.answered();
    screen.say(&format!(
        "{answered} of {} questions were answered; the longest time between two answers was {}.",
        heard.sent,
        took(heard.longest_gap)
    ))?;
    screen.say(&format!("{to} answers {} after the annotation was asked for.", took(first)))?;
    ensure!(heard.answers.len() == 2, "others answered, too: {:?}", heard.answers);
    ensure!(answered * 10 >= heard.sent * 9, "many answers were lost in a move: {heard:?}");
    ensure!(before.contains("default/vm-1 on node node-a"), "{before}");
    ensure!(after.contains("default/vm-2 on node node-b"), "{after}");
    screen.say(&format!("`tenure who` before: {before}, after: {after}."))?;
    machine.end(target).await?;
    screen
        .say(&format!("No pod is left: {}.", machine.until_who_says("belongs to claim default/vm").await?))?;
    machine.claims.delete(CLAIM, &DeleteParams::default()).await.context("cannot delete the claim")?;
    screen.say(&format!("No claim is left: {}.", machine.until_who_says("cools in").await?))
}

impl<'a> Machine<'a> {
    /// Creates a claim, and waits for its addresses.
    async fn claim(lab: &'a Lab) -> Result<Self> {
        let client: &Client = &lab.client;
        let (claims, pods): (Api<IPAMClaim>, _) =
            (Api::namespaced(client.clone(), NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
        let spec = IPAMClaimSpec { network: NETWORK.to_owned(), interface: DEFAULT_INTERFACE.to_owned() };
        let claim = IPAMClaim::new(CLAIM, spec);
        claims.create(&PostParams::default(), &claim).await.context("cannot create a claim")?;
        let mut addresses = Vec::new();
        until_async("the claim's addresses", async || {
            let status = claims.get(CLAIM).await?.status.unwrap_or_default();
            let read = |ip: &String| Ok(ip.split('/').next().unwrap_or_default().parse()?);
            addresses = status.ips.iter().map(read).collect::<Result<_>>()?;
            Ok(!addresses.is_empty())
        })
        .await?;
        ensure!(addresses.len() == 2, "a claim has {addresses:?}");
        Ok(Self { lab, claims, pods, addresses })
    }

    /// Starts a pod with the claim on a host, as a scheduler, a kubelet and a runtime would.
    async fn start(&self, name: &str, host: usize) -> Result<Running> {
        let node = &self.lab.hosts[host];
        let object: PodObject = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {annotation::CLAIM: CLAIM}},
            "spec": {"nodeName": node.name, "containers": [{"name": "machine", "image": "none"}]},
        }))?;
        let object =
            self.pods.create(&PostParams::default(), &object).await.context("cannot create a pod")?;
        let mut pod = node.make_pod(name)?;
        pod.uid = object.uid();
        until_async("the pod's addresses", async || node.add_or_wait(&mut pod)).await?;
        ensure!(pod.addresses == self.addresses, "{name} has {:?}", pod.addresses);
        let ips: Vec<Value> = pod.addresses.iter().map(|ip| json!({"ip": ip})).collect();
        let status = json!({"status": {"phase": "Running", "podIP": pod.addresses.first(), "podIPs": ips}});
        let written = self.pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await;
        written.context("cannot write a pod's status")?;
        let answer = |address: &IpAddr| Answerer::start(&pod.namespace, *address, &node.name);
        let answers = pod.addresses.iter().map(answer).collect::<Result<_>>()?;
        Ok(Running { host, pod, _answers: answers })
    }

    /// Annotates a pod; returns when the request was sent.
    async fn annotate(&self, pod: &str, key: &str, value: &str) -> Result<Duration> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        let asked = SystemClock.elapsed();
        self.pods.patch(pod, &PatchParams::default(), &patch).await.context("cannot annotate a pod")?;
        Ok(asked)
    }

    /// Ends a pod.
    async fn end(&self, Running { host, pod, .. }: Running) -> Result<()> {
        self.pods
            .delete(&pod.name, &DeleteParams::default().grace_period(0))
            .await
            .context("cannot delete a pod")?;
        self.lab.hosts[host].end_pod(&pod)?;
        Ok(())
    }

    /// Waits until these pods have the claim and this host answers; returns a row for the table.
    async fn stage(&self, when: &str, asking: &Asking, pods: [&str; 2], host: &str) -> Result<[String; 4]> {
        let mut holders = Value::Null;
        until_async("the claim to say who has it", async || {
            let claim = self.claims.get(CLAIM).await?;
            let text = claim.annotations().get(annotation::HOLDERS).cloned().unwrap_or_default();
            holders = serde_json::from_str(&text).unwrap_or_default();
            Ok(["active", "incoming"].map(|slot| holders[slot]["pod"].as_str().unwrap_or_default()) == pods)
        })
        .await?;
        let seen = asking.answers_of(host);
        until_async("answers", async || Ok(asking.answers_of(host) >= seen + SOME)).await?;
        let [active, incoming] = ["active", "incoming"].map(|slot| match &holders[slot] {
            Value::Null => String::new(),
            slot => format!(
                "{} on {}",
                slot["pod"].as_str().unwrap_or_default(),
                slot["node"].as_str().unwrap_or_default()
            ),
        });
        Ok([when.to_owned(), active, incoming, host.to_owned()])
    }

    /// The first line of `tenure who` for the machine's address.
    async fn who(&self) -> Result<String> {
        let address = *self.addresses.first().context("a claim has an address")?;
        let said = who::look(&self.lab.source(), address, Format::Table).await?;
        Ok(said.text.lines().next().unwrap_or_default().to_owned())
    }

    async fn until_who_says(&self, words: &str) -> Result<String> {
        let mut said = String::new();
        until_async(words, async || {
            said = self.who().await?;
            Ok(said.contains(words))
        })
        .await?;
        Ok(said)
    }
}
