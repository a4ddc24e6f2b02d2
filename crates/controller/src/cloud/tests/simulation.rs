//! Agents that request, use, return and mark, pods that move, controllers that restart, late writes, and a cloud with
//! faults.
//!
//! Every run replays from its seed: `TENURE_SEED=N cargo test -p tenure-controller no_adversary_of_aliases`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde_json::json;
use tenure_api::cloud::{LeavingPod, condition};
use tenure_cloud::{CloudError, ErrorKind};
use tenure_handles::{Entropy, SeededEntropy};

use super::super::context::Planted;
use super::rig::Rig;
use crate::write::Write;

const NODES: [&str; 3] = ["a", "b", "c"];
const STEPS: usize = 160;
const SEEDS: u64 = 40;

/// A pod that uses a range.
#[derive(Clone, Debug)]
struct Use {
    grant: String,
    /// It was marked as moving out.
    marked: bool,
}

/// The later pool.
fn late(rig: &mut Rig) {
    let more = json!([{"cidr": "10.112.0.0/27", "secondaryRangeName": "more"}]);
    let spec = json!({"cidr": "10.111.0.0/28", "ranges": more, "cooling": "5s", "moveTimeout": "20s"});
    rig.pool_named("late", spec);
}

fn is_leaving(rig: &Rig) -> bool {
    rig.pools.get("late").is_some_and(|pool| pool.metadata.deletion_timestamp.is_some())
}

struct World {
    rig: Rig,
    dice: SeededEntropy,
    /// By node: the ranges that pods of it use.
    used: BTreeMap<&'static str, BTreeMap<String, Use>>,
    /// Grants that ranges had.
    old: BTreeMap<String, BTreeSet<String>>,
    late: Vec<Write>,
    pods: usize,
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut rig = Rig::new(seed);
        rig.plant(planted);
        rig.pool(json!({"cidr": "10.111.0.0/27", "cooling": "5s", "moveTimeout": "20s"}));
        // A later pool that overlaps the first one, and has other addresses, too.
        rig.clock.advance(Duration::from_secs(1));
        late(&mut rig);
        for node in NODES {
            rig.machine(node);
            rig.want(node, 2);
        }
        rig.say("c", |it| it.spec.pool = "late".to_owned());
        let used = NODES.iter().map(|node| (*node, BTreeMap::new())).collect();
        let dice = SeededEntropy::new(seed ^ 0x5eed);
        Self { rig, dice, used, old: BTreeMap::new(), late: Vec::new(), pods: 0 }
    }

    fn roll(&self, sides: u64) -> u64 {
        self.dice.next_u64() % sides
    }

    fn node(&self) -> &'static str {
        NODES[usize::try_from(self.roll(3)).unwrap()]
    }

    fn pick<T: Clone>(&self, from: &[T]) -> Option<T> {
        let count = u64::try_from(from.len()).unwrap();
        (count > 0).then(|| from[usize::try_from(self.roll(count)).unwrap()].clone())
    }

    /// What the agent of a node may use: attached according to the controller, on the machine, not reserved, not
    /// returned.
    fn idle(&self, node: &str) -> Vec<(String, String)> {
        let Some(aliases) = self.rig.aliases.get(node) else { return Vec::new() };
        let there = self.rig.on_machine(node);
        let status = self.rig.status(node);
        let idle = status.aliases.into_iter().filter(|(range, alias)| {
            alias.attached
                && alias.pod.is_none()
                && there.contains(range)
                && aliases.spec.returned.get(range) != Some(&alias.grant)
                && !self.used[node].contains_key(range)
                && !aliases.spec.leaving.contains_key(range.trim_end_matches("/32"))
        });
        idle.map(|(range, alias)| (range, alias.grant)).collect()
    }

    /// The agents of existing nodes say what they want, even after somebody deleted that.
    fn agents(&mut self) {
        for node in NODES {
            if self.rig.nodes.contains_key(node) && !self.rig.aliases.contains_key(node) {
                let pool = if node == "c" { "late" } else { "live" };
                self.rig.say(node, |it| it.spec.pool = pool.to_owned());
            }
        }
    }

    fn step(&mut self) {
        self.agents();
        let node = self.node();
        let alive = self.rig.nodes.contains_key(node);
        match self.roll(25) {
            0 | 1 => {
                let wanted =
                    i32::try_from(self.used[node].len()).unwrap() + i32::try_from(self.roll(4)).unwrap();
                self.rig.want(node, wanted);
            }
            2..=4 if alive => {
                if let Some((range, grant)) = self.pick(&self.idle(node)) {
                    self.used.get_mut(node).unwrap().insert(range, Use { grant, marked: false });
                }
            }
            5 => {
                let plain: Vec<String> = self.used[node]
                    .iter()
                    .filter(|(_, it)| !it.marked)
                    .map(|(range, _)| range.clone())
                    .collect();
                if let Some(range) = self.pick(&plain) {
                    self.used.get_mut(node).unwrap().remove(&range);
                }
            }
            6 | 7 => {
                if let Some((range, grant)) = self.pick(&self.idle(node)) {
                    self.rig.say(node, |it| _ = it.spec.returned.insert(range, grant));
                }
            }
            8 => {
                // A return that is older than what the node has now.
                let used: Vec<String> = self.used[node].keys().cloned().collect();
                if let Some(range) = self.pick(&used) {
                    let now = self.used[node][&range].grant.clone();
                    let old = self.old.entry(range.clone()).or_default().clone();
                    let old =
                        old.into_iter().find(|grant| *grant != now).unwrap_or_else(|| "older".to_owned());
                    self.rig.say(node, |it| _ = it.spec.returned.insert(range, old));
                }
            }
            9 => {
                let status = self.rig.status(node);
                let pods: BTreeSet<String> = self
                    .rig
                    .pods
                    .values()
                    .map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned())
                    .collect();
                self.rig.say(node, |it| {
                    // What is gone, and what was given up, does not leave any more.
                    it.spec.leaving.retain(|address, pod| {
                        let alias = status.aliases.get(&format!("{address}/32"));
                        alias.is_some_and(|alias| alias.pod.is_some() || pods.contains(&pod.uid))
                    });
                    it.spec.returned.retain(|range, grant| {
                        status.aliases.get(range).is_some_and(|alias| alias.grant == *grant)
                    });
                });
            }
            10 | 22 if alive => self.mark(node),
            11 | 12 | 23 if alive => self.move_in(node),
            13 => {
                let pods: Vec<String> = self.rig.pods.keys().cloned().collect();
                if let Some(podref) = self.pick(&pods) {
                    self.rig.pod_gone(&podref);
                }
            }
            14 if self.roll(4) == 0 => {
                if alive {
                    self.used.get_mut(node).unwrap().clear();
                    let of_node: Vec<String> = self
                        .rig
                        .pods
                        .iter()
                        .filter(|(_, pod)| pod["spec"]["nodeName"] == json!(node))
                        .map(|(podref, _)| podref.clone())
                        .collect();
                    for podref in &of_node {
                        self.rig.pod_gone(podref);
                    }
                    self.rig.leave(node);
                } else {
                    self.rig.join(node);
                }
            }
            15 if self.roll(3) == 0 => {
                // Writes of the previous leader arrive now.
                let late = self.rig.plan();
                self.late.extend(late.into_iter().filter(|it| it.verb() != "tell_cloud_driver"));
                self.rig.restart();
            }
            16 => {
                let late = self.late.pop();
                late.map(|write| self.rig.perform(&write));
            }
            17 => {
                let held = self.rig.held.take();
                held.map(|write| self.rig.perform(&write));
            }
            18 => {
                let longest = if self.roll(6) == 0 { 150_000 } else { 9_000 };
                self.rig.clock.advance(Duration::from_millis(self.roll(longest)));
            }
            19 => {
                *self.rig.cloud.trouble.lock().unwrap() =
                    [0, 0, 3, 10][usize::try_from(self.roll(4)).unwrap()];
            }
            21 => {
                let kinds = [ErrorKind::Denied, ErrorKind::Capacity, ErrorKind::Invalid(None)];
                let refused = self.pick(&kinds).filter(|_| self.roll(2) == 0);
                *self.rig.cloud.refuses.lock().unwrap() = refused.map(|kind| CloudError::new(kind, "no"));
            }
            20 if self.roll(3) == 0 => {
                let ledgers: Vec<String> = self.rig.ledgers.keys().cloned().collect();
                if !self.rig.pools.contains_key("late") {
                    late(&mut self.rig);
                } else if !is_leaving(&self.rig) {
                    self.rig.delete_pool("late");
                    // In a foreground deletion, what it owns is deleted first.
                    let owned: Vec<&String> = ledgers.iter().filter(|it| it.starts_with("late-")).collect();
                    if self.roll(2) == 0 {
                        for ledger in owned {
                            self.rig.delete_ledger(ledger);
                        }
                    }
                } else if let Some(ledger) = self.pick(&ledgers) {
                    self.rig.delete_ledger(&ledger);
                }
            }
            _ => {}
        }
        let some = usize::try_from(self.roll(6)).unwrap();
        self.rig.deliver(some);
        if self.roll(3) > 0 {
            self.rig.drive();
        }
        if self.roll(3) > 0 {
            for write in self.rig.plan() {
                if self.rig.held.is_none() && self.roll(12) == 0 {
                    self.rig.held = Some(write);
                } else {
                    self.rig.perform(&write);
                }
            }
        }
        self.check();
    }

    /// A pod, or all pods of a node, are marked as moving out, with the addresses that they use.
    fn mark(&mut self, node: &'static str) {
        let plain: Vec<String> =
            self.used[node].iter().filter(|(_, it)| !it.marked).map(|(range, _)| range.clone()).collect();
        let one = self.pick(&plain);
        let some = if self.roll(2) == 0 { plain } else { one.into_iter().collect() };
        for range in some {
            self.pods += 1;
            let name = format!("s{}", self.pods);
            let uid = self.rig.pod(&name, "ns", node, json!({"live.cast.ai/move-out-ip": ""}));
            let address = range.trim_end_matches("/32").to_owned();
            let pod = LeavingPod { namespace: "ns".to_owned(), pod: name, uid };
            self.rig.say(node, |it| _ = it.spec.leaving.insert(address, pod));
            self.used.get_mut(node).unwrap().get_mut(&range).unwrap().marked = true;
        }
    }

    /// A pod names the address of a marked pod, or of somebody else.
    fn move_in(&mut self, node: &'static str) {
        let leaving: Vec<String> =
            self.rig.aliases.values().flat_map(|it| it.spec.leaving.keys().cloned()).collect();
        let Some(address) = self.pick(&leaving) else { return };
        self.pods += 1;
        let thief = self.roll(3) == 0;
        let (name, namespace) =
            if thief { (format!("thief{}", self.pods), "other") } else { (format!("d{}", self.pods), "ns") };
        self.rig.pod(&name, namespace, node, json!({"live.cast.ai/ip": address}));
    }

    fn check(&mut self) {
        let records = self.rig.records();
        for (name, ledger) in &self.rig.ledgers {
            assert!(self.rig.pools.contains_key(&ledger.spec.pool), "{name} has no pool");
        }
        let mut seen = BTreeMap::new();
        for node in NODES {
            let there = self.rig.on_machine(node);
            for range in &there {
                assert!(records.contains_key(range), "{range} is on {node} and has no record");
                if let Some(other) = seen.insert(range.clone(), node) {
                    panic!("{range} is on {node} and on {other}");
                }
            }
            // A range that moves away is no longer the source's.
            self.used.get_mut(node).unwrap().retain(|range, it| {
                let record = records.get(range);
                !it.marked || record.is_some_and(|record| record.node == node && record.grant == it.grant)
            });
            for (range, it) in &self.used[node] {
                let record = records
                    .get(range)
                    .unwrap_or_else(|| panic!("{range} is used on {node} and has no record"));
                assert!(
                    record.node == node && record.grant == it.grant && record.freed.is_none(),
                    "{range} is used on {node} by {it:?} and its record is {record:?}"
                );
                assert!(it.marked || there.contains(range), "{range} is used on {node} and not there");
            }
        }
        for (range, record) in &records {
            self.old.entry(range.clone()).or_default().insert(record.grant.clone());
            let holders = record.moving.as_ref().map(|it| it.holders.as_str()).unwrap_or_default();
            assert!(!holders.contains("thief"), "{range} moves with a pod of another namespace");
        }
    }

    /// Everything calms down: all get what they want, and then everything is returned.
    fn end(&mut self) {
        *self.rig.cloud.trouble.lock().unwrap() = 0;
        *self.rig.cloud.refuses.lock().unwrap() = None;
        self.rig.held.take().map(|write| self.rig.perform(&write));
        if !self.rig.pools.contains_key("late") {
            late(&mut self.rig);
        }
        let leaving = is_leaving(&self.rig);
        for node in NODES {
            if !self.rig.nodes.contains_key(node) {
                self.rig.join(node);
            }
            self.agents();
            let wanted = i32::try_from(self.used[node].len()).unwrap() + 1;
            self.rig.want(node, wanted);
        }
        for _ in 0..30 {
            self.rig.settle_for(4);
            self.rig.clock.advance(Duration::from_secs(2));
            self.check();
        }
        for node in NODES.iter().filter(|node| **node != "c" || !leaving) {
            let node = *node;
            let (status, wanted) = (self.rig.status(node), self.rig.aliases[node].spec.wanted);
            assert!(status.attached >= wanted, "{node} wants {wanted} and has {status:?}");
            assert_eq!(status.problem, None, "{node}");
        }
        for node in NODES {
            let status = self.rig.status(node);
            assert!(status.aliases.values().all(|alias| alias.attached), "{node} has {status:?}");
        }
        let ready = self.rig.condition("live", condition::READY);
        assert_eq!(ready.0, "True", "{ready:?}");
        let pods: Vec<String> = self.rig.pods.keys().cloned().collect();
        for podref in &pods {
            self.rig.pod_gone(podref);
        }
        self.used.values_mut().for_each(BTreeMap::clear);
        for node in NODES {
            self.rig.say(node, |it| (it.spec.wanted, it.spec.leaving) = (0, BTreeMap::new()));
        }
        for _ in 0..30 {
            for node in NODES {
                for (range, grant) in self.idle(node) {
                    self.rig.say(node, |it| _ = it.spec.returned.insert(range, grant));
                }
            }
            self.rig.settle_for(4);
            self.rig.clock.advance(Duration::from_secs(5));
            self.check();
        }
        assert_eq!(self.rig.records().keys().collect::<Vec<_>>(), Vec::<&String>::new(), "records are left");
        assert_eq!(self.rig.pools.contains_key("late"), !leaving, "a deleted pool goes in the end");
        for node in NODES {
            assert!(self.rig.on_machine(node).is_empty(), "{node} has {:?}", self.rig.on_machine(node));
        }
    }
}

fn run(seed: u64, planted: Option<Planted>) {
    let mut world = World::new(seed, planted);
    for _ in 0..STEPS {
        world.step();
    }
    world.end();
}

#[test]
fn no_adversary_of_aliases_breaks_an_invariant() {
    if let Ok(seed) = std::env::var("TENURE_SEED") {
        return run(seed.parse().unwrap(), None);
    }
    for seed in 0..SEEDS {
        let ended = catch_unwind(AssertUnwindSafe(|| run(seed, None)));
        assert!(ended.is_ok(), "replay it with TENURE_SEED={seed}");
    }
}

#[test]
fn planted_bugs_of_aliases_are_found() {
    for planted in [
        Planted::AnyGrant,
        Planted::StillThere,
        Planted::AnyNamespace,
        Planted::Overlap,
        Planted::DropsPool,
        Planted::NeverLeaves,
    ] {
        let found =
            (0..SEEDS).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed, Some(planted)))).is_err());
        assert!(found, "{planted:?} was not found");
    }
}
