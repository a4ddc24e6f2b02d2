//! Ends as Coil makes them, on a kernel with Foo-over-UDP, made by `ip` and `nft` and by nothing of ours: our client at its
//! gateway, and its client at ours.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tenure_linux::egress::{Datapath, SourcePort};
use tenure_testbed::hosts::Host;

use super::scenarios::{exchange, exchange_sizes};
use super::{Bed, CLIENT, OUTSIDE, both, ip, traffic};

/// A scenario by its name, with the datapath of our end.
pub type Scenario = (&'static str, fn(&mut Datapath) -> Result<()>);

/// Both directions.
pub const ALL: [Scenario; 2] = [
    ("a client that Coil made is served", its_client),
    ("a gateway that Coil made serves a client", its_gateway),
];

fn its_client(ours: &mut Datapath) -> Result<()> {
    let bed = bed()?;
    let _serving = bed.serve(ours, SourcePort::Fixed, &both(CLIENT))?;
    let host = &bed.client;
    tunnel(host, ("fou4_0a600007", "10.2.0.7", "10.96.0.7"), ("fou6_1c2d3e4f", "fd02::7", "fd96::7"))?;
    // Takes what comes from gateways' own addresses.
    host.ip("link add name coil_ipip4 type ipip external\nlink set dev coil_ipip4 up\n")?;
    host.ip("link add name coil_ipip6 type ip6tnl external\nlink set dev coil_ipip6 up\n")?;
    let direct = ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8"];
    let direct = direct
        .into_iter()
        .zip(2000..)
        .map(|(to, pref)| format!("rule add pref {pref} to {to} lookup main\n"));
    host.ip(&direct.collect::<String>())?;
    host.ip("rule add pref 1800 to 169.254.0.0/16 lookup main\n\
         rule add pref 1900 lookup 117\n\
         rule add pref 2100 lookup 118\n\
         route add default dev fou4_0a600007 table 118 proto 30\n")?;
    ip6(host, "rule add pref 1800 to fe80::/10 lookup main")?;
    ip6(host, "rule add pref 1900 lookup 117")?;
    ip6(host, "rule add pref 2000 to fc00::/7 lookup main")?;
    ip6(host, "rule add pref 2100 lookup 118")?;
    ip6(host, "route add default dev fou6_1c2d3e4f table 118 proto 30")?;
    exchange(&bed)?;
    exchange_sizes(&bed)
}

fn its_gateway(ours: &mut Datapath) -> Result<()> {
    let bed = bed()?;
    let host = &bed.gateway;
    host.forward()?;
    tunnel(host, ("fou4_0a020007", "10.3.0.9", "10.2.0.7"), ("fou6_5a6b7c8d", "fd03::9", "fd02::7"))?;
    host.ip(
        "rule add pref 2000 iif eth0 lookup 118\nroute add 10.2.0.7 dev fou4_0a020007 table 118 proto 30\n",
    )?;
    ip6(host, "rule add pref 2000 iif eth0 lookup 118")?;
    ip6(host, "route add fd02::7 dev fou6_5a6b7c8d table 118 proto 30")?;
    let rules = "add table inet coil; \
                 add chain inet coil post { type nat hook postrouting priority srcnat; }; \
                 add rule inet coil post oifname eth0 ip saddr != 10.3.0.9 masquerade; \
                 add rule inet coil post oifname eth0 ip6 saddr != fd03::9 masquerade; \
                 add chain inet coil forward { type filter hook forward priority filter; }; \
                 add rule inet coil forward oifname eth0 ct state invalid drop";
    let output = host.run(|| Command::new("nft").arg(rules).output())?.context("run nft")?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    bed.connect(ours, &Bed::plan(SourcePort::Fixed))?;
    exchange(&bed)?;
    exchange_sizes(&bed)
}

fn bed() -> Result<Bed> {
    tenure_linux::egress::load_modules();
    let bed = Bed::new()?;
    for address in OUTSIDE {
        traffic::answer(&bed.outside, ip(address))?;
    }
    Ok(bed)
}

/// The ports, and a tunnel of each family: name, this end and the other one.
fn tunnel(host: &Host, four: (&str, &str, &str), six: (&str, &str, &str)) -> Result<()> {
    host.ip("fou add port 5555 ipproto 4\n")?;
    ip6(host, "fou add port 5555 ipproto 41")?;
    let encapsulation = "encap fou encap-sport 5555 encap-dport 5555";
    let (name, local, remote) = four;
    host.ip(&format!(
        "link add name {name} type ipip ttl 225 remote {remote} local {local} {encapsulation}\n\
         link set dev {name} up\n"
    ))?;
    host.sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "0")?;
    let (name, local, remote) = six;
    host.ip(&format!(
        "link add name {name} type ip6tnl mode ip6ip6 hoplimit 225 encaplimit none remote {remote} local {local} \
         {encapsulation}\n\
         link set dev {name} up\n"
    ))?;
    for link in ["all", "eth0"] {
        host.sysctl(&format!("net.ipv4.conf.{link}.rp_filter"), "0")?;
    }
    Ok(())
}

/// A line of `ip -6`.
fn ip6(host: &Host, line: &str) -> Result<()> {
    let arguments = std::iter::once("-6").chain(line.split(' '));
    let output = host.run(|| Command::new("ip").args(arguments).output())?.context("run ip")?;
    ensure!(output.status.success(), "ip -6 {line}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
