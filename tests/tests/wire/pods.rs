//! One pod at a time: made, looked at, taken away, counted.

use tenure_agent::node::{Action, Event};
use tenure_linux::inventory::Inventory;
use tenure_testbed::wait::PATIENCE;

use super::bed::{Machine, NODE_V4, NODE_V6, Pod, Result, ip};

#[test]
fn pods_of_either_family_and_of_both_reach_the_node_and_each_other() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let four = Pod::new("four", &["10.2.0.1"])?;
    let six = Pod::new("six", &["fd01::2"])?;
    let both = Pod::new("both", &["10.2.0.3", "fd01::3"])?;
    for pod in [&four, &six, &both] {
        let link = node.wire(pod);
        assert!(link.host_name.starts_with("tnr"), "{link:?}");
        assert_eq!(node.inspect(pod), Vec::<String>::new());
        assert_eq!(node.wire(pod), link, "repeated, it is the same");
    }
    assert_eq!(machine.table(116), ["10.2.0.1", "10.2.0.3", "fd01::2", "fd01::3"]);
    four.bed.ping(ip(NODE_V4), PATIENCE)?;
    six.bed.ping(ip(NODE_V6), PATIENCE)?;
    both.bed.ping(ip("10.2.0.1"), PATIENCE)?;
    both.bed.ping(ip("fd01::2"), PATIENCE)?;
    machine.bed.ping(ip("10.2.0.3"), PATIENCE)?;
    machine.bed.ping(ip("fd01::3"), PATIENCE)?;

    node.unwire(&both);
    assert_eq!(machine.table(116), ["10.2.0.1", "fd01::2"], "no route is left when it is answered");
    node.unwire(&both);
    machine.until("the link is deleted", |machine| machine.links().len() == 2);
    assert!(!node.inspect(&both).is_empty());
    four.bed.ping(ip(NODE_V4), PATIENCE)?;
    Ok(())
}

#[test]
fn a_look_at_an_interface_names_what_is_different_and_a_repeated_add_puts_it_right() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let pod = Pod::new("pod", &["10.2.0.1", "fd01::1"])?;
    let name = node.wire(&pod).host_name;
    let break_it = |what: &str| match what {
        "route to 10.2.0.1" => machine.bed.ip("route delete 10.2.0.1 table 116").unwrap(),
        "address fd01::1" => pod.bed.ip("address delete fd01::1/128 dev eth0").unwrap(),
        "up" => machine.bed.ip(&format!("link set {name} down")).unwrap(),
        "MTU" => machine.bed.ip(&format!("link set {name} mtu 1300")).unwrap(),
        "pod route to 0.0.0.0/0" => pod.bed.ip("route delete default").unwrap(),
        "a link" => machine.bed.ip(&format!("link delete {name}")).unwrap(),
        other => panic!("{other}"),
    };
    for what in ["route to 10.2.0.1", "address fd01::1", "up", "MTU", "pod route to 0.0.0.0/0", "a link"] {
        break_it(what);
        let differences = node.inspect(&pod);
        assert!(differences.iter().any(|it| it.contains(what)), "{what}: {differences:?}");
        node.wire(&pod);
        assert_eq!(node.inspect(&pod), Vec::<String>::new(), "{what}");
        pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    }
    Ok(())
}

#[test]
fn the_largest_packet_follows_the_uplink_unless_the_call_says_one() -> Result {
    let machine = Machine::new("node")?;
    machine.bed.ip("link set uplink mtu 1400")?;
    let mut node = machine.start();
    let first = Pod::new("first", &["10.2.0.1"])?;
    assert_eq!((node.wire(&first).mtu, first.mtu()), (1400, 1400));
    machine.bed.ip("link set uplink mtu 1300")?;
    // It is looked at together with everything else.
    node.settle();
    let second = Pod::new("second", &["10.2.0.2"])?;
    assert_eq!((node.wire(&second).mtu, second.mtu()), (1300, 1300));
    let mut third = Pod::new("third", &["10.2.0.3"])?;
    third.mtu = Some(1280);
    assert_eq!((node.wire(&third).mtu, third.mtu()), (1280, 1280));
    assert_eq!(first.mtu(), 1400, "who runs is left alone");
    Ok(())
}

#[test]
fn a_host_link_leads_back_to_its_pod_and_counts_its_traffic() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let pod = Pod::new("web-0", &["10.2.0.1", "fd01::1"])?;
    let quiet = Pod::new("quiet", &["10.2.0.2"])?;
    let name = node.wire(&pod).host_name;
    node.wire(&quiet);
    let alias = machine.ip(&["link", "show", &name])[0]["ifalias"].clone();
    assert_eq!(alias, "tenure/web-0-sandbox/eth0/k8s/shop/web-0", "container, interface, network, pod");
    let counted = |of: &Pod| {
        let links = Inventory::take(&mut machine.host()).unwrap().pods;
        assert_eq!(links.len(), 2);
        links.into_iter().find(|it| it.owner.container == of.key.container()).unwrap().link
    };
    let before = counted(&pod);
    assert_eq!(before.name, name);
    for _ in 0..10 {
        pod.bed.ping(ip(NODE_V4), PATIENCE)?;
    }
    let after = counted(&pod);
    // 84 bytes of IP and more: what exactly an echo request of the test bed has, is its own affair.
    assert!(after.counters.received.packets >= before.counters.received.packets + 10, "{after:?}");
    assert!(after.counters.received.bytes >= before.counters.received.bytes + 10 * 42, "{after:?}");
    assert!(after.counters.sent.packets >= before.counters.sent.packets + 10, "{after:?}");
    assert!(counted(&quiet).counters.received.packets < 10);
    Ok(())
}

#[test]
fn a_namespace_that_is_not_there_or_the_nodes_own_is_refused_by_path() -> Result {
    let machine = Machine::new("node")?;
    let mut node = machine.start();
    let pod = Pod::new("pod", &["10.2.0.1"])?;
    let own = machine.bed.namespace().path().to_str().unwrap().to_owned();
    for (netns, code) in [("/run/netns/no-such-namespace", 3), ("/proc/self/status", 3), (&own, 7)] {
        let mut job = node.job(&pod);
        job.wiring.netns = netns.to_owned();
        node.wirer.carry_out(Action::Wire(job));
        match node.next() {
            Event::WiringFailed { error, .. } => {
                let failure = tenure_cni::Failure::from(error);
                assert_eq!(failure.code, code, "{failure}");
                assert!(failure.message.contains(netns), "{failure}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(machine.links(), Vec::<String>::new());
    Ok(())
}
