//! A cloud with one machine in one subnet, a cluster without a pool, and the program.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_api::cloud::{AliasPool, GROUP};
use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::compute::{FakeCloud, Settings};
use tokio::process::{Child, Command};

use crate::gate::Gate;

pub(crate) const ZONE: &str = "europe-west4-a";
pub(crate) const REGION: &str = "europe-west4";

/// The test bed.
pub(crate) struct Bed {
    pub(crate) cloud: FakeCloud,
    pub(crate) client: Client,
    pub(crate) metadata: String,
    server: Server,
    directory: tempfile::TempDir,
}

/// What there is in the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct There {
    pub(crate) reserved: BTreeMap<String, String>,
    pub(crate) ranges: BTreeMap<String, String>,
    pub(crate) pool: Option<Value>,
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) notes: String,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let soon = Duration::from_millis(1)..Duration::from_millis(3);
        let settings = Settings { update: soon, requests_per_window: 100_000, ..Settings::default() };
        let cloud = FakeCloud::start(settings).await.unwrap();
        cloud.add_subnet(REGION, "nodes", "10.0.0.0/24").unwrap();
        cloud.add_instance(ZONE, "gke-a", "nodes");
        cloud.add_secondary_range(REGION, "nodes", "pods", "10.8.0.0/16").unwrap();
        let metadata = cloud.metadata(ZONE, "gke-a").await.unwrap();
        let api = LocalApi::temporary(SystemClock, Arc::new(SeededEntropy::new(4)));
        let client = api.client();
        for definition in tenure_api::crds().into_iter().filter(|it| it.spec.group == GROUP) {
            Api::all(client.clone()).create(&PostParams::default(), &definition).await.unwrap();
        }
        let server = Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        Self { cloud, client, metadata, server, directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn pools(&self) -> Api<AliasPool> {
        Api::all(self.client.clone())
    }

    /// The pool of the subnet.
    pub(crate) async fn pool(&self) -> AliasPool {
        self.pools().get("ippool-nodes").await.unwrap()
    }

    pub(crate) async fn there(&self) -> There {
        let mut ranges = self.cloud.secondary_ranges(REGION, "nodes");
        assert_eq!(ranges.remove("pods").as_deref(), Some("10.8.0.0/16"), "what is not ours stays");
        let pool = self.pools().get_opt("ippool-nodes").await.unwrap();
        let pool = pool.map(|pool| serde_json::to_value(pool.spec).unwrap());
        There { reserved: self.cloud.internal_ranges(), ranges, pool }
    }

    fn kubeconfig(&self, server: &str) -> PathBuf {
        let path = self.directory.path().join(format!("kubeconfig-{}", server.replace(':', "-")));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "local",
            "clusters": [{"name": "local", "cluster": {"server": format!("http://{server}")}}],
            "users": [{"name": "local", "user": {}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
        });
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Starts the program, all of whose requests go through the gate if there is one.
    pub(crate) async fn start(&self, gate: Option<&mut Gate>, arguments: &[&str]) -> Child {
        let apis = self.cloud.compute();
        let apis = apis.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
        let metadata = self.metadata.parse().unwrap();
        let cluster = self.server.address().unwrap();
        let (apis, metadata, cluster) = match gate {
            Some(gate) => (gate.before(apis).await, gate.before(metadata).await, gate.before(cluster).await),
            None => (apis, metadata, cluster),
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(["provision", "gcp", "--poll", "5ms", "--metadata-host", &metadata.to_string()]);
        command.arg("--compute-endpoint").arg(format!("http://{apis}/compute/v1"));
        command.arg("--connectivity-endpoint").arg(format!("http://{apis}/networkconnectivity/v1"));
        command.arg("--kubeconfig").arg(self.kubeconfig(&cluster.to_string())).args(arguments);
        command
            .env_remove("KUBECONFIG")
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("GCE_METADATA_HOST");
        command.env("HOME", "/nowhere").kill_on_drop(true).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the program to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.start(None, arguments).await).await
    }

    /// The same, which must succeed.
    pub(crate) async fn succeed(&self, arguments: &[&str]) -> Ended {
        let ended = self.run(arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended
    }
}

pub(crate) async fn ended(child: Child) -> Ended {
    let output = child.wait_with_output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { code: output.status.code().unwrap(), text: text(&output.stdout), notes: text(&output.stderr) }
}
