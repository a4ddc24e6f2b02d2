//! An agent without a kernel on an embedded API server, in a temporary directory, and the plugin's program before it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_agent::drive::{Executor, Handle, NodeChannel};
use tenure_agent::journal::{Image, Record};
use tenure_agent::node::{Action, Event, Node, Settings};
use tenure_agent::pods::Pods;
use tenure_agent::serve::{PostponedDels, Service, listen};
use tenure_agent::sources::BlockSource as _;
use tenure_agent::whereabouts::Whereabouts;
use tenure_agent::whereabouts::ledgers::{self, Ledgers};
use tenure_agent::whereabouts::slices::{self, Slices};
use tenure_api::whereabouts::{IPPool, NodeSlicePool, OverlappingRangeIPReservation};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_ipam::Notation;
use tenure_localapi::{LocalApi, Options};
use tenure_whereabouts::ledger::PoolId;
use tenure_whereabouts::slices::{Given, network_of};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::question::{Fault, Question, Step};
use crate::answers::{PLUGIN_NAME, refused};

const NAMESPACE: &str = "kube-system";
const NODE: &str = "node-1";
const NETWORK: &str = "net";
/// No agent takes longer to begin, also on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// An API server, an agent and the plugin.
pub(super) struct Bed {
    runtime: Runtime,
    client: Client,
    directory: tempfile::TempDir,
    plugin: PathBuf,
    fault: Arc<Mutex<Option<Fault>>>,
    network: Value,
    stop: CancellationToken,
}

/// How a run ended.
pub(super) struct Ended {
    pub(super) exit: i32,
    pub(super) stdout: String,
}

/// What is in the API at the end.
pub(super) struct Left {
    /// The range of each record.
    pub(super) records: Vec<String>,
    /// The names of reservations.
    pub(super) reserved: Vec<String>,
}

impl Bed {
    pub(super) fn start(question: &Question) -> Result<Self, String> {
        let plugin = plugin()?;
        let directory = tempfile::tempdir().map_err(refused)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(refused)?;
        let mut network = json!({
            "cniVersion": question.version, "name": NETWORK, "type": "macvlan",
            "ipam": question.ipam,
        });
        network["ipam"]["type"] = json!("whereabouts");
        if let Some(text) = &question.flat_file {
            let path = directory.path().join("whereabouts.conf");
            std::fs::write(&path, text).map_err(refused)?;
            network["ipam"]["configuration_path"] = json!(path);
        }
        let inside = runtime.enter();
        let server = Options::default().temporary(SystemClock, SeededEntropy::new(1));
        let (client, fault, stop) = (server.client(), Arc::default(), CancellationToken::new());
        drop(inside);
        let bed = Self { runtime, client, directory, plugin, fault, network, stop };
        bed.runtime.block_on(bed.prepare(question))?;
        bed.runtime.block_on(bed.serve(&server))?;
        Ok(bed)
    }

    /// Makes the kinds, and slices if the network has any.
    async fn prepare(&self, question: &Question) -> Result<(), String> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).map_err(refused)?;
        drop(namespaces.create(&PostParams::default(), &namespace).await);
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in tenure_api::crds() {
            definitions.create(&PostParams::default(), &definition).await.map_err(refused)?;
        }
        let size = question.ipam.get("node_slice_size").and_then(Value::as_str).unwrap_or_default();
        if size.is_empty() {
            return Ok(());
        }
        let name = question.ipam.get("network_name").and_then(Value::as_str).unwrap_or(NETWORK);
        let range = question.ranges().into_iter().next().unwrap_or_default();
        let cidr = Notation::LeadingZeros.range(&range).map_err(refused)?.cidr;
        let prefix: u8 = size.trim_start_matches('/').parse().map_err(refused)?;
        let slices = tenure_ipam::Slices::new(cidr, prefix).map_err(refused)?;
        let allocations: Vec<Value> = slices
            .iter()
            .take(1_024)
            .enumerate()
            .map(|(place, slice)| {
                let own = match question.slice.as_deref() {
                    None => false,
                    Some("") => place == 0,
                    Some(named) => slice.to_string() == named,
                };
                json!({"nodeName": if own { NODE } else { "" }, "sliceRange": slice.to_string()})
            })
            .collect();
        let pool = json!({
            "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "NodeSlicePool", "metadata": {"name": name},
            "spec": {"range": cidr.to_string(), "sliceSize": format!("/{prefix}")}, "status": {"allocations": allocations},
        });
        let pools: Api<NodeSlicePool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pool = serde_json::from_value(pool).map_err(refused)?;
        let pool = pools.create(&PostParams::default(), &pool).await.map_err(refused)?;
        // The controller tells the node of its slice in the slice's own object.
        if let Some(slice) = pool.slice_of(NODE) {
            let id = PoolId::of_node(&network_of(&pool), NODE, slice.parse().map_err(refused)?);
            let object = Given::of(&pool).object(&id).map_err(refused)?;
            let records: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
            records.create(&PostParams::default(), &object).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn serve(&self, server: &LocalApi) -> Result<(), String> {
        let client = faulty(server.client(), Arc::clone(&self.fault));
        let channel = NodeChannel::new();
        let node = channel.handle();
        for event in [Event::Journal(Image::default()), Event::Kernel(Vec::new()), Event::ApiRead] {
            node.tell(event);
        }
        let wanted = slices::SlicesOptions {
            debounce: Duration::from_millis(20),
            patience: Duration::from_millis(500),
            ..slices::SlicesOptions::new(NODE, NAMESPACE)
        };
        let slices = Slices::start(client.clone(), wanted, SystemClock, node.clone(), self.stop.clone());
        let executor = Kernelless { node: node.clone(), slices: slices.clone(), position: 0 };
        // Which address comes next is what cases are about: nothing rests.
        let settings =
            Settings { sources: vec![slices::SOURCE], cooling: Duration::ZERO, ..Settings::new(NODE) };
        let driver = channel.driver(Node::new(settings), SystemClock, executor);
        tokio::spawn(driver.run(self.stop.clone().cancelled_owned()));
        let wanted = ledgers::LedgersOptions {
            cooling: Duration::ZERO,
            patience: Duration::from_millis(500),
            // As Whereabouts has it: a reservation for every address.
            reserving_always: true,
            ..ledgers::LedgersOptions::new(NODE, self.directory.path().join("ledgers"))
        };
        let ledgers = Ledgers::new(client.clone(), wanted, SystemClock, self.stop.clone());
        let pods = Pods::new(client, NODE, SystemClock, self.stop.clone());
        let postponed = PostponedDels::of(self.directory.path().join("tombstones"));
        let whereabouts = Whereabouts::new(ledgers, slices, pods, self.directory.path(), false);
        let service = Service::new(node.clone(), SystemClock, vec![Arc::new(whereabouts)], Some(postponed));
        let listening = listen(&self.directory.path().join("tenured.sock")).map_err(refused)?;
        tokio::spawn(listening.serve(service, self.stop.clone().cancelled_owned()));
        let ready = async {
            while node.look(Node::is_ready).await != Ok(true) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, ready).await.map_err(refused)
    }

    /// Runs the plugin once.
    pub(super) fn run(&self, step: &Step) -> Result<Ended, String> {
        let mut network = self.network.clone();
        if let Some(ipam) = &step.ipam {
            network["ipam"] = json!(ipam);
            network["ipam"]["type"] = json!("whereabouts");
        }
        if step.verb == "GC" {
            let alive = json!([{"containerID": container(step), "ifname": step.interface}]);
            network["cni.dev/valid-attachments"] = alive;
        }
        let usual = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME={}", step.pod);
        let mut child = Command::new(&self.plugin)
            .env_clear()
            .env("TENURE_SOCKET", self.directory.path().join("tenured.sock"))
            .env("CNI_COMMAND", &step.verb)
            .env("CNI_CONTAINERID", container(step))
            .env("CNI_IFNAME", &step.interface)
            .env("CNI_NETNS", self.directory.path().join("netns"))
            .env("CNI_PATH", self.directory.path())
            .env("CNI_ARGS", step.arguments.as_ref().unwrap_or(&usual))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", self.plugin.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(network.to_string().as_bytes()).map_err(refused)?;
        }
        let output = child.wait_with_output().map_err(refused)?;
        Ok(Ended {
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        })
    }

    /// Makes the state that the question begins in, and the faults that it is about.
    pub(super) fn bring_about(&self, question: &Question) -> Result<(), String> {
        if !question.state.is_empty() {
            self.runtime.block_on(self.change_records(question))?;
        }
        self.fault().clone_from(&question.fault);
        Ok(())
    }

    /// `v4 entry already gone`, `second range exhausted` and the like.
    async fn change_records(&self, question: &Question) -> Result<(), String> {
        let state = question.state.as_str();
        let pools: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let ranges = question.ranges();
        let meant = ranges.iter().enumerate().filter(|(place, range)| {
            let family = if range.contains(':') { "v6" } else { "v4" };
            let place = ["first", "second", "third"].get(*place).copied().unwrap_or_default();
            state.contains(family) || state.contains(place) || ranges.len() == 1
        });
        for (_, range) in meant {
            let cidr = Notation::LeadingZeros.range(range).map_err(refused)?.cidr;
            let network = question.ipam.get("network_name").and_then(Value::as_str).unwrap_or_default();
            let name = tenure_api::whereabouts::pool_name(network, "", &cidr.to_string()).map_err(refused)?;
            if state.contains("gone") {
                let empty = json!([{"op": "replace", "path": "/spec/allocations", "value": {}}]);
                let uri = format!("{}/{name}", pools.resource_url());
                let request = Request::patch(uri)
                    .header("content-type", "application/json-patch+json")
                    .body(empty.to_string().into_bytes())
                    .map_err(refused)?;
                self.client.request::<Value>(request).await.map_err(refused)?;
            } else if state.contains("exhausted") || state.contains("full") {
                let last = u32::try_from(cidr.last_offset()).map_err(refused)?;
                let record = |n: u32| {
                    (
                        n.to_string(),
                        json!({"id": format!("c{n}"), "podref": format!("ns/other{n}"), "ifname": "net1"}),
                    )
                };
                let records: BTreeMap<String, Value> = (0..=last.min(4_096)).map(record).collect();
                let pool = json!({
                    "apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": {"name": name},
                    "spec": {"range": cidr.to_string(), "allocations": records},
                });
                if pools.get_opt(&name).await.map_err(refused)?.is_some() {
                    let patch = Patch::Merge(json!({"spec": {"allocations": records}}));
                    pools.patch(&name, &PatchParams::default(), &patch).await.map_err(refused)?;
                } else {
                    let pool = serde_json::from_value(pool).map_err(refused)?;
                    pools.create(&PostParams::default(), &pool).await.map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more, and what was left undone has had its time.
    pub(super) fn mend(&self) {
        if self.fault().take().is_some() {
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(600)).await });
        }
    }

    /// What is left of pods; what the state was made of is not counted.
    pub(super) fn left(&self) -> Result<Left, kube::Error> {
        self.runtime.block_on(async {
            let pools: Api<IPPool> = Api::namespaced(self.client.clone(), NAMESPACE);
            let reservations: Api<OverlappingRangeIPReservation> =
                Api::namespaced(self.client.clone(), NAMESPACE);
            let listed = pools.list(&ListParams::default()).await?.items;
            let records = listed.into_iter().flat_map(|pool| {
                let ours = pool.spec.allocations.values().filter(|it| it.podref.starts_with("ns/pod"));
                vec![pool.spec.range.clone(); ours.count()]
            });
            let records = records.collect();
            let reserved = reservations.list(&ListParams::default()).await?.items;
            let reserved = reserved.into_iter().filter_map(|it| it.metadata.name).collect();
            Ok(Left { records, reserved })
        })
    }

    /// How many DELs were left for later.
    pub(super) fn tombstones(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("tombstones")).map_or(0, Iterator::count)
    }

    fn fault(&self) -> std::sync::MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn container(step: &Step) -> String {
    format!("container-{}", step.pod)
}

/// The plugin's program, under the name that runtimes know it by: this program is the plugin if it is called so.
fn plugin() -> Result<PathBuf, String> {
    static PLUGIN: OnceLock<Result<(PathBuf, tempfile::TempDir), String>> = OnceLock::new();
    let found = PLUGIN.get_or_init(|| {
        let directory = tempfile::tempdir().map_err(refused)?;
        let named = directory.path().join(PLUGIN_NAME);
        std::os::unix::fs::symlink(std::env::current_exe().map_err(refused)?, &named).map_err(refused)?;
        Ok((named, directory))
    });
    found.as_ref().map(|(path, _)| path.clone()).map_err(Clone::clone)
}

/// A client whose calls may be refused, or never answered.
fn faulty(client: Client, fault: Arc<Mutex<Option<Fault>>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, fault) = (client.clone(), Arc::clone(&fault));
        async move {
            let fault = fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let meant = fault.filter(|fault| {
                let resource = format!("/{}", fault.resource);
                (fault.method.is_empty() || request.method() == fault.method.as_str())
                    && (fault.resource.is_empty() || request.uri().path().contains(&resource))
            });
            match meant.map(|fault| fault.code) {
                None => client.send(request).await.map_err(|error| error.to_string()),
                Some(None) => Err("connection refused".to_owned()),
                Some(Some(code)) => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "InternalError",
                        "message": "as the case asks for", "code": code,
                    });
                    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
                    *response.status_mut() =
                        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    Ok(response)
                }
            }
        }
    });
    Client::new(service, NAMESPACE)
}

/// Commits everything at once, and has no interfaces to make.
struct Kernelless {
    node: Handle,
    slices: Slices,
    position: u64,
}

impl Executor for Kernelless {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        for record in &records {
            self.slices.recorded(record.block());
        }
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, _: Action) {}
}
