//! Definitions, nodes and holds, and what a plan makes of them.

use serde_json::json;

use super::*;

fn attachment(namespace: &str, name: &str, ipam: &Value) -> AttachmentDefinition {
    let mut config = json!({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "ipam": ipam});
    config["ipam"]["type"] = json!("whereabouts");
    AttachmentDefinition {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        edited: false,
        created: Timestamp::from_millis(1),
        config: config.to_string(),
    }
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The pools after a plan.
fn apply(pools: &mut Vec<NodeSlicePool>, plan: &SlicePlan) {
    for write in &plan.writes {
        match write {
            SliceWrite::Create(pool) => pools.push((**pool).clone()),
            SliceWrite::Replace(pool) => {
                pools.retain(|other| other.metadata.name != pool.metadata.name);
                pools.push((**pool).clone());
            }
            SliceWrite::Delete { name, .. } => pools.retain(|pool| pool.metadata.name.as_ref() != Some(name)),
            SliceWrite::Seal { .. } | SliceWrite::Unseal { .. } => {}
        }
    }
}

fn slices(pool: &NodeSlicePool) -> Vec<(&str, &str)> {
    pool.status
        .iter()
        .flat_map(|s| &s.allocations)
        .map(|s| (s.node_name.as_str(), s.slice_range.as_str()))
        .collect()
}

fn span(node: &str, first: &str, last: &str) -> HeldSpan {
    HeldSpan {
        network: String::new(),
        node: node.into(),
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
    }
}

fn condition<'p>(pool: &'p NodeSlicePool, type_: &str) -> (&'p str, &'p str) {
    let status = pool.status.as_ref().unwrap();
    let found = status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    (&found.status, &found.message)
}

struct Rig {
    attachments: Vec<AttachmentDefinition>,
    nodes: BTreeSet<String>,
    pools: Vec<NodeSlicePool>,
    held: Vec<HeldSpan>,
    shared: Vec<SharedPool>,
    owned: Vec<PoolId>,
    floating: BTreeMap<String, Floating>,
}

impl Rig {
    fn new(attachments: Vec<AttachmentDefinition>, names: &[&str]) -> Self {
        Self {
            attachments,
            nodes: nodes(names),
            pools: Vec::new(),
            held: Vec::new(),
            shared: Vec::new(),
            owned: Vec::new(),
            floating: BTreeMap::new(),
        }
    }

    fn plan(&self) -> SlicePlan {
        plan(&Inputs {
            namespace: "kube-system",
            attachments: &self.attachments,
            flat: None,
            nodes: &self.nodes,
            pools: &self.pools,
            held: &self.held,
            shared: &self.shared,
            owned: &self.owned,
            floating: &self.floating,
            now: Timestamp::from_millis(5_000),
        })
    }

    fn step(&mut self) -> SlicePlan {
        let plan = self.plan();
        apply(&mut self.pools, &plan);
        plan
    }
}

mod standing;

#[test]
fn a_dead_nodes_slice_is_given_away_only_when_nothing_is_held_in_it() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net], &["a", "b"]);
    rig.step();
    rig.held = vec![span("a", "10.0.0.5", "10.0.0.9")];
    rig.nodes = nodes(&["b", "c", "d", "e"]);
    rig.step();
    let expected =
        [("a", "10.0.0.0/26"), ("b", "10.0.0.64/26"), ("c", "10.0.0.128/26"), ("d", "10.0.0.192/26")];
    assert_eq!(slices(&rig.pools[0]), expected);
    assert_eq!(condition(&rig.pools[0], "NodesWithoutSlice").0, "True");
    // Nothing is held, but its ledger marks the slice as in use.
    rig.held.clear();
    rig.owned = vec![PoolId::of_node("", "a", "10.0.0.0/26".parse().unwrap())];
    rig.step();
    assert_eq!(slices(&rig.pools[0]), expected);
    rig.owned.clear();
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("", "10.0.0.0/26"), "first it is taken away");
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("e", "10.0.0.0/26"));
    assert_eq!(condition(&rig.pools[0], "NodesWithoutSlice").0, "False");
}

#[test]
fn a_slice_that_was_taken_away_while_its_node_came_back_for_it_is_nobody_elses() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/25"}));
    let mut rig = Rig::new(vec![net], &["a", "b"]);
    rig.step();
    rig.nodes = nodes(&["b", "c"]);
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("", "10.0.0.0/25"));
    // The node's ledger says so before the node checks again that it still has the slice.
    rig.owned = vec![PoolId::of_node("", "a", "10.0.0.0/25".parse().unwrap())];
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("a", "10.0.0.0/25"));
    rig.nodes = nodes(&["a", "b", "c"]);
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("a", "10.0.0.0/25"));
}

#[test]
fn nodes_beyond_the_last_slice_get_a_condition_events_once_and_a_clear_refusal() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/25"}));
    let mut rig = Rig::new(vec![net], &["a", "b", "c"]);
    let plan = rig.step();
    assert!(plan.events.iter().any(|event| event.about == About::Node("c".into())), "{:?}", plan.events);
    assert!(condition(&rig.pools[0], "NodesWithoutSlice").1.contains('c'));
    let again = rig.step();
    assert_eq!((again.events, again.writes), (vec![], vec![]));
    let refusal = slice_of("net", rig.pools.first(), "c").unwrap_err().to_string();
    assert!(refusal.contains("node c") && refusal.contains("10.0.0.0/24 has 2 slices"), "{refusal}");
    assert_eq!(slice_of("net", rig.pools.first(), "b").unwrap().to_string(), "10.0.0.128/25");
    assert!(matches!(slice_of("net", None, "b"), Err(SliceRefusal::NoPool { .. })));
}

#[test]
fn a_range_that_grows_keeps_what_is_assigned() {
    let net =
        |range: &str| attachment("kube-system", "net", &json!({"range": range, "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net("10.0.1.0/25")], &["a", "b", "c"]);
    rig.step();
    rig.attachments = vec![net("10.0.0.0/23")];
    rig.step();
    let with_node: Vec<_> = slices(&rig.pools[0]).into_iter().filter(|(node, _)| !node.is_empty()).collect();
    assert_eq!(with_node, [("c", "10.0.0.0/26"), ("a", "10.0.1.0/26"), ("b", "10.0.1.64/26")]);
}

#[test]
fn a_range_that_is_cut_anew_gives_nobody_what_another_one_holds() {
    let net = |size: &str| {
        attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": size}))
    };
    let mut rig = Rig::new(vec![net("/25")], &["a", "b"]);
    rig.step();
    rig.held = vec![span("a", "10.0.0.1", "10.0.0.100"), span("b", "10.0.0.130", "10.0.0.130")];
    rig.attachments = vec![net("/26")];
    rig.nodes = nodes(&["a", "b", "c", "d"]);
    rig.step();
    let expected =
        [("a", "10.0.0.0/26"), ("", "10.0.0.64/26"), ("b", "10.0.0.128/26"), ("c", "10.0.0.192/26")];
    assert_eq!(slices(&rig.pools[0]), expected);
    assert!(condition(&rig.pools[0], "Ready").1.contains("wait"));
}

#[test]
fn a_pool_that_was_deleted_and_made_again_gives_the_slices_back_to_those_who_hold() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net.clone()], &["a", "b"]);
    rig.step();
    rig.held = vec![span("b", "10.0.0.64", "10.0.0.70"), span("gone", "10.0.0.1", "10.0.0.1")];
    rig.attachments.clear();
    assert!(matches!(&rig.step().writes[..], [SliceWrite::Delete { name, .. }] if name == "net"));
    rig.attachments.push(net);
    rig.step();
    let got = slices(&rig.pools[0]);
    assert_eq!(got[..3], [("gone", "10.0.0.0/26"), ("b", "10.0.0.64/26"), ("a", "10.0.0.128/26")]);
}

#[test]
fn definitions_of_any_namespace_and_of_lists_share_a_network() {
    let ipam = json!({"type": "whereabouts", "range": "10.0.0.0/24", "node_slice_size": "/26", "network_name": "blue"});
    let mut list = attachment("apps", "second", &ipam);
    list.config =
        json!({"name": "x", "plugins": [{"type": "tuning"}, {"type": "macvlan", "ipam": ipam}]}).to_string();
    let mut rig = Rig::new(vec![attachment("kube-system", "first", &ipam), list], &["a"]);
    rig.step();
    assert_eq!((rig.pools.len(), rig.pools[0].metadata.name.as_deref()), (1, Some("blue")));
    assert_eq!(rig.pools[0].metadata.owner_references, None, "an owner of another namespace would delete it");
    rig.attachments.pop();
    rig.step();
    assert_eq!(rig.pools[0].metadata.owner_references.as_ref().map(Vec::len), Some(1));
}

#[test]
fn definitions_that_contradict_each_other_are_a_condition_and_change_nothing() {
    let of = |name: &str, size: &str, created: u64| AttachmentDefinition {
        created: Timestamp::from_millis(created),
        ..attachment(
            "kube-system",
            name,
            &json!({"range": "10.0.0.0/24", "node_slice_size": size, "network_name": "blue"}),
        )
    };
    let mut rig = Rig::new(vec![of("a", "/27", 9), of("b", "/26", 2)], &["n"]);
    let plan = rig.step();
    assert_eq!((rig.pools[0].spec.slice_size.as_str(), plan.conflicts.len()), ("/26", 1));
    assert_eq!(condition(&rig.pools[0], "Conflict").0, "True");
    assert!(
        plan.events.iter().any(|event| event.about == About::Attachment("kube-system".into(), "a".into()))
    );
    // The older one is edited: the pool stays while somebody wants it.
    rig.attachments = vec![of("a", "/26", 9), of("b", "/27", 2)];
    rig.step();
    assert_eq!(rig.pools[0].spec.slice_size, "/26");
}

#[test]
fn networks_without_a_name_do_not_disturb_each_other_unless_they_cut_the_same_addresses() {
    let of = |name: &str, range: &str| {
        attachment("kube-system", name, &json!({"range": range, "node_slice_size": "/26"}))
    };
    let mut rig =
        Rig::new(vec![of("a", "10.0.0.0/24"), of("b", "10.1.0.0/24"), of("c", "10.0.0.0/25")], &["n"]);
    rig.step();
    let given = |place: usize| slices(&rig.pools[place]).iter().filter(|(node, _)| !node.is_empty()).count();
    assert_eq!([given(0), given(1), given(2)], [1, 1, 0]);
    assert_eq!(condition(&rig.pools[2], "Ready").0, "False");
}

#[test]
fn of_two_that_cut_the_same_addresses_the_older_one_has_them() {
    let of = |name: &str, created: u64| AttachmentDefinition {
        created: Timestamp::from_millis(created),
        ..attachment("kube-system", name, &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}))
    };
    let mut rig = Rig::new(vec![of("a", 9), of("b", 2)], &["n"]);
    rig.step();
    let ready = |name: &str| {
        let found = rig.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(name)).unwrap();
        condition(found, "Ready").0.to_owned()
    };
    assert_eq!((ready("a"), ready("b")), ("False".to_owned(), "True".to_owned()));
}

#[test]
fn windows_and_exclusions_keep_slices_back() {
    let ipam = json!({"range": "10.0.0.0/24", "node_slice_size": "/26", "exclude": ["10.0.0.64/26"], "range_start": "10.0.0.10", "range_end": "10.0.0.140"});
    let mut rig = Rig::new(vec![attachment("kube-system", "net", &ipam)], &["a", "b", "c"]);
    rig.step();
    let expected =
        [("a", "10.0.0.0/26"), ("", "10.0.0.64/26"), ("b", "10.0.0.128/26"), ("", "10.0.0.192/26")];
    assert_eq!(slices(&rig.pools[0]), expected);
}

#[test]
fn every_range_of_a_dual_stack_network_is_cut() {
    let ipam =
        json!({"range": "10.0.0.0/24", "node_slice_size": "/26", "ipRanges": [{"range": "fd00::/64"}]});
    let mut rig = Rig::new(vec![attachment("kube-system", "net", &ipam)], &["a"]);
    rig.step();
    let names: Vec<_> = rig.pools.iter().filter_map(|pool| pool.metadata.name.as_deref()).collect();
    assert_eq!(names, ["net", "net-fd00---64"]);
    assert_eq!(slices(&rig.pools[1])[0], ("a", "fd00::/66"));
}

#[test]
fn a_range_in_use_is_sealed_before_its_slices_are_given_away_and_opened_when_it_is_whole_again() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net], &["a"]);
    let id = PoolId::shared("", "10.0.0.0/24".parse().unwrap());
    rig.shared = vec![SharedPool { name: id.name().unwrap(), id, state: State::Unique, used: 1 }];
    let plan = rig.step();
    assert_eq!(plan.writes, [SliceWrite::Seal { name: "10.0.0.0-24".into() }]);
    assert_eq!(rig.pools.len(), 0, "p4: a pool appears with its nodes in it");
    rig.shared[0].state = State::Sliced;
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0], ("a", "10.0.0.0/26"));
    rig.attachments.clear();
    assert!(matches!(rig.step().writes[..], [SliceWrite::Delete { .. }]));
    assert_eq!(rig.step().writes, [SliceWrite::Unseal { name: "10.0.0.0-24".into() }]);
}

#[test]
fn ranges_that_overlap_what_is_cut_are_sealed_before_slices_are_given_and_opened_when_nothing_is() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/16", "node_slice_size": "/24"}));
    let mut rig = Rig::new(vec![net], &["a"]);
    let shared = |network: &str, range: &str, state: State| {
        let id = PoolId::shared(network, range.parse().unwrap());
        SharedPool { name: id.name().unwrap(), id, state, used: 0 }
    };
    rig.shared = vec![
        shared("", "10.0.0.0/16", State::Sliced),
        shared("", "10.0.7.0/24", State::Unique),
        shared("", "10.0.0.0/12", State::Overlapping),
        shared("", "10.0.8.0/24", State::Unmarked),
        shared("", "10.1.0.0/24", State::Unique),
        shared("blue", "10.0.7.0/24", State::Unique),
    ];
    let plan = rig.step();
    let sealed = |name: &str| plan.writes.contains(&SliceWrite::Seal { name: name.into() });
    let names = ["10.0.7.0-24", "10.0.0.0-12", "10.0.8.0-24", "10.1.0.0-24", "blue-10.0.7.0-24"];
    assert_eq!(names.map(sealed), [true, true, false, false, false]);
    assert_eq!(rig.pools.len(), 0, "not yet");
    rig.shared[1].state = State::Sliced;
    rig.shared[2].state = State::Sliced;
    rig.step();
    assert_eq!(slices(&rig.pools[0])[0].0, "a");
    rig.attachments.clear();
    rig.owned = vec![PoolId::of_node("", "a", "10.0.0.0/24".parse().unwrap())];
    assert!(matches!(rig.step().writes[..], [SliceWrite::Delete { .. }]));
    let opened = |plan: SlicePlan| plan.writes.len();
    assert_eq!(
        rig.step().writes,
        [SliceWrite::Unseal { name: "10.0.7.0-24".into() }],
        "the node's is elsewhere"
    );
    rig.shared[1].state = State::Unique;
    rig.owned.clear();
    assert_eq!(opened(rig.step()), 2);
}

#[test]
fn a_range_that_nobody_used_as_a_whole_gets_its_guard_before_it_is_cut() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net], &["a"]);
    let plan = rig.plan();
    let guard = &plan.guards[0];
    assert_eq!((plan.guards.len(), guard.metadata.name.as_deref()), (1, Some("10.0.0.0-24")));
    assert_eq!((State::of(guard), guard.spec.allocations.len()), (State::Sliced, 0));
    let id = PoolId::shared("", "10.0.0.0/24".parse().unwrap());
    rig.shared = vec![SharedPool { name: id.name().unwrap(), id, state: State::Sliced, used: 0 }];
    assert!(rig.step().guards.is_empty());
}

#[test]
fn a_pool_is_asked_for_also_by_what_cannot_be_read() {
    let ipam = json!({"range": "10.0.0.0/24", "node_slice_size": "/26", "network_name": "blue"});
    let wrong = json!({"range": "10.0.0.0/24", "node_slice_size": "/x", "network_name": "red"});
    let all = [attachment("a", "one", &ipam), attachment("b", "two", &wrong)];
    let pool = |name: &str| NodeSlicePool::new(name, tenure_api::whereabouts::NodeSlicePoolSpec::default());
    assert_eq!(["blue", "red", "one"].map(|name| is_asked_for(&pool(name), &all, None)), [true, true, false]);
    let mut others = pool("red");
    others.metadata.annotations =
        Some([("whereabouts.cni.cncf.io/definitions".into(), "uid-of-others".into())].into());
    assert!(!is_asked_for(&others, &all, None), "d6: what cannot be read keeps nobody else's pool");
    assert_eq!(networks(&all, None), BTreeSet::from(["blue".to_owned()]));
}

#[test]
fn a_definition_that_cannot_be_read_is_reported_and_its_pool_stays() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![net], &["a"]);
    rig.step();
    rig.attachments =
        vec![attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/2x"}))];
    let plan = rig.step();
    assert_eq!((plan.writes, rig.pools.len()), (vec![], 1));
    assert!(plan.refused["kube-system/net"].contains("node_slice_size"), "{:?}", plan.refused);
    rig.attachments = vec![AttachmentDefinition { config: "{}".into(), ..rig.attachments.remove(0) }];
    assert_eq!(rig.plan().writes.len(), 1, "now nobody asks for it");
}

#[test]
fn pools_tell_who_holds_what_and_which_ranges_are_used_as_a_whole() {
    use tenure_api::whereabouts::{Allocation, IPPool, IPPoolSpec};
    let pool = |name: &str, range: &str, keys: &[&str]| {
        let allocations = keys.iter().map(|key| ((*key).to_owned(), Allocation::default())).collect();
        IPPool::new(name, IPPoolSpec { range: range.to_owned(), allocations })
    };
    let pools = [
        pool("blue-node1-10.0.1.0-24", "10.0.1.0/24", &["7", "3"]),
        pool("blue-node2-10.0.2.0-24", "10.0.2.0/24", &[]),
        pool("blue-10.0.0.0-16", "10.0.0.0/16", &["1"]),
        pool("red-10.0.0.0-16", "10.0.0.0/16", &["1"]),
    ];
    let (held, shared) = see(&pools, &BTreeSet::from(["blue".to_owned()]), |node| node.starts_with("node"));
    assert_eq!(held, [HeldSpan { network: "blue".into(), ..span("node1", "10.0.1.3", "10.0.1.7") }]);
    assert_eq!(shared.iter().map(|shared| shared.name.as_str()).collect::<Vec<_>>(), ["blue-10.0.0.0-16"]);
}

#[test]
fn five_thousand_nodes_are_one_write() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/8", "node_slice_size": "/21"}));
    let mut rig = Rig::new(vec![net], &[]);
    rig.nodes = (0..5_000).map(|n| format!("node-{n}.rack.example")).collect();
    assert_eq!(rig.step().writes.len(), 1);
    let given = slices(&rig.pools[0]).iter().filter(|(node, _)| !node.is_empty()).count();
    assert_eq!(given, 5_000);
    rig.nodes.insert("one-more".into());
    assert_eq!(rig.step().writes.len(), 1);
    assert_eq!(rig.step().writes.len(), 0);
    let bytes = serde_json::to_vec(&rig.pools[0]).unwrap().len();
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn a_pool_says_which_network_it_is_for() {
    let named = json!({"range": "10.0.0.0/24", "node_slice_size": "/26", "network_name": "blue"});
    let unnamed = json!({"range": "10.1.0.0/24", "node_slice_size": "/26"});
    let rig = Rig::new(vec![attachment("a", "one", &named), attachment("a", "two", &unnamed)], &["a"]);
    let made = rig.plan().writes.into_iter().filter_map(|write| match write {
        SliceWrite::Create(pool) => Some((pool.metadata.name.clone().unwrap(), network_of(&pool))),
        _ => None,
    });
    let made: Vec<(String, String)> = made.collect();
    assert_eq!(made, [("blue".to_owned(), "blue".to_owned()), ("two".to_owned(), String::new())]);
}

#[test]
fn a_pool_of_whereabouts_itself_is_for_the_network_that_it_is_named_for() {
    let pool = |name: &str, range: &str| {
        let spec = json!({"range": range, "sliceSize": "/80"});
        serde_json::from_value::<NodeSlicePool>(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    assert_eq!(network_of(&pool("blue", "10.0.0.0/24")), "blue");
    assert_eq!(network_of(&pool("blue-fd00---64", "fd00::/64")), "blue");
}

#[test]
fn claims_get_the_slices_they_name_and_of_the_rest_what_nodes_leave_over() {
    let net = attachment("kube-system", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/27"}));
    let mut rig = Rig::new(vec![net], &["a", "b"]);
    rig.step();
    let named = BTreeSet::from(["10.0.0.160/27".parse().unwrap(), "10.0.0.0/27".parse().unwrap()]);
    rig.floating = BTreeMap::from([("net".to_owned(), Floating { slices: named, more: 2 })]);
    rig.nodes = nodes(&["a", "b", "c"]);
    rig.step();
    let ours = |rig: &Rig| -> Vec<String> {
        let all = slices(&rig.pools[0]).into_iter();
        all.filter(|(node, _)| *node == "tenure:claims").map(|(_, slice)| slice.to_owned()).collect()
    };
    assert_eq!(
        slices(&rig.pools[0])[..3],
        [("a", "10.0.0.0/27"), ("b", "10.0.0.32/27"), ("c", "10.0.0.64/27")]
    );
    assert_eq!(
        ours(&rig),
        ["10.0.0.96/27", "10.0.0.128/27", "10.0.0.160/27"],
        "a node's is not taken from it"
    );
    let ready = condition(&rig.pools[0], "Ready").1;
    assert!(ready.starts_with("3 of 8 slices have a node, 3 are for claims"), "{ready}");
    // Returned when nobody requests it, unless somebody holds an address of it.
    rig.floating.clear();
    rig.held = vec![span("tenure:claims", "10.0.0.130", "10.0.0.131")];
    rig.step();
    assert_eq!(ours(&rig), ["10.0.0.128/27"]);
    assert!(rig.plan().writes.is_empty(), "and a second look changes nothing");
    rig.nodes = nodes(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    rig.step();
    assert_eq!(ours(&rig), ["10.0.0.128/27"], "also when a node goes without");
    rig.held.clear();
    rig.step();
    assert!(ours(&rig).is_empty());
}
