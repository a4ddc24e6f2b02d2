//! A service on a socket of its own, in front of a node whose journal and kernel do what they are told.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tenure_cni::plugin::{Outcome, Places, run};
use tenure_cni::{Code, Failure};
use tenure_handles::SystemClock;
use tenure_ipam::Subnet;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::coil::{Asked, Coil, Resolve};
use crate::drive::{Executor, Handle, NodeChannel};
use crate::journal::{Image, Record};
use crate::key::Pod;
use crate::node::{Action, Event, Link, Node, PoolFacts, SeenBlock, Settings};
use crate::serve::{Service, listen};

pub(super) struct Rig {
    pub(super) directory: tempfile::TempDir,
    pub(super) node: Handle,
    pub(super) service: Service<SystemClock>,
    end: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
}

/// Carries everything out at once.
struct Obedient {
    node: Handle,
    position: u64,
    /// Whether interfaces are as they should be.
    intact: Arc<AtomicBool>,
}

impl Executor for Obedient {
    fn record(&mut self, records: Vec<Record>) {
        self.position += records.len() as u64;
        self.node.tell(Event::Committed { up_to: self.position });
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Wire(job) => {
                let link = Link {
                    host_name: format!("tnr{}", job.key.container()),
                    host_mac: "0a:54:65:6e:75:72".into(),
                    pod_mac: "02:00:00:00:00:07".into(),
                    mtu: job.wiring.mtu.unwrap_or(1500),
                };
                self.node.tell(Event::Wired { job: job.job, link });
            }
            Action::Unwire { job, .. } => self.node.tell(Event::Unwired { job }),
            Action::Inspect(job) => {
                let intact = self.intact.load(Ordering::SeqCst);
                let differences =
                    if intact { Vec::new() } else { vec!["host link tnr1: expected up".into()] };
                self.node.tell(Event::Inspected { job: job.job, differences });
            }
            _ => {}
        }
    }
}

/// Namespaces `public` use the pool `public`.
#[derive(Debug)]
pub(super) struct Pools;

impl Resolve for Pools {
    async fn resolve(&self, asked: Asked) -> Result<(String, Pod), Failure> {
        let pool = asked.pool.unwrap_or_else(|| "default".into());
        let Some(pod) = asked.pod else { return Ok((pool, Pod::default())) };
        if pod.name == "unknown" {
            return Err(Failure::new(Code::UnknownContainer, "there is no pod \"unknown\""));
        }
        let pool = if pod.namespace == "public" { "public".into() } else { pool };
        Ok((pool, Pod { namespace: pod.namespace, name: pod.name, uid: pod.uid }))
    }
}

pub(super) fn facts() -> PoolFacts {
    PoolFacts { block_bits: 8, ..PoolFacts::default() }
}

impl Rig {
    /// A node with a block for each of the pools `default` (both families) and `public`.
    pub(super) fn ready() -> Self {
        let rig = Self::started();
        for (pool, ipv4, ipv6) in
            [("default", "10.1.0.0/24", Some("fd01::/120")), ("public", "192.0.2.0/24", None)]
        {
            rig.node.tell(Event::PoolChanged { name: pool.into(), facts: facts() });
            rig.node.tell(Event::BlockSeen(SeenBlock {
                name: format!("{pool}-0"),
                uid: format!("{pool}-uid"),
                node: "node-1".into(),
                pool: pool.into(),
                subnet: Subnet {
                    ipv4: Some(ipv4.parse().unwrap()),
                    ipv6: ipv6.map(|cidr| cidr.parse().unwrap()),
                },
                reserved: false,
                deleting: false,
                releasing: false,
                draining: false,
                pod: None,
            }));
        }
        rig.node.tell(Event::Journal(Image::default()));
        rig.node.tell(Event::Kernel(Vec::new()));
        rig.node.tell(Event::ApiRead);
        rig
    }

    /// A node that has not read anything yet.
    pub(super) fn started() -> Self {
        Self::with_intact(&Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn with_intact(intact: &Arc<AtomicBool>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let channel = NodeChannel::new();
        let node = channel.handle();
        let executor = Obedient { node: node.clone(), position: 0, intact: Arc::clone(intact) };
        let driver = channel.driver(Node::new(Settings::new("node-1")), SystemClock, executor);
        let listening = listen(&directory.path().join("run/tenured.sock")).unwrap();
        let gateways = ("169.254.1.1".parse().unwrap(), "fe80::1".parse().unwrap());
        let coil = Coil::new(Pools, gateways);
        let service = Service::new(node.clone(), SystemClock, vec![Arc::new(coil)], None);
        let (end, ended) = oneshot::channel();
        let serving = service.clone();
        let served = tokio::spawn(async move {
            let ended = async { drop(ended.await) };
            tokio::select! {
                served = listening.serve(serving, ended) => served.unwrap(),
                () = driver.run(std::future::pending()) => {}
            }
        });
        Self { directory, node, service, end: Some(end), served }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("run/tenured.sock")
    }

    /// Runs the plugin, whole.
    pub(super) async fn plugin(&self, verb: &str, container: &str, config: &Value) -> Outcome {
        self.plugin_for(verb, container, config, "").await
    }

    pub(super) async fn plugin_for(
        &self,
        verb: &str,
        container: &str,
        config: &Value,
        args: &str,
    ) -> Outcome {
        let (socket, tombstones) = (self.socket(), self.directory.path().join("tombstones"));
        let variables = [
            ("CNI_COMMAND", verb.to_owned()),
            ("CNI_CONTAINERID", container.to_owned()),
            ("CNI_IFNAME", "eth0".to_owned()),
            ("CNI_NETNS", format!("/run/netns/{container}")),
            ("CNI_ARGS", args.to_owned()),
        ];
        let stdin = config.to_string().into_bytes();
        let plugin = move || {
            let find = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
            };
            run("tenure", find, stdin, Places { socket: &socket, tombstones: &tombstones })
        };
        tokio::task::spawn_blocking(plugin).await.unwrap()
    }

    /// Ends the service, and waits until it has ended.
    pub(super) async fn end(&mut self) {
        drop(self.end.take());
        (&mut self.served).await.unwrap();
    }
}

pub(super) fn config(version: &str) -> Value {
    json!({"cniVersion": version, "name": "k8s", "type": "tenure"})
}

/// What the plugin printed; fails if it failed.
pub(super) fn printed(outcome: &Outcome) -> Value {
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (0, ""),
        "{}",
        String::from_utf8_lossy(&outcome.stdout)
    );
    serde_json::from_slice(&outcome.stdout).unwrap()
}

/// The error that the plugin printed.
pub(super) fn refused(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, 1, "{}", String::from_utf8_lossy(&outcome.stdout));
    serde_json::from_slice(&outcome.stdout).unwrap()
}

pub(super) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
