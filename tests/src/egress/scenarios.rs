//! What must hold of egress, whichever datapaths client and gateway have.

mod changes;
mod interfaces;
pub mod strangers;

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use tenure_linux::egress::gateway::Gateway;
use tenure_linux::egress::{Datapath, Family, SourcePort};
use tenure_testbed::wait::PATIENCE;

use super::traffic::{self, BURST};
use super::{Bed, CLIENT, GATEWAY, OUTSIDE, both, ip};

/// A scenario by its name.
pub type Scenario = (&'static str, fn(&mut Datapath, &mut Datapath) -> Result<()>);

/// All that go with any two datapaths: the client's and the gateway's.
pub const ALL: [Scenario; 10] = [
    ("streams and datagrams get through as the gateway", |client, gateway| {
        streams_and_datagrams(client, gateway, SourcePort::Fixed)
    }),
    ("and so they do with a port for each flow", |client, gateway| {
        streams_and_datagrams(client, gateway, SourcePort::PerFlow)
    }),
    ("and so they do where the Ethernet addresses of routers are known for good", known_routers),
    ("packets up to the tunnel's MTU get through whole and larger ones in fragments", sizes),
    ("datagrams that are segmented late all arrive", segments),
    ("a client that is removed is not served and is again when it is back", clients_come_and_go),
    ("whoever is no client or speaks in another's name is not served", strangers::are_not_served),
    ("a changed plan leads to exactly what it says and an empty one to nothing", changes::are_followed),
    ("answers leave as connections came if the Egress is for originated ones alone", answers),
    ("and by the interface that they came in on if the pod has several", interfaces::are_told_apart),
];

fn connected(client: &mut Datapath, gateway: &mut Datapath, port: SourcePort) -> Result<(Bed, Gateway)> {
    let bed = Bed::new()?;
    let serving = connect(&bed, client, gateway, port)?;
    Ok((bed, serving))
}

fn connect(bed: &Bed, client: &mut Datapath, gateway: &mut Datapath, port: SourcePort) -> Result<Gateway> {
    let serving = bed.serve(gateway, port, &both(CLIENT))?;
    bed.connect(client, &Bed::plan(port))?;
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    Ok(serving)
}

fn streams_and_datagrams(client: &mut Datapath, gateway: &mut Datapath, port: SourcePort) -> Result<()> {
    let (bed, _serving) = connected(client, gateway, port)?;
    exchange(&bed)
}

/// As it is with pods of this product. Only programs make use of it.
fn known_routers(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    if [&*client, &*gateway].iter().all(|datapath| datapath.name() == "kernel") {
        return Ok(());
    }
    let bed = Bed::new()?;
    bed.know_routers()?;
    let _serving = connect(&bed, client, gateway, SourcePort::Fixed)?;
    exchange(&bed)?;
    exchange_sizes(&bed)?;
    exchange_segments(&bed)
}

pub(super) fn exchange(bed: &Bed) -> Result<()> {
    for (outside, gateway) in OUTSIDE.into_iter().zip(GATEWAY) {
        bed.client.ping(ip(outside), PATIENCE).context("ping")?;
        for length in [1, 1 << 20, 1 << 20, 1 << 20] {
            let seen = traffic::stream(&bed.client, ip(outside), length)
                .with_context(|| format!("TCP to {outside}"))?;
            ensure!(seen == ip(gateway), "the outside sees {seen}, and not {gateway}");
        }
        let socket = traffic::socket(&bed.client, ip(outside))?;
        for length in [1, 100, 1300] {
            let seen = traffic::datagram(&socket, length).with_context(|| format!("UDP to {outside}"))?;
            ensure!(seen == ip(gateway), "the outside sees {seen}, and not {gateway}");
        }
    }
    Ok(())
}

fn sizes(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let (bed, _serving) = connected(client, gateway, SourcePort::Fixed)?;
    exchange_sizes(&bed)
}

pub(super) fn exchange_sizes(bed: &Bed) -> Result<()> {
    for outside in OUTSIDE.map(ip) {
        let family = Family::of(outside);
        let headers = if family == Family::V4 { 28 } else { 48 };
        let largest = super::MTU - family.overhead() - headers;
        let socket = traffic::socket(&bed.client, outside)?;
        // What comes back is longer by 40 bytes, and on its way into the tunnel it may need fragments.
        for length in [largest - 40, largest, largest + 1, 3000, 9000] {
            traffic::datagram(&socket, length as usize)
                .with_context(|| format!("{length} bytes to {outside}"))?;
        }
    }
    Ok(())
}

fn segments(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let (bed, _serving) = connected(client, gateway, SourcePort::Fixed)?;
    exchange_segments(&bed)
}

fn exchange_segments(bed: &Bed) -> Result<()> {
    for outside in OUTSIDE.map(ip) {
        let socket = traffic::socket(&bed.client, outside)?;
        let there = traffic::segments(&socket)?;
        ensure!(there == BURST, "{there} of {BURST} datagrams to {outside} came back");
        let back = traffic::segments_back(&socket)?;
        ensure!(back == BURST, "{back} of {BURST} datagrams from {outside} came");
    }
    Ok(())
}

fn answers(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let (bed, _serving) = connected(client, gateway, SourcePort::Fixed)?;
    bed.outside.route("10.2.0.0/24", ip("198.51.100.254"))?;
    bed.outside.route("fd02::/64", ip("2001:db8:99::fe"))?;
    for own in CLIENT {
        traffic::answer(&bed.client, ip(own))?;
    }
    let mut plan = Bed::plan(SourcePort::Fixed);
    for only in [false, true, false] {
        plan.egresses[0].originating_only = only;
        bed.connect(client, &plan)?;
        ensure!(bed.connect(client, &plan)?.is_empty(), "a second look changes nothing");
        for ((outside, own), gateway) in OUTSIDE.into_iter().zip(CLIENT).zip(GATEWAY) {
            let seen = traffic::stream(&bed.client, ip(outside), 10_000)?;
            ensure!(seen == ip(gateway), "{outside} sees {seen}");
            if only {
                let seen = traffic::stream(&bed.outside, ip(own), 10_000)?;
                ensure!(seen == ip(outside), "{own} sees {seen}");
            } else {
                let reached = !traffic::cannot_stream(&bed.outside, ip(own))?;
                ensure!(!reached, "answers of {own} did not leave through the gateway");
            }
        }
    }
    Ok(())
}

fn clients_come_and_go(client: &mut Datapath, gateway: &mut Datapath) -> Result<()> {
    let bed = Bed::new()?;
    let mut serving = bed.serve(gateway, SourcePort::Fixed, &[])?;
    bed.connect(client, &Bed::plan(SourcePort::Fixed))?;
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    for (outside, client) in OUTSIDE.into_iter().zip(CLIENT) {
        ensure!(
            traffic::cannot_stream(&bed.client, ip(outside))?,
            "nobody is a client, and {client} is served"
        );
        for _ in 0..2 {
            for _ in 0..2 {
                serving.serve(&[ip(client)].into())?;
            }
            ensure!(serving.clients().contains(&ip(client)));
            traffic::stream(&bed.client, ip(outside), 10_000)?;
            for _ in 0..2 {
                serving.serve(&BTreeSet::new())?;
            }
            ensure!(traffic::cannot_stream(&bed.client, ip(outside))?, "{client} is no client any more");
        }
    }
    let counted = serving.counted()?.context("the rules are there")?;
    ensure!(counted.masqueraded.iter().all(|of| of.packets >= 2), "{counted:?}");
    ensure!(counted.received.bytes > 40_000 && counted.sent.bytes > 40_000, "{counted:?}");
    ensure!(counted.not_a_client.packets >= 4, "{counted:?}");
    // Many come at once, and one of them is asked.
    let many =
        (1..200_u8).flat_map(|n| [[10, 2, 7, n].into(), [0xfd02, 0, 0, 7, 0, 0, 0, u16::from(n)].into()]);
    // Two of them were chosen so that their devices would have the same name.
    let same = ["fd02::d601:5974:bad5:6f5a", "fd02::9caa:d9b5:51e8:1218"].map(ip);
    let many: BTreeSet<IpAddr> = many.chain(both(CLIENT)).chain(same).collect();
    serving.serve(&many)?;
    ensure!(*serving.clients() == many && serving.unserved().is_empty(), "{:?}", serving.unserved());
    traffic::stream(&bed.client, ip(OUTSIDE[0]), 10_000)?;
    ensure!(serving.repair()?.is_empty(), "there is nothing to repair");
    // Some leave while others come.
    let fewer = many.iter().copied().filter(|it| !same[..1].contains(it)).chain([ip("10.2.8.1")]).collect();
    serving.serve(&fewer)?;
    traffic::stream(&bed.client, ip(OUTSIDE[0]), 10_000)?;
    ensure!(serving.repair()?.is_empty(), "there is nothing to repair after some left");
    serving.stop()?;
    let links = bed.gateway.namespace().ip_json(&["link", "show", "up"])?;
    let names: Vec<&str> =
        links.as_array().into_iter().flatten().filter_map(|it| it["ifname"].as_str()).collect();
    ensure!(!names.iter().any(|name| name.starts_with("fou")), "left over: {names:?}");
    Ok(())
}
