//! The client's side, seen with other eyes than ours: what is made, changed, repaired and removed.

use anyhow::Result;
use serde_json::Value;
use tenure_linux::egress::{Datapath, Egress, SourcePort, client};
use tenure_linux::ethtool;
use tenure_linux::netns::NetNs;
use tenure_testbed::hosts::Host;
use tenure_tests::egress::{Bed, CLIENT, GATEWAY, OUTSIDE, SERVICE, both, ip, traffic};

fn show(host: &Host, arguments: &[&str]) -> Vec<Value> {
    // "FIB table does not exist": nothing was ever in it.
    host.namespace().ip_json(arguments).map_or_else(|_| Vec::new(), |found| found.as_array().unwrap().clone())
}

fn rules(host: &Host, family: &str) -> Vec<String> {
    let text = |rule: &Value| {
        let to = rule["dst"].as_str().map_or_else(String::new, |to| format!(" to {to}/{}", rule["dstlen"]));
        format!("{}{to} {}", rule["priority"], rule["table"].as_str().unwrap_or_default())
    };
    show(host, &[family, "rule", "show"]).iter().map(text).collect()
}

fn table(host: &Host, family: &str, id: &str) -> Vec<String> {
    let text = |route: &Value| {
        let word = |key: &str| route[key].as_str().unwrap_or_default().to_owned();
        let mtu = &route["metrics"][0]["mtu"];
        format!("{} {} {} {mtu}", word("dst"), word("dev"), word("prefsrc"))
    };
    show(host, &[family, "route", "show", "table", id]).iter().map(text).collect()
}

fn tunnels(host: &Host) -> Vec<String> {
    let links = show(host, &["link", "show"]);
    let names = links.iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("fou")).collect()
}

/// The Ethernet addresses that stand for gateways.
fn stand_ins(host: &Host) -> Vec<String> {
    let neighbours = show(host, &["neighbour", "show"]);
    let addresses = neighbours.iter().filter_map(|neighbour| neighbour["lladdr"].as_str().map(str::to_owned));
    let mut found: Vec<String> = addresses.filter(|address| address.starts_with("0e:54:")).collect();
    found.sort();
    found
}

#[test]
fn rules_and_tables_are_those_of_the_design_and_a_second_look_changes_nothing() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    let plan = Bed::plan(SourcePort::Fixed);
    let planned = client::check(&bed.client_namespace()?, &mut datapath, &plan)?;
    assert_eq!(bed.connect(&mut datapath, &plan)?, planned, "what would be changed is what is changed");
    let main = ["32766 main", "32767 default"];
    let own = ["0 local", "1800 to 169.254.0.0/16 main", "1900 117", "2000 to 192.168.0.0/16 main"];
    let more = ["2001 to 172.16.0.0/12 main", "2002 to 10.0.0.0/8 main", "2100 118"];
    assert_eq!(rules(&bed.client, "-4"), [&own[..], &more, &main].concat());
    let own = ["0 local", "1800 to fe80::/10 main", "1900 117", "2000 to fc00::/7 main", "2100 118"];
    assert_eq!(rules(&bed.client, "-6"), [&own[..], &main[..1]].concat());
    assert_eq!(table(&bed.client, "-4", "118"), ["default eth0 10.2.0.7 1472"]);
    assert_eq!(table(&bed.client, "-6", "118"), ["default eth0 fd02::7 1452"]);
    assert_eq!(table(&bed.client, "-4", "117"), Vec::<String>::new());
    assert_eq!(tunnels(&bed.client), Vec::<String>::new(), "programs need no device");
    assert_eq!(bed.connect(&mut datapath, &plan)?, Vec::<String>::new());
    assert_eq!(bed.connect(&mut Datapath::bpf()?, &plan)?, Vec::<String>::new(), "nor does another process");
    Ok(())
}

#[test]
fn a_changed_plan_leads_to_exactly_the_second_set_and_an_empty_one_to_nothing() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    let mut plan = Bed::plan(SourcePort::Fixed);
    bed.connect(&mut datapath, &plan)?;
    plan.egresses[0].destinations = vec!["198.51.100.0/24".parse()?, "10.9.0.0/16".parse()?];
    let second = Egress {
        services: vec![ip("10.96.0.8")],
        destinations: vec!["198.51.100.1/32".parse()?],
        source_port: SourcePort::PerFlow,
        originating_only: false,
    };
    plan.egresses.push(second);
    bed.connect(&mut datapath, &plan)?;
    assert_eq!(table(&bed.client, "-4", "117"), ["10.9.0.0/16 eth0 10.2.0.7 1472"]);
    let wide = ["198.51.100.0/24 eth0 10.2.0.7 1472", "198.51.100.1 eth0 10.2.0.7 1472"];
    assert_eq!(table(&bed.client, "-4", "118"), wide);
    assert_eq!(table(&bed.client, "-6", "118"), Vec::<String>::new());
    assert_eq!(
        rules(&bed.client, "-6"),
        ["0 local", "32766 main"],
        "nothing of IPv6 is left to lead anywhere"
    );
    // The Service gets another address.
    plan.egresses[0].services = vec![ip("10.96.0.9")];
    let changed = bed.connect(&mut datapath, &plan)?;
    assert!(!changed.iter().any(|act| act.contains("rule")), "{changed:#?}");
    // The Ethernet address of a neighbour that nobody is says which gateway it stands for.
    assert_eq!(stand_ins(&bed.client), ["0e:54:0a:60:00:08", "0e:54:0a:60:00:09"]);
    plan.egresses.clear();
    bed.connect(&mut datapath, &plan)?;
    assert_eq!(tunnels(&bed.client), Vec::<String>::new());
    assert_eq!(rules(&bed.client, "-4"), ["0 local", "32766 main", "32767 default"]);
    assert_eq!(table(&bed.client, "-4", "118"), Vec::<String>::new());
    assert_eq!(stand_ins(&bed.client), Vec::<String>::new());
    assert_eq!(bed.connect(&mut datapath, &plan)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn what_somebody_broke_is_put_right() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    let plan = Bed::plan(SourcePort::Fixed);
    let _serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    traffic::answer(&bed.outside, ip(OUTSIDE[0]))?;
    bed.connect(&mut datapath, &plan)?;
    let router = show(&bed.client, &["-4", "route", "show", "table", "118"])[0]["gateway"].clone();
    let forgotten = format!("neighbour delete {} dev eth0", router.as_str().unwrap());
    let shrunk = "route change default dev eth0 via 169.254.117.200 onlink table 118";
    for broken in ["rule delete pref 2100", "route flush table 118", &forgotten, shrunk] {
        bed.client.ip(broken)?;
        assert!(!bed.connect(&mut datapath, &plan)?.is_empty(), "{broken}");
        assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[0]), 1000)?, ip(GATEWAY[0]), "{broken}");
    }
    for program in ["dev eth0 ingress", "dev eth0 egress"] {
        let line = format!("filter delete {program}");
        let deleted =
            bed.client.run(|| std::process::Command::new("tc").args(line.split(' ')).status())??;
        assert!(deleted.success());
        assert!(!bed.connect(&mut datapath, &plan)?.is_empty(), "{program}");
        assert_eq!(traffic::stream(&bed.client, ip(OUTSIDE[0]), 1000)?, ip(GATEWAY[0]), "{program}");
    }
    Ok(())
}

#[test]
fn segmentation_that_whoever_was_stopped_did_not_switch_off_is_put_right() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    let plan = Bed::plan(SourcePort::Fixed);
    bed.connect(&mut datapath, &plan)?;
    bed.prepare(&mut datapath)?;
    for host in [&bed.client, &bed.gateway] {
        let namespace = NetNs::open(host.namespace().path())?;
        let index = show(host, &["link", "show", "dev", "eth0"])[0]["ifindex"].as_u64().unwrap();
        let index = u32::try_from(index)?;
        assert!(!ethtool::offloads_udp_segmentation(&namespace, index)?);
        ethtool::offload_udp_segmentation(&namespace, index, true)?;
        assert!(ethtool::offloads_udp_segmentation(&namespace, index)?);
    }
    let segment = ["segment UDP before it goes into tunnels"];
    assert_eq!(client::check(&bed.client_namespace()?, &mut datapath, &plan)?, segment);
    assert_eq!(bed.connect(&mut datapath, &plan)?, segment);
    assert_eq!(bed.prepare(&mut datapath)?, segment);
    assert_eq!(bed.connect(&mut datapath, &plan)?, Vec::<String>::new());
    assert_eq!(bed.prepare(&mut datapath)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn destinations_inside_of_private_networks_are_reached_only_if_they_are_named() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    bed.outside.address("eth0", &["10.9.0.1/32"])?;
    bed.node.route("10.9.0.1/32", ip(OUTSIDE[0]))?;
    traffic::answer(&bed.outside, ip("10.9.0.1"))?;
    let _serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    let mut plan = Bed::plan(SourcePort::Fixed);
    bed.connect(&mut datapath, &plan)?;
    assert!(traffic::cannot_stream(&bed.client, ip("10.9.0.1"))?);
    plan.egresses[0].destinations.push("10.9.0.0/16".parse()?);
    bed.connect(&mut datapath, &plan)?;
    assert_eq!(traffic::stream(&bed.client, ip("10.9.0.1"), 1000)?, ip(GATEWAY[0]));
    Ok(())
}

#[test]
fn an_egress_that_leads_to_its_own_gateway_is_served() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    for outside in OUTSIDE {
        traffic::answer(&bed.outside, ip(outside))?;
    }
    let _serving = bed.serve(&mut Datapath::bpf()?, SourcePort::Fixed, &both(CLIENT))?;
    let mut plan = Bed::plan(SourcePort::Fixed);
    // The Service is in these networks, so packets to it are led into the tunnel to it.
    plan.egresses[0].destinations.extend(["10.96.0.0/16".parse::<ipnet::IpNet>()?, "fd96::/64".parse()?]);
    bed.connect(&mut datapath, &plan)?;
    for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
        assert_eq!(traffic::stream(&bed.client, ip(outside), 100_000)?, ip(gateway));
    }
    Ok(())
}

#[test]
fn an_interface_that_is_missing_or_too_small_is_named() -> Result<()> {
    let (bed, mut datapath) = (Bed::new()?, Datapath::bpf()?);
    let mut plan = Bed::plan(SourcePort::Fixed);
    bed.client.ip("link set dev eth0 mtu 1300")?;
    let error = client::apply(&bed.client_namespace()?, &mut datapath, &plan).unwrap_err().to_string();
    assert!(error.contains("\"eth0\"") && error.contains("1300") && error.contains("1328"), "{error}");
    plan.interface = "net7".to_owned();
    let error = client::apply(&bed.client_namespace()?, &mut datapath, &plan).unwrap_err();
    assert!(error.to_string().contains("net7"), "{error}");
    assert_eq!(tunnels(&bed.client), Vec::<String>::new());
    assert_eq!(SERVICE.len(), 2);
    Ok(())
}
