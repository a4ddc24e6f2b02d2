//! The scenes of the demo, in order. Each one checks what it shows: a demo that is wrong ends with an error.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use kube::{Api, Client};
use tenure_api::coil::{AddressPool, AddressPoolSpec, EnginePool, SubnetSet};
use tenure_handles::{Clock, SystemClock, SystemEntropy};

use super::alias::move_an_alias;
use super::host::{Host, Pod, TRY_AGAIN_LATER};
use super::lab::{Lab, until};
use super::leaving::leave_by_a_gateway;
use super::moving::move_a_machine;
use super::ping::Pings;
use super::programs::Programs;
use super::proof;
use super::screen::{Screen, took};
use super::second::give_static_addresses;
use super::traffic::Traffic;
use crate::table::Format;
use crate::{pools, who};

pub(crate) const HOSTS: [&str; 3] = ["node-a", "node-b", "node-c"];
const PODS_PER_HOST: usize = 3;
/// How long an echo request may take.
const ANSWER: Duration = Duration::from_secs(2);
/// How much traffic there is before, during and after, in answered echo requests.
const SOME: u64 = 100;

/// What the scenes need.
pub(crate) struct Stage<'a> {
    pub(crate) programs: Programs,
    pub(crate) directory: &'a Path,
    pub(crate) entropy: SystemEntropy,
    pub(crate) seed: u64,
    pub(crate) operations: u64,
}

/// A pod and the number of its host.
type Placed = (usize, Pod);

impl Stage<'_> {
    /// Plays all scenes.
    pub(crate) async fn play(self, screen: &mut Screen<'_, impl Write>) -> Result<()> {
        let began = SystemClock.elapsed();
        screen.step(
            "Start a Kubernetes API inside this process, and tenure-controller. No cluster is needed.",
        )?;
        let mut lab = Lab::open(self.directory, self.programs, self.entropy).await?;
        screen.say(&format!(
            "{} kinds installed. The programs below talk to it as they would to kube-apiserver.",
            tenure_api::crds().len()
        ))?;
        pool(&lab.client, screen).await?;
        hosts(&mut lab, screen).await?;
        let mut pods = start_pods(&lab, screen).await?;
        ping_across(&pods, screen)?;
        lose_an_agent(&mut lab, &mut pods, screen).await?;
        let (_, client) = pods.last().context("there are pods")?;
        move_a_machine(&mut lab, client, screen).await?;
        ask_who(&lab, &pods, screen).await?;
        delete_all(&lab, pods, screen).await?;
        leave_by_a_gateway(&mut lab, screen).await?;
        give_static_addresses(&mut lab, screen).await?;
        move_an_alias(&mut lab, screen).await?;
        let (seed, operations) = (self.seed, self.operations);
        screen.step(&format!(
            "Prove the engine's invariants over {operations} random operations (replay with --seed {seed})."
        ))?;
        screen.say(&proof::prove(seed, operations)?.to_string())?;
        let whole = SystemClock.elapsed().saturating_sub(began).as_secs_f64();
        let built = if cfg!(debug_assertions) { ", with programs built for debugging" } else { "" };
        screen.say(&format!(
            "\nAll of this took {whole:.1} s{built}. Namespaces and programs go with the demo."
        ))
    }
}

fn subnet(ipv4: &str, ipv6: &str) -> SubnetSet {
    SubnetSet { ipv4: Some(ipv4.into()), ipv6: Some(ipv6.into()) }
}

async fn pool(client: &Client, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step("Create a pool of IPv4 and IPv6 pairs, cut into blocks of 16.")?;
    let pools: Api<AddressPool> = Api::all(client.clone());
    let spec = |subnet| AddressPoolSpec { block_size_bits: 4, subnets: vec![subnet], ..Default::default() };
    let (ipv4, ipv6) = ("10.64.0.0/24", "fd64::/120");
    let pool = AddressPool::new("default", spec(subnet(ipv4, ipv6)));
    let pool = pools.create(&PostParams::default(), &pool).await.context("cannot create the pool")?;
    let engine = EnginePool::try_from(&pool.spec)?;
    let [blocks, addresses] =
        [engine.pool().block_count(), engine.pool().address_count()].map(|count| count.to_string());
    let row = ["default".to_owned(), format!("{ipv4} + {ipv6}"), blocks, addresses];
    screen.table(["POOL", "SUBNETS", "BLOCKS", "ADDRESSES"], [row])?;
    let unequal = AddressPool::new("unequal", spec(subnet("10.65.0.0/24", "fd65::/64")));
    match pools.create(&PostParams::default(), &unequal).await {
        Err(kube::Error::Api(status)) => {
            screen.say("One that would never work is refused by rules in the schema, without a webhook:")?;
            screen.say(&status.message)
        }
        Err(error) => Err(error).context("the API did not answer"),
        Ok(_) => anyhow::bail!("a pool with families of different sizes was accepted"),
    }
}

async fn hosts(lab: &mut Lab, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step("Make three hosts out of namespaces, on one Ethernet, and start tenured on each.")?;
    for name in HOSTS {
        lab.add_host(name).await?;
    }
    let ready = lab.start_agents(&[0, 1, 2])?;
    let row = |(host, after): (&usize, &Duration)| {
        let Host { name, addresses: [v4, v6], .. } = &lab.hosts[*host];
        [name.clone(), format!("{}, {}", v4.addr(), v6.addr()), took(*after)]
    };
    screen.table(["HOST", "ADDRESSES", "AGENT READY AFTER"], ready.iter().map(row))
}

async fn start_pods(lab: &Lab, screen: &mut Screen<'_, impl Write>) -> Result<Vec<Placed>> {
    screen.step("Start nine pods: tenure-cni is run for each, as a container runtime would.")?;
    let mut pods = Vec::new();
    let mut times = Vec::new();
    for (number, host) in lab.hosts.iter().enumerate() {
        for pod in 1..=PODS_PER_HOST {
            let (pod, time) = host.start_pod(&pod_name(number, pod))?;
            pods.push((number, pod));
            times.push(time);
        }
    }
    let blocks = blocks(lab).await?;
    let row = |((host, pod), time): (&Placed, &Duration)| {
        let block = pod.addresses.first().and_then(|address| blocks.get(address)).cloned();
        [
            pod.name.clone(),
            lab.hosts[*host].name.clone(),
            list(&pod.addresses),
            block.unwrap_or_default(),
            took(*time),
        ]
    };
    screen.table(["POD", "HOST", "ADDRESSES", "BLOCK", "ADD"], pods.iter().zip(&times).map(row))?;
    screen.say("The first pod of a host waits for its block; the others need nobody but their agent.")?;
    let addresses: BTreeSet<IpAddr> = pods.iter().flat_map(|(_, pod)| pod.addresses.clone()).collect();
    ensure!(addresses.len() == 2 * pods.len(), "two pods have the same address: {addresses:?}");
    Ok(pods)
}

/// The block of each held address, as the agents report.
async fn blocks(lab: &Lab) -> Result<BTreeMap<IpAddr, String>> {
    let source = lab.source();
    let mut blocks = BTreeMap::new();
    for host in &lab.hosts {
        let told = source.agents.one(&host.name).await.map_err(anyhow::Error::msg)?;
        for hold in told.holds {
            let block = hold.block.unwrap_or_default();
            blocks.extend(hold.addresses.iter().map(|address| (*address, block.clone())));
        }
    }
    Ok(blocks)
}

fn ping_across(pods: &[Placed], screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step("Ping from every pod to every pod of the other hosts, over both families.")?;
    let mut worst: BTreeMap<(usize, usize, bool), (u32, Duration)> = BTreeMap::new();
    for (from, source) in pods {
        for (to, target) in pods.iter().filter(|(to, _)| to != from) {
            for address in &target.addresses {
                let answered = Pings::from(&source.namespace, *address)?.once(ANSWER)?;
                let time =
                    answered.with_context(|| format!("{} does not answer {}", target.name, source.name))?;
                let entry = worst.entry((*from, *to, address.is_ipv6())).or_default();
                *entry = (entry.0 + 1, entry.1.max(time));
            }
        }
    }
    let mut rows = Vec::new();
    for (from, source) in HOSTS.iter().enumerate() {
        for (to, target) in HOSTS.iter().enumerate().filter(|(to, _)| *to != from) {
            let family = |v6| {
                let (count, slowest) = worst.get(&(from, to, v6)).copied().unwrap_or_default();
                format!("{count} answered, slowest {}", took(slowest))
            };
            rows.push([(*source).to_owned(), (*target).to_owned(), family(false), family(true)]);
        }
    }
    screen.table(["PODS OF", "TO PODS OF", "IPv4", "IPv6"], rows)
}

async fn lose_an_agent(
    lab: &mut Lab,
    pods: &mut Vec<Placed>,
    screen: &mut Screen<'_, impl Write>,
) -> Result<()> {
    const VICTIM: usize = 1;
    screen.step(
        "Kill an agent (SIGKILL) while its pods are pinged from the other hosts, and start it again.",
    )?;
    let find = |name: &str| pods.iter().find(|(_, pod)| pod.name == name).context("there is such a pod");
    let mut ways = Vec::new();
    for (from, to) in [(pod_name(0, 1), pod_name(VICTIM, 1)), (pod_name(2, 1), pod_name(VICTIM, 2))] {
        for address in &find(&to)?.1.addresses {
            ways.push(Pings::from(&find(&from)?.1.namespace, *address)?);
        }
    }
    let traffic = Traffic::begin(ways)?;
    let some_more = || {
        let seen = traffic.answered();
        until("pings to be answered", || Ok(traffic.answered() >= seen + SOME))
    };
    let kept = held_by(lab, VICTIM).await?;
    some_more()?;
    let died = SystemClock.elapsed();
    lab.hosts[VICTIM].kill_agent()?;
    let host = &lab.hosts[VICTIM];
    screen.say(&format!("The agent of {} is dead.", host.name))?;

    let position = pods.iter().position(|(_, pod)| pod.name == pod_name(VICTIM, 3)).context("a pod")?;
    let (_, gone) = pods.remove(position);
    let time = host.end_pod(&gone)?;
    ensure!(host.tombstones() == 1, "there are {} tombstones", host.tombstones());
    screen.say(&format!("DEL of {} succeeds in {} and leaves a tombstone.", gone.name, took(time)))?;
    let waiting = host.make_pod(&pod_name(VICTIM, 4))?;
    let refused = host.call("ADD", &waiting)?;
    let code = refused.refusal().context("an ADD succeeded without an agent")?.code;
    ensure!(code == TRY_AGAIN_LATER, "an ADD without an agent failed with code {code}");
    screen.say(&format!(
        "ADD of {} is told to try again later (code {code}), in {}.",
        waiting.name,
        took(refused.took)
    ))?;
    some_more()?;

    lab.start_agents(&[VICTIM])?;
    let away = SystemClock.elapsed().saturating_sub(died);
    let host = &lab.hosts[VICTIM];
    screen.say(&format!("The agent is back and ready; it was away for {}.", took(away)))?;
    let mut expected = kept.clone();
    expected.remove(&gone.name);
    let holds = held_by(lab, VICTIM).await?;
    ensure!(holds == expected, "holds were {expected:?} and are {holds:?}");
    until("the tombstone to go", || Ok(host.tombstones() == 0))?;
    screen.say(&format!(
        "It holds {} for {} and {} as before, and has done the DEL of {}.",
        count(holds.values().flatten().count(), "address", "addresses"),
        pod_name(VICTIM, 1),
        pod_name(VICTIM, 2),
        gone.name
    ))?;
    for (_, pod) in pods.iter().filter(|(at, _)| *at == VICTIM) {
        host.call("CHECK", pod)?.result().with_context(|| format!("CHECK of {}", pod.name))?;
    }
    let mut new = waiting;
    let time = host.add(&mut new)?;
    ensure!(!new.addresses.iter().any(|it| gone.addresses.contains(it)), "an address was not left to cool");
    screen.say(&format!(
        "ADD of {}, tried again, gives {} in {}; {} of {} cools first.",
        new.name,
        list(&new.addresses),
        took(time),
        gone.addresses.first().map(ToString::to_string).unwrap_or_default(),
        gone.name
    ))?;
    pods.insert(position, (VICTIM, new));
    some_more()?;
    let tally = traffic.end()?;
    screen.say(&format!(
        "All the while {} of {} pings were answered; the slowest took {}.",
        tally.answered,
        tally.sent,
        took(tally.slowest)
    ))
}

/// The holds of a host, as its agent reports.
async fn held_by(lab: &Lab, host: usize) -> Result<BTreeMap<String, Vec<IpAddr>>> {
    let told = lab.source().agents.one(&lab.hosts[host].name).await.map_err(anyhow::Error::msg)?;
    let holds = told.holds.into_iter();
    Ok(holds.map(|hold| (hold.holder.pod.unwrap_or_default().name, hold.addresses)).collect())
}

async fn ask_who(lab: &Lab, pods: &[Placed], screen: &mut Screen<'_, impl Write>) -> Result<()> {
    let (_, pod) = pods.last().context("there are pods")?;
    let address = *pod.addresses.first().context("a pod has an address")?;
    screen.step(&format!("Ask who has an address: `tenure who {address}`."))?;
    let said = who::look(&lab.source(), address, Format::Table).await?;
    ensure!(said.text.contains(&pod.name), "it is not known that {} has {address}", pod.name);
    screen.say(&said.text)
}

async fn delete_all(lab: &Lab, pods: Vec<Placed>, screen: &mut Screen<'_, impl Write>) -> Result<()> {
    screen.step("Delete all pods, and look at the pool: `tenure pools`.")?;
    let mut slowest = Duration::ZERO;
    let number = pods.len();
    for (host, pod) in pods {
        slowest = slowest.max(lab.hosts[host].end_pod(&pod)?);
    }
    for host in &lab.hosts {
        until("the interfaces to go", || Ok(host.pod_links()? == 0))?;
    }
    screen.say(&format!(
        "{number} DELs, the slowest in {}; no interface is left on any host.",
        took(slowest)
    ))?;
    let said = pools::look(&lab.source(), &[], Format::Table).await?;
    screen.say(&said.text)?;
    screen.say(
        "Freed addresses cool before they are assigned again; each host keeps a block for its next pods.",
    )
}

fn pod_name(host: usize, number: usize) -> String {
    let letter = HOSTS.get(host).and_then(|name| name.chars().last()).unwrap_or('x');
    format!("pod-{letter}{number}")
}

fn list(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
