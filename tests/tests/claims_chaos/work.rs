//! Those who do what the plan says: a user with a claim, a scheduler and a mover, and the kubelet and the runtime of each pod.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tenure_claims::ClaimFacts;
use tenure_testbed::hosts::{Host, Mounts};
use tenure_testbed::wait::PATIENCE;

use crate::networks::{NAMESPACE, Network};
use crate::oracle::Living;
use crate::place::{ChaosBed, Lost};
use crate::plan::{Lane, Manner, Start, Step, Wish};
use tenure_tests::agent::Called;
use tenure_tests::chaos::course::{Moment, now, say};

/// A link that is out of service is deleted before this, if there is an agent.
const REAPED: Duration = Duration::from_secs(1);
/// What takes longer than this is talked about.
const LONG: Duration = Duration::from_secs(15);
/// Nobody waits for longer than this for a node that asks who uses its addresses.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// CNI's "try again later".
const LATER: u64 = 11;
/// CNI's "container unknown".
const UNKNOWN_CONTAINER: u64 = 3;

/// One who does the steps of a lane.
pub struct Worker<'a> {
    number: usize,
    lane: &'a Lane,
    place: &'a ChaosBed<'a>,
    /// The UID of the claim, if there is one.
    claim: Option<String>,
    pods: [Option<Running<'a>>; 2],
    /// Pods, containers and namespaces are never named twice.
    names: usize,
    stamp: u64,
    /// The last refusal.
    last: Value,
}

/// A pod.
struct Running<'a> {
    place: &'a ChaosBed<'a>,
    network: Network,
    name: String,
    uid: String,
    node: usize,
    container: String,
    space: Space,
    /// The claim's UID, what was told, and in which words.
    told: Option<(Option<String>, BTreeSet<IpAddr>, Value)>,
    /// Whether its object says that it has nothing.
    lies: bool,
}

/// A namespace.
struct Space {
    name: String,
    path: PathBuf,
    /// Nothing once it is gone.
    inside: Option<Host>,
}

/// What became of a claim.
enum Given {
    /// It has these.
    Has(BTreeSet<IpAddr>),
    Refused,
}

impl<'a> Worker<'a> {
    pub fn new(number: usize, lane: &'a Lane, place: &'a ChaosBed<'a>) -> Self {
        Self { number, lane, place, claim: None, pods: [None, None], names: 0, stamp: 0, last: Value::Null }
    }

    /// Does all steps.
    pub fn work(&mut self, done: &AtomicUsize) {
        for step in &self.lane.steps {
            let began = now();
            match *step {
                Step::Claim(wish) => self.make_claim(wish),
                Step::Unclaim => self.delete_claim(),
                Step::Reclaim(wish) => {
                    self.delete_claim();
                    self.make_claim(wish);
                }
                Step::Start { pod, start } => self.start(pod, start),
                Step::Early { start } => self.start_early(start),
                Step::Crowd { start } => self.crowd(start),
                Step::Commit { pod, stale } => self.commit(pod, stale),
                Step::Stop { pod, manner } => self.stop(pod, manner),
                Step::Check { pod } => self.check(pod),
                Step::Repeat { pod } => self.repeat(pod),
                Step::Lie { pod } => self.lie(pod),
                Step::Rest(time) => sleep(time),
            }
            done.fetch_add(1, Ordering::SeqCst);
            let took = now().saturating_sub(began);
            if took > LONG {
                say(&format!(
                    "lane {} on {:?}: {step:?} took {took:?}: {}",
                    self.number, self.lane.network, self.last
                ));
            }
        }
    }

    /// Ends all pods and deletes the claim.
    pub fn end_all(&mut self) {
        self.stop(0, Manner::Plain);
        self.stop(1, Manner::Plain);
        self.delete_claim();
    }

    /// Pods whose interface does not have what they were told.
    pub fn unlike_told(&self) -> Vec<String> {
        let told = self.pods.iter().flatten().filter_map(|pod| Some((pod, &pod.told.as_ref()?.1)));
        told.filter_map(|(pod, told)| {
            let found = pod.space.addresses(self.lane.network.interface());
            (found != *told).then(|| format!("{} has {found:?}, told were {told:?}", pod.name))
        })
        .collect()
    }

    fn claim_name(&self) -> String {
        format!("claim-{}", self.number)
    }

    fn make_claim(&mut self, wish: Wish) {
        if self.claim.is_some() {
            return;
        }
        let network = self.lane.network;
        let annotations = match wish {
            Wish::Annotated(number) => json!({"tenure/ips": network.wish(number).to_string()}),
            Wish::Any | Wish::Imported(_) => json!({}),
        };
        let claims = self.place.claims();
        let made = self.place.make(
            &claims,
            &json!({
                "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
                "metadata": {"name": self.claim_name(), "annotations": annotations},
                "spec": {"network": network.name(), "interface": network.interface()},
            }),
        );
        let uid = made.uid().unwrap();
        if let Wish::Imported(number) = wish {
            let ips = [network.imported(network.wish(number))];
            let status = json!({"status": {"ips": ips, "conditions": []}});
            let (name, status) = (self.claim_name(), Patch::Merge(status));
            self.place
                .ask("import", async || claims.patch_status(&name, &PatchParams::default(), &status).await)
                .unwrap();
        }
        self.place.oracle.settled(&uid);
        self.claim = Some(uid);
    }

    fn delete_claim(&mut self) {
        if let Some(uid) = self.claim.take() {
            self.place.delete(&self.place.claims(), &self.claim_name(), &uid, 0);
        }
    }

    /// Waits until the claim has addresses, or says that it gets none.
    fn given(&self) -> Option<Given> {
        let uid = self.claim.as_ref()?;
        let (began, name) = (now(), self.claim_name());
        loop {
            let claim = self.place.ask("read a claim", async || self.place.claims().get(&name).await);
            let Ok(claim) = claim else {
                self.blame("its claim is not there");
                return None;
            };
            let facts = ClaimFacts::of(&claim);
            if facts.uid != *uid {
                self.blame(&format!("its claim is another: {}", facts.uid));
                return None;
            }
            if facts.held {
                return Some(Given::Has(facts.addresses.iter().map(|(it, _)| IpAddr::from(*it)).collect()));
            }
            if facts.problem.is_some() {
                return Some(Given::Refused);
            }
            if now().saturating_sub(began) > PATIENCE {
                self.blame(&format!("its claim is given nothing: {:?}", claim.status));
                return None;
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn start(&mut self, slot: usize, start: Start) {
        if self.pods[slot].is_some() {
            return;
        }
        let expected = match self.given() {
            Some(Given::Has(addresses)) => Some(addresses),
            // Nobody gives it a pod; or there was no claim to begin with.
            Some(Given::Refused) => return,
            None if self.lane.claims => return,
            None => None,
        };
        let mut pod = self.make_pod(start);
        self.pods[slot] = self.add(&mut pod, start, expected.as_ref()).then_some(pod);
    }

    fn start_early(&mut self, start: Start) {
        if self.claim.is_some() || self.pods[0].is_some() {
            return self.start(0, start);
        }
        let mut pod = self.make_pod(start);
        let early = thread::scope(|scope| {
            let early = scope.spawn(|| pod.call("ADD", None));
            sleep(Duration::from_millis(start.same % 1000));
            self.make_claim(Wish::Any);
            early.join().unwrap()
        });
        let began = now();
        let expected = loop {
            match self.given() {
                Some(Given::Has(expected)) => break expected,
                // It waits for a slice, and says so.
                Some(Given::Refused) if now().saturating_sub(began) < PATIENCE => {
                    sleep(Duration::from_millis(100));
                }
                _ => return self.blame("a claim that wishes nothing was given nothing"),
            }
        };
        let added = early.code == 0;
        if added {
            self.told(&mut pod, start, early, Some(&expected));
        } else {
            self.refused(&mut pod, start, 0, &early);
        }
        self.pods[0] = (added || self.add(&mut pod, start, Some(&expected))).then_some(pod);
    }

    /// Makes a pod: an object that is scheduled to a host, and a namespace there.
    fn make_pod(&mut self, start: Start) -> Running<'a> {
        self.names += 1;
        let name = format!("pod-{}-{}", self.number, self.names);
        let claim = self.lane.claims.then(|| self.claim_name());
        let node = &self.place.machines[start.node].name;
        let made = self.place.make(
            &self.place.pods(),
            &json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "annotations": self.lane.network.annotations(claim.as_deref())},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            }),
        );
        let space = self.make_space(start.node);
        let (place, network, container) = (self.place, self.lane.network, format!("{name}-sandbox"));
        Running {
            place,
            network,
            name,
            uid: made.uid().unwrap(),
            node: start.node,
            container,
            space,
            told: None,
            lies: false,
        }
    }

    /// ADD, until it succeeds; or until it is given up, because the node has to find out first who uses its addresses.
    fn add(&mut self, pod: &mut Running<'a>, start: Start, expected: Option<&BTreeSet<IpAddr>>) -> bool {
        let began = now();
        for attempt in 0_u32.. {
            let called = pod.call("ADD", None);
            if called.code == 0 {
                self.told(pod, start, called, expected);
                return true;
            }
            self.refused(pod, start, attempt, &called);
            if now().saturating_sub(began) > GIVEN_UP && self.is_hopeless(pod.node, &called) {
                self.place.oracle.counting(|count| count.given_up += 1);
                self.place.delete(&self.place.pods(), &pod.name, &pod.uid, 0);
                pod.end();
                return false;
            }
            if now().saturating_sub(began) > LONG / 2 {
                self.place.come_round(pod.node);
            }
            if now().saturating_sub(began) > PATIENCE {
                self.blame(&format!("no ADD of {} succeeds: {called:?}", pod.name));
                return true;
            }
            sleep(Duration::from_millis(50 << attempt.min(3)));
        }
        true
    }

    /// Whether a refusal may last. A node that cannot know who uses its addresses, because its journal was lost, or it is new and
    /// had a slice before it was started, asks around first. And one that lost its journal does not know that an interface which
    /// is there has its addresses of the same claim.
    fn is_hopeless(&self, node: usize, refused: &Called) -> bool {
        let words = refused.json["msg"].as_str().unwrap_or_default();
        let forgot = self.place.struck.has_forgotten(node, Moment::ZERO);
        words.ends_with(" containers that no journal knows of")
            || forgot && words.ends_with(" has one of them")
    }

    fn told(&self, pod: &mut Running<'a>, start: Start, called: Called, expected: Option<&BTreeSet<IpAddr>>) {
        let addresses: BTreeSet<IpAddr> = called.addresses().into_iter().collect();
        if expected.is_some_and(|expected| *expected != addresses) {
            self.blame(&format!("{} was told {addresses:?}, its claim has {expected:?}", pod.name));
        }
        self.place.oracle.added(Living {
            network: pod.network,
            node: pod.node,
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
            container: pod.container.clone(),
            claim: self.claim.clone().filter(|_| self.lane.claims).map(|uid| (self.claim_name(), uid)),
            addresses: addresses.clone(),
            since: now(),
            silent: !start.told,
            lies: false,
        });
        if start.told {
            let all: Vec<IpAddr> = addresses.iter().copied().collect();
            let annotations = pod.network.status(&all);
            self.place.change_pod(&pod.name, &json!({"metadata": {"annotations": annotations}}));
        }
        pod.told = Some((self.claim.clone(), addresses, called.json));
    }

    /// What every runtime does after an ADD that failed: DEL, and once more, in another sandbox or in the same.
    fn refused(&mut self, pod: &mut Running<'a>, start: Start, attempt: u32, called: &Called) {
        self.place.oracle.counting(|count| count.refused += 1);
        self.last = called.json.clone();
        if called.json["code"] != LATER {
            self.blame(&format!("ADD of {}: {called:?}", pod.name));
        }
        pod.del();
        self.vacate(pod);
        if (start.same >> (attempt % 64)) & 1 == 0 {
            self.names += 1;
            pod.container = format!("{}-sandbox{}", pod.name, self.names);
        }
    }

    /// A third pod is not let in.
    fn crowd(&mut self, start: Start) {
        let uid = self.claim.clone();
        let has = |pod: &Option<Running<'_>>| {
            pod.as_ref().and_then(|pod| pod.told.as_ref()).is_some_and(|(claim, ..)| *claim == uid)
        };
        if uid.is_none() || !self.pods.iter().all(has) {
            return;
        }
        let mut pod = self.make_pod(start);
        let called = pod.call("ADD", None);
        if called.code == 0 || called.json["code"] != LATER {
            self.blame(&format!("ADD of {}, the third of its claim: {called:?}", pod.name));
        }
        self.place.oracle.counting(|count| count.crowds += 1);
        pod.del();
        self.place.delete(&self.place.pods(), &pod.name, &pod.uid, 0);
        pod.end();
    }

    fn commit(&mut self, slot: usize, stale: bool) {
        let Some(pod) = &self.pods[slot] else { return };
        let stamp = if stale { self.stamp.saturating_sub(1) } else { self.stamp + 1 };
        self.stamp = self.stamp.max(stamp);
        let annotations = json!({"tenure/active": stamp.to_string()});
        self.place.change_pod(&pod.name, &json!({"metadata": {"annotations": annotations}}));
    }

    /// A pod's owner writes what is not so: nothing of it takes an address from the pod.
    fn lie(&mut self, slot: usize) {
        let Some(pod) = self.pods[slot].as_mut().filter(|pod| pod.told.is_some()) else { return };
        pod.lies = true;
        self.place.oracle.lies(&pod.uid);
        let annotations = json!({"k8s.v1.cni.cncf.io/network-status": "[]", "tenure/claim": null});
        self.place.change_pod(&pod.name, &json!({"metadata": {"annotations": annotations}}));
    }

    fn stop(&mut self, slot: usize, manner: Manner) {
        let Some(mut pod) = self.pods[slot].take() else { return };
        let pods = self.place.pods();
        self.place.oracle.ending(&pod.uid);
        let a_while = || sleep(Duration::from_millis(50 + 40 * (self.stamp % 8)));
        match manner {
            Manner::Plain => {}
            Manner::Graceful => {
                self.place.delete(&pods, &pod.name, &pod.uid, 30);
                a_while();
            }
            Manner::Finished => {
                let patch = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                _ = self.place.ask("finish a pod", async || {
                    pods.patch_status(&pod.name, &PatchParams::default(), &patch).await
                });
                a_while();
            }
            Manner::NamespaceFirst => {
                let gone = pod.space.path.clone();
                pod.end();
                pod.del_at(&gone);
            }
            Manner::Forced | Manner::Lost => {
                self.place.delete(&pods, &pod.name, &pod.uid, 0);
                a_while();
            }
        }
        match manner {
            Manner::Plain | Manner::Graceful | Manner::Finished | Manner::Forced => {
                pod.del();
                pod.end();
            }
            Manner::NamespaceFirst => {}
            Manner::Lost => {
                let lost = Lost {
                    network: pod.network,
                    node: pod.node,
                    container: pod.container.clone(),
                    path: pod.space.path.clone(),
                    args: pod.args(),
                };
                // Nobody else says DEL while its namespace is on the way out.
                pod.end();
                self.place.lost.lock().unwrap_or_else(PoisonError::into_inner).push(lost);
            }
        }
        self.place.delete(&pods, &pod.name, &pod.uid, 0);
    }

    fn check(&self, slot: usize) {
        let Some(pod) = &self.pods[slot] else { return };
        let Some((_, _, result)) = &pod.told else { return };
        let called = pod.call("CHECK", Some(result));
        let forgotten = self.lane.claims
            && called.json["code"] == UNKNOWN_CONTAINER
            && self.place.oracle.living().iter().any(|it| it.uid == pod.uid && self.place.is_forgotten(it));
        if called.code != 0 && called.json["code"] != LATER && !forgotten {
            self.blame(&format!("CHECK of {}: {called:?}", pod.name));
        }
    }

    fn repeat(&self, slot: usize) {
        let Some(pod) = &self.pods[slot] else { return };
        let Some((claim, told, _)) = &pod.told else { return };
        // Of a pod whose claim is another by now, or none, that is refused.
        if *claim != self.claim || pod.lies {
            return;
        }
        let called = pod.call("ADD", None);
        let same = called.code == 0 && called.addresses().into_iter().collect::<BTreeSet<_>>() == *told;
        if !same && called.json["code"] != LATER {
            self.blame(&format!("ADD of {} that told {told:?} before: {called:?}", pod.name));
        }
    }

    fn blame(&self, what: &str) {
        self.place.oracle.blame(format!("lane {} on {:?}: {what}", self.number, self.lane.network));
    }

    /// Sees to it that a pod's namespace has no interface.
    fn vacate(&mut self, pod: &mut Running<'a>) {
        let began = now();
        while pod.space.has(pod.network.interface()) {
            if now().saturating_sub(began) > REAPED {
                // Its agent is down; no runtime would wait for it.
                let fresh = self.make_space(pod.node);
                std::mem::replace(&mut pod.space, fresh).end(&self.place.machines[pod.node].host);
                return;
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn make_space(&mut self, node: usize) -> Space {
        self.names += 1;
        let name = format!("ns-{}-{}", self.number, self.names);
        let (network, path) = self.place.machines[node].host.pod_namespace(&name).unwrap();
        // Plugins that make an interface wait until nobody else claims its addresses, for seconds.
        network.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
        Space { name, path, inside: Some(Host::in_namespace(network, Mounts::default())) }
    }
}

impl Running<'_> {
    fn call(&self, verb: &str, result: Option<&Value>) -> Called {
        self.call_at(verb, &self.space.path, result)
    }

    fn call_at(&self, verb: &str, path: &Path, result: Option<&Value>) -> Called {
        let args = self.args();
        let mut config = self.network.config();
        if let Some(result) = result {
            config["prevResult"] = result.clone();
        }
        self.place.call((self.network, self.node), verb, (&self.container, path, &args), &config)
    }

    /// `CNI_ARGS`.
    fn args(&self) -> String {
        let Self { name, uid, .. } = self;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={name};K8S_POD_UID={uid}")
    }

    /// A DEL, which succeeds whatever is down.
    fn del(&self) {
        self.del_at(&self.space.path);
    }

    fn del_at(&self, path: &Path) {
        let called = self.call_at("DEL", path, None);
        if called.code != 0 {
            self.place.oracle.blame(format!("DEL of {} on node {}: {called:?}", self.name, self.node));
        }
    }

    /// Its namespace goes.
    fn end(&mut self) {
        self.space.end(&self.place.machines[self.node].host);
    }
}

impl Space {
    fn end(&mut self, on: &Host) {
        // A namespace lives as long as somebody has it open.
        drop(self.inside.take());
        on.command("ip").args(["netns", "del", &self.name]).succeed().unwrap();
    }

    fn has(&self, interface: &str) -> bool {
        let devices = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let devices = self.inside.as_ref().map(|inside| inside.run(devices).unwrap());
        devices.is_some_and(|devices| devices.contains(&format!("{interface}:")))
    }

    /// The addresses of its interface that are not of the link alone.
    fn addresses(&self, interface: &str) -> BTreeSet<IpAddr> {
        let show = |inside: &Host| inside.namespace().ip_json(&["address", "show", "dev", interface]).ok();
        let found = self.inside.as_ref().and_then(show).unwrap_or_default();
        let each = found[0]["addr_info"].as_array().cloned().unwrap_or_default();
        let global = each.iter().filter(|address| address["scope"] == "global");
        global.filter_map(|address| address["local"].as_str()?.parse().ok()).collect()
    }
}
