//! Pods with several interfaces: answers to connections from elsewhere leave as these came.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tenure_linux::egress::{Datapath, SourcePort};
use tenure_testbed::hosts::link;

use super::super::{Bed, CLIENT, GATEWAY, OUTSIDE, ip, traffic};
use super::connected;

/// The client's addresses on its second interface.
const SECOND: [&str; 2] = ["10.4.0.7", "fd04::7"];

/// The second interface has a way to everybody, which is worse than the first one's.
pub(super) fn are_told_apart(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let (bed, _serving) = connected(client, gateway, SourcePort::Fixed)?;
    link(
        (&bed.client, "net1", &["10.4.0.7/24", "fd04::7/64"]),
        (&bed.node, "n", &["10.4.0.1/24", "fd04::1/64"]),
    )?;
    for router in ["10.4.0.1", "fd04::1"] {
        bed.client.ip(&format!("route add default via {router} dev net1 metric 2000"))?;
    }
    for network in ["10.2.0.0/24", "10.4.0.0/24"] {
        bed.outside.route(network, ip("198.51.100.254"))?;
    }
    for network in ["fd02::/64", "fd04::/64"] {
        bed.outside.route(network, ip("2001:db8:99::fe"))?;
    }
    refuse_on_the_wrong_link(&bed)?;
    for strict in ["all", "net1"] {
        bed.client.sysctl(&format!("net.ipv4.conf.{strict}.rp_filter"), "1")?;
    }
    for own in CLIENT.into_iter().chain(SECOND) {
        traffic::answer(&bed.client, ip(own))?;
    }
    let mut plan = Bed::plan(SourcePort::Fixed);
    plan.egresses[0].originating_only = true;
    bed.connect(client, &plan)?;
    ensure!(bed.connect(client, &plan)?.is_empty(), "a second look changes nothing");
    for addresses in [CLIENT, SECOND] {
        for (outside, own) in OUTSIDE.into_iter().zip(addresses) {
            let seen = traffic::stream(&bed.outside, ip(own), 10_000).with_context(|| format!("to {own}"))?;
            ensure!(seen == ip(outside), "{own} sees {seen}");
        }
    }
    for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
        let seen = traffic::stream(&bed.client, ip(outside), 10_000)?;
        ensure!(
            seen == ip(gateway),
            "what the client opens leaves by the gateway, and {outside} sees {seen}"
        );
    }
    // An interface that goes takes its part with it, and so does the Egress.
    bed.client.ip("link delete dev net1")?;
    bed.connect(client, &plan)?;
    ensure!(bed.connect(client, &plan)?.is_empty(), "a second look changes nothing");
    plan.egresses.clear();
    bed.connect(client, &plan)?;
    for family in ["-4", "-6"] {
        let rules = bed.client.namespace().ip_json(&[family, "rule", "show"])?;
        let priorities = rules.as_array().into_iter().flatten().filter_map(|rule| rule["priority"].as_u64());
        let left: Vec<u64> = priorities.filter(|it| (1000..3000).contains(it)).collect();
        ensure!(left.is_empty(), "left over: {left:?}");
    }
    Ok(())
}

/// Has the node drop packets that come by another link than the one of their source.
fn refuse_on_the_wrong_link(bed: &Bed) -> Result<()> {
    let rules = "add table inet links; \
                 add chain inet links pre { type filter hook prerouting priority -400; }; \
                 add rule inet links pre iifname c ip saddr 10.4.0.0/24 drop; \
                 add rule inet links pre iifname c ip6 saddr fd04::7 drop; \
                 add rule inet links pre iifname n ip saddr 10.2.0.0/24 drop; \
                 add rule inet links pre iifname n ip6 saddr fd02::7 drop";
    let output = bed.node.run(|| Command::new("nft").arg(rules).output())?.context("run nft")?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
