//! Objects and addresses in any order, compared with a model that says the same in one sentence: an address is served if an
//! object lists it now, or did at some moment of the last [`GRACE`]. Planted defects, among them Coil's, must be found.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::tests::spec;
use super::*;

/// What can happen. Objects and addresses are few, so that they meet.
#[derive(Clone, Debug)]
enum Happens {
    Apply(u8, Vec<Vec<u8>>),
    Remove(u8),
    /// The watch lists anew, and these are there; all others are gone.
    Relist(BTreeMap<u8, Vec<Vec<u8>>>),
    Wait(u64),
}

fn pods() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0..5_u8, 1..3), 0..3)
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..3_u8, pods()).prop_map(|(object, pods)| Happens::Apply(object, pods)),
        2 => (0..3_u8).prop_map(Happens::Remove),
        1 => prop::collection::btree_map(0..3_u8, pods(), 0..3).prop_map(Happens::Relist),
        2 => (0..3000_u64).prop_map(Happens::Wait),
    ]
}

fn story() -> impl Strategy<Value = Vec<Happens>> {
    prop::collection::vec(happens(), 1..20)
}

fn address(number: u8) -> IpAddr {
    [10, 2, 0, number + 1].into()
}

/// Whatever decides who is served.
trait Decides {
    fn apply(&mut self, object: u8, pods: &[Vec<u8>], now: Duration);
    fn remove(&mut self, object: u8, now: Duration);
    fn relist(&mut self, objects: &BTreeMap<u8, Vec<Vec<u8>>>, now: Duration);
    fn served(&mut self, now: Duration) -> BTreeSet<IpAddr>;
}

fn written(pods: &[Vec<u8>]) -> EgressClientsSpec {
    let texts: Vec<Vec<String>> =
        pods.iter().map(|pod| pod.iter().map(|number| address(*number).to_string()).collect()).collect();
    let texts: Vec<Vec<&str>> = texts.iter().map(|pod| pod.iter().map(String::as_str).collect()).collect();
    let pods: Vec<(&str, &[&str])> = texts.iter().map(|pod| ("uid", pod.as_slice())).collect();
    spec(&pods)
}

impl Decides for Clients {
    fn apply(&mut self, object: u8, pods: &[Vec<u8>], now: Duration) {
        Clients::apply(self, &object.to_string(), &written(pods), now);
    }

    fn remove(&mut self, object: u8, now: Duration) {
        Clients::remove(self, &object.to_string(), now);
    }

    fn relist(&mut self, objects: &BTreeMap<u8, Vec<Vec<u8>>>, now: Duration) {
        self.begin();
        for (object, pods) in objects {
            Decides::apply(self, *object, pods, now);
        }
        self.finish(now);
    }

    fn served(&mut self, now: Duration) -> BTreeSet<IpAddr> {
        let next = self.expire(now);
        assert!(next.is_none_or(|next| next > now && next <= now + GRACE));
        Clients::served(self)
    }
}

/// Tells a story to `decides` and to the model, and compares after every step.
fn agrees(decides: &mut dyn Decides, story: &[Happens]) -> Result<(), TestCaseError> {
    let mut now = Duration::from_secs(1);
    let mut objects: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
    let mut last_listed: BTreeMap<u8, Duration> = BTreeMap::new();
    let set = |pods: &[Vec<u8>]| pods.iter().flatten().copied().collect();
    for step in story {
        // What is listed is so until something happens.
        last_listed.extend(objects.values().flatten().map(|number| (*number, now)));
        match step {
            Happens::Apply(object, pods) => {
                objects.insert(*object, set(pods));
                decides.apply(*object, pods, now);
            }
            Happens::Remove(object) => {
                objects.remove(object);
                decides.remove(*object, now);
            }
            Happens::Relist(listed) => {
                objects = listed.iter().map(|(object, pods)| (*object, set(pods))).collect();
                decides.relist(listed, now);
            }
            Happens::Wait(millis) => {
                now += Duration::from_millis(*millis);
                last_listed.extend(objects.values().flatten().map(|number| (*number, now)));
            }
        }
        let listed = objects.values().flatten().copied();
        let recent = last_listed.iter().filter(|(_, at)| **at + GRACE > now).map(|(number, _)| *number);
        let expected: BTreeSet<IpAddr> = listed.chain(recent).map(address).collect();
        prop_assert_eq!(decides.served(now), expected, "after {:?}", step);
    }
    Ok(())
}

proptest! {
    #[test]
    fn who_is_served_follows_from_what_objects_list_in_every_order(story in story()) {
        agrees(&mut Clients::new(vec![]), &story)?;
    }
}

/// Ways to be wrong.
#[derive(Clone, Copy, Debug)]
enum Defect {
    /// The last object that lists an address owns it, and its end is the address's (Coil #212, #227).
    LastOwnerDecides,
    /// A list that begins anew does not end what it does not mention (Coil #363).
    ListsForgetNobody,
    /// An address that comes back is let go all the same when its time is over.
    ReturnIsOverlooked,
    /// Two pods of one object with one address count once.
    TwoPodsAreOne,
    /// There is no grace.
    NoGrace,
}

/// The machine with a defect: counts by address, as simple as can be.
struct Planted {
    defect: Defect,
    objects: BTreeMap<u8, Vec<u8>>,
    counts: BTreeMap<u8, i32>,
    leaving: BTreeMap<u8, Duration>,
}

impl Planted {
    fn list(&mut self, object: u8, pods: &[Vec<u8>], now: Duration) {
        let mut numbers: Vec<u8> = pods.iter().flatten().copied().collect();
        for number in &numbers {
            *self.counts.entry(*number).or_default() += 1;
            if !matches!(self.defect, Defect::ReturnIsOverlooked) {
                self.leaving.remove(number);
            }
        }
        if let Defect::TwoPodsAreOne = self.defect {
            let unique: BTreeSet<u8> = numbers.iter().copied().collect();
            for number in &unique {
                self.counts.insert(*number, 1);
            }
            numbers = unique.into_iter().collect();
        }
        let before = self.objects.insert(object, numbers);
        self.end(before, now);
    }

    fn end(&mut self, numbers: Option<Vec<u8>>, now: Duration) {
        for number in numbers.unwrap_or_default() {
            let count = self.counts.entry(number).or_default();
            *count = if let Defect::LastOwnerDecides = self.defect { 0 } else { *count - 1 };
            if *count <= 0 {
                let grace = if let Defect::NoGrace = self.defect { Duration::ZERO } else { GRACE };
                self.leaving.insert(number, now + grace);
            }
        }
    }
}

impl Decides for Planted {
    fn apply(&mut self, object: u8, pods: &[Vec<u8>], now: Duration) {
        self.list(object, pods, now);
    }

    fn remove(&mut self, object: u8, now: Duration) {
        let before = self.objects.remove(&object);
        self.end(before, now);
    }

    fn relist(&mut self, objects: &BTreeMap<u8, Vec<Vec<u8>>>, now: Duration) {
        for (object, pods) in objects {
            self.list(*object, pods, now);
        }
        if !matches!(self.defect, Defect::ListsForgetNobody) {
            let gone: Vec<u8> = self.objects.keys().copied().filter(|it| !objects.contains_key(it)).collect();
            for object in gone {
                self.remove(object, now);
            }
        }
    }

    fn served(&mut self, now: Duration) -> BTreeSet<IpAddr> {
        let over: Vec<u8> =
            self.leaving.iter().filter(|(_, until)| **until <= now).map(|(it, _)| *it).collect();
        for number in over {
            self.leaving.remove(&number);
            self.counts.remove(&number);
        }
        let listed = self.counts.iter().filter(|(_, count)| **count > 0).map(|(number, _)| *number);
        listed.chain(self.leaving.keys().copied()).map(address).collect()
    }
}

#[test]
fn planted_defects_are_found() {
    for defect in [
        Defect::LastOwnerDecides,
        Defect::ListsForgetNobody,
        Defect::ReturnIsOverlooked,
        Defect::TwoPodsAreOne,
        Defect::NoGrace,
    ] {
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
        let found = runner.run(&story(), |story| {
            let (objects, counts, leaving) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
            agrees(&mut Planted { defect, objects, counts, leaving }, &story)
        });
        assert!(found.is_err(), "{defect:?} was not found");
    }
}
