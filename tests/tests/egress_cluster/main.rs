//! Egress on a real cluster of three nodes: gateways in a namespace with its own pool, clients on all nodes, a real kube-proxy
//! between them, and a target outside of the cluster that sees the gateways' addresses alone, all of it with both families.
//! Needs root; builds the image.

mod outside;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, EvictParams, ListParams};
use kube::{Api, Client, ResourceExt};
use tenure_api::coil::{Egress, EgressClients};
use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::eventually;
use tenure_tests::installed::{install_dual_stack, three_nodes};
use tenure_tests::monitoring::{Has, apply_every_kind, delete_every_kind, every_query_returns_data};
use tenure_tests::steps::Steps;

use outside::{Outside, TARGETS, url};

/// What gateways appear as is in this network.
const GATEWAYS: &str = r#"
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata: {name: internet}
spec: {blockSizeBits: 2, subnets: [{ipv4: NETWORK, ipv6: IPV6}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: internet, annotations: {coil.cybozu.com/pool: internet}}
---
apiVersion: coil.cybozu.com/v2
kind: Egress
metadata: {name: nat, namespace: internet}
spec:
  replicas: 2
  destinations: [0.0.0.0/0, "::/0"]
  sessionAffinity: ClientIP
  podDisruptionBudget: {maxUnavailable: 1}
  template:
    spec:
      terminationGracePeriodSeconds: 5
"#;

const AUTOSCALER: &str = r"
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: nat, namespace: internet}
spec:
  scaleTargetRef: {apiVersion: coil.cybozu.com/v2, kind: Egress, name: nat}
  minReplicas: 2
  maxReplicas: 4
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
";

/// Clients on every node, and a pod without the annotation.
const PODS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: client}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}, annotations: {egress.coil.cybozu.com/internet: nat}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: client
          image: tenure.test/busybox:1
          command: [sh, -c, "hexdump -v -n 524288 /dev/urandom | head -c 1048576 >/tmp/in; exec sleep 100000"]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: plain}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - {name: plain, image: "tenure.test/busybox:1", command: [sleep, "100000"]}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_leave_by_gateways_through_scaling_restarts_drains_and_deletion() -> Result<()> {
    let steps = Steps(SystemClock.now());
    let cluster = three_nodes(&steps).await?;
    let outcome = live(&cluster, &steps).await;
    if outcome.is_err() {
        cluster.keep_logs();
    }
    outcome
}

async fn live(cluster: &Cluster, steps: &Steps) -> Result<()> {
    install_dual_stack(cluster).await?;
    steps.done("the nodes are ready by our network");
    let outside = Outside::start(cluster)?;
    let [a, b, ..] = cluster.machine().octets();
    let network = format!("{a}.{b}.32.0/24");
    // Gateways ask the API server, which is outside of the cluster here and needs the way back.
    NetworkNamespace::current()?.ip(&format!("route add {network} via {}\n", cluster.node(0).address()))?;
    let ipv6 = format!("{}/120", cluster.ipv6(0x20));
    cluster.apply(&GATEWAYS.replace("NETWORK", &network).replace("IPV6", &ipv6)).await?;
    let served = ["wait", "egress/nat", "-n", "internet", "--for=condition=Ready", "--timeout=100s"];
    cluster.kubectl(&served).await?;
    steps.done("two gateways serve");
    cluster.apply(PODS).await?;
    for app in ["client", "plain"] {
        cluster.kubectl(&["rollout", "status", &format!("daemonset/{app}"), "--timeout=300s"]).await?;
    }
    let (clients, plain) = (pods(cluster, "client").await?, pods(cluster, "plain").await?);
    let gateways = gateway_addresses(cluster).await?;
    ensure!(gateways.len() == 4, "two gateways with both families: {gateways:?}");
    for (pod, addresses) in clients.iter().chain(&plain) {
        ensure!(addresses.len() == 2, "{pod} has {addresses:?}");
    }
    for (target, family) in TARGETS.into_iter().zip(0..) {
        for (pod, _) in &clients {
            let seen = seen_as(cluster, pod, target).await?;
            ensure!(gateways.contains(&seen), "{pod} appears as {seen}, and the gateways have {gateways:?}");
        }
        for (pod, addresses) in &plain {
            let seen = seen_as(cluster, pod, target).await?;
            ensure!(seen == addresses[family], "{pod} has no annotation, and appears as {seen}");
        }
    }
    let said = status_addresses(cluster).await?;
    ensure!(said == gateways, "the status says {said:?}");
    steps.done("clients appear as the gateways, others as themselves");
    apply_every_kind(cluster).await?;
    // Three agents, two controllers and two gateways.
    let prometheus = every_query_returns_data(cluster, 7, Has::Egress).await?;
    delete_every_kind(cluster).await?;
    steps.done("a Prometheus has data for every alert and panel but those of a cloud");
    drop(prometheus);

    // One client's packets go to one gateway, by the real kube-proxy.
    let (first, own) = clients.first().context("there are clients")?;
    for target in TARGETS {
        let mut appears_as = BTreeSet::new();
        for _ in 0..10 {
            appears_as.insert(seen_as(cluster, first, target).await?);
        }
        ensure!(appears_as.len() == 1, "{first} appears as {appears_as:?}");
        for (pod, _) in &clients {
            transfers(cluster, pod, target, 100).await?;
        }
    }
    steps.done("100 × 1 MiB in each direction and family from each node");

    under_traffic(cluster, first, steps).await?;
    let (unready, after) = a_killed_gateway_is_replaced(cluster, first).await?;
    steps.done(&format!(
        "a gateway was deleted by force, was unready after {unready:.2} s, and new connections got through another {after:.2} s \
         after that"
    ));
    an_autoscaler_reads_the_scale(cluster).await?;
    steps.done("a HorizontalPodAutoscaler reads the scale of the Egress and its selector");
    the_budget_is_respected(cluster).await?;
    steps.done("an eviction that the budget does not allow is refused, and kubectl drain waits");
    cluster.kubectl(&["delete", "egress", "nat", "-n", "internet", "--timeout=300s"]).await?;
    nothing_is_left(cluster, first).await?;
    for (target, own) in TARGETS.into_iter().zip(own) {
        ensure!(seen_as(cluster, first, target).await? == *own, "{first} appears as itself again");
    }
    steps.done("the Egress is deleted, and nothing is left");
    drop(outside);
    Ok(())
}

/// Scales to four and back, restarts all gateways and changes the destinations, while a client goes on asking.
async fn under_traffic(cluster: &Cluster, client: &str, steps: &Steps) -> Result<()> {
    let script = format!(
        "rm -f /tmp/stop /tmp/failed /tmp/asked; (while [ ! -e /tmp/stop ]; do \
         for url in {} {}; do timeout 5 wget -qO /dev/null $url && echo >>/tmp/asked || echo >>/tmp/failed; done; \
         sleep 0.1; done) </dev/null >/dev/null 2>&1 &",
        url(TARGETS[0]),
        url(TARGETS[1])
    );
    sh(cluster, client, &script).await?;
    let scale = |count: &'static str| ["scale", "egress/nat", "-n", "internet", "--replicas", count];
    cluster.kubectl(&scale("4")).await?;
    serving(cluster, 4).await?;
    cluster.kubectl(&scale("2")).await?;
    serving(cluster, 2).await?;
    steps.done("scaled to four and back");
    cluster.kubectl(&["rollout", "restart", "deployment/nat", "-n", "internet"]).await?;
    let rolled = ["rollout", "status", "deployment/nat", "-n", "internet", "--timeout=300s"];
    cluster.kubectl(&rolled).await?;
    let [v4, v6] = TARGETS;
    let narrow =
        format!(r#"{{"spec": {{"destinations": ["{v4}/32", "{v6}/128"], "fouSourcePortAuto": true}}}}"#);
    cluster.kubectl(&["patch", "egress/nat", "-n", "internet", "--type=merge", "-p", &narrow]).await?;
    let route = eventually("the new destinations", async || {
        let routes = sh(cluster, client, "ip route show table 118").await?;
        Ok(routes.starts_with(&v4.to_string()).then_some(routes))
    })
    .await?;
    ensure!(route.lines().count() == 1, "{route}");
    eventually("those of IPv6", async || {
        // Busybox does not show tables of IPv6.
        let routes = sh(cluster, client, "cat /proc/net/ipv6_route").await?;
        Ok(routes.contains("20010db8005100000000000000000009 80").then_some(()))
    })
    .await?;
    // Gateways are told by an argument that source ports depend on flows.
    eventually("gateways with automatic source ports", async || {
        let all = gateways(cluster).await?;
        Ok((all.len() == 2 && all.iter().all(|pod| is_ready(pod) && spreads_flows(pod))).then_some(()))
    })
    .await?;
    sh(cluster, client, "touch /tmp/stop; sleep 6").await?;
    let (asked, failed) =
        (lines(cluster, client, "/tmp/asked").await?, lines(cluster, client, "/tmp/failed").await?);
    // A connection that is open when its gateway ends may break, and gateways end a handful of times here.
    ensure!(asked > 20 && failed <= 6, "{failed} of {asked} connections failed");
    steps.done(&format!("restart and update: {failed} of {asked} connections failed"));
    for target in TARGETS {
        transfers(cluster, client, target, 100).await?;
    }
    steps.done("100 × 1 MiB in each direction and family with automatic source ports");
    Ok(())
}

fn spreads_flows(gateway: &core::Pod) -> bool {
    let containers = gateway.spec.iter().flat_map(|spec| &spec.containers);
    let mut arguments = containers.flat_map(|it| it.args.iter().chain(&it.command)).flatten();
    arguments.any(|argument| argument.starts_with("--enable-sport-auto"))
}

/// Deletes the client's gateway by force, while the client goes on asking. Says after how many seconds the Service did not have
/// it among those that are ready, and how long after that the client got through.
async fn a_killed_gateway_is_replaced(cluster: &Cluster, client: &str) -> Result<(f64, f64)> {
    let target = TARGETS[0];
    let before = seen_as(cluster, client, target).await?;
    let script = format!(
        "rm -f /tmp/stop /tmp/seen; (while [ ! -e /tmp/stop ]; do seen=$(timeout 1 wget -qO- {}); \
         echo $(cut -d ' ' -f 1 /proc/uptime) $seen >>/tmp/seen; sleep 0.05; done) </dev/null >/dev/null 2>&1 &",
        url(target)
    );
    sh(cluster, client, &script).await?;
    let all = gateways(cluster).await?;
    let victim =
        all.iter().find(|pod| addresses_of(pod).contains(&before)).context("the client's gateway")?;
    let api: Api<core::Pod> = Api::namespaced(cluster.client()?, "internet");
    api.delete(&victim.name_any(), &DeleteParams::default().grace_period(0)).await?;
    let now = || uptime(&std::fs::read_to_string("/proc/uptime")?);
    let deleted = now()?;
    let unready = eventually("the gateway to be unready", async || {
        Ok(if ready_endpoints(cluster).await?.contains(&before) { None } else { Some(now()?) })
    });
    let through = eventually("another gateway", async || {
        let asked = sh(cluster, client, "cat /tmp/seen").await?;
        let mut others =
            asked.lines().filter(|line| line.split(' ').nth(1).is_some_and(|it| it != before.to_string()));
        others.next().map(uptime).transpose()
    });
    let (unready, through) = tokio::try_join!(unready, through)?;
    sh(cluster, client, "touch /tmp/stop").await?;
    serving(cluster, 2).await?;
    Ok((unready - deleted, through - unready))
}

/// The addresses of gateways that the Service has and that are ready.
async fn ready_endpoints(cluster: &Cluster) -> Result<BTreeSet<IpAddr>> {
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client()?, "internet");
    let of_service = ListParams::default().labels("kubernetes.io/service-name=nat");
    let endpoints = slices.list(&of_service).await?.items.into_iter().flat_map(|slice| slice.endpoints);
    let is_ready = |it: &Endpoint| it.conditions.as_ref().is_some_and(|it| it.ready == Some(true));
    let ready = endpoints.filter(is_ready).flat_map(|endpoint| endpoint.addresses);
    Ok(ready.filter_map(|address| address.parse().ok()).collect())
}

/// Without metrics it changes nothing, and says how far it got.
async fn an_autoscaler_reads_the_scale(cluster: &Cluster) -> Result<()> {
    cluster.apply(AUTOSCALER).await?;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::namespaced(cluster.client()?, "internet");
    let conditions = eventually("the autoscaler to look", async || {
        let status = autoscalers.get("nat").await?.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|it| it.type_ == "ScalingActive").then_some(conditions))
    })
    .await?;
    let found = |kind: &str| conditions.iter().find(|it| it.type_ == kind);
    ensure!(found("AbleToScale").is_some_and(|it| it.status == "True"), "{conditions:?}");
    // It asks for metrics of the pods that the selector finds, which is after it has read the selector.
    let reason = found("ScalingActive").and_then(|it| it.reason.as_deref());
    ensure!(
        reason.is_some_and(|it| it.starts_with("FailedGet") || it == "ValidMetricFound"),
        "{conditions:?}"
    );
    autoscalers.delete("nat", &DeleteParams::default()).await?;
    serving(cluster, 2).await
}

/// The seconds since the machine started, at the beginning of a line.
fn uptime(line: &str) -> Result<f64> {
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}

async fn the_budget_is_respected(cluster: &Cluster) -> Result<()> {
    let all = gateways(cluster).await?;
    let [one, other] = &all[..] else { anyhow::bail!("{} gateways", all.len()) };
    // A client of ours would repeat what is refused with 429 until it is accepted.
    let mut config = cluster.control_plane().config()?;
    config.default_retry = false;
    let pods: Api<core::Pod> = Api::namespaced(Client::try_from(config)?, "internet");
    // The budget is counted some time after gateways are ready. Until then it may still allow what more gateways allowed.
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client()?, "internet");
    eventually("the budget to count both gateways", async || {
        let status = budgets.get("nat").await?.status.unwrap_or_default();
        let counted = (status.expected_pods, status.current_healthy, status.disruptions_allowed);
        Ok((counted == (2, 2, 1)).then_some(()))
    })
    .await?;
    pods.evict(&one.name_any(), &EvictParams::default()).await.context("the first eviction")?;
    match pods.evict(&other.name_any(), &EvictParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => {}
        answer => anyhow::bail!("the second gateway was to stay: {answer:?}"),
    }
    serving(cluster, 2).await?;
    let all = gateways(cluster).await?;
    let node = all[0].spec.as_ref().and_then(|spec| spec.node_name.clone()).context("it runs")?;
    let drain =
        ["drain", &node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=300s"];
    let draining = cluster.kubectl(&drain);
    let watching = async {
        let mut least = usize::MAX;
        for _ in 0..50 {
            least = least.min(gateways(cluster).await?.iter().filter(|pod| is_ready(pod)).count());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(least)
    };
    let (drained, least) = tokio::join!(draining, watching);
    drained?;
    ensure!(least? >= 1, "there was a moment without a gateway");
    cluster.kubectl(&["uncordon", &node]).await?;
    serving(cluster, 2).await
}

async fn nothing_is_left(cluster: &Cluster, client: &str) -> Result<()> {
    eventually("all to be gone", async || {
        let of_kind = "deployments,services,pdb,serviceaccounts,roles,rolebindings,pods,egressclients";
        let left = cluster.kubectl(&["get", of_kind, "-n", "internet", "-o", "name"]).await?;
        let ours = left.lines().filter(|line| !line.ends_with("/default")).count();
        let clients: Api<EgressClients> = Api::all(cluster.client()?);
        let clients = clients.list(&ListParams::default()).await?;
        Ok((ours == 0 && clients.items.is_empty()).then_some(()))
    })
    .await?;
    eventually("the client's egress to be gone", async || {
        let found = sh(cluster, client, "ip rule show; ip -6 rule show; ip link show").await?;
        Ok((!found.contains("118") && !found.contains("fou")).then_some(()))
    })
    .await
}

/// Sends and receives 1 MiB so many times; the target tells what it got.
async fn transfers(cluster: &Cluster, client: &str, target: IpAddr, count: usize) -> Result<()> {
    let url = url(target);
    let script = format!(
        "i=0; while [ $i -lt {count} ]; do \
         timeout 20 wget -qO /tmp/out --post-file=/tmp/in {url} && cmp /tmp/in /tmp/out || exit 1; \
         i=$((i+1)); done; echo $i"
    );
    let done = sh(cluster, client, &script).await?;
    ensure!(done.trim() == count.to_string(), "{client} did {done}");
    Ok(())
}

async fn lines(cluster: &Cluster, pod: &str, file: &str) -> Result<usize> {
    Ok(sh(cluster, pod, &format!("cat {file} 2>/dev/null | wc -l")).await?.trim().parse()?)
}

/// As whom the target sees a pod.
async fn seen_as(cluster: &Cluster, pod: &str, target: IpAddr) -> Result<IpAddr> {
    let said = sh(cluster, pod, &format!("timeout 5 wget -qO- {}", url(target))).await?;
    Ok(said.trim().parse()?)
}

async fn sh(cluster: &Cluster, pod: &str, script: &str) -> Result<String> {
    Ok(cluster.kubectl(&["exec", pod, "--", "sh", "-c", script]).await?)
}

/// The pods of an app in the default namespace, with their addresses.
async fn pods(cluster: &Cluster, app: &str) -> Result<Vec<(String, Vec<IpAddr>)>> {
    let pods: Api<core::Pod> = Api::namespaced(cluster.client()?, "default");
    let listed = pods.list(&ListParams::default().labels(&format!("app={app}"))).await?;
    Ok(listed.items.iter().map(|pod| (pod.name_any(), addresses_of(pod))).collect())
}

async fn gateways(cluster: &Cluster) -> Result<Vec<core::Pod>> {
    let pods: Api<core::Pod> = Api::namespaced(cluster.client()?, "internet");
    let listed = pods.list(&ListParams::default().labels("app.kubernetes.io/component=egress")).await?;
    Ok(listed.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

/// IPv4 first.
fn addresses_of(pod: &core::Pod) -> Vec<IpAddr> {
    let all = pod.status.as_ref().and_then(|status| status.pod_ips.as_deref()).unwrap_or_default();
    all.iter().filter_map(|it| it.ip.parse().ok()).collect()
}

fn is_ready(pod: &core::Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

async fn gateway_addresses(cluster: &Cluster) -> Result<BTreeSet<IpAddr>> {
    Ok(gateways(cluster).await?.iter().flat_map(addresses_of).collect())
}

async fn status_addresses(cluster: &Cluster) -> Result<BTreeSet<IpAddr>> {
    let egresses: Api<Egress> = Api::namespaced(cluster.client()?, "internet");
    let status = egresses.get("nat").await?.status.context("a status")?;
    status.addresses.iter().map(|text| Ok(text.parse()?)).collect()
}

/// Waits until so many gateways serve, and no other is left.
async fn serving(cluster: &Cluster, count: usize) -> Result<()> {
    eventually(&format!("{count} gateways"), async || {
        let all = gateways(cluster).await?;
        Ok((all.len() == count && all.iter().all(is_ready)).then_some(()))
    })
    .await
}
