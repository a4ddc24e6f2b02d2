//! What it takes to make a pod a client: what an ADD takes longer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use anyhow::{Result, ensure};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tenure_linux::egress::{Datapath, client};
use tenure_linux::netns::NetNs;
use tenure_testbed::hosts::{NetworkNamespace, link};

use super::bed::{FAMILIES, both, plan};
use super::name;
use crate::host::sampled::{nanoseconds, percentile};
use crate::measure::Effort;
use crate::report::{Report, Unit};

/// The table.
pub(super) fn measure(effort: Effort, datapaths: &mut [Datapath]) -> Result<Report> {
    let pods = match effort {
        Effort::Quick => 20,
        Effort::Full => 200,
    };
    let columns = ["what", "p50", "p99", "target"].map(str::to_owned);
    let mut report =
        Report::of_columns("Egress: a pod becomes a client of one Egress, both families", &columns);
    for datapath in datapaths {
        let taken = become_clients(datapath, pods)?;
        let what = ["a new pod, all that an ADD has to do more", "again, where nothing is to be done"];
        for ((what, taken), target) in what.iter().zip(&taken).zip(["≤ 1 ms", ""]) {
            let show = |percent| Unit::Nanoseconds.show(percentile(taken, percent));
            report.cells(&[format!("{}: {what}", name(datapath)), show(50), show(99), target.to_owned()]);
        }
    }
    Ok(report)
}

/// How long it took for each of them, for the first time and again.
fn become_clients(datapath: &mut Datapath, pods: u8) -> Result<[Vec<f64>; 2]> {
    let node = NetworkNamespace::new("node")?;
    let everything: [IpNet; FAMILIES] = [Ipv4Net::default().into(), Ipv6Net::default().into()];
    let mut taken = [Vec::new(), Vec::new()];
    // All of them stay until the end: it takes the kernel work to take one down.
    let mut standing = Vec::new();
    for number in 0..pods {
        let addresses = both([10, 2, 1, number], [0xfd02, 0, 0, 1, 0, 0, 0, u16::from(number)]);
        let pod = pod(&node, number, addresses)?;
        let namespace = NetNs::open(pod.path())?;
        let plan = plan(addresses, &everything);
        for (time, taken) in taken.iter_mut().enumerate() {
            let before = Instant::now();
            let changed = client::apply(&namespace, datapath, &plan)?;
            taken.push(nanoseconds(&before.elapsed()));
            ensure!(changed.is_empty() == (time > 0), "the plan was applied, and changed: {changed:?}");
        }
        standing.push(pod);
    }
    Ok(taken)
}

/// A pod with a veth pair to the node, as an ADD makes it.
fn pod(node: &NetworkNamespace, number: u8, addresses: [IpAddr; FAMILIES]) -> Result<NetworkNamespace> {
    let pod = NetworkNamespace::new("pod")?;
    let addresses = addresses.map(|address| IpNet::from(address).to_string());
    link((&pod, "eth0", &addresses.each_ref().map(String::as_str)), (node, &format!("veth{number}"), &[]))?;
    let routers: [IpAddr; FAMILIES] =
        [Ipv4Addr::new(169, 254, 1, 1).into(), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).into()];
    for router in routers {
        pod.ip(&format!("route add {router} dev eth0\nroute add default via {router} dev eth0\n"))?;
    }
    Ok(pod)
}
