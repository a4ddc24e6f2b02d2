//! Afterwards: what pods name, what is in their namespaces, what the API lists and whom the gateway serves are the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tenure_tests::chaos::looks::{unwell, view_of};
use tenure_tests::chaos::programs::Programs;
use tenure_tests::egress::inside::{is_plain, rules, table};
use tenure_tests::egress::{both, proxy, traffic};

use crate::bed::{ChaosBed, Listed};
use crate::gateway::Gateway;
use crate::plan::{EGRESSES, destinations};
use crate::work::{Client, Worker};

/// What is outside: these are on the first node, and not of the cluster.
pub const OUTSIDE: [&str; 2] = ["198.51.100.1", "2001:db8:99::1"];
/// What a client's IPv4 rules are, and its IPv6 rules.
const RULES: [usize; 2] = [6, 4];

/// Everything that differs.
pub fn different(
    programs: &Programs<'_>,
    bed: &ChaosBed<'_>,
    workers: &[Worker<'_>],
    gateway: &Gateway<'_>,
) -> Vec<String> {
    let mut found = programs.ended();
    for machine in bed.machines {
        match view_of(machine) {
            Ok(view) => found.extend(unwell(&view).iter().map(|it| format!("{}: {it}", machine.name))),
            Err(problem) => found.push(format!("{}: {problem}", machine.name)),
        }
    }
    let listed = bed.listed();
    for (number, egress) in EGRESSES.iter().enumerate() {
        let expected: BTreeSet<Listed> = clients_of(workers, number)
            .map(|(node, it)| {
                (bed.machines[node].name.clone(), it.uid.clone(), it.addresses.iter().copied().collect())
            })
            .collect();
        let listed = listed.get(*egress).cloned().unwrap_or_default();
        for it in expected.difference(&listed) {
            found.push(format!("nobody lists {it:?} as a client of {egress}"));
        }
        for it in listed.difference(&expected) {
            found.push(format!("{it:?} is listed as a client of {egress}"));
        }
    }
    for client in workers.iter().flat_map(Worker::clients) {
        found.extend(inside(bed, client).into_iter().map(|it| format!("{}: {it}", client.pod.name)));
    }
    let served: usize = clients_of(workers, 0).map(|(_, client)| client.addresses.len()).sum();
    let (says, expected) = (gateway.says(), format!("ready: {served} addresses of clients are served"));
    if says.as_ref() != Some(&expected) {
        found.push(format!("the gateway says {says:?} in place of {expected:?}"));
    }
    found
}

/// The clients of an Egress, with their nodes.
fn clients_of<'a>(workers: &'a [Worker<'_>], egress: usize) -> impl Iterator<Item = (usize, &'a Client)> {
    let all = workers.iter().flat_map(|worker| worker.clients().map(|client| (worker.node, client)));
    all.filter(move |(_, client)| client.named & (1 << egress) != 0)
}

/// What is wrong inside of a pod.
fn inside(bed: &ChaosBed<'_>, client: &Client) -> Vec<String> {
    let named = (0..EGRESSES.len()).filter(|number| client.named & (1 << number) != 0);
    let wanted: Vec<&str> =
        named.flat_map(|number| destinations(number, bed.choice(number)).iter().copied()).collect();
    if wanted.is_empty() {
        let plain = is_plain(&client.pod);
        return (!plain).then(|| "it names no Egress, and has egress".to_owned()).into_iter().collect();
    }
    let mut found = Vec::new();
    for ((family, v6), count) in [("-4", false), ("-6", true)].into_iter().zip(RULES) {
        let of_family = wanted.iter().filter(|net| net.contains(':') == v6);
        let shown =
            |net: &&&str| if net.ends_with("/0") { "default".to_owned() } else { (**net).to_string() };
        let expected: BTreeSet<String> = of_family.map(|net| shown(&net)).collect();
        let routes: BTreeSet<String> = table(&client.pod, family, "118").into_iter().collect();
        if routes != expected {
            found.push(format!("table 118 is {routes:?} in place of {expected:?}"));
        }
        let rules = rules(&client.pod, family);
        if rules.len() != if expected.is_empty() { 0 } else { count } {
            found.push(format!("its rules are {rules:?}"));
        }
    }
    found
}

/// Leads the packets of all nodes to the gateway, as kube-proxies do.
pub fn lead(bed: &ChaosBed<'_>, gateway: &Gateway<'_>) {
    let service = bed.service(0);
    assert_eq!((service.len(), gateway.addresses().len()), (2, 2), "of both families");
    for machine in bed.machines {
        proxy(&machine.host, &service, gateway.addresses()).unwrap();
    }
}

/// Clients of the first Egress that do not reach what is outside, or not as the gateway.
pub fn unserved(workers: &[Worker<'_>], gateway: &Gateway<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (_, client) in clients_of(workers, 0) {
        for (outside, own) in both(OUTSIDE).into_iter().zip(gateway.addresses()) {
            let seen: Result<IpAddr, _> = traffic::stream(&client.pod.network, outside, 20_000);
            match seen {
                Ok(seen) if seen == *own => {}
                other => found.push(format!("{} reaches {outside}: {other:?}", client.pod.name)),
            }
        }
    }
    found
}
