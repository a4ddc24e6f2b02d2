//! A real cluster of three nodes with the reference plugins: what it can do, and that nothing of it stays.
//! Needs root; builds or installs the programs that are missing.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure_handles::{Clock as _, SystemClock};
use tenure_testbed::cluster::{Cluster, ClusterOptions, CniChoice, Image, Node, NodePart};
use tenure_testbed::hosts::NetworkNamespace;
use tenure_testbed::wait::PATIENCE;
use tenure_tests::steps::Steps;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A `DaemonSet` and a Deployment whose pods tell their names over HTTP, and a Service for the latter.
const MANIFESTS: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: tenure.test/busybox:1
          command: [sh, -c, "echo begins; hostname >/tmp/index.html; exec httpd -f -v -p 8080 -h /tmp"]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: web
          image: tenure.test/busybox:1
          command: [sh, -c, "echo begins; hostname >/tmp/index.html; exec httpd -f -v -p 8080 -h /tmp"]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"#;

/// A pod, as far as these tests care.
struct Pod {
    name: String,
    node: String,
    address: String,
}

/// Applies [`MANIFESTS`] and waits until there is a pod of the `DaemonSet` on each node.
async fn start_pods(cluster: &Cluster) -> Result {
    cluster.apply(MANIFESTS).await?;
    // `rollout status` is content with no pods as long as the controller has not seen the nodes.
    let on_each = format!("--for=jsonpath={{.status.numberReady}}={}", cluster.nodes().count());
    cluster.kubectl(&["wait", "daemonset/everywhere", &on_each, "--timeout=300s"]).await?;
    Ok(())
}

async fn pods(cluster: &Cluster, app: &str) -> Result<Vec<Pod>> {
    let columns = r#"jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}"#;
    let listed = cluster.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", columns]).await?;
    let pod = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        Some(Pod { name: words.next()?, node: words.next()?, address: words.next()? })
    };
    Ok(listed.lines().filter_map(pod).collect())
}

/// What `client` gets from a URL.
async fn fetch(cluster: &Cluster, client: &Pod, url: &str) -> Result<String> {
    // Its own -T makes Debian's static busybox crash.
    let said = cluster.kubectl(&["exec", &client.name, "--", "timeout", "5", "wget", "-qO-", url]).await?;
    Ok(said.trim().to_owned())
}

/// Everything by which a node could be found after its end.
struct Traces {
    /// What only a node's processes are in. They are held open: the kernel gives the number of a namespace
    /// that is gone to the next one, which may be another test's. These kinds hold no interface and no mount.
    namespaces: Vec<fs::File>,
    directories: Vec<PathBuf>,
}

impl Traces {
    fn of(cluster: &Cluster) -> Result<Self> {
        let directories =
            vec![cluster.directory().to_owned(), cluster.control_plane().directory().to_owned()];
        Self::of_processes(&inits(cluster)?, directories)
    }

    /// The traces of the nodes with these first processes.
    fn of_processes(inits: &[u32], directories: Vec<PathBuf>) -> Result<Self> {
        let paths = inits.iter().flat_map(|init| KINDS.map(|kind| format!("/proc/{init}/ns/{kind}")));
        let namespaces = paths.map(fs::File::open).collect::<std::io::Result<_>>()?;
        Ok(Self { namespaces, directories })
    }

    /// The processes that are in one of the namespaces.
    fn processes(&self) -> Vec<String> {
        let numbers: BTreeSet<u64> =
            self.namespaces.iter().map(|namespace| namespace.metadata().unwrap().ino()).collect();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let inside = |process: &fs::DirEntry| {
            KINDS.iter().any(|kind| {
                let namespace = fs::metadata(process.path().join("ns").join(kind));
                namespace.is_ok_and(|namespace| numbers.contains(&namespace.ino()))
            })
        };
        processes.filter(inside).map(|process| process.file_name().to_string_lossy().into_owned()).collect()
    }
}

/// The kinds of [`Traces::namespaces`].
const KINDS: [&str; 3] = ["pid", "uts", "ipc"];

/// The first process of each node.
fn inits(cluster: &Cluster) -> Result<Vec<u32>> {
    Ok(cluster.nodes().map(|node| node.host().init_pid()).collect::<std::result::Result<_, _>>()?)
}

/// The control groups of a process's clusters, in all hierarchies.
fn cgroups(owner: u32) -> Vec<String> {
    let ours = format!("tenure-cluster-{owner}-");
    let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let groups = hierarchies.filter_map(|hierarchy| fs::read_dir(hierarchy.path()).ok());
    let names = groups.flatten().flatten().map(|group| group.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&ours)).collect()
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").unwrap()
}

/// The machine's interfaces with an address.
fn interfaces_with(address: Ipv4Addr) -> Result<Vec<serde_json::Value>> {
    let links = NetworkNamespace::current()?.ip_json(&["address", "show", "to", &address.to_string()])?;
    Ok(serde_json::from_value(links)?)
}

/// Clusters are heavy: one at a time.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Ends the cluster, and keeps its logs if the test failed without a panic.
fn end(cluster: Cluster, outcome: &Result) {
    if outcome.is_err() {
        cluster.keep_logs();
    }
    drop(cluster);
}

#[tokio::test]
async fn three_nodes_run_a_daemon_set_a_deployment_and_a_service_and_leave_nothing_behind() -> Result {
    let _alone = ONE_AT_A_TIME.lock().await;
    let steps = Steps(SystemClock.now());
    let mounts_before = mounts();
    let cluster = Cluster::start(ClusterOptions { nodes: 3, cni: CniChoice::PtpHostLocal }).await?;
    steps.done("three nodes ready");
    let outcome = pods_and_services(&cluster, &steps).await;

    let traces = Traces::of(&cluster)?;
    assert!(traces.processes().len() > 3 * 6, "the traces find the processes: {:?}", traces.processes());
    assert!(!cgroups(std::process::id()).is_empty(), "the traces find the control groups");
    let machine = cluster.machine();
    assert_eq!(interfaces_with(machine)?.len(), 1, "the traces find the interface");
    end(cluster, &outcome);
    outcome?;
    steps.done("ended");
    assert_eq!(traces.processes(), [] as [String; 0]);
    assert_eq!(cgroups(std::process::id()), [] as [String; 0]);
    assert_eq!(traces.directories.iter().filter(|directory| directory.exists()).count(), 0);
    assert_eq!(mounts(), mounts_before);
    // The kernel takes namespaces down in the background.
    eventually("the end of the interface", async || {
        interfaces_with(machine).is_ok_and(|found| found.is_empty())
    })
    .await;
    steps.done("nothing left");
    Ok(())
}

async fn pods_and_services(cluster: &Cluster, steps: &Steps) -> Result {
    let nodes = cluster.kubectl(&["get", "nodes", "--no-headers"]).await?;
    assert_eq!(nodes.lines().filter(|line| line.contains(" Ready ")).count(), 3, "{nodes}");

    start_pods(cluster).await?;
    cluster.kubectl(&["wait", "deployment/web", "--for=condition=Available", "--timeout=300s"]).await?;
    steps.done("pods running");

    let (everywhere, web) = (pods(cluster, "everywhere").await?, pods(cluster, "web").await?);
    let on: BTreeSet<&str> = everywhere.iter().map(|pod| pod.node.as_str()).collect();
    assert_eq!(on, cluster.nodes().map(Node::name).collect(), "one on each node");
    assert_eq!(web.len(), 2);

    // Each pod of the Deployment from a pod of another node, and the Service from a node that has none of them.
    for server in &web {
        let client = everywhere.iter().find(|pod| pod.node != server.node).unwrap();
        let by_address = fetch(cluster, client, &format!("http://{}:8080/", server.address)).await?;
        assert_eq!(by_address, server.name);
    }
    let service = cluster.kubectl(&["get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"]).await?;
    let names: BTreeSet<&str> = web.iter().map(|pod| pod.name.as_str()).collect();
    let elsewhere = everywhere.iter().find(|pod| web.iter().all(|server| server.node != pod.node));
    let elsewhere = elsewhere.expect("two pods are on at most two of three nodes");
    let by_service = fetch(cluster, elsewhere, &format!("http://{service}/")).await?;
    assert!(names.contains(by_service.as_str()), "{by_service:?} is not one of {names:?}");
    steps.done("pods reach each other and the Service");

    // So do they the API server, by its Service: it says that it wants TLS.
    let ask = r"printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT";
    let said = cluster.kubectl(&["exec", &elsewhere.name, "--", "sh", "-c", ask]).await?;
    assert!(said.contains("HTTP request to an HTTPS server"), "{said:?}");

    let logs = cluster.kubectl(&["logs", &elsewhere.name]).await?;
    assert!(logs.starts_with("begins\n"), "{logs}");
    Ok(())
}

#[tokio::test]
async fn a_node_without_cni_becomes_ready_when_a_configuration_is_put_there() -> Result {
    let _alone = ONE_AT_A_TIME.lock().await;
    let cluster = Cluster::start(ClusterOptions { nodes: 1, cni: CniChoice::None }).await?;
    let outcome = configure(&cluster).await;
    end(cluster, &outcome);
    outcome
}

async fn configure(cluster: &Cluster) -> Result {
    let error = cluster.ready(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(error.to_string(), "not every node is ready within 1s: only [] of 1");
    let configuration = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "of-the-test",
        "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": cluster.spare_addresses()}}],
    });
    cluster.node(0).write("/etc/cni/net.d/10-test.conflist", &configuration.to_string())?;
    cluster.ready(PATIENCE).await?;
    Ok(())
}

#[tokio::test]
async fn a_killed_test_leaves_no_process_and_the_next_start_clears_away_the_rest() -> Result {
    const VICTIM: &str = "TENURE_TEST_VICTIM";
    if std::env::var_os(VICTIM).is_some() {
        // The part of the one that is killed: this test, started by itself.
        let cluster = Cluster::start(ClusterOptions { nodes: 1, cni: CniChoice::PtpHostLocal }).await?;
        start_pods(&cluster).await?;
        let traces = serde_json::json!([inits(&cluster)?, Traces::of(&cluster)?.directories]);
        std::io::Write::write_all(&mut std::io::stdout(), format!("traces {traces}\n").as_bytes())?;
        return std::future::pending().await;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let steps = Steps(SystemClock.now());
    let mut victim = Victim(
        Command::new(std::env::current_exe()?)
            .args([
                "--exact",
                "a_killed_test_leaves_no_process_and_the_next_start_clears_away_the_rest",
                "--nocapture",
            ])
            .env(VICTIM, "1")
            .stdout(Stdio::piped())
            .spawn()?,
    );
    let owner = victim.0.id();
    let mut lines = BufReader::new(victim.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find_map(|line| line.split_once("traces ").map(|(_, json)| json.to_owned())).unwrap();
    let (inits, directories): (Vec<u32>, _) = serde_json::from_str(&line)?;
    let traces = Traces::of_processes(&inits, directories)?;
    assert!(traces.processes().len() > 6, "{:?}", traces.processes());
    steps.done("another test's cluster runs");

    drop(victim);
    eventually("the end of its processes", async || traces.processes().is_empty()).await;
    assert!(!cgroups(owner).is_empty(), "nobody could remove them");
    steps.done("it was killed, and its processes are gone");

    let cluster = Cluster::start(ClusterOptions { nodes: 2, cni: CniChoice::PtpHostLocal }).await?;
    steps.done("two nodes ready");
    assert_eq!(cgroups(owner), [] as [String; 0]);
    for directory in &traces.directories {
        let left: Vec<_> = fs::read_dir(directory)?.flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name == "logs"), "{} has {left:?}", directory.display());
    }
    let outcome = faults(&cluster, &steps).await;
    end(cluster, &outcome);
    outcome
}

/// A process that is killed when this is dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

async fn faults(cluster: &Cluster, steps: &Steps) -> Result {
    // An image of our own, on a node of choice.
    let plugin = cluster.node(0).path("/opt/cni/bin/ptp")?;
    let image = Image::named("tenure.test/own:1").program("/plugin", &plugin)?.entrypoint(&["/plugin"]);
    cluster.import(&image).await?;
    cluster
        .kubectl(&["run", "own", "--image=tenure.test/own:1", "--restart=Never", "--env=CNI_COMMAND=VERSION"])
        .await?;
    cluster
        .kubectl(&["wait", "pod/own", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s"])
        .await?;
    assert!(cluster.kubectl(&["logs", "own"]).await?.contains("supportedVersions"));
    steps.done("an image of our own ran");

    start_pods(cluster).await?;
    let everywhere = pods(cluster, "everywhere").await?;
    let on = |name: &str| everywhere.iter().find(|pod| pod.node == name).unwrap();
    let (first, second) = (cluster.node(0), cluster.node(1));
    let url = format!("http://{}:8080/", on(second.name()).address);

    // Pods do not need containerd or the kubelet to go on.
    for part in [NodePart::Containerd, NodePart::Kubelet] {
        second.kill(part).await?;
        assert_eq!(second.process_id(part), None);
    }
    assert_eq!(fetch(cluster, on(first.name()), &url).await?, on(second.name()).name);
    for part in [NodePart::Containerd, NodePart::Kubelet] {
        second.start(part)?;
    }
    let client = on(second.name());
    eventually("exec works again", async || fetch(cluster, client, &url).await.is_ok()).await;
    steps.done("containerd and kubelet were killed and started");

    second.unplug()?;
    first.host().ping(second.address().into(), Duration::from_millis(300)).unwrap_err();
    second.plug()?;
    first.host().ping(second.address().into(), Duration::from_secs(5))?;
    steps.done("the cable was pulled and plugged in");

    second.power_off()?;
    assert!(NodePart::ALL.iter().all(|part| second.process_id(*part).is_none()));
    second.power_on()?;
    let restarts = "--output=jsonpath={.status.containerStatuses[0].restartCount} {.status.podIP}";
    eventually("the pod is started again after the power cut", async || {
        let Ok(status) = cluster.kubectl(&["get", "pod", &client.name, restarts]).await else { return false };
        let Some((count, address)) = status.split_once(' ') else { return false };
        count != "0" && fetch(cluster, on(first.name()), &format!("http://{address}:8080/")).await.is_ok()
    })
    .await;
    steps.done("the power was cut and came back");
    Ok(())
}

async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = SystemClock.now();
    while !is_so().await {
        assert!(SystemClock.now().since(start) < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
