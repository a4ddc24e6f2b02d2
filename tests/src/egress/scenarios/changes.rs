//! A client's plan changes while it runs, and somebody breaks what was made.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use ipnet::IpNet;
use serde_json::Value;
use tenure_linux::egress::{Datapath, SourcePort};
use tenure_testbed::hosts::Host;

use super::super::{Bed, CLIENT, GATEWAY, OUTSIDE, SERVICE, both, ip, proxy, traffic};

/// Another Service in front of the same gateway.
const NEXT_SERVICE: [&str; 2] = ["10.96.0.8", "fd96::8"];
const FAMILIES: [&str; 2] = ["-4", "-6"];

/// The scenario: whatever the plan says is there, and nothing else, and packets flow all the time.
pub(super) fn are_followed(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let (bed, _serving) = super::connected(client, gateway, SourcePort::Fixed)?;
    let mut plan = Bed::plan(SourcePort::Fixed);
    ensure!(bed.connect(client, &plan)?.is_empty(), "a second look changes nothing");
    check(&bed, (client, 0), &[SERVICE], "5555", ["default", "default"])?;

    // The gateway stays. The node takes what it sends for the last Service's, and kube-proxy does not have it forget that.
    let all = [both(SERVICE), both(NEXT_SERVICE)].concat();
    proxy(&bed.node, &all, &[both(GATEWAY), both(GATEWAY)].concat())?;
    plan.egresses[0].services = both(NEXT_SERVICE);
    bed.connect(client, &plan)?;
    check(&bed, (client, 1), &[NEXT_SERVICE], "5555", ["default", "default"])?;
    ensure!(bed.connect(client, &plan)?.is_empty(), "a second look changes nothing");

    plan.egresses[0].destinations = both(OUTSIDE).into_iter().map(IpNet::from).collect();
    plan.egresses[0].source_port = SourcePort::PerFlow;
    bed.connect(client, &plan)?;
    check(&bed, (client, 1), &[NEXT_SERVICE], "auto", OUTSIDE)?;

    // A second Egress, for others.
    let mut second = plan.egresses[0].clone();
    (second.services, second.destinations) =
        (both(SERVICE), vec!["203.0.113.0/24".parse()?, "2001:db8:113::/64".parse()?]);
    plan.egresses.push(second);
    bed.connect(client, &plan)?;
    check(&bed, (client, 1), &[SERVICE, NEXT_SERVICE], "auto", OUTSIDE)?;
    plan.egresses.truncate(1);
    bed.connect(client, &plan)?;

    let mut breaks = vec!["rule delete pref 2100".to_owned(), "route flush table 118".to_owned()];
    breaks.extend(tunnels(&bed.client)?.first().map(|tunnel| format!("link delete dev {tunnel}")));
    for broken in breaks {
        bed.client.ip(&broken)?;
        ensure!(!bed.connect(client, &plan)?.is_empty(), "{broken}");
        check(&bed, (client, 1), &[NEXT_SERVICE], "auto", OUTSIDE).context(broken)?;
    }

    plan = Bed::plan(SourcePort::Fixed);
    bed.connect(client, &plan)?;
    check(&bed, (client, 1), &[SERVICE], "5555", ["default", "default"])?;

    plan.egresses.clear();
    bed.connect(client, &plan)?;
    ensure!(tunnels(&bed.client)?.is_empty(), "{:?}", tunnels(&bed.client)?);
    for family in FAMILIES {
        ensure!(destinations(&bed.client, family).is_empty(), "routes are left");
        let rules = bed.client.namespace().ip_json(&[family, "rule", "show"])?;
        let priorities = rules.as_array().into_iter().flatten().filter_map(|rule| rule["priority"].as_u64());
        ensure!(priorities.filter(|it| (1..32_000).contains(it)).count() == 0, "rules are left: {rules}");
    }
    ensure!(bed.connect(client, &plan)?.is_empty(), "nothing is left to remove");
    Ok(())
}

/// The client's table has these destinations, its tunnels lead to these Services, and it gets through. Of the kernel's own tunnels,
/// `any` of each family take what comes from any gateway.
fn check(
    bed: &Bed,
    (datapath, any): (&Datapath, usize),
    services: &[[&str; 2]],
    port: &str,
    among: [&str; 2],
) -> Result<()> {
    for (family, destination) in FAMILIES.into_iter().zip(among) {
        let found = destinations(&bed.client, family);
        ensure!(found.iter().any(|it| it == destination), "{found:?} lacks {destination}");
        ensure!(found.len() == services.len(), "{found:?}");
    }
    let names = tunnels(&bed.client)?;
    if datapath.name() == "bpf" {
        ensure!(names.is_empty(), "programs need no device: {names:?}");
    } else {
        ensure!(names.len() == 2 * (services.len() + any), "{names:?}");
        let shown = bed.client.run(|| Command::new("ip").args(["-d", "link", "show"]).output())??;
        let shown = String::from_utf8(shown.stdout)?;
        for (remote, local) in services.iter().flat_map(|service| service.iter().zip(CLIENT)) {
            let end = format!("remote {remote} local {local}");
            let line = shown.lines().find(|line| line.contains(&end));
            let line = line.with_context(|| format!("no tunnel has {end:?}: {shown}"))?;
            let ports = format!("encap-sport {port} encap-dport 5555");
            ensure!(line.contains(&ports), "{line:?} lacks {ports:?}");
        }
    }
    for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
        let seen = traffic::stream(&bed.client, ip(outside), 10_000)?;
        ensure!(seen == ip(gateway), "{outside} sees {seen}");
    }
    Ok(())
}

fn destinations(host: &Host, family: &str) -> Vec<String> {
    // "FIB table does not exist": nothing was ever in it.
    let routes = host.namespace().ip_json(&[family, "route", "show", "table", "118"]).unwrap_or_default();
    let text = |route: &Value| route["dst"].as_str().unwrap_or_default().to_owned();
    routes.as_array().into_iter().flatten().map(text).collect()
}

fn tunnels(host: &Host) -> Result<Vec<String>> {
    let links = host.namespace().ip_json(&["link", "show"])?;
    let names = links.as_array().into_iter().flatten().filter_map(|link| link["ifname"].as_str());
    Ok(names.filter(|name| name.starts_with("fou")).map(str::to_owned).collect())
}
