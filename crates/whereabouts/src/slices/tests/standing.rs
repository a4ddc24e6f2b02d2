//! Who gets a range that several request.

use super::*;

fn at(created: u64, edited: bool, it: AttachmentDefinition) -> AttachmentDefinition {
    let uid = format!("uid-{}", it.name);
    AttachmentDefinition { created: Timestamp::from_millis(created), edited, uid, ..it }
}

fn in_use(range: &str) -> SharedPool {
    let id = PoolId::shared("", range.parse().unwrap());
    SharedPool { name: id.name().unwrap(), id, state: State::Unique, used: 3 }
}

#[test]
fn a_definition_that_overlaps_what_others_use_costs_only_its_author() {
    let wide = attachment("evil", "wide", &json!({"range": "10.0.0.0/8", "node_slice_size": "/22"}));
    let mut rig = Rig::new(vec![wide], &["a"]);
    rig.shared = vec![in_use("10.7.0.0/16")];
    let plan = rig.step();
    assert!(plan.guards.is_empty() && plan.writes.len() == 1, "nothing is sealed: {:?}", plan.writes);
    let (ready, message) = condition(&rig.pools[0], "Ready");
    assert!(ready == "False" && message.contains("10.7.0.0-16"), "{message}");
    assert!(slices(&rig.pools[0]).iter().all(|(node, _)| node.is_empty()));
    let told = About::Attachment("evil".into(), "wide".into());
    assert!(plan.events.iter().any(|event| event.about == told && event.message.contains("10.7.0.0-16")));
    let said = slice_of("wide", Some(&rig.pools[0]), "a").unwrap_err().to_string();
    assert!(said.contains("10.7.0.0-16") && !said.contains("smaller"), "{said}");
    // An earlier version has sealed it: it is opened.
    rig.shared[0].state = State::Sliced;
    assert_eq!(rig.step().writes, [SliceWrite::Unseal { name: "10.7.0.0-16".into() }]);
    // It is not in use any more: now the range may be divided.
    rig.shared[0].used = 0;
    assert_eq!(rig.step().guards.len(), 1);
    assert!(slices(&rig.pools[0]).iter().any(|(node, _)| *node == "a"));
    // Assigned slices stay assigned.
    rig.shared[0].used = 1;
    rig.step();
    assert_eq!(condition(&rig.pools[0], "Ready").0, "True");
}

#[test]
fn who_asked_for_a_range_first_has_it_and_an_edited_definition_asked_when_it_was_edited() {
    let wide = attachment("evil", "wide", &json!({"range": "10.0.0.0/8", "node_slice_size": "/22"}));
    let plain = attachment("good", "plain", &json!({"range": "10.7.0.0/16"}));
    let cases = [(1, false, 2, true), (2, false, 1, false), (2, false, 2, false), (1, true, 2, false)];
    for (since, edited, other, ready) in cases {
        let both = vec![at(since, edited, wide.clone()), at(other, false, plain.clone())];
        let mut rig = Rig::new(both, &["a"]);
        let plan = rig.step();
        let said = condition(&rig.pools[0], "Ready");
        assert_eq!(said.0 == "True", ready, "{since} {edited} {other}: {said:?}");
        assert!(ready || (said.1.contains("good/plain") && plan.guards.is_empty()));
    }
    // The same range, requested undivided by somebody else; a definition that ignores other ranges does not count.
    let heedless = |range: &str| {
        attachment("good", "plain", &json!({"range": range, "enable_overlapping_ranges": false}))
    };
    for (range, ready) in [("10.0.0.0/8", "False"), ("10.7.0.0/16", "True")] {
        let mut rig = Rig::new(vec![at(2, false, wide.clone()), at(1, false, heedless(range))], &["a"]);
        rig.step();
        assert_eq!(condition(&rig.pools[0], "Ready").0, ready);
    }
}

#[test]
fn a_sliced_range_that_grows_over_what_others_use_stays_as_it_was_cut() {
    let of = |range: &str| attachment("evil", "net", &json!({"range": range, "node_slice_size": "/26"}));
    let mut rig = Rig::new(vec![of("10.0.0.0/24")], &["a"]);
    rig.step();
    rig.shared = vec![in_use("10.0.1.0/24")];
    rig.attachments = vec![of("10.0.0.0/20")];
    let plan = rig.step();
    assert!(plan.guards.is_empty() && !plan.writes.iter().any(|it| matches!(it, SliceWrite::Seal { .. })));
    assert_eq!(rig.pools[0].spec.range, "10.0.0.0/24");
    assert_eq!(slices(&rig.pools[0])[0], ("a", "10.0.0.0/26"));
    assert_eq!(condition(&rig.pools[0], "Ready").0, "False");
    // Holds of the range from before its division are its own.
    rig.shared = vec![SharedPool { state: State::Sliced, ..in_use("10.0.0.0/24") }];
    rig.step();
    assert_eq!(rig.pools[0].spec.range, "10.0.0.0/20");
    assert_eq!(condition(&rig.pools[0], "Ready").0, "True");
}

#[test]
fn what_cannot_be_read_keeps_nothing_closed() {
    let net = attachment("a", "net", &json!({"range": "10.0.0.0/24", "node_slice_size": "/26"}));
    let garbage = attachment("evil", "x", &json!({}));
    let garbage = AttachmentDefinition { config: "{".into(), uid: "u".into(), ..garbage };
    let mut rig = Rig::new(vec![net, garbage], &["n"]);
    rig.step();
    rig.shared = vec![SharedPool { state: State::Sliced, used: 0, ..in_use("10.0.0.0/24") }];
    rig.attachments.remove(0);
    assert!(matches!(rig.step().writes[..], [SliceWrite::Delete { .. }]));
    assert_eq!(rig.step().writes, [SliceWrite::Unseal { name: "10.0.0.0-24".into() }]);
    assert!(rig.plan().refused.contains_key("evil/x"));
}

#[test]
fn a_pool_that_is_not_ready_gives_nothing_also_where_a_node_holds_addresses_of_the_older_one() {
    let of = |name: &str, size: &str| {
        attachment("kube-system", name, &json!({"range": "10.0.0.0/24", "node_slice_size": size}))
    };
    let mut rig = Rig::new(vec![at(1, false, of("old", "/26")), at(2, false, of("young", "/27"))], &["n"]);
    rig.step();
    rig.held = vec![span("n", "10.0.0.1", "10.0.0.1")];
    rig.step();
    let young = rig.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some("young")).unwrap();
    assert_eq!(condition(young, "Ready").0, "False");
    assert!(slices(young).iter().all(|(node, _)| node.is_empty()), "{:?}", slices(young));
    let said = slice_of("young", Some(young), "n").unwrap_err().to_string();
    assert!(said.contains("overlaps") && said.contains("network_name"), "{said}");
}
