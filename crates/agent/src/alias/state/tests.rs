//! What the node is told and what its object says, step by step.

use serde_json::json;
use tenure_api::cloud::{AliasPool, NodeAlias, NodeAliasesSpec, NodeAliasesStatus};
use tenure_ipam::{Address, Cidr};

use super::super::facts::KnownPool;
use super::{PoolChoice, State};
use crate::key::Pod;
use crate::node::{AskId, Event, RefusalKind, SeenBlock};

const NODE: &str = "node-1";

fn pool(spec: &serde_json::Value) -> KnownPool {
    let mut pool = json!({
        "apiVersion": "ipam.gcp-cni.cast.ai/v1alpha1", "kind": "IPPool", "metadata": {"name": "live"},
        "spec": {"cidr": "10.111.0.0/16", "subnet": "projects/p/regions/r/subnetworks/s", "warm": 0},
    });
    for (field, value) in spec.as_object().unwrap() {
        pool["spec"][field] = value.clone();
    }
    let pool: AliasPool = serde_json::from_value(pool).unwrap();
    KnownPool::of(&pool).unwrap()
}

fn cidr(number: u8) -> Cidr {
    format!("10.111.0.{number}/32").parse().unwrap()
}

fn address(number: u8) -> Address {
    cidr(number).first()
}

/// The controller and the machine around a node's state.
struct Rig {
    state: State,
    spec: Option<NodeAliasesSpec>,
    status: NodeAliasesStatus,
}

impl Rig {
    /// A state that has read everything: these ranges, attached.
    fn new(attached: impl IntoIterator<Item = u8>) -> Self {
        let state = State::new(NODE.to_owned(), PoolChoice::Only);
        let mut rig = Self { state, spec: None, status: NodeAliasesStatus::default() };
        for number in attached {
            rig.put(number, |alias| alias.attached = true);
        }
        rig.spec = (!rig.status.aliases.is_empty()).then(|| NodeAliasesSpec {
            pool: "live".to_owned(),
            wanted: i32::try_from(rig.status.aliases.len()).unwrap(),
            ..NodeAliasesSpec::default()
        });
        rig
    }

    fn started(mut self) -> Self {
        self.state.pool_seen("live", Some(Ok(pool(&json!({})))));
        self.show();
        self.state.listed();
        let ranges = self.status.aliases.keys().map(|text| text.parse().unwrap()).collect();
        self.state.machine_seen(Ok(ranges));
        self
    }

    fn put(&mut self, number: u8, change: impl FnOnce(&mut NodeAlias)) {
        let grant = format!("g{number}");
        let alias = self.status.aliases.entry(cidr(number).to_string());
        change(alias.or_insert_with(|| NodeAlias { grant, ..NodeAlias::default() }));
    }

    fn show(&mut self) {
        self.state.object_seen(self.spec.clone().map(|spec| (spec, Some(self.status.clone()))));
    }

    fn arrive(&mut self, numbers: impl IntoIterator<Item = u8>) {
        self.state.machine_seen(Ok(numbers.into_iter().map(cidr).collect()));
    }

    /// Writes what is to be written. Returns how many ranges are wanted.
    fn write(&mut self) -> i32 {
        if let Some(spec) = self.state.unwritten() {
            self.spec = Some(spec);
        }
        self.show();
        assert_eq!(self.state.unwritten(), None);
        self.spec.as_ref().map_or(0, |spec| spec.wanted)
    }

    /// Blocks that were told of, and other events.
    fn events(&mut self) -> (Vec<SeenBlock>, Vec<Event>) {
        let (mut blocks, mut others) = (Vec::new(), Vec::new());
        for event in self.state.take_events() {
            match event {
                Event::BlockSeen(block) => blocks.push(block),
                other => others.push(other),
            }
        }
        (blocks, others)
    }
}

fn refusals(events: &[Event]) -> Vec<(RefusalKind, &str)> {
    let refused = |event: &_| match event {
        Event::BlockRefused { refusal, .. } => {
            Some((refusal.kind, &*Box::leak(refusal.message.clone().into())))
        }
        _ => None,
    };
    events.iter().filter_map(refused).collect()
}

#[test]
fn nothing_is_told_before_pools_ranges_and_machine_were_read() {
    let mut rig = Rig::new([1, 2]);
    rig.state.pool_seen("live", Some(Ok(pool(&json!({})))));
    rig.show();
    rig.state.listed();
    assert_eq!(rig.events(), (Vec::new(), Vec::new()));
    rig.arrive([1]);
    let (blocks, others) = rig.events();
    let told: Vec<(&str, &str, bool)> =
        blocks.iter().map(|block| (&*block.name, &*block.uid, block.reserved)).collect();
    // The node may have holds in the second one, so it is told of it, too.
    assert_eq!(
        told,
        [("live-10.111.0.1/32", "g1@10.111.0.1/32", false), ("live-10.111.0.2/32", "g2@10.111.0.2/32", true)]
    );
    assert_eq!(blocks[0].pool, "alias/live");
    assert!(matches!(&others[..], [Event::PoolChanged { .. }, Event::SourceRead { .. }]), "{others:?}");
}

#[test]
fn a_slow_cloud_is_never_asked_twice_for_one_pod() {
    let mut rig = Rig::new([]).started();
    for ask in 0..3 {
        rig.state.ask(AskId(ask));
    }
    assert_eq!(rig.write(), 3);
    for number in 1..=3 {
        rig.put(number, |_| {});
    }
    rig.show();
    assert_eq!(rig.write(), 3, "they are on their way");
    for number in 1..=3 {
        rig.put(number, |alias| alias.attached = true);
    }
    rig.events();
    rig.show();
    rig.arrive([1]);
    let (blocks, others) = rig.events();
    assert_eq!((blocks.len(), others.len()), (1, 1), "{others:?}");
    assert_eq!(others[0], Event::BlockGranted { ask: AskId(0), block: "live-10.111.0.1/32".into() });
    rig.arrive([1, 2, 3]);
    assert_eq!(rig.write(), 3);
    rig.state.ask(AskId(4));
    assert_eq!(rig.write(), 4);
}

#[test]
fn what_the_controller_says_reaches_those_that_get_nothing_and_they_still_count() {
    let mut rig = Rig::new([]).started();
    rig.state.ask(AskId(0));
    rig.state.ask(AskId(1));
    rig.write();
    rig.events();
    rig.put(1, |_| {});
    rig.status.problem = Some("out of addresses".to_owned());
    rig.show();
    let (_, others) = rig.events();
    assert_eq!(refusals(&others), [(RefusalKind::Unreachable, "out of addresses")], "one is on its way");
    assert_eq!(rig.write(), 2, "the controller gives it when it can");
    rig.state.ask(AskId(2));
    assert_eq!(rig.write(), 2, "it is the same pod again");
    rig.put(1, |alias| alias.problem = Some("in use by another machine".to_owned()));
    rig.status.problem = None;
    rig.events();
    rig.show();
    let (_, others) = rig.events();
    assert_eq!(refusals(&others), [(RefusalKind::Unreachable, "in use by another machine")]);
    rig.status.problem = Some("out of addresses".to_owned());
    let exhausted = {
        let mut known = pool(&json!({}));
        known.facts.exhausted = true;
        known
    };
    rig.state.pool_seen("live", Some(Ok(exhausted)));
    rig.state.ask(AskId(3));
    rig.events();
    rig.show();
    rig.state.ask(AskId(4));
    let (_, others) = rig.events();
    assert_eq!(refusals(&others), [(RefusalKind::Exhausted, "out of addresses")]);
}

#[test]
fn what_is_not_asked_for_again_is_forgotten() {
    let mut rig = Rig::new([]).started();
    rig.status.problem = Some("out of addresses".to_owned());
    for ask in 0..3 {
        rig.state.ask(AskId(ask));
    }
    rig.write();
    rig.show();
    rig.state.patrol();
    assert_eq!(rig.write(), 3);
    rig.state.ask(AskId(3));
    rig.state.patrol();
    assert_eq!(rig.write(), 1, "two of them have gone");
    rig.state.patrol();
    assert_eq!(rig.write(), 0);
}

#[test]
fn ranges_of_a_pool_that_is_gone_can_be_returned() {
    let mut rig = Rig::new([1]).started();
    rig.state.pool_seen("live", None);
    rig.state.give_back("live-10.111.0.1/32".into(), "g1@10.111.0.1/32".into());
    assert_eq!(rig.write(), 0);
    assert_eq!(rig.spec.clone().unwrap().returned.len(), 1);
}

#[test]
fn a_returned_range_is_written_once_and_forgotten_when_the_status_lacks_it() {
    let mut rig = Rig::new([1, 2]).started();
    rig.events();
    rig.state.give_back("live-10.111.0.1/32".into(), "g1@10.111.0.1/32".into());
    assert_eq!(rig.write(), 1);
    assert_eq!(rig.spec.clone().unwrap().returned, [("10.111.0.1/32".to_owned(), "g1".to_owned())].into());
    assert_eq!(rig.events(), (Vec::new(), Vec::new()));
    rig.status.aliases.remove("10.111.0.1/32");
    rig.show();
    let gone = Event::BlockGone { name: "live-10.111.0.1/32".into(), uid: "g1@10.111.0.1/32".into() };
    assert_eq!(rig.events().1, [gone]);
    assert_eq!(rig.write(), 1);
    assert!(rig.spec.clone().unwrap().returned.is_empty());
    // The same range by another grant is another one.
    rig.put(1, |alias| *alias = NodeAlias { grant: "g9".into(), attached: true, ..NodeAlias::default() });
    rig.show();
    assert_eq!(rig.events().0[0].uid, "g9@10.111.0.1/32");
}

#[test]
fn a_restart_remembers_what_was_returned_and_who_leaves() {
    let mut rig = Rig::new([1, 2]);
    let pod = json!({"namespace": "shop", "pod": "web", "uid": "u"});
    let spec = rig.spec.as_mut().unwrap();
    spec.returned = [("10.111.0.1/32".to_owned(), "g1".to_owned())].into();
    spec.leaving = [("10.111.0.2".to_owned(), serde_json::from_value(pod).unwrap())].into();
    let mut rig = rig.started();
    let (blocks, _) = rig.events();
    assert_eq!(blocks.len(), 1, "the other one is not this node's any more");
    assert_eq!(blocks[0].pod.as_deref(), Some("u"));
    // The pod has ended; its address stays until the controller has noted it, and then as long as the controller says.
    rig.state.marks_seen([].into(), Vec::new());
    rig.write();
    assert_eq!(rig.spec.clone().unwrap().leaving.len(), 1);
    rig.put(2, |alias| alias.pod = Some("u".to_owned()));
    rig.show();
    rig.write();
    assert!(rig.spec.clone().unwrap().leaving.is_empty());
    assert_eq!(rig.events(), (Vec::new(), Vec::new()), "it is still kept for the pod");
    rig.put(2, |alias| alias.pod = None);
    rig.show();
    assert_eq!(rig.events().0[0].pod, None);
}

#[test]
fn ranges_that_were_granted_together_are_blocks_of_their_own() {
    let mut rig = Rig::new([1]).started();
    rig.events();
    for number in [2, 3] {
        rig.put(number, |alias| (alias.grant, alias.attached) = ("together".into(), true));
    }
    rig.show();
    rig.arrive([1, 2, 3]);
    let told: Vec<String> = rig.events().0.into_iter().map(|block| block.uid).collect();
    assert_eq!(told, ["together@10.111.0.2/32", "together@10.111.0.3/32"]);
    rig.state.give_back("live-10.111.0.3/32".into(), told[1].clone());
    rig.write();
    let returned = [("10.111.0.3/32".to_owned(), "together".to_owned())].into();
    assert_eq!(rig.spec.clone().unwrap().returned, returned);
}

#[test]
fn a_range_that_moves_in_answers_no_request() {
    let mut rig = Rig::new([1]).started();
    rig.state.ask(AskId(0));
    assert_eq!(rig.write(), 2);
    rig.events();
    rig.put(7, |alias| (alias.attached, alias.pod) = (true, Some("mover".to_owned())));
    rig.show();
    rig.arrive([1, 7]);
    let (blocks, others) = rig.events();
    assert_eq!((blocks.len(), others), (1, Vec::new()));
    assert_eq!(blocks[0].pod.as_deref(), Some("mover"));
    assert_eq!(
        rig.write(),
        2,
        "the one that was asked for is still wanted, and the mover's is not for any pod"
    );
}

#[test]
fn only_a_marked_pod_that_holds_a_single_address_leaves_with_it() {
    let mut rig = Rig::new([1, 2]).started();
    rig.events();
    let pod = |uid: &str| Pod { namespace: "shop".into(), name: uid.into(), uid: uid.into() };
    let holds = [(address(1), pod("a")), (address(2), pod("b")), (address(9), pod("a"))];
    rig.state.marks_seen([("a".to_owned(), true), ("b".to_owned(), false)].into(), holds.to_vec());
    let (blocks, _) = rig.events();
    let told: Vec<(&str, Option<&str>)> =
        blocks.iter().map(|block| (&*block.uid, block.pod.as_deref())).collect();
    assert_eq!(told, [("g1@10.111.0.1/32", Some("a"))]);
    rig.write();
    assert_eq!(rig.spec.clone().unwrap().leaving.keys().collect::<Vec<_>>(), ["10.111.0.1"]);
    rig.state.marks_seen([("a".to_owned(), false)].into(), holds.to_vec());
    assert_eq!(rig.events().0[0].pod, None, "the mark was taken back");
}

#[test]
fn a_deleted_object_says_nothing_about_ranges() {
    let mut rig = Rig::new([1]).started();
    rig.events();
    rig.state.object_seen(None);
    assert_eq!(rig.events(), (Vec::new(), Vec::new()));
    let again = rig.state.unwritten().unwrap();
    assert_eq!((again.pool.as_str(), again.wanted), ("live", 1));
    rig.state.object_seen(Some((again, None)));
    assert_eq!(rig.events(), (Vec::new(), Vec::new()));
    rig.show();
    assert_eq!(rig.events(), (Vec::new(), Vec::new()));
}

#[test]
fn a_machine_that_loses_a_range_or_its_metadata_keeps_what_it_holds() {
    let mut rig = Rig::new([1]).started();
    rig.events();
    rig.state.machine_seen(Err("no answer".into()));
    assert_eq!(rig.events(), (Vec::new(), Vec::new()), "what it said last holds");
    rig.arrive([]);
    assert!(rig.events().0[0].reserved, "nothing is assigned from it, and its holds stay");
    rig.arrive([1]);
    assert!(!rig.events().0[0].reserved);
}

#[test]
fn several_pools_need_a_name_and_a_pool_in_use_stays() {
    let mut rig = Rig::new([]).started();
    rig.state.pool_seen("other", Some(Ok(pool(&json!({"cidr": "10.112.0.0/16"})))));
    assert!(rig.state.pool().unwrap_err().contains("several IPPools (live, other)"));
    let mut rig = Rig::new([1]).started();
    rig.state.pool_seen("other", Some(Ok(pool(&json!({"cidr": "10.112.0.0/16"})))));
    assert_eq!(rig.state.pool().unwrap().0, "live");
    rig.state.pool_seen("live", None);
    assert!(rig.state.pool().unwrap_err().contains("there is no IPPool \"live\""));
}

#[test]
fn a_pool_is_what_the_object_says() {
    let known = pool(&json!({
        "attach": "block", "blockSizeBits": 4, "cooling": "10s", "exclude": ["10.111.0.9"],
        "ranges": [{"cidr": "10.112.0.0/24", "secondaryRangeName": "more"}], "warm": 3,
    }));
    assert!(!known.moves);
    assert_eq!((known.facts.block_bits, known.facts.warm), (4, Some(3)));
    assert_eq!(known.facts.cooling, Some(std::time::Duration::from_secs(10)));
    let assigns = |text: &str| known.facts.assigns(text.parse().unwrap());
    assert!(assigns("10.111.0.1") && assigns("10.112.0.254"));
    assert!(!["10.111.0.0", "10.111.0.9", "10.111.255.255", "10.112.0.0"].into_iter().any(assigns));
    assert_eq!(known.range_of("10.112.0.7".parse().unwrap()), Some("10.112.0.0/24".parse().unwrap()));
    assert_eq!(pool(&json!({"warm": null})).facts.warm, Some(8));
}
