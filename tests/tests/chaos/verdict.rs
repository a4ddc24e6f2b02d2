//! Afterwards: who lives, what the agents and their journals say, what the kernels have and what the API has are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_agent::journal::Known;
use tenure_api::coil::{AddressBlock, BlockRequest};

use crate::oracle::Living;
use tenure_tests::agent::{Cluster, Machine, config};
use tenure_tests::chaos::looks::{every, journal_of, unwell, view_of};
use tenure_tests::chaos::pods;

const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");

/// Containers and their addresses.
type Holds = BTreeMap<String, BTreeSet<IpAddr>>;

/// Everything that differs on a node from those who live there.
pub fn of_node(machine: &Machine<'_>, living: &[&Living]) -> Vec<String> {
    let expected: Holds =
        living.iter().map(|it| (it.container.clone(), it.addresses.iter().copied().collect())).collect();
    let mut found = Vec::new();
    match view_of(machine) {
        Ok(view) => of_agent(machine, &view, &expected, &mut found),
        Err(problem) => found.push(problem),
    }
    match journal(machine) {
        Ok(holds) => compare("the journal has", &holds, &expected, &mut found),
        Err(problem) => found.push(problem),
    }
    let addresses: BTreeSet<String> = expected.values().flatten().map(ToString::to_string).collect();
    let routes = machine.table(116);
    if routes.len() != addresses.len() || !routes.iter().all(|route| addresses.contains(route)) {
        found.push(format!("table 116 is {routes:?}, held are {addresses:?}"));
    }
    let (exported, owned) = (machine.table(119), machine.networks());
    if exported != owned {
        found.push(format!("table 119 is {exported:?}, owned are {owned:?}"));
    }
    let links = machine.links().iter().filter(|name| name.starts_with("tnr")).count();
    if links != expected.len() {
        found.push(format!("{links} links for {} containers", expected.len()));
    }
    if machine.tombstones() != 0 {
        found.push(format!("{} tombstones", machine.tombstones()));
    }
    found.into_iter().map(|problem| format!("{}: {problem}", machine.name)).collect()
}

/// What an agent tells of itself.
fn of_agent(machine: &Machine<'_>, view: &Value, expected: &Holds, found: &mut Vec<String>) {
    found.extend(unwell(view));
    let holds = every(&view["holds"]);
    found.extend(holds.iter().filter(|it| it["block"].is_null()).map(|it| format!("of no block: {it}")));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let addresses = |hold: &Value| every(&hold["addresses"]).iter().flat_map(|it| text(it).parse()).collect();
    let holds: Holds = holds.iter().map(|hold| (text(&hold["container"]), addresses(hold))).collect();
    compare("the agent has", &holds, expected, found);
    let known: BTreeSet<(String, String)> =
        every(&view["blocks"]).iter().map(|it| (text(&it["name"]), text(&it["uid"]))).collect();
    let objects = machine.cluster.blocks_of(&machine.name);
    let objects: BTreeSet<(String, String)> =
        objects.iter().map(|block| (block.name_any(), block.uid().unwrap_or_default())).collect();
    if known != objects {
        found.push(format!("the agent knows blocks {known:?}, the API has {objects:?}"));
    }
    found.extend(every(&view["blocks"]).iter().filter(|it| !it["fenced"].is_null()).map(Value::to_string));
}

/// What an agent doubts since it lost a journal: until it does not, it gives no block back.
pub fn doubts(machine: &Machine<'_>) -> Option<String> {
    let known = journal_of(machine).map(|journal| journal.known());
    (known != Ok(Known::All)).then(|| format!("{} knows {known:?}", machine.name))
}

/// Everything that is wrong with the objects in the API.
pub fn of_objects(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    let all = ListParams::default();
    let (blocks, requests, nodes, pools) = cluster.runtime.block_on(async {
        let requests: Api<BlockRequest> = Api::all(cluster.client.clone());
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let (blocks, pools) = (cluster.blocks(), cluster.pools());
        tokio::try_join!(blocks.list(&all), requests.list(&all), nodes.list(&all), pools.list(&all)).unwrap()
    });
    let nodes: BTreeSet<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let blocks: Vec<&AddressBlock> = blocks.iter().filter(|block| !block.is_withheld()).collect();
    for block in &blocks {
        if block.node().is_none_or(|node| !nodes.contains(node)) {
            found.push(format!("block {} has no owner: {:?}", block.name_any(), block.node()));
        }
        if block.metadata.deletion_timestamp.is_some() {
            found.push(format!("block {} is being deleted", block.name_any()));
        }
    }
    let networks = |block: &AddressBlock| [block.spec.ipv4.clone(), block.spec.ipv6.clone()];
    let networks = blocks.iter().flat_map(|block| networks(block)).flatten();
    let mut networks: Vec<IpNet> = networks.map(|network| network.parse().unwrap()).collect();
    networks.sort();
    for pair in networks.windows(2).filter(|pair| pair[0].contains(&pair[1])) {
        found.push(format!("two blocks have the same addresses: {pair:?}"));
    }
    found.extend(requests.iter().map(|request| format!("request {} is left over", request.name_any())));
    for pool in &pools {
        let count = blocks.iter().filter(|block| block.pool() == Some(&pool.name_any())).count();
        let said = pool.status.as_ref().and_then(|status| status.blocks.as_ref()).map(|it| &it.allocated);
        if said != Some(&count.to_string()) {
            found.push(format!("the status of pool {} says {said:?} of {count} blocks", pool.name_any()));
        }
    }
    found
}

/// What `tenure check` says, if it finds anything else than that pools overlap; the API is told before which pods there are.
pub fn of_check(cluster: &Cluster, machines: &[Machine<'_>], living: &[Living]) -> Option<String> {
    let pods: Vec<Value> = living
        .iter()
        .map(|it| pods::object(&it.namespace, &it.pod, &machines[it.node].name, &it.addresses))
        .chain(machines.iter().map(pods::of_agent))
        .collect();
    pods::make_all(cluster, &pods);
    pods::admit_viewers(cluster);
    let mut command = std::process::Command::new(TENURE);
    command.args(["check", "--kubeconfig"]).arg(cluster.plane().kubeconfig()).env_remove("KUBECONFIG");
    let output = command.output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let counted = format!("{} holds of {} nodes", living.len(), machines.len());
    // The pools have grown into each other, and that is all.
    let expected = ["pools-overlap: pool small: ", &counted, "Differences: 1."];
    let all = expected.iter().all(|it| said.contains(it));
    (output.status.success() || !all).then(|| format!("{}: {said}", output.status))
}

/// Tells the API that all pods of these namespaces are gone.
pub fn remove_pods(cluster: &Cluster, namespaces: [&str; 2]) {
    for namespace in namespaces {
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), namespace);
        let now = DeleteParams::default().grace_period(0);
        cluster.runtime.block_on(pods.delete_collection(&now, &ListParams::default())).unwrap();
    }
}

/// What every runtime does now and then: says to each node who is alive. A DEL may have been lost with the tombstone.
pub fn collect(machines: &[Machine<'_>], living: &[Living]) -> Vec<String> {
    let collect = |(node, machine): (usize, &Machine<'_>)| {
        let here = living.iter().filter(|it| it.node == node);
        let alive: Vec<Value> =
            here.map(|it| json!({"containerID": it.container, "ifname": "eth0"})).collect();
        let mut config = config();
        config["cni.dev/valid-attachments"] = json!(alive);
        let called = machine.exec("GC", "", Path::new(""), "", &config);
        (called.code != 0).then(|| format!("GC on {}: {called:?}", machine.name))
    };
    machines.iter().enumerate().filter_map(collect).collect()
}

fn compare(who: &str, holds: &Holds, expected: &Holds, found: &mut Vec<String>) {
    for (container, addresses) in expected {
        if holds.get(container) != Some(addresses) {
            found.push(format!(
                "{who} {:?} for {container}, which lives with {addresses:?}",
                holds.get(container)
            ));
        }
    }
    for (container, addresses) in holds.iter().filter(|(container, _)| !expected.contains_key(*container)) {
        found.push(format!("{who} {addresses:?} for {container}, which does not live"));
    }
}

/// The holds of an agent's journal.
fn journal(machine: &Machine<'_>) -> Result<Holds, String> {
    let image = journal_of(machine)?;
    let hold = |held: &tenure_agent::journal::Held| {
        (held.key.container().to_owned(), held.addresses.iter().map(IpAddr::from).collect())
    };
    Ok(image.holds().map(hold).collect())
}
