//! kubectl on both servers: the commands that people type print the same, whichever server answers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Server};
use tenure_testbed::binaries::Program;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};

const POOL: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: default
  labels: {team: net}
spec:
  blockSizeBits: 5
  subnets:
  - ipv4: 10.2.0.0/16
";

const GROWN: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: default
  labels: {team: net}
spec:
  blockSizeBits: 5
  subnets:
  - ipv4: 10.2.0.0/16
  - ipv4: 10.3.0.0/16
";

const SHRUNK: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: default
spec:
  subnets:
  - ipv4: 10.3.0.0/16
";

const MISSPELT: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata:
  name: other
spec:
  blocksize: 5
  subnets:
  - ipv4: 10.9.0.0/16
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: gateway
spec:
  replicas: 2
  selector: {matchLabels: {app: gateway}}
  template:
    metadata: {labels: {app: gateway}}
    spec:
      containers:
      - name: egress
        image: registry.test/egress:v1
";

/// `kubectl create namespace` would send Protobuf.
const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata:
  name: blue
";

const SETTINGS: &str = "
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  a: b
";

/// What people type, in order, with what they pipe into it.
const COMMANDS: &[(&str, &str)] = &[
    ("get addresspools", ""),
    ("apply -f -", POOL),
    ("apply -f -", POOL),
    ("get addresspools", ""),
    ("get addresspool default -o wide", ""),
    ("get addresspool default -o yaml", ""),
    ("get addresspool default -o jsonpath={.spec.subnets[*].ipv4}", ""),
    ("get addresspools -l team=net -o name", ""),
    ("get addresspools --field-selector metadata.name=none", ""),
    ("describe addresspool default", ""),
    ("diff -f -", GROWN),
    ("apply -f -", GROWN),
    ("apply -f -", SHRUNK),
    ("apply -f -", MISSPELT),
    ("apply --validate=warn -f -", MISSPELT),
    ("create -f -", MISSPELT),
    ("create -f -", POOL),
    ("label addresspool default zone=a", ""),
    ("annotate addresspool default note=text", ""),
    ("label addresspool default zone-", ""),
    ("patch addresspool default --type merge -p {\"spec\":{\"cooling\":\"30s\"}}", ""),
    ("patch addresspool default --type merge -p {\"spec\":{\"cooling\":\"soon\"}}", ""),
    ("patch addresspool default --type json -p [{\"op\":\"remove\",\"path\":\"/spec/cooling\"}]", ""),
    (
        "patch addresspool default --subresource status --type merge -p {\"status\":{\"blocks\":{\"capacity\":\"2\",\"allocated\":\"1\",\"free\":\"1\"}}}",
        "",
    ),
    ("get addresspools", ""),
    ("create -f -", NAMESPACE),
    ("annotate namespace blue coil.cybozu.com/pool=default", ""),
    ("get namespace blue -o yaml", ""),
    ("-n blue apply -f -", DEPLOYMENT),
    ("-n blue apply -f -", DEPLOYMENT),
    ("-n blue scale deployment gateway --replicas 3", ""),
    ("-n blue get deployment gateway -o jsonpath={.spec.replicas}", ""),
    ("-n blue delete deployment --all", ""),
    ("-n blue create -f -", SETTINGS),
    ("-n blue get configmap settings -o yaml", ""),
    ("-n blue describe configmap settings", ""),
    ("-n blue get leases", ""),
    ("-n blue delete configmap none", ""),
    ("-n blue delete configmap none --ignore-not-found", ""),
    ("get none", ""),
    ("explain addresspool.spec.subnets", ""),
    ("explain addresspool.spec.cooling", ""),
    ("api-resources --api-group coil.cybozu.com", ""),
    ("api-resources --api-group whereabouts.cni.cncf.io", ""),
    ("api-resources --api-group coordination.k8s.io", ""),
    ("wait --for=jsonpath={.spec.blockSizeBits}=5 addresspool/default --timeout 5s", ""),
    ("delete addresspool default", ""),
    ("delete -f -", POOL),
    ("delete namespace blue --wait=true --timeout=300s", ""),
    ("get namespace blue", ""),
];

struct Kubectl {
    program: PathBuf,
    kubeconfig: Option<PathBuf>,
    server: Option<String>,
    cache: tempfile::TempDir,
}

impl Kubectl {
    /// What a command prints, and how it ends.
    fn run(&self, command: &str, input: &str) -> String {
        let mut kubectl = Command::new(&self.program);
        kubectl
            .args(command.split(' '))
            .env("KUBECACHEDIR", self.cache.path())
            .env("HOME", self.cache.path());
        kubectl.env("KUBECONFIG", self.kubeconfig.as_deref().unwrap_or(Path::new("/dev/null")));
        if let Some(server) = &self.server {
            kubectl.args(["--server", server]);
        }
        let mut child =
            kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        plain(&format!("{}{}exit {:?}", text(&output.stdout), text(&output.stderr), output.status.code()))
    }
}

/// Without what a server chooses: uids, versions, times and ages.
fn plain(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let key = line
            .trim_start_matches(['-', '+', ' '])
            .split(':')
            .next()
            .unwrap_or_default()
            .trim()
            .to_lowercase();
        let chosen =
            ["uid", "resourceversion", "resource version", "creationtimestamp", "creation timestamp"];
        if chosen.contains(&key.as_str()) {
            lines.push(format!("{key}: <chosen>"));
        } else if line.starts_with("diff ") || line.starts_with("---") || line.starts_with("+++") {
            // Names of temporary files.
            lines.push("<file>".to_owned());
        } else {
            let words: Vec<&str> =
                line.split_whitespace().map(|word| if is_age(word) { "<age>" } else { word }).collect();
            lines.push(words.join(" "));
        }
    }
    lines.join("\n")
}

fn is_age(word: &str) -> bool {
    word.strip_suffix(['s', 'm'])
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_the_same_on_both_servers() {
    let options = ControlPlaneOptions::default()
        .argument(Part::ControllerManager, "--controllers=garbage-collector-controller,namespace-controller");
    let plane = ControlPlane::start(options).await.unwrap();
    let api = LocalApi::temporary(SystemClock, SeededEntropy::new(1));
    let embedded = Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let program = plane.binaries().path(Program::Kubectl).unwrap().to_owned();
    let real = Kubectl {
        program: program.clone(),
        kubeconfig: Some(plane.kubeconfig().to_owned()),
        server: None,
        cache: tempfile::tempdir().unwrap(),
    };
    let local = Kubectl {
        program,
        kubeconfig: None,
        server: Some(format!("http://{}", embedded.address().unwrap())),
        cache: tempfile::tempdir().unwrap(),
    };
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let install = format!("apply -f {}", definitions.display());
    let ready = "wait --for=condition=Established crd --all --timeout=300s";
    let report = tokio::task::spawn_blocking(move || {
        let mut report = Vec::new();
        for (command, input) in [(install.as_str(), ""), (ready, "")].iter().chain(COMMANDS) {
            let (expected, got) = (real.run(command, input), local.run(command, input));
            if expected != got {
                report.push(format!(
                    "$ kubectl {command}\n--- kube-apiserver\n{expected}\n+++ localapi\n{got}\n\n"
                ));
            }
        }
        report.concat()
    })
    .await
    .unwrap();
    assert!(report.is_empty(), "{report}");
}
