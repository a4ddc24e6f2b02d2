//! Pods that are called like others.

use super::*;

#[test]
fn a_pod_of_the_same_name_is_another_pod_unless_its_uid_or_its_container_says_that_it_is_the_same() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/24"}));
    let first = who("a", "net1");
    assert_eq!(add(&mut memory, &config, &first), held(&["10.0.0.1"]));
    // Deleted by force and made again: the first one may run on.
    let second = Who { id: "id-2".into(), uid: "uid-2".into(), ..first.clone() };
    assert_eq!(add(&mut memory, &config, &second), held(&["10.0.0.2"]));
    // Who is not said to be anybody is nobody who was there before.
    let unsaid = Who { id: "id-3".into(), uid: String::new(), ..first.clone() };
    assert_eq!(add(&mut memory, &config, &unsaid), held(&["10.0.0.3"]));
    assert_eq!(add(&mut memory, &config, &unsaid), held(&["10.0.0.3"]), "its own container asks again");
    // Another container of the same pod: its node has ended the one before.
    let again = Who { id: "id-4".into(), ..first.clone() };
    assert_eq!(add(&mut memory, &config, &again), held(&["10.0.0.1"]));
    assert_eq!(del(&mut memory, &config, &first), Answer::Released(Vec::new()), "a late DEL");
    assert_eq!(del(&mut memory, &config, &second), Answer::Released(addresses(&["10.0.0.2"])));
    assert_eq!(records(&memory), 2);
}

#[test]
fn a_record_of_whereabouts_that_names_another_container_is_not_taken_over_by_a_pod_of_its_name() {
    let mut memory = Memory::default();
    let records =
        [("1", "c1", "ns/a", Some("net1")), ("2", "", "ns/b", Some("net1")), ("3", "c3", "ns/c", None)];
    memory.put_pool(pool("10.0.0.0-24", "10.0.0.0/24", &records));
    let config = config(&json!({"range": "10.0.0.0/24"}));
    assert_eq!(add(&mut memory, &config, &who("a", "net1")), held(&["10.0.0.4"]));
    assert_eq!(add(&mut memory, &config, &who("b", "net1")), held(&["10.0.0.2"]), "no container has it");
    assert_eq!(add(&mut memory, &config, &who("c", "net1")), held(&["10.0.0.5"]));
    let third = Who { id: "c3".into(), uid: String::new(), ..who("c", "net1") };
    assert_eq!(add(&mut memory, &config, &third), held(&["10.0.0.3"]), "the container itself asks");
}

#[test]
fn a_reservation_of_another_pod_of_the_same_name_is_not_taken_for_ones_own() {
    let mut memory = Memory::default();
    let (narrow, wide) = (config(&json!({"range": "10.0.0.0/28"})), config(&json!({"range": "10.0.0.0/24"})));
    add(&mut memory, &narrow, &who("x", "net1"));
    add(&mut memory, &wide, &who("y", "net1"));
    // The first pod's reservation is made, and its record is still to be written.
    let first = who("a", "net1");
    let hold = |who: &Who, config: &Config| vec![Request::hold(who.clone(), Want::of(config, &[]))];
    let mut early = memory.read("", false).plan(hold(&first, &narrow), &Spread::of(""), Timestamp::default());
    memory.carry_out(&mut early.clone(), 1);
    let second = Who { id: "id-2".into(), uid: "uid-2".into(), ..first };
    assert_eq!(add(&mut memory, &wide, &second), held(&["10.0.0.4"]));
    assert!(early.answers.contains(&held(&["10.0.0.3"])));
    assert!(!memory.carry_out(&mut early, usize::MAX).look_again);
}

#[test]
fn a_record_says_which_nodes_agent_made_it_and_what_whereabouts_left_does_when_it_is_taken_over() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "192.168.2.0/24"}));
    let left = ("9", "", "ns/b", Some("net1"));
    memory.put_pool(pool("192.168.2.0-24", "192.168.2.0/24", &[left]));
    for _ in 0..4 {
        let network = memory.read("", false).written_by("node-1");
        let requests = [who("a", "net1"), who("b", "net1")];
        let requests = requests.map(|who| Request::hold(who, Want::of(&config, &[]))).to_vec();
        let mut plan = network.plan(requests, &Spread::of(""), Timestamp::default());
        memory.carry_out(&mut plan, usize::MAX);
    }
    let records = &memory.pool("192.168.2.0-24").unwrap().spec.allocations;
    let nodes: Vec<_> = records.values().map(|it| (it.podref.as_str(), it.node.as_deref())).collect();
    assert_eq!(nodes, [("ns/a", Some("node-1")), ("ns/b", Some("node-1"))]);
}
