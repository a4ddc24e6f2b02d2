//! An API server with a controller, two hosts with an agent each, a pod on each of them, and an operator with no more rights than
//! `deploy/viewer.yaml` gives.
//!
//! There is neither kubelet nor `DaemonSet`: while `repair` runs, the bed does what they would do when an agent's pod is deleted.

use std::cell::RefCell;
use std::fmt::Debug;
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, label};
use tenure_controller::{CloudSettings, Controller, Settings, Timing, Whereabouts};
use tenure_handles::SystemClock;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::faults::{Calls, Hold, Rule, RuleId, Verb};
use tenure_testbed::hosts::Segment;
use tenure_testbed::traffic::Talker;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::agent::{Calling, Cluster, Machine, Pod};
use tenure_tests::chaos::clock::{Clock, Clocks};
use tenure_tests::chaos::egress::Egress;
use tenure_tests::chaos::pods;
use tenure_tests::chaos::programs::Agent;
use tenure_tests::chaos::proxy::Proxy;
use tenure_tests::cloud::Cloud;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pods::Running;

const TENURE: &str = env!("CARGO_BIN_EXE_bed-tenure");
/// How long after the first look `check` takes the second.
const SETTLE: &str = "300ms";
/// Empty blocks stay, so that one without holders can be planted; drained ones go at once.
const OF_AGENTS: [&str; 6] = ["--cooling", "1s", "--rest", "30m", "--node-probe", "5s"];

/// Says something that is seen also when the test succeeds.
pub fn say(what: &str) {
    let _ = writeln!(std::io::stderr().lock(), "repair: {what}");
}

/// What a group of cases changes before the agents start.
pub struct Before<'c, 'a> {
    pub cluster: &'a Cluster,
    pub machines: &'c mut [Machine<'a>],
    pub cloud: Option<Cloud>,
    /// Further Ethernets, which live as long as the bed.
    pub wires: Vec<Arc<Segment>>,
    pub ports: Vec<tenure_testbed::hosts::Port>,
}

/// A system in which everything is right.
pub struct Bed<'a> {
    pub cluster: &'a Cluster,
    pub machines: &'a [Machine<'a>],
    pub agents: Vec<Agent<'a>>,
    /// What is between agents and the API server.
    proxy: &'a Proxy,
    /// What events agents do not get for now.
    held: Vec<Hold>,
    /// What of agents' requests is refused for now.
    refused: Vec<RuleId>,
    cloud: Option<CloudSettings>,
    controller: Option<(CancellationToken, JoinHandle<()>)>,
    operator: PathBuf,
    /// The clock by which the operator looks.
    pub clock: Clock,
    /// Pods that run all the time.
    pub running: Vec<Running>,
    /// Pods of a case, after those that stay as long as the bed.
    pub extra: Vec<(usize, Pod)>,
    /// How many stay.
    pub staying: usize,
    /// How many pods there were: no name is used twice.
    pub pods: usize,
    /// The ADD of the last pod, as long as there is no address.
    pub calling: RefCell<Option<Calling>>,
    /// What a case has to put back.
    pub kept: Value,
}

/// Makes a system, changes it, and lets `work` have it.
pub fn with_bed(prepare: fn(&mut Before<'_, '_>), work: impl FnOnce(&mut Bed<'_>)) {
    let directory = tempfile::tempdir().unwrap();
    let egress = Egress::open(directory.path());
    let options = egress.used_by(ControlPlaneOptions::default().without_controller_manager());
    let cluster = Cluster::without_controller(options);
    let proxy = Proxy::before(&cluster, 1);
    let cluster = cluster.behind(proxy.address);
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = Machine::several(&cluster, &wire, 2);
    for machine in &mut machines {
        machine.arguments = OF_AGENTS.map(str::to_owned).to_vec();
        machine.arguments.extend(["--dbus-socket", "/no/such/socket"].map(str::to_owned));
    }
    let mut before = Before {
        cluster: &cluster,
        machines: &mut machines,
        cloud: None,
        wires: Vec::new(),
        ports: Vec::new(),
    };
    cluster.pool("default", 5, json!([{"ipv4": "10.64.0.0/16", "ipv6": "fd64::/112"}]));
    prepare(&mut before);
    let Before { cloud, wires: _wires, ports: _ports, .. } = before;
    egress.serve(cluster.runtime.handle(), &machines);
    pods::admit_viewers(&cluster);
    let clocks = Clocks::new();
    let mut bed = Bed {
        cluster: &cluster,
        machines: &machines,
        agents: Vec::new(),
        proxy: &proxy,
        held: Vec::new(),
        refused: Vec::new(),
        cloud: cloud.as_ref().map(Cloud::settings),
        controller: None,
        operator: operator(&cluster),
        clock: clocks.make("operator"),
        running: Vec::new(),
        extra: Vec::new(),
        staying: 0,
        pods: 0,
        calling: RefCell::default(),
        kept: Value::Null,
    };
    bed.control();
    for machine in &machines {
        bed.agents.push(Agent::start(machine));
        pods::make(&cluster, &pods::of_agent(machine));
        until("an agent that answers", || machine.has_socket().then_some(()));
    }
    for (machine, name) in ["a", "b"].into_iter().enumerate() {
        let running = bed.run(machine, name);
        bed.running.push(running);
    }
    work(&mut bed);
}

/// A kubeconfig of somebody who may look and repair, and nothing else.
fn operator(cluster: &Cluster) -> PathBuf {
    let plane = cluster.plane();
    let bind = |arguments: &[&str]| _ = cluster.runtime.block_on(plane.kubectl(arguments)).unwrap();
    for role in ["tenure-view", "tenure-repair"] {
        let (role, clusterrole) = (format!("--role={role}"), format!("--clusterrole={role}"));
        bind(&["create", "clusterrolebinding", &format!("ann-{}", &role[7..]), &clusterrole, "--user=ann"]);
        let name = format!("ann-{}", &role[7..]);
        bind(&["create", "rolebinding", &name, "-n", "kube-system", &role, "--user=ann"]);
    }
    plane.kubeconfig_for(&plane.url(), "ann", &[]).unwrap()
}

impl Bed<'_> {
    /// Starts the controller, if it does not run. It releases in seconds what takes minutes in a cluster.
    pub fn control(&mut self) {
        if self.controller.is_some() {
            return;
        }
        let seconds = Duration::from_secs;
        let settings = Settings {
            timing: Timing {
                duration: seconds(8),
                renew_deadline: seconds(6),
                retry: Duration::from_millis(300),
            },
            whereabouts: Whereabouts {
                release_after: Some(seconds(3)),
                node_gone_after: seconds(2),
                ..Whereabouts::default()
            },
            missing_node_rest: seconds(2),
            tick: seconds(1),
            cloud: self.cloud.clone(),
            ..Settings::new("repair")
        };
        let _inside = self.cluster.runtime.enter();
        let client = self.cluster.plane().client().unwrap();
        let stop = CancellationToken::new();
        let run = Controller::new(client, SystemClock, settings).run(stop.clone());
        let task = self.cluster.runtime.spawn(async move { run.await.unwrap() });
        self.controller = Some((stop, task));
    }

    /// Ends the controller, as a signal does, and waits until it has ended.
    pub fn stop_controller(&mut self) {
        if let Some((stop, task)) = self.controller.take() {
            stop.cancel();
            self.wait(task).unwrap();
        }
    }

    /// Agents get no events of this kind until [`Self::end_faults`].
    pub fn deaf(&mut self, resource: &str) {
        self.held.push(self.proxy.faults().hold_watches(Calls::all().to(resource)));
    }

    /// Agents' requests are refused until [`Self::end_faults`].
    pub fn refuse(&mut self, calls: Calls) {
        self.answer(StatusCode::SERVICE_UNAVAILABLE, calls);
    }

    /// Agents may neither list nor watch a kind until [`Self::end_faults`].
    pub fn forbid_watch(&mut self, resource: &str) {
        let calls = Calls::of(Verb::List).or(Verb::Watch).to(resource);
        self.answer(StatusCode::FORBIDDEN, calls.clone());
        self.proxy.faults().cut_watches(&calls);
    }

    fn answer(&mut self, status: StatusCode, calls: Calls) {
        self.refused.push(self.proxy.faults().add(Rule::fail(status).on(calls)));
    }

    /// Agents hear everything, and are refused nothing.
    pub fn end_faults(&mut self) {
        self.held.clear();
        for rule in self.refused.drain(..) {
            self.proxy.faults().remove(rule);
        }
    }

    pub fn wait<T>(&self, asking: impl Future<Output = T>) -> T {
        self.cluster.runtime.block_on(asking)
    }

    /// All objects of a kind that has no namespace.
    pub fn api<K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>>(&self) -> Api<K> {
        Api::all(self.cluster.client.clone())
    }

    /// Objects of a kind in a namespace.
    pub fn api_in<K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>>(
        &self,
        namespace: &str,
    ) -> Api<K> {
        Api::namespaced(self.cluster.client.clone(), namespace)
    }

    /// Makes an object.
    pub fn make<K>(&self, api: &Api<K>, object: Value) -> K
    where
        K: Clone + Debug + DeserializeOwned + Serialize + Resource<DynamicType = ()>,
    {
        self.wait(api.create(&PostParams::default(), &serde_json::from_value(object).unwrap())).unwrap()
    }

    /// Changes an object.
    pub fn merge<K: Clone + Debug + DeserializeOwned>(&self, api: &Api<K>, name: &str, patch: Value) -> K {
        self.wait(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).unwrap()
    }

    /// Changes the status of an object.
    pub fn merge_status<K: Clone + Debug + DeserializeOwned>(
        &self,
        api: &Api<K>,
        name: &str,
        status: Value,
    ) -> K {
        let mut patch = json!({});
        patch["status"] = status;
        let patch = Patch::Merge(patch);
        self.wait(api.patch_status(name, &PatchParams::default(), &patch)).unwrap()
    }

    /// Deletes an object, if it is there.
    pub fn delete<K: Clone + Debug + DeserializeOwned>(&self, api: &Api<K>, name: &str) {
        match self.wait(api.delete(name, &DeleteParams::default().grace_period(0))) {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            done => drop(done.unwrap()),
        }
    }

    /// The block of the pod that runs.
    pub fn block_of_running(&self, machine: usize) -> AddressBlock {
        self.block_with(machine, self.running[machine].addresses[0])
    }

    /// The block of a host that has an address.
    pub fn block_with(&self, machine: usize, address: IpAddr) -> AddressBlock {
        let blocks = self.cluster.blocks_of(&self.machines[machine].name);
        let has = |block: &AddressBlock| {
            let network: Option<ipnet::IpNet> = block.spec.ipv4.as_ref().and_then(|it| it.parse().ok());
            network.is_some_and(|network| network.contains(&address))
        };
        blocks.into_iter().find(has).expect("the block of the pod that runs")
    }

    /// Block `index` of a pool for a node, under the name of block `number`.
    pub fn carve(&self, pool: &str, index: u32, number: u32, node: Option<&str>) -> AddressBlock {
        let pool: AddressPool = self.wait(self.cluster.pools().get(pool)).unwrap();
        let mut block = AddressBlock::carve(&pool, index.into(), node.unwrap_or_default(), None).unwrap();
        block.metadata.name = Some(format!("{}-{number}", pool.name_any()));
        block.spec.index = number.into();
        if node.is_none() {
            block.labels_mut().remove(label::NODE);
        }
        self.wait(self.cluster.blocks().create(&PostParams::default(), &block)).unwrap()
    }

    /// What `tenure check` says.
    pub fn check(&self) -> Value {
        self.tenure(&["check"])
    }

    /// What `tenure repair` says.
    pub fn repair(&self, arguments: &[&str]) -> Value {
        self.tenure(&[&["repair"], arguments].concat())
    }

    fn tenure(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(TENURE);
        command.args(arguments).args(["--settle", SETTLE, "-o", "json", "--kubeconfig"]).arg(&self.operator);
        command.envs(self.clock.environment()).env("HOME", "/nowhere").env_remove("KUBECONFIG");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let read = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            text
        });
        while child.try_wait().unwrap().is_none() {
            self.be_kubelet();
            std::thread::sleep(Duration::from_millis(20));
        }
        let text = read.join().unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("tenure {arguments:?}: {error}: {text:?}"))
    }

    /// Ends agents whose pods are deleted, and starts them again in others; asks again for addresses.
    fn be_kubelet(&self) {
        self.ask_again();
        let pods = self.api_in::<PodObject>("kube-system");
        let listed = self.wait(pods.list(&ListParams::default().labels("app.kubernetes.io/name=tenured")));
        for pod in listed.unwrap().iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap();
            let at = self.machines.iter().position(|machine| machine.name == node).unwrap();
            self.restart(at);
        }
    }

    /// Starts an agent again, in another pod.
    pub fn restart(&self, machine: usize) {
        self.while_down(machine, || ());
    }

    /// Changes something while an agent is down.
    pub fn while_down(&self, machine: usize, change: impl FnOnce()) {
        let host = &self.machines[machine];
        self.agents[machine].while_down(|| {
            // A socket of an agent that was killed stays.
            let _ = std::fs::remove_file(host.file("tenured.sock"));
            change();
        });
        self.delete_pod("kube-system", &format!("tenured-{}", host.name));
        pods::make(self.cluster, &pods::of_agent(host));
        until("an agent that answers", || host.has_socket().then_some(()));
    }

    /// Waits until nothing differs, and repairs meanwhile what one finding has left of another.
    pub fn until_clean(&self) {
        let mut last = Value::Null;
        for round in 0..40 {
            last = self.check();
            if last["differences"] == json!([]) && last["unseen"] == json!([]) {
                return;
            }
            if round >= 2 {
                say(&format!("not clean yet: {} {}", last["differences"], last["unseen"]));
                self.repair(&["--yes", "--wait", "10s"]);
            }
        }
        panic!("check is not clean: {last:#}");
    }

    /// Ends what a case that failed has left, so that the next one can begin.
    pub fn put_right(&mut self) {
        self.clock.set(0);
        self.end_faults();
        self.control();
        self.give_up();
        self.detach();
    }

    /// Connections end, and every byte of them has arrived.
    pub fn finish(&mut self) {
        for running in &mut self.running {
            let (one, other) = running.talking.take().expect("a connection");
            Talker::finish(one.stop().unwrap(), other.stop().unwrap(), PATIENCE).unwrap();
        }
        self.stop_controller();
    }
}

/// Lets the controller lead again.
pub fn lead(bed: &mut Bed<'_>) {
    bed.control();
}

/// Lets agents hear and do everything again.
pub fn hear(bed: &mut Bed<'_>) {
    bed.end_faults();
}

/// Ends the pods of a case.
pub fn end_pods(bed: &mut Bed<'_>) {
    bed.detach();
}
