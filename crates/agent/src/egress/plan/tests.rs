//! Who is a client when: pods, addresses, annotations and Egresses in any order, compared with a model that says it in one line.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use tenure_linux::egress::SourcePort;

use super::*;

const NAMES: [&str; 3] = ["web", "db", "batch"];
const EGRESSES: [&str; 3] = ["a", "b", "c"];

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    /// A pod of this name is made anew and asks for these Egresses.
    Pod(usize, BTreeSet<usize>),
    /// Its annotations change.
    Annotate(usize, BTreeSet<usize>),
    /// Its object goes.
    Delete(usize),
    /// An interface of the pod of this name as it is now, with this address; the second of these is not the pod's own.
    Attach(usize, u8, bool),
    /// The oldest interface of a name goes.
    Detach(usize),
    /// An Egress comes, with or without its Service, or goes.
    Egress(usize, Option<bool>),
}

fn step() -> impl Strategy<Value = Step> {
    let ids = || proptest::collection::btree_set(0..EGRESSES.len(), 0..3);
    let pod = || 0..NAMES.len();
    prop_oneof![
        (pod(), ids()).prop_map(|(pod, ids)| Step::Pod(pod, ids)),
        (pod(), ids()).prop_map(|(pod, ids)| Step::Annotate(pod, ids)),
        pod().prop_map(Step::Delete),
        (pod(), any::<u8>(), prop::bool::weighted(0.8))
            .prop_map(|(pod, address, own)| Step::Attach(pod, address, own)),
        pod().prop_map(Step::Detach),
        (0..EGRESSES.len(), proptest::option::weighted(0.8, prop::bool::weighted(0.8)))
            .prop_map(|(egress, service)| Step::Egress(egress, service)),
    ]
}

#[derive(Default)]
struct World {
    made: u32,
    /// UID and Egresses by name.
    pods: BTreeMap<usize, (String, BTreeSet<usize>)>,
    attachments: Vec<Attachment>,
    /// Whether each has a Service.
    egresses: BTreeMap<usize, bool>,
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Pod(name, ids) => {
                self.made += 1;
                self.pods.insert(name, (format!("uid-{}", self.made), ids));
            }
            Step::Annotate(name, ids) => {
                if let Some(pod) = self.pods.get_mut(&name) {
                    pod.1 = ids;
                }
            }
            Step::Delete(name) => drop(self.pods.remove(&name)),
            Step::Attach(name, address, own) => {
                let Some((uid, _)) = self.pods.get(&name) else { return };
                self.made += 1;
                self.attachments.push(Attachment {
                    network: "k8s".into(),
                    container: format!("c{}", self.made),
                    interface: if own { INTERFACE.into() } else { "net1".into() },
                    netns: "/run/netns/x".into(),
                    namespace: "shop".into(),
                    pod: NAMES[name].into(),
                    uid: uid.clone(),
                    addresses: vec![IpAddr::from([10, 1, 0, address])],
                });
            }
            Step::Detach(name) => {
                let oldest = self.attachments.iter().position(|it| it.pod == NAMES[name]);
                oldest.map(|position| self.attachments.remove(position));
            }
            Step::Egress(egress, Some(service)) => drop(self.egresses.insert(egress, service)),
            Step::Egress(egress, None) => drop(self.egresses.remove(&egress)),
        }
    }

    fn desired(&self) -> Desired {
        let pods: BTreeMap<&str, KnownPod<EgressUse>> = self
            .pods
            .iter()
            .map(|(name, (uid, ids))| (NAMES[*name], known(NAMES[*name], uid, ids)))
            .collect();
        let find = |it: &Attachment| (it.namespace == "shop").then(|| pods.get(it.pod.as_str())).flatten();
        desired(self.attachments.clone(), find, |id| Some(self.egress(id)))
    }

    fn egress(&self, id: &EgressId) -> KnownEgress {
        let number = EGRESSES.iter().position(|name| *name == id.name).unwrap();
        let service = self.egresses.get(&number);
        let way_out = match service {
            None => Err(Unusable::NoEgress(id.clone())),
            Some(false) => Err(Unusable::NoService(id.clone())),
            Some(true) => Ok(way_out(number)),
        };
        KnownEgress { uid: service.map(|_| format!("uid-of-{}", id.name)), way_out }
    }

    /// Every address of every Egress, by its definition: an own interface of a pod that is there, and asks for an Egress that is,
    /// whether or not that one, or another, has a Service.
    fn served(&self) -> BTreeSet<(String, String)> {
        let mut served = BTreeSet::new();
        for attachment in self.attachments.iter().filter(|it| it.interface == INTERFACE) {
            let pod = self.pods.iter().find(|(name, _)| NAMES[**name] == attachment.pod);
            let Some((_, (uid, ids))) = pod else { continue };
            for id in ids.iter().filter(|id| *uid == attachment.uid && self.egresses.contains_key(id)) {
                served.insert((EGRESSES[*id].to_owned(), attachment.addresses[0].to_string()));
            }
        }
        served
    }
}

fn way_out(number: usize) -> WayOut {
    let last = u8::try_from(number).unwrap();
    WayOut {
        services: vec![IpAddr::from([10, 96, 0, last])],
        destinations: vec!["0.0.0.0/0".parse().unwrap()],
        source_port: SourcePort::Fixed,
        originating_only: false,
    }
}

fn known(name: &str, uid: &str, ids: &BTreeSet<usize>) -> KnownPod<EgressUse> {
    let names: Vec<&str> = ids.iter().map(|id| EGRESSES[*id]).collect();
    let key = "egress.coil.cybozu.com/internet";
    let annotations = if names.is_empty() { json!({}) } else { json!({key: names.join(",")}) };
    let metadata = json!({"name": name, "namespace": "shop", "uid": uid, "annotations": annotations});
    let object: PartialObjectMeta<Pod> = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    KnownPod::read(&object)
}

fn listed(desired: &Desired) -> BTreeSet<(String, String)> {
    let clients = desired.clients.of.iter().flat_map(|(id, of)| of.clients.iter().map(move |it| (id, it)));
    clients
        .flat_map(|(id, client)| {
            client.addresses.iter().map(move |address| (id.name.clone(), address.clone()))
        })
        .collect()
}

proptest! {
    #[test]
    fn exactly_the_pods_that_are_there_and_ask_for_it_are_clients(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::default();
        for step in steps {
            world.take(step);
            let desired = world.desired();
            // A pod has four addresses at most, and so many sandboxes at once are nobody's.
            let crowded = desired.clients.of.values().flat_map(|of| &of.clients).any(|it| it.addresses.len() >= 4);
            if !crowded {
                prop_assert_eq!(listed(&desired), world.served());
            }
            prop_assert!(listed(&desired).is_subset(&world.served()));
            for (attachment, wanted) in &desired.pods {
                prop_assert_eq!(&attachment.interface, INTERFACE);
                let uid = world.pods.iter().find(|(name, _)| NAMES[**name] == attachment.pod).map(|(_, pod)| &pod.0);
                prop_assert_eq!(uid, Some(&attachment.uid), "another pod of the name decides nothing");
                prop_assert!(wanted.egresses.len() <= EGRESSES.len());
            }
        }
    }
}

#[test]
fn nothing_is_taken_away_while_an_egress_is_not_known_yet() {
    let mut world = World::default();
    for step in [Step::Pod(0, [0].into()), Step::Egress(0, Some(true)), Step::Attach(0, 7, true)] {
        world.take(step);
    }
    let pod = known("web", "uid-1", &[0].into());
    let desired = desired(world.attachments.clone(), |_| Some(&pod), |_| None);
    assert!(desired.unknown && desired.pods.is_empty() && desired.clients.of.is_empty());
    // The Service goes for a moment: the pod keeps what it has.
    world.take(Step::Egress(0, Some(false)));
    let waiting = world.desired();
    assert!(waiting.pods.is_empty());
    assert_eq!(listed(&waiting), [("a".to_owned(), "10.1.0.7".to_owned())].into());
    // The Egress goes: so does the pod's way out, and it is told.
    world.take(Step::Egress(0, None));
    let desired = world.desired();
    assert!(desired.pods[0].1.is_nothing());
    assert_eq!(desired.refused.len(), 1);
}

#[test]
fn an_annotation_that_cannot_be_read_leaves_the_pod_as_it_is_and_is_told() {
    let mut world = World::default();
    world.take(Step::Pod(0, BTreeSet::new()));
    world.take(Step::Attach(0, 7, true));
    let mut pod = known("web", "uid-1", &BTreeSet::new());
    let wrong = BTreeMap::from([("egress.coil.cybozu.com/internet".to_owned(), "a,,b".to_owned())]);
    pod.facet = Arc::new(EgressUse { egresses: egresses_of(&wrong), gateway: false });
    let desired = desired(world.attachments, |_| Some(&pod), |_| None);
    assert!(desired.pods.is_empty());
    assert!(desired.refused[0].1.contains("a,,b"), "{:?}", desired.refused);
    // Its gateways go on to serve it, at the addresses that it still has.
    let client = |uid: &str, address: &str| EgressClient {
        namespace: "shop".into(),
        pod: "web".into(),
        uid: uid.into(),
        addresses: vec![address.into()],
    };
    let mine = client("uid-1", "10.1.0.7");
    let id = EgressId::new("internet", "a");
    let there = [mine.clone(), client("uid-1", "10.1.0.9"), client("uid-gone", "10.1.0.7")];
    assert_eq!(desired.clients.with_kept(&id, &there), std::slice::from_ref(&mine));
    let mut clients = desired.clients;
    let others = ClientsOf { egress_uid: "u".into(), clients: vec![client("uid-2", "10.1.0.2")] };
    clients.of.insert(id.clone(), others);
    assert_eq!(clients.with_kept(&id, &there), [mine, client("uid-2", "10.1.0.2")]);
    assert_eq!(clients.with_kept(&id, &[]).len(), 1, "nobody is added");
}

#[test]
fn an_egress_without_a_service_does_not_end_the_use_of_another() {
    let mut world = World::default();
    for step in [
        Step::Egress(0, Some(false)),
        Step::Egress(1, Some(true)),
        Step::Pod(0, [1].into()),
        Step::Attach(0, 7, true),
        Step::Annotate(0, [0, 1].into()),
    ] {
        world.take(step);
    }
    let desired = world.desired();
    let address = "10.1.0.7".to_owned();
    assert_eq!(listed(&desired), [("a".to_owned(), address.clone()), ("b".to_owned(), address)].into());
    assert!(desired.pods.is_empty(), "its namespace stays as it is");
}

#[test]
fn a_pod_whose_namespace_was_forgotten_stays_a_client() {
    let mut world = World::default();
    for step in [Step::Egress(0, Some(true)), Step::Pod(0, [0].into()), Step::Attach(0, 7, true)] {
        world.take(step);
    }
    world.attachments[0].netns.clear();
    let desired = world.desired();
    assert_eq!(listed(&desired), [("a".to_owned(), "10.1.0.7".to_owned())].into());
    assert!(desired.pods.is_empty() && desired.refused.is_empty());
}
