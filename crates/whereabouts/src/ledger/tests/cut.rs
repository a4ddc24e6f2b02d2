//! Ranges that are cut into slices, and whose an object is.

use super::*;

#[test]
fn a_range_that_was_cut_into_slices_hands_out_nothing_and_releases_everything() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    add(&mut memory, &config, &who("a", "net1"));
    let mut sealed = memory.pool("10.0.0.0-24").unwrap().clone();
    sealed.metadata.annotations = Some([(STATE.to_owned(), "sliced".to_owned())].into());
    memory.put_pool(sealed);
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.1"]));
    assert!(matches!(
        add(&mut memory, &config, &who("b", "net1")),
        Answer::Refused(LedgerRefusal::Sliced { .. })
    ));
    assert_eq!(del(&mut memory, &config, &who("a", "net1")), Answer::Released(addresses(&["10.0.0.1"])));
}

#[test]
fn a_node_that_takes_a_slice_knows_who_has_addresses_of_it() {
    let slice = PoolId::of_node("blue", "node1", "10.0.1.0/24".parse().unwrap());
    let whole = pool(
        "blue-10.0.0.0-16",
        "10.0.0.0/16",
        &[("300", "c", "ns/a", Some("net1")), ("5", "d", "ns/b", Some("net1"))],
    );
    let own = pool(
        &slice.name().unwrap(),
        "10.0.1.0/24",
        &[("7", "e", "ns/c", Some("net1")), ("900", "f", "ns/d", None)],
    );
    let adopted = adopt(&slice, Some(&own), [&whole]);
    assert_eq!(adopted.reserved, addresses(&["10.0.1.44"]));
    assert_eq!((adopted.held.len(), adopted.refused.len()), (1, 1));
    let object = owned_object(&slice, State::Owned, &adopted.held, Some(&own)).unwrap();
    assert_eq!(object.spec, own.spec, "written back unchanged");
    assert_eq!(object.metadata.name.as_deref(), Some("blue-node1-10.0.1.0-24"));
    // What it owns is nobody else's, down to the last address.
    let mut memory = Memory::default();
    memory.put_pool(owned_object(&slice, State::Owned, [], None).unwrap());
    let overlapping =
        config(&json!({"range": "10.0.0.0/23", "network_name": "blue", "range_start": "10.0.0.254"}));
    let Answer::Refused(refusal) = add(&mut memory, &overlapping, &who("a", "net1")) else {
        panic!("it was given an address")
    };
    let words = refusal.to_string();
    for part in ["10.0.0.0/23", "10.0.1.0/24", "blue-node1-10.0.1.0-24", "network_name"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(memory.pool("blue-10.0.0.0-23").is_none(), "nothing is made for it");
}

#[test]
fn a_range_inside_or_around_one_that_is_cut_hands_out_nothing_whichever_was_there_first() {
    for range in ["10.0.0.0/24", "10.0.0.0/12"] {
        for first in [false, true] {
            let mut memory = Memory::default();
            let config = config(&json!({"range": range}));
            if first {
                assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.1"]));
            }
            let guard = PoolId::shared("", "10.0.0.0/16".parse().unwrap());
            memory.put_pool(guard.empty_object(0, State::Sliced).unwrap());
            let refused = add(&mut memory, &config, &who("b", "net1"));
            assert!(matches!(refused, Answer::Refused(LedgerRefusal::Overlaps { .. })), "{refused:?}");
            if first {
                assert_eq!(
                    add(&mut memory, &config, &who("a", "net1")),
                    held(&["10.0.0.1"]),
                    "it keeps its own"
                );
            }
            let outside = self::config(&json!({"range": "10.0.0.0/28", "enable_overlapping_ranges": false}));
            assert_eq!(add(&mut memory, &outside, &who("c", "net1")), held(&["10.0.0.1"]), "it heeds nobody");
        }
    }
}

#[test]
fn who_did_not_hear_that_a_range_was_cut_for_a_while_takes_nothing_by_what_it_knew_before() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    add(&mut memory, &config, &who("a", "net1"));
    let before = memory.read("", false);
    for state in [State::Sliced, State::Unique] {
        let pool = memory.pool("10.0.0.0-24").unwrap();
        let marked = plan::Mark::on(pool, state).apply(pool).unwrap();
        memory.put_pool(marked);
    }
    assert_eq!(State::of(memory.pool("10.0.0.0-24").unwrap()), State::Unique);
    let request = vec![Request::hold(who("b", "net1"), Want::of(&config, &[]))];
    let mut plan = before.plan(request, &Spread::of(""), Timestamp::default());
    let written = memory.carry_out(&mut plan, usize::MAX);
    assert!(
        written.look_again && matches!(plan.settle(|name| written.outcome(name))[..], [Settled::Again(_)])
    );
    assert_eq!(add(&mut memory, &config, &who("b", "net1")), held(&["10.0.0.2"]), "it has looked");
}

#[test]
fn which_objects_may_hold_addresses_is_told_by_their_names() {
    let slice = "10.0.16.0/20".parse().unwrap();
    for (network, name, may) in [
        ("", "10.0.0.0-16", true),
        ("", "10.0.0.0-16.16", true),
        ("", "10.0.0.0-16.15", false),
        ("", "10.0.17.0-24", true),
        ("", "10.0.32.0-24", false),
        ("", "10.0.0.0-8", true),
        ("", "blue-10.0.0.0-16", false),
        ("blue", "blue-10.0.0.0-16", true),
        ("blue", "blue-node1-10.0.0.0-16", false),
        ("", "fd00---64", false),
        ("", "x", false),
    ] {
        assert_eq!(PoolId::may_hold(network, name, &slice), may, "{network} {name}");
    }
    assert!(PoolId::may_hold("", "fd00---64", &"fd00::10/124".parse().unwrap()));
    assert!(PoolId::may_hold("", "0---126", &"::/127".parse().unwrap()));
}

#[test]
fn a_slice_that_is_no_longer_a_nodes_keeps_only_what_is_held_in_it() {
    let slice = PoolId::of_node("", "node1", "10.0.0.0/28".parse().unwrap());
    let held_there = tenure_api::whereabouts::Reservation {
        id: "c".into(),
        podref: "ns/old".into(),
        uid: String::new(),
        ifname: "net1".into(),
        address: "10.0.0.1".parse().unwrap(),
    };
    let mut memory = Memory::default();
    memory.put_pool(owned_object(&slice, State::Unique, [&held_there], None).unwrap());
    let whole = config(&json!({"range": "10.0.0.0/24"}));
    assert_eq!(add(&mut memory, &whole, &who("a", "net1")), held(&["10.0.0.2"]));
}

#[test]
fn names_tell_whose_an_object_is() {
    let of = |network: &str, pool: &IPPool| PoolId::of_object(network, pool, |node| node == "node1");
    let plain = pool("10.0.0.0-16", "10.0.0.0/16", &[]);
    assert_eq!(of("", &plain), Some((PoolId::shared("", "10.0.0.0/16".parse().unwrap()), 0)));
    assert_eq!(of("blue", &plain), None);
    let more = pool("blue-10.0.0.0-16.3", "10.0.0.0/16", &[]);
    assert_eq!(of("blue", &more).map(|(_, number)| number), Some(3));
    let node = pool("node1-10.0.3.0-24", "10.0.3.0/24", &[]);
    assert_eq!(of("", &node).map(|(id, _)| id.node), Some("node1".to_owned()));
    assert_eq!(of("", &pool("blue-10.0.3.0-24", "10.0.3.0/24", &[])), None);
    let reservation =
        |name: &str| OverlappingRangeIPReservation::new(name, OverlappingRangeIPReservationSpec::default());
    let address = |network: &str, name: &str| {
        network::reserved_address(network, &reservation(name)).map(|a| a.to_string())
    };
    assert_eq!(address("", "10.0.0.1").as_deref(), Some("10.0.0.1"));
    assert_eq!(address("blue", "blue-fd00--0").as_deref(), Some("fd00::"));
    assert_eq!(address("", "0--1").as_deref(), Some("::1"));
    assert_eq!((address("", "blue-10.0.0.1"), address("blue", "10.0.0.1")), (None, None));
}
