//! Reach, from what a claim says to the kernel: a real node, real timers, and packets.
#![expect(clippy::disallowed_methods, reason = "what a move costs is measured with the machine's clock")]
#![expect(clippy::disallowed_macros, reason = "what was measured is for the one who reads it")]

use std::time::{Duration, Instant};

use tenure_agent::node::{Attach, ClaimUse, Done, Event, Wiring, Wish};
use tenure_linux::{export, routes, sysctl};
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::PATIENCE;

use super::bed::{Machine, Pod, Result, ip};
use super::leaks::Agent;

const ADDRESS: &str = "10.9.0.7";

/// What a pod asks for that refers to the claim; its name is its UID.
fn attach(pod: &Pod, prefix: u8, reached: bool, interface: bool) -> Attach {
    let mut named = pod.named.clone();
    named.uid.clone_from(&named.name);
    Attach {
        key: pod.key.clone(),
        pool: "default".into(),
        pod: named,
        netns: pod.netns(),
        wiring: interface.then(|| Wiring { netns: pod.netns(), ..Wiring::default() }),
        wish: Wish::default(),
        claim_use: Some(ClaimUse {
            claim: "claim-uid".into(),
            claim_name: "shop/vm".into(),
            addresses: vec![(ADDRESS.parse().unwrap(), prefix)],
            reached,
        }),
    }
}

async fn add(agent: &Agent, attach: Attach) -> Option<String> {
    match agent.node.call(move |ticket| Event::Add { ticket, attach }).await {
        Ok(Done::Added { addresses, link, .. }) => {
            assert_eq!(addresses.to_string(), ADDRESS);
            link.map(|link| link.host_name)
        }
        other => panic!("{other:?}"),
    }
}

fn seen(agent: &Agent, active: &str) {
    agent.node.tell(Event::ClaimSeen {
        uid: "claim-uid".into(),
        active_pod: Some(active.into()),
        contested: false,
    });
}

/// The number of the link that the claim's address leads to.
fn led_to(host: &mut tenure_linux::Host) -> Option<u32> {
    let routes = routes::list(host).unwrap();
    let mut routes = routes.iter().filter(|route| route.destination.addr() == ip(ADDRESS));
    let first = routes.next()?;
    assert_eq!(routes.next(), None, "it leads to two links");
    first.link
}

fn is_exported(host: &mut tenure_linux::Host) -> bool {
    export::list(host).unwrap().iter().any(|network| network.addr() == ip(ADDRESS))
}

fn index(machine: &Machine, link: &str) -> Option<u32> {
    machine.ip(&["link", "show", link])[0]["ifindex"].as_u64().and_then(|index| index.try_into().ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_1_packets_follow_a_claim_from_pod_to_pod_and_away() -> Result {
    let machine = Machine::new("node")?;
    let mut agent = Agent::start(&machine);
    let mut host = machine.host();
    let (one, two) = (Pod::new("one", &[])?, Pod::new("two", &[])?);
    let links = [
        add(&agent, attach(&one, 32, true, true)).await.unwrap(),
        add(&agent, attach(&two, 32, false, true)).await.unwrap(),
    ];
    let links = links.map(|link| index(&machine, &link));
    assert_eq!(led_to(&mut host), links[0]);
    machine.bed.ping(ip(ADDRESS), PATIENCE)?;
    let mut took = Vec::new();
    for round in 1..=50 {
        let began = Instant::now();
        seen(&agent, if round % 2 == 1 { "two" } else { "one" });
        while led_to(&mut host) != links[round % 2] {
            assert!(began.elapsed() < PATIENCE, "it stays where it was");
        }
        took.push(began.elapsed());
        machine.bed.ping(ip(ADDRESS), PATIENCE)?;
    }
    took.sort();
    println!("from a claim's word to its route: median {:?}, longest {:?}", took[25], took[49]);
    // Elsewhere: the route goes a moment later, what is exported a second later, and nothing puts it back.
    let began = Instant::now();
    seen(&agent, "elsewhere");
    while led_to(&mut host).is_some() {
        assert!(began.elapsed() < PATIENCE, "its route stays");
    }
    let route = began.elapsed();
    assert!(route >= Duration::from_millis(19), "too soon: {route:?}");
    assert!(is_exported(&mut host), "until routers have heard of the other");
    while is_exported(&mut host) {
        assert!(began.elapsed() < PATIENCE, "it is exported for ever");
    }
    let export = began.elapsed();
    assert!(export >= Duration::from_millis(950), "too soon: {export:?}");
    println!("given up: its route after {route:?}, its exported route after {export:?}");
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!((led_to(&mut host), is_exported(&mut host)), (None, false), "looks leave it alone");
    // What somebody else breaks is put right for whom it is to be.
    seen(&agent, "one");
    machine.until("it is back", |it| led_to(&mut it.host()) == links[0] && is_exported(&mut it.host()));
    machine.bed.ip(&format!("route delete {ADDRESS} table 116"))?;
    agent.said("no route led to 10.9.0.7").await;
    machine.until("it is put right", |it| led_to(&mut it.host()) == links[0]);
    for pod in [&one, &two] {
        agent.del(pod).await;
    }
    machine.until("nothing is left", |it| it.links().is_empty() && !is_exported(&mut it.host()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interfaces_of_others_are_quiet_until_they_have_the_address_also_if_they_come_late() -> Result {
    let machine = Machine::new("node")?;
    let agent = Agent::start(&machine);
    let wire = Segment::new("segment")?;
    let client = tenure_testbed::hosts::Host::new("client")?;
    let _client = wire.connect(&client, "eth0", &["10.9.0.1/24"])?;
    let (one, two) = (Pod::new("one", &[])?, Pod::new("two", &[])?);
    let _one = wire.connect(&one.bed, "eth0", &["10.9.0.7/24"])?;
    assert_eq!(add(&agent, attach(&one, 24, true, false)).await, None);
    assert_eq!(add(&agent, attach(&two, 24, false, false)).await, None);
    // Its interface comes after the ADD was answered.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _two = wire.connect(&two.bed, "eth0", &[])?;
    let ignores = |pod: &Pod| {
        let value = pod.bed.run(|| sysctl::read_of_link("ipv4", "eth0", "arp_ignore"));
        value.unwrap().unwrap()
    };
    machine.until("the second one is quiet", |_| ignores(&two) == "8");
    two.bed.address("eth0", &["10.9.0.7/24"])?;
    client.ping(ip(ADDRESS), PATIENCE)?;
    let neighbour = || {
        let found = client.namespace().ip_json(&["neighbour", "show", ADDRESS]).unwrap();
        found[0]["lladdr"].as_str().unwrap_or_default().to_owned()
    };
    let mac = |pod: &Pod| {
        let link = pod.bed.namespace().ip_json(&["link", "show", "eth0"]).unwrap();
        link[0]["address"].as_str().unwrap().to_owned()
    };
    assert_eq!(neighbour(), mac(&one));
    let began = Instant::now();
    seen(&agent, "two");
    while neighbour() != mac(&two) {
        assert!(began.elapsed() < PATIENCE, "nobody was told");
    }
    println!("from a claim's word to its neighbours: {:?}", began.elapsed());
    machine.until("the first one is quiet", |_| ignores(&one) == "8" && ignores(&two) == "0");
    client.ip("neighbour flush dev eth0")?;
    client.ping(ip(ADDRESS), PATIENCE)?;
    assert_eq!(neighbour(), mac(&two));
    assert!(!machine.ip(&["route", "show", "table", "all"]).iter().any(|it| it["dst"] == ADDRESS));
    Ok(())
}
