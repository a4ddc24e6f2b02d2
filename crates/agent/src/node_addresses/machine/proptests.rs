//! Any order of events: a server, a kernel and a file that are sets, an agent that is killed anywhere.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenure_api::nmstate::Applied;

use super::super::record::Trying;
use super::tests::{configured, facts, record};
use super::*;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// A policy gets an enactment, if it has none: its policy, and its interface.
    Made(u8, u8),
    /// The policy changes, with its interface.
    Changed(u8, u8),
    /// The enactment is to go.
    Deleted(u8),
    /// The controller ends a deleted enactment whose release is reported.
    Finished(u8),
    /// The controller ends an enactment of a node that it took for gone.
    Gone(u8),
    /// The agent hears of the present enactments.
    Seen,
    /// The agent does its next task, and the change is confirmed or not.
    Done(bool),
    /// The agent does a part of its next task, and is killed.
    Killed(u8),
    /// Time passes, in seconds.
    Passed(u8),
}

fn any_event() -> impl Strategy<Value = Happens> {
    let policy = 0..3_u8;
    prop_oneof![
        1 => (policy.clone(), 0..2_u8).prop_map(|(policy, interface)| Happens::Made(policy, interface)),
        1 => (policy.clone(), 0..2_u8).prop_map(|(policy, interface)| Happens::Changed(policy, interface)),
        1 => policy.clone().prop_map(Happens::Deleted),
        1 => policy.clone().prop_map(Happens::Finished),
        1 => policy.prop_map(Happens::Gone),
        3 => Just(Happens::Seen),
        6 => any::<bool>().prop_map(Happens::Done),
        1 => (0..3_u8).prop_map(Happens::Killed),
        2 => (1..90_u8).prop_map(Happens::Passed),
    ]
}

/// An enactment on the server, with the interface that its policy wants now.
#[derive(Clone, Debug)]
struct Object {
    facts: Facts,
    interface: u8,
    address: String,
}

struct World {
    /// By policy.
    objects: BTreeMap<u8, Object>,
    /// Addresses on interfaces, with the enactment that put them there.
    kernel: BTreeSet<(String, String, String)>,
    file: BTreeMap<String, Record>,
    machine: Machine,
    now: u64,
    made: u32,
    /// Enactments whose release was reported.
    released: BTreeSet<String>,
}

impl World {
    fn new() -> Self {
        let machine = Machine::new(Vec::new(), Duration::from_secs(30));
        let (objects, kernel, file) = Default::default();
        Self { objects, kernel, file, machine, now: 0, made: 0, released: BTreeSet::new() }
    }

    fn happen(&mut self, event: Happens) {
        match event {
            Happens::Made(policy, interface) if !self.objects.contains_key(&policy) => {
                self.made += 1;
                let facts =
                    Facts { created: self.made.into(), ..facts(&format!("{policy}-{}", self.made), Some(1)) };
                let address = format!("10.0.0.{}/24", self.made % 250 + 1);
                self.objects.insert(policy, Object { facts, interface, address });
            }
            Happens::Changed(policy, interface) => {
                if let Some(object) = self.objects.get_mut(&policy).filter(|it| !it.facts.deleting) {
                    object.facts.generation = object.facts.generation.map(|it| it + 1);
                    object.interface = interface;
                }
            }
            Happens::Deleted(policy) => {
                if let Some(object) = self.objects.get_mut(&policy) {
                    object.facts.deleting = true;
                }
            }
            Happens::Finished(policy) => {
                let is_released = |it: &Object| it.facts.said.applied.as_ref().is_some_and(|it| it.released);
                if self.objects.get(&policy).is_some_and(is_released) {
                    self.objects.remove(&policy);
                }
            }
            Happens::Gone(policy) => {
                self.objects.remove(&policy);
            }
            Happens::Seen => {
                self.machine.seen(self.objects.values().map(|it| it.facts.clone()), &BTreeSet::new());
            }
            Happens::Done(confirmed) => {
                self.work(u8::MAX, confirmed);
            }
            Happens::Killed(after) => {
                self.work(after, true);
                let records = self.file.values().cloned().collect();
                self.machine = Machine::new(records, Duration::from_secs(30));
            }
            Happens::Passed(seconds) => self.now += u64::from(seconds) * 1_000,
            Happens::Made(..) => {}
        }
    }

    fn take_off(&mut self, uid: &str) {
        self.kernel.retain(|(_, _, by)| by != uid);
    }

    fn put(&mut self, uid: &str, configured: &super::super::record::Configured) {
        for (interface, address) in configured.desired.addresses() {
            self.kernel.insert((interface.to_owned(), address.to_string(), uid.to_owned()));
        }
    }

    fn found(&self, uid: &str) -> Vec<(String, IpNet)> {
        let of = self.kernel.iter().filter(|(_, _, by)| by == uid);
        of.map(|(interface, address, _)| (interface.clone(), address.parse().unwrap())).collect()
    }

    /// Does the next task up to this step of it. True if there was one.
    fn work(&mut self, steps: u8, confirmed: bool) -> bool {
        let now = Timestamp::from_millis(self.now);
        let Some(task) = self.machine.next(now) else { return false };
        let done = match task {
            Task::Hold(mut of) => {
                if steps == 0 {
                    return true;
                }
                let uid = of.uid.clone();
                self.take_off(&uid);
                if let Some(confirmed) = of.confirmed.clone() {
                    self.put(&uid, &confirmed);
                }
                of.trying = None;
                if of.confirmed.is_some() {
                    self.file.insert(uid.clone(), of.clone());
                } else {
                    self.file.remove(&uid);
                }
                Done::Held { found: self.found(&uid), uid, record: of, problem: None }
            }
            Task::Forget(of) => {
                self.take_off(&of.uid);
                if steps == 0 {
                    return true;
                }
                self.file.remove(&of.uid);
                Done::Forgotten { uid: of.uid, problem: None }
            }
            Task::Release(facts, _) => {
                self.take_off(&facts.uid);
                if steps == 0 {
                    return true;
                }
                self.file.remove(&facts.uid);
                Done::Released { uid: facts.uid, problem: None }
            }
            Task::Apply { facts, record: before, taken } => {
                assert!(!self.released.contains(&facts.uid), "{} was released", facts.uid);
                match self.apply(&facts, before, &taken, steps, confirmed) {
                    Some(done) => done,
                    None => return true,
                }
            }
            Task::Report(facts, report) => {
                let uid = facts.uid.clone();
                if report.outcome == Outcome::Released {
                    assert_eq!(self.found(&uid), [], "{uid} is reported as released");
                    self.released.insert(uid.clone());
                }
                let current = self.objects.values_mut().find(|it| it.facts.uid == uid);
                if let Some(current) = current {
                    let patch = report.patch(&current.facts, now);
                    let status = &patch["status"];
                    current.facts.said.conditions =
                        serde_json::from_value(status["conditions"].clone()).unwrap();
                    current.facts.said.applied =
                        serde_json::from_value::<Applied>(status["applied"].clone()).ok();
                    current.facts.said.desired = report.desired.clone().or(current.facts.said.desired.take());
                }
                Done::Reported { uid, written: true }
            }
        };
        self.machine.done(done, now);
        true
    }

    fn apply(
        &mut self,
        facts: &Facts,
        before: Option<Record>,
        taken: &BTreeMap<String, String>,
        steps: u8,
        confirmed: bool,
    ) -> Option<Done> {
        let uid = facts.uid.clone();
        let generation = facts.generation.unwrap();
        let failed = |record: Option<Record>, found, again| Done::Failed {
            uid: uid.clone(),
            generation,
            record,
            found,
            failure: Failure { message: "no".to_owned(), again },
        };
        let object = self.objects.values().find(|it| it.facts.uid == uid);
        let Some(object) = object.filter(|it| it.facts.generation == Some(generation)) else {
            return Some(failed(before, Vec::new(), Again::Soon));
        };
        let interface = format!("eth{}", object.interface);
        if taken.contains_key(&interface) {
            return Some(failed(before, Vec::new(), Again::WhenFree));
        }
        let to = configured(generation, &interface, &object.address);
        let old = before.as_ref().and_then(|it| it.confirmed.clone());
        let trying = Some(Trying { to: to.clone(), before: Vec::new() });
        self.file.insert(uid.clone(), Record { trying, ..record(&uid, old.clone()) });
        if steps == 0 {
            return None;
        }
        self.take_off(&uid);
        self.put(&uid, &to);
        if steps == 1 {
            return None;
        }
        if !confirmed {
            self.take_off(&uid);
            match old {
                Some(old) => {
                    self.put(&uid, &old);
                    self.file.insert(uid.clone(), record(&uid, Some(old)));
                }
                None => {
                    self.file.remove(&uid);
                }
            }
            return Some(failed(self.file.get(&uid).cloned(), self.found(&uid), Again::Later));
        }
        let made = record(&uid, Some(to));
        self.file.insert(uid.clone(), made.clone());
        if steps == 2 {
            return None;
        }
        Some(Done::Applied { found: self.found(&uid), uid, generation, record: made })
    }

    fn check(&self) {
        for (interface, address, uid) in &self.kernel {
            let recorded = self.file.get(uid).is_some_and(|record| {
                record.addresses().any(|(on, it)| on == interface && it.to_string() == *address)
            });
            assert!(recorded, "{address} of {uid} is on {interface}, and no file says so");
            assert!(!self.released.contains(uid), "{uid} was released and has {address}");
        }
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for (interface, _, uid) in &self.kernel {
            let other = owners.insert(interface, uid);
            assert!(
                other.is_none_or(|other| other == uid),
                "{interface} has addresses of {uid} and {other:?}"
            );
        }
    }

    /// Lets the agent work until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..40 {
            self.happen(Happens::Seen);
            let mut worked = 0;
            while self.work(u8::MAX, true) {
                self.check();
                worked += 1;
                assert!(
                    worked < 200,
                    "it does not come to rest: {:?}",
                    self.machine.next(Timestamp::from_millis(self.now))
                );
            }
            self.now += 31_000;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens and wherever the agent is killed: an interface never has addresses of two enactments, a released
    /// enactment has none and never gets one again, a file says what is there; and in the end every enactment that nobody
    /// is in the way of has its address, and no other address is left.
    #[test]
    fn no_order_of_events_releases_what_is_there_or_leaves_what_should_go(
        events in prop::collection::vec(any_event(), 0..60)
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
            world.check();
        }
        world.settle();
        let mut wanted: BTreeMap<String, Vec<&Object>> = BTreeMap::new();
        for object in world.objects.values() {
            if object.facts.deleting {
                let said = object.facts.said.applied.as_ref();
                prop_assert!(said.is_some_and(|it| it.released), "{:?} is not released", object.facts);
            } else {
                wanted.entry(format!("eth{}", object.interface)).or_default().push(object);
            }
        }
        for (interface, objects) in &wanted {
            let on: Vec<&String> =
                world.kernel.iter().filter(|(name, ..)| name == interface).map(|(_, _, uid)| uid).collect();
            prop_assert_eq!(on.len(), 1, "{} has {:?}", interface, on);
            // It may be of one that has another interface by now, and waits for it.
            if objects.len() == 1 && world.objects.len() == 1 {
                prop_assert_eq!(on[0], &objects[0].facts.uid);
                let available = objects[0].facts.said.condition("Available");
                prop_assert!(available.is_some_and(|(status, ..)| status == "True"));
            }
        }
        for (.., uid) in &world.kernel {
            prop_assert!(world.objects.values().any(|it| it.facts.uid == *uid), "{} is left", uid);
        }
    }
}
