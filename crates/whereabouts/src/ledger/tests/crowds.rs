//! Which address comes next when many ask, and what rests.

use super::*;

/// Serves all requests of several nodes that plan at the same moment, by the same knowledge, round by round; answers how many
/// rounds that took.
fn serve_at_once(memory: &mut Memory, nodes: &mut [(Spread, Vec<Request>)]) -> usize {
    let now = Timestamp::from_millis(1_000);
    for round in 0..1_000 {
        if nodes.iter().all(|(_, waiting)| waiting.is_empty()) {
            return round;
        }
        let known = memory.read("", false);
        let plan = |(spread, waiting): &(Spread, Vec<Request>)| known.plan(waiting.clone(), spread, now);
        let plans: Vec<_> = nodes.iter().map(plan).collect();
        for ((spread, waiting), mut plan) in nodes.iter_mut().zip(plans) {
            let written = memory.carry_out(&mut plan, usize::MAX);
            for write in plan.write.iter().filter(|write| write.adds()) {
                let pool = known.pool_of(&write.name).unwrap();
                match written.outcome(&write.name) {
                    Outcome::Written => spread.won(pool),
                    Outcome::Conflict => spread.lost(pool, now),
                }
            }
            let settled = plan.settle(|name| written.outcome(name)).into_iter();
            let again =
                settled.filter_map(|it| if let Settled::Again(again) = it { Some(again) } else { None });
            *waiting = again.collect();
        }
    }
    panic!("requests wait for ever");
}

fn many(nodes: usize, pods: usize, config: &Config) -> Vec<(Spread, Vec<Request>)> {
    let pod = |name: String| Request::hold(who(&name, "net1"), Want::of(config, &[]));
    let pods = |node: usize| (0..pods).map(|it| pod(format!("p{node}-{it}"))).collect();
    (0..nodes).map(|node| (Spread::of(&format!("node-{node}")), pods(node))).collect()
}

#[test]
fn nine_pods_at_once_on_three_nodes_get_the_nine_lowest_addresses_in_one_object() {
    for heeds in [true, false] {
        let mut memory = Memory::default();
        let config = config(&json!({"range": "10.0.0.0/16", "enable_overlapping_ranges": heeds}));
        serve_at_once(&mut memory, &mut many(3, 3, &config));
        let main = memory.pool("10.0.0.0-16").unwrap();
        let mut offsets: Vec<u32> = main.spec.allocations.keys().map(|key| key.parse().unwrap()).collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (1..=9).collect::<Vec<_>>());
        assert_eq!(memory.pools().count(), 1);
    }
}

#[test]
fn a_crowd_is_served_in_few_rounds_and_its_first_object_fills_first() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/16"}));
    let rounds = serve_at_once(&mut memory, &mut many(50, 2, &config));
    assert!(rounds <= 20, "{rounds} rounds");
    assert_eq!(records(&memory), 100);
    assert!(memory.pool("10.0.0.0-16").unwrap().spec.allocations.len() > 50);
}

#[test]
fn cooling_is_said_in_the_object_outlives_who_wrote_it_and_gives_way_oldest_first() {
    let mut memory = Memory::default();
    let config = config(&json!({"range": "10.0.0.0/29"}));
    for pod in ["a", "b", "c"] {
        add(&mut memory, &config, &who(pod, "net1"));
    }
    let rest = std::time::Duration::from_secs(30);
    for (pod, key, at) in [("b", "2", 1_000), ("a", "1", 2_000)] {
        let network = memory.read("", false);
        let record = memory.pool("10.0.0.0-29").unwrap().spec.allocations[key].clone();
        let act = Act::Forget { object: "10.0.0.0-29".into(), key: key.into(), record };
        let forget = vec![Request { who: who(pod, "net1"), act }];
        let mut plan = network.plan_with_rest(forget, rest, &Spread::of(""), Timestamp::from_millis(at));
        let patch = plan.write[0].patch().to_string();
        assert!(patch.contains("whereabouts.cni.cncf.io~1cooling"), "{patch}");
        assert!(!memory.carry_out(&mut plan, usize::MAX).look_again);
    }
    let said = memory.pool("10.0.0.0-29").unwrap().metadata.annotations.clone().unwrap();
    assert_eq!(said[COOLING], "2:31000 1:32000");
    // Whoever reads it next heeds it, and takes what has rested longest when nothing else is left.
    let hold = |pod: &str| Request::hold(who(pod, "net1"), Want::of(&config, &[]));
    let answers = |memory: &Memory, now: u64| {
        let pods = ["d", "e", "f", "g", "h"].map(hold).into();
        memory.read("", false).plan(pods, &Spread::of("x"), Timestamp::from_millis(now)).answers
    };
    let order = ["10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.2", "10.0.0.1"];
    assert_eq!(answers(&memory, 3_000), order.map(|address| held(&[address])));
    assert_eq!(answers(&memory, 31_500)[0], held(&["10.0.0.2"]), "it has rested");
    // What makes no sense rests nobody.
    let mut garbled = memory.pool("10.0.0.0-29").unwrap().clone();
    let text = "x 9:1 4: :5 -1:7 4:99999999";
    garbled.metadata.annotations.as_mut().unwrap().insert(COOLING.into(), text.into());
    memory.put_pool(garbled);
    assert_eq!(answers(&memory, 3_000)[0], held(&["10.0.0.1"]));
    assert_eq!(answers(&memory, 3_000)[2], held(&["10.0.0.5"]));
}
