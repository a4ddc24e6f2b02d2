//! The gateway's side: who is served and who is not.

use std::net::UdpSocket;
use std::process::Command;

use anyhow::Result;
use tenure_linux::conntrack;
use tenure_linux::egress::gateway::{self, Gateway, GatewayPlan};
use tenure_linux::egress::{Datapath, SourcePort};
use tenure_testbed::hosts::{Host, link};
use tenure_tests::egress::scenarios::strangers::echo_request;
use tenure_tests::egress::{Bed, CLIENT, GATEWAY, OUTSIDE, both, ip, traffic};

#[test]
fn who_is_no_client_or_speaks_in_anothers_name_is_not_served() -> Result<()> {
    let bed = Bed::new()?;
    let mut serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    let stranger = Host::new("stranger")?;
    link((&stranger, "eth0", &["10.2.9.9/24"]), (&bed.node, "s", &["10.2.9.1/24"]))?;
    stranger.route("default", ip("10.2.9.1"))?;
    let outside = bed.outside.capture()?;
    let socket = stranger.run(|| UdpSocket::bind("10.2.9.9:5555"))??;
    let (stranger_address, to) = (ip("10.2.9.9"), ip(OUTSIDE[0]));
    for _ in 0..3 {
        socket.send_to(&echo_request(stranger_address, to), "10.3.0.9:5555")?;
        socket.send_to(&echo_request(ip(CLIENT[0]), to), "10.3.0.9:5555")?;
        socket.send_to(&[0; 40], "10.3.0.9:5555")?;
        // In fragments, in its own name, and cut short.
        socket.send_to(&[echo_request(stranger_address, to), vec![0; 3000]].concat(), "10.3.0.9:5555")?;
        socket.send_to(&echo_request(stranger_address, to)[..19], "10.3.0.9:5555")?;
        socket.send_to(&[], "10.3.0.9:5555")?;
    }
    tenure_testbed::wait::until("all packets to be dropped", || {
        let counted = serving.counted().unwrap().unwrap();
        let seen = [counted.not_a_client, counted.forged, counted.malformed].map(|it| it.packets);
        (seen == [3, 3, 12]).then_some(())
    });
    std::thread::sleep(traffic::A_MOMENT);
    drop(outside);
    let counted = serving.counted()?.unwrap();
    assert_eq!((counted.masqueraded[0].packets, counted.received.packets), (0, 0), "nothing left");
    assert_eq!(conntrack::survey(&bed.gateway_namespace()?, &both(GATEWAY))?.all, 0, "nothing is remembered");
    // In its own name, and as a client, it is served.
    let all = both(CLIENT).into_iter().chain([ip("10.2.9.9")]).collect();
    serving.serve(&all)?;
    socket.send_to(&echo_request(stranger_address, to), "10.3.0.9:5555")?;
    tenure_testbed::wait::until("an answer to come back", || {
        (serving.counted().unwrap().unwrap().sent.packets == 1).then_some(())
    });
    Ok(())
}

#[test]
fn packets_that_come_without_a_tunnel_are_not_forwarded() -> Result<()> {
    let bed = Bed::new()?;
    let mut serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    traffic::answer(&bed.outside, ip(OUTSIDE[0]))?;
    // The client takes the gateway for its router, which is one hop away by a tunnel of somebody else's making.
    bed.node.ip("rule add from 10.2.0.7 lookup 77\nroute add default via 10.3.0.9 table 77")?;
    let counted = tenure_testbed::wait::until("a packet to be refused", || {
        assert!(traffic::cannot_stream(&bed.client, ip(OUTSIDE[0])).unwrap());
        serving.counted().unwrap().filter(|counted| counted.refused.packets > 0)
    });
    assert_eq!(counted.masqueraded[0].packets, 0);
    Ok(())
}

#[test]
fn a_namespace_is_prepared_once_and_nothing_comes_out_before_a_gateway_serves() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    bed.gateway.sysctl("net.ipv4.conf.default.rp_filter", "1")?;
    bed.gateway.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    // The outside knows the client: were anything forwarded, it would be answered.
    bed.outside.route("10.2.0.0/24", ip("198.51.100.254"))?;
    assert!(!bed.prepare(&mut datapath)?.is_empty());
    assert_eq!(bed.prepare(&mut datapath)?, Vec::<String>::new());
    assert_eq!(bed.prepare(&mut Datapath::bpf()?)?, Vec::<String>::new(), "nor does another process");
    bed.connect(&mut datapath, &Bed::plan(SourcePort::Fixed))?;
    assert!(traffic::cannot_stream(&bed.client, ip(OUTSIDE[0]))?, "nobody serves yet");
    let mut serving = bed.serve(&mut datapath, SourcePort::Fixed, &both(CLIENT))?;
    assert_eq!(serving.datapath(), "bpf");
    for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
        assert_eq!(traffic::stream(&bed.client, ip(outside), 1000)?, ip(gateway));
    }
    assert_eq!(bed.prepare(&mut datapath)?, Vec::<String>::new(), "what serves is as prepared");
    assert_eq!(serving.repair()?, Vec::<String>::new());
    for broken in ["link set dev fou4 down", "rule delete pref 2000", "route flush table 118"] {
        bed.gateway.ip(broken)?;
        assert!(!serving.repair()?.is_empty(), "{broken}");
        assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[0]), 1000)?, ip(GATEWAY[0]), "{broken}");
    }
    let flushed = bed.gateway.run(|| Command::new("nft").args(["flush", "ruleset"]).status())??;
    assert!(flushed.success() && !serving.repair()?.is_empty());
    assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[0]), 1000)?, ip(GATEWAY[0]));
    // What the agent made is the agent's to make again.
    bed.gateway.ip("link delete dev fou4")?;
    assert!(serving.repair().is_err());
    assert!(!bed.prepare(&mut datapath)?.is_empty());
    assert!(!serving.repair()?.is_empty());
    assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[0]), 1000)?, ip(GATEWAY[0]));
    Ok(())
}

#[test]
fn a_namespace_that_nobody_prepared_is_said_to_be_so() -> Result<()> {
    let bed = Bed::new()?;
    let plan =
        GatewayPlan { interface: "eth0".into(), addresses: both(GATEWAY), source_port: SourcePort::Fixed };
    // On a kernel with Foo-over-UDP that would do.
    if Datapath::kernel().is_err() {
        let error = Gateway::start(bed.gateway_namespace()?, plan, []).unwrap_err();
        assert!(error.to_string().contains("not prepared"), "{error}");
    }
    Ok(())
}

#[test]
fn a_gateway_that_starts_in_anothers_place_keeps_its_connections() -> Result<()> {
    let bed = Bed::new()?;
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    let first = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    bed.connect(&mut Datapath::bpf()?, &Bed::plan(SourcePort::Fixed))?;
    let socket = traffic::socket(&bed.client, ip(OUTSIDE[0]))?;
    assert_eq!(traffic::datagram(&socket, 100)?, ip(GATEWAY[0]));
    // As if it was killed: what it made stays.
    drop(first);
    assert_eq!(traffic::datagram(&socket, 100)?, ip(GATEWAY[0]), "nobody is there, and packets flow");
    let mut second = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    assert_eq!(traffic::datagram(&socket, 100)?, ip(GATEWAY[0]));
    assert!(second.counted()?.unwrap().received.packets >= 1, "the second one's rules count");
    second.serve(&[ip(CLIENT[1])].into())?;
    assert!(traffic::cannot_stream(&bed.client, ip(OUTSIDE[0]))?);
    Ok(())
}

#[test]
fn a_gateway_of_one_family_serves_clients_of_that_family() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    bed.connect(&mut Datapath::bpf()?, &Bed::plan(SourcePort::PerFlow))?;
    for one in [0, 1] {
        let addresses = vec![ip(GATEWAY[one])];
        gateway::prepare(&bed.gateway_namespace()?, &mut datapath, "eth0", &addresses)?;
        let plan = GatewayPlan { interface: "eth0".into(), addresses, source_port: SourcePort::PerFlow };
        let serving = Gateway::start(bed.gateway_namespace()?, plan, both(CLIENT))?;
        assert_eq!(serving.clients().len(), 1, "the other address is nobody's");
        assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[one]), 1000)?, ip(GATEWAY[one]));
        assert!(traffic::cannot_stream(&bed.client, ip(OUTSIDE[1 - one]))?);
        serving.stop()?;
    }
    Ok(())
}

#[test]
fn a_connection_from_the_port_of_tunnels_is_answered() -> Result<()> {
    let bed = Bed::new()?;
    let _serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    bed.connect(&mut Datapath::bpf()?, &Bed::plan(SourcePort::Fixed))?;
    traffic::answer(&bed.outside, ip(OUTSIDE[0]))?;
    let socket = bed.client.run(|| UdpSocket::bind("0.0.0.0:5555"))??;
    socket.connect((OUTSIDE[0], traffic::PORT))?;
    assert_eq!(traffic::datagram(&socket, 100)?, ip(GATEWAY[0]));
    let ports = conntrack::survey(&bed.gateway_namespace()?, &both(GATEWAY))?.ports;
    assert_eq!(ports.get(&(ip(GATEWAY[0]), "udp")), Some(&1), "{ports:?}");
    Ok(())
}

#[test]
fn the_rules_are_in_one_table_that_others_can_read() -> Result<()> {
    let bed = Bed::new()?;
    let serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    let list = || bed.gateway.run(|| Command::new("nft").args(["list", "ruleset"]).output());
    let shown = String::from_utf8(list()??.stdout)?;
    for part in [
        "table inet tenure-egress",
        "type filter hook forward priority filter; policy drop",
        "ct state invalid counter name \"invalid4\" drop",
        "iif \"fou4\" ip saddr @clients4 counter name \"received\" accept",
        "type ipv4_addr\n\t\telements = { 10.2.0.7 }",
        "type iface_index . ipv6_addr",
        "iif \"fou6\" counter name \"not_a_client\" drop",
        "iif \"eth0\" udp dport 5555 counter name \"malformed\" drop",
        "ip6 daddr @clients6 counter name \"sent\" accept",
        "ip saddr != 10.3.0.9",
        "ip6 saddr != fd03::9",
        "masquerade",
    ] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let again = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    let rules =
        |shown: &str| shown.lines().filter(|line| !line.contains("packets")).collect::<Vec<_>>().join("\n");
    assert_eq!(rules(&String::from_utf8(list()??.stdout)?), rules(&shown), "each rule is there once");
    drop(serving);
    again.stop()?;
    assert_eq!(String::from_utf8(list()??.stdout)?, "");
    Ok(())
}
