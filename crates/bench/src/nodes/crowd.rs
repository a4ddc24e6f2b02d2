//! From a policy to addresses on interfaces. Nodes are namespaces on one segment, each with an interface and the agent's core for node
//! addresses; these and the controller run in this process, on a real API server with every write on the disk.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tenure_agent::node_addresses::{NodeAddresses, NodeAddressesOptions};
use tenure_api::nmstate::{
    NodeCondition, NodeIPPool, NodeNetworkConfigurationEnactment as Enactment,
    NodeNetworkConfigurationPolicy as Policy,
};
use tenure_controller::{Controller, Settings};
use tenure_handles::SystemClock;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::hosts::{Host, Port, Segment};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::host::objects::{self, create};
use crate::host::say;
use crate::measure::{Effort, median};
use crate::report::{Report, Unit};

/// Requests under way at once, as many as the controller has.
const AT_ONCE: usize = 32;
/// The pool and the policy.
const NAME: &str = "measured";
/// The interface.
const INTERFACE: &str = "eth1";
const PATIENCE: Duration = Duration::from_mins(5);

/// A node: a namespace with the agent's core.
struct Member {
    name: String,
    host: Host,
    _port: Port,
    _core: NodeAddresses,
}

/// The table.
pub(super) fn measure(effort: Effort) -> Result<Report> {
    let (sizes, rounds): (&[usize], usize) = match effort {
        Effort::Quick => (&[3], 1),
        Effort::Full => (&[3, 50, 200], 3),
    };
    let runtime = Runtime::new()?;
    let plane = runtime.block_on(ControlPlane::start(
        ControlPlaneOptions::default().without_controller_manager().durable(),
    ))?;
    let _inside = runtime.enter();
    let client = plane.client()?;
    let stop = CancellationToken::new();
    let _stopping = stop.clone().drop_guard();
    runtime.block_on(objects::install(&client, []))?;
    let settings = Settings::new("bench");
    runtime.spawn(Controller::new(client.clone(), SystemClock, settings).run(stop.clone()));
    let columns = ["nodes", "first", "all", "plain writes", "ratio", "pool writes"].map(str::to_owned);
    let mut report = Report::of_columns("Node addresses: from a policy to all interfaces", &columns);
    let segment = Segment::new("second")?;
    let mut members: Vec<Member> = Vec::new();
    for size in sizes {
        say(&format!("{size} nodes"));
        while members.len() < *size {
            members.push(join(&runtime, &plane, &segment, members.len(), &stop)?);
        }
        let mut figures = [const { Vec::new() }; 3];
        let mut most_writes = 0;
        for round in 0..rounds {
            let ([first, all], writes) = give_and_take(&runtime, &client, &members)?;
            most_writes = most_writes.max(writes);
            let plain = runtime.block_on(plainly(&client, *size, round))?;
            for (figure, value) in figures.iter_mut().zip([first, all, plain]) {
                figure.push(value.as_secs_f64() * 1e9);
            }
        }
        let [first, all, plain] = figures.map(median);
        let show = |value: f64| Unit::Nanoseconds.show(value);
        let ratio = format!("{:.1}×", all / plain);
        report.cells(&[
            size.to_string(),
            show(first),
            show(all),
            show(plain),
            ratio,
            most_writes.to_string(),
        ]);
    }
    report.note(
        "Plain writes: as many creates and two status updates of enactments, 32 at once. Each node asks its segment for 0.2 s whether \
         anybody else has the address. Pool writes: of the NodeIPPool, from the policy to the last address, the most of all rounds; the \
         target is at most 5.",
    );
    Ok(report)
}

/// One more node.
fn join(
    runtime: &Runtime,
    plane: &ControlPlane,
    segment: &Segment,
    number: usize,
    stop: &CancellationToken,
) -> Result<Member> {
    let name = format!("{NAME}-{number}");
    let host = Host::new(&name)?;
    let port = segment.connect(&host, INTERFACE, &[])?;
    let client = plane.client()?;
    let nodes: Api<Node> = Api::all(client.clone());
    runtime.block_on(create(&nodes, json!({"metadata": {"name": name}})))?;
    let options = NodeAddressesOptions { bus: "/no/such/socket".into(), ..NodeAddressesOptions::default() };
    let places = (Some(host.namespace().path()), None);
    let core = NodeAddresses::start(client, &name, options, places, SystemClock, stop.clone());
    Ok(Member { name, host, _port: port, _core: core })
}

/// From the creation of a policy to the first and the last address, and how often the pool was written meanwhile. Deletes it again.
fn give_and_take(runtime: &Runtime, client: &Client, members: &[Member]) -> Result<([Duration; 2], usize)> {
    let pools: Api<NodeIPPool> = Api::all(client.clone());
    let policies: Api<Policy> = Api::all(client.clone());
    let enactments: Api<Enactment> = Api::all(client.clone());
    let range = json!({"cidr": "10.10.0.0/16", "start": "10.10.1.1", "end": "10.10.4.250"});
    let address =
        json!({"ip": "{{ capture.address.ip }}", "prefix-length": "{{ capture.address.prefix-length }}"});
    let policy = json!({"metadata": {"name": NAME}, "spec": {
        "maxUnavailable": "100%",
        "capture": {"address": format!("ippool.{NAME}.allocate")},
        "desiredState": {"interfaces": [{"name": INTERFACE, "ipv4": {"enabled": true, "address": [address]}}]},
    }});
    let (first, last, writes) = runtime.block_on(async {
        create(&pools, json!({"metadata": {"name": NAME}, "spec": {"range": range}})).await?;
        until("the pool to be looked at", async || {
            let status = pools.get(NAME).await?.status;
            Ok(status.is_some_and(|it| !it.conditions.is_empty()))
        })
        .await?;
        let version = pools.get(NAME).await?.resource_version().unwrap_or_default();
        let began = Instant::now();
        create(&policies, policy).await?;
        let mut first = None;
        until("all nodes to have their addresses", async || {
            let all = enactments.list(&ListParams::default()).await?;
            let is = |it: &&Enactment| it.condition("Available").is_some_and(NodeCondition::is_true);
            let count = all.iter().filter(is).count();
            if count > 0 {
                first.get_or_insert_with(|| began.elapsed());
            }
            Ok(count == members.len())
        })
        .await?;
        let took = began.elapsed();
        anyhow::Ok((first.unwrap_or_default(), took, writes_since(&pools, &version).await?))
    })?;
    let mut found = BTreeSet::new();
    for member in members {
        found.insert(address_of(&member.host).with_context(|| format!("{} has no address", member.name))?);
    }
    ensure!(found.len() == members.len(), "{} nodes have {} addresses", members.len(), found.len());
    runtime.block_on(async {
        policies.delete(NAME, &DeleteParams::default()).await?;
        until("all nodes to give their addresses back", async || {
            Ok(enactments.list(&ListParams::default()).await?.items.is_empty())
        })
        .await?;
        pools.delete(NAME, &DeleteParams::default()).await?;
        anyhow::Ok(())
    })?;
    Ok(([first, last], writes))
}

/// How often the pool was written since it had this version.
async fn writes_since(pools: &Api<NodeIPPool>, version: &str) -> Result<usize> {
    let now = pools.get(NAME).await?.resource_version();
    let mut count = 0;
    if now.as_deref() == Some(version) {
        return Ok(count);
    }
    let of_pool = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let mut events = pools.watch(&of_pool, version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Modified(pool) = event {
            count += 1;
            if pool.resource_version() == now {
                return Ok(count);
            }
        }
    }
    bail!("the watch of the pool ended before its present version")
}

fn address_of(host: &Host) -> Option<String> {
    let shown = host.namespace().ip_json(&["-4", "address", "show", "dev", INTERFACE]).ok()?;
    Some(shown[0]["addr_info"][0]["local"].as_str()?.to_owned())
}

/// The writes that it takes at least, by nobody in particular: each enactment is created, gets its address, and says that it is there.
async fn plainly(client: &Client, count: usize, round: usize) -> Result<Duration> {
    let enactments: Api<Enactment> = Api::all(client.clone());
    let began = Instant::now();
    let written = stream::iter(0..count).map(|number| {
        let enactments = enactments.clone();
        async move {
            // Of no policy and no node that there is: nobody else looks at them.
            let name = format!("plain-{round}-{number}.plain");
            create(&enactments, json!({"metadata": {"name": name}})).await?;
            let allocated = json!({"status": {"ippool": {NAME: {"allocated": ["192.0.2.1"]}}}});
            let applied = json!({"status": {"applied": {"mode": "kernel", "addresses": []}}});
            for status in [allocated, applied] {
                enactments.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
            }
            anyhow::Ok(())
        }
    });
    written.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let took = began.elapsed();
    for enactment in enactments.list(&ListParams::default()).await? {
        enactments.delete(&enactment.name_any(), &DeleteParams::default()).await?;
    }
    Ok(took)
}

async fn until(what: &str, mut there: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !there().await? {
        ensure!(began.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
