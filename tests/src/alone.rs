//! A host on its own: `tenured --standalone` on a host made of namespaces, with a neighbour on its wire, and pods that
//! a test attaches.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_testbed::hosts::{Host, HostChild, Mounts, Port, Segment};
use tenure_testbed::wait::PATIENCE;
use tenure_testbed::wait::until;

use crate::programs;

/// The directories that are the host's own.
const OWN: [&str; 5] = ["/etc/cni", "/etc/tenure", "/opt/cni", "/var/lib/cni", "/var/lib/tenure"];

/// A pool's file.
pub fn pool(name: &str, spec: &Value) -> String {
    let pool = json!({"apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec});
    pool.to_string()
}

/// A host with `tenured`, or without it for the moment.
pub struct Alone {
    tenured: Option<HostChild>,
    /// The words of the command that runs `tenured`.
    pub agent: Vec<PathBuf>,
    pub host: Host,
    /// Another host on the same wire.
    pub neighbour: Host,
    _wire: (Segment, [Port; 2]),
    directory: TempDir,
}

/// A pod's namespace: as the test sees it, and as the host does.
pub struct Pod {
    pub name: String,
    pub inside: Host,
    pub path: PathBuf,
}

/// What a plugin said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub json: Value,
}

impl Said {
    /// The result of a call that worked.
    pub fn result(self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        self.json
    }

    /// The first address of a result, without its length.
    pub fn address(self) -> IpAddr {
        first_address(&self.result())
    }
}

/// The first address of a result, without its length.
pub fn first_address(result: &Value) -> IpAddr {
    let text = result["ips"][0]["address"].as_str().unwrap_or_else(|| panic!("no address in {result}"));
    text.split('/').next().unwrap().parse().unwrap()
}

impl Alone {
    /// A host without `tenured`.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mounts = OWN.iter().fold(Mounts::default(), |mounts, own| {
            mounts.bind(directory.path().join(own.trim_start_matches('/').replace('/', "-")), own)
        });
        let (host, neighbour) = (Host::with_mounts("box", mounts).unwrap(), Host::new("next").unwrap());
        let wire = Segment::new("wire").unwrap();
        let ports = [
            wire.connect(&host, "eth0", &["192.0.2.1/24", "2001:db8::1/64"]).unwrap(),
            wire.connect(&neighbour, "eth0", &["192.0.2.2/24", "2001:db8::2/64"]).unwrap(),
        ];
        let agent = vec![programs::tenured()];
        let alone = Self { tenured: None, agent, host, neighbour, _wire: (wire, ports), directory };
        alone.install("tenure", &programs::plugin());
        alone
    }

    /// A host with `tenured` and the pool `default`.
    pub fn running(spec: &Value) -> Self {
        let mut alone = Self::new();
        alone.write("/etc/tenure/pools/default.yaml", &pool("default", spec));
        alone.start();
        // A pool's file counts when nobody has written to it for a moment.
        let config = json!({"cniVersion": "1.1.0", "name": "n", "type": "tenure"});
        until("a pool", || (alone.call("STATUS", "", None, &config).code == 0).then_some(()));
        alone
    }

    /// Puts a plugin into its place.
    pub fn install(&self, name: &str, from: &Path) {
        let to = self.path(&format!("/opt/cni/bin/{name}"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }

    /// Starts `tenured` and waits until it answers.
    pub fn start(&mut self) {
        let socket = self.path("/run/tenure/tenured.sock");
        // One that was killed left it behind.
        drop(fs::remove_file(&socket));
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        // With the rights that its unit gives it, and no more.
        let command =
            self.host.command("setpriv").args(["--no-new-privs", "--bounding-set", &rights(), "--"]);
        let command = command.args(&self.agent).arg("--standalone").env("NO_COLOR", "1");
        self.tenured = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until("tenured answers", || {
            let ended = self.tenured.as_ref().and_then(HostChild::try_wait);
            assert!(ended.is_none(), "it ended: {ended:?}");
            socket.exists().then_some(())
        });
    }

    /// Ends `tenured` without a word.
    pub fn kill(&mut self) {
        self.tenured.take().unwrap().kill().unwrap();
    }

    /// Asks `tenured` to end, and waits until it has.
    pub fn stop(&mut self) {
        let tenured = self.tenured.take().unwrap();
        tenured.signal(Signal::SIGTERM).unwrap();
        let status = tenured.wait_for(PATIENCE).expect("it does not end");
        assert!(status.success(), "{status}");
    }

    /// Switches the host off and on: no process is left, and nothing under `/run`.
    pub fn reboot(&mut self) {
        self.tenured = None;
        self.host.end_processes();
        // The kernel goes on, so that only this says that it is another boot.
        self.write("/var/lib/tenure/boot", "before the reboot");
        for link in self.links() {
            // One may have gone with its pod.
            drop(self.host.ip(&format!("link del {link}")));
        }
    }

    /// The host's ends of pods' links.
    pub fn links(&self) -> Vec<String> {
        let links = self.host.namespace().ip_json(&["link", "show", "type", "veth"]).unwrap();
        let names = links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.filter(|name| name != "eth0").collect()
    }

    /// Where the test finds a file of the host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.host.path(path).unwrap()
    }

    /// Writes a file of the host, as an editor does.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A namespace for a pod.
    pub fn pod(&self, name: &str) -> Pod {
        let (namespace, path) = self.host.pod_namespace(name).unwrap();
        // Plugins that make an interface wait until nobody else claims its addresses, for seconds.
        namespace.sysctl("net.ipv6.conf.default.accept_dad", "0").unwrap();
        Pod { name: name.to_owned(), inside: Host::in_namespace(namespace, Mounts::default()), path }
    }

    /// Calls the plugin that the configuration names, as a runtime does.
    pub fn call(&self, verb: &str, container: &str, pod: Option<&Pod>, config: &Value) -> Said {
        self.call_as(config["type"].as_str().unwrap(), verb, container, pod, config)
    }

    /// Calls a plugin, whatever the configuration names.
    pub fn call_as(
        &self,
        plugin: &str,
        verb: &str,
        container: &str,
        pod: Option<&Pod>,
        config: &Value,
    ) -> Said {
        self.call_with((plugin, verb, container, ""), pod, config)
    }

    /// The same, with arguments as in `CNI_ARGS`.
    pub fn call_with(
        &self,
        (plugin, verb, container, args): (&str, &str, &str, &str),
        pod: Option<&Pod>,
        config: &Value,
    ) -> Said {
        let file = tempfile::NamedTempFile::new_in(self.directory.path()).unwrap();
        fs::write(file.path(), config.to_string()).unwrap();
        let plugin = format!("/opt/cni/bin/{plugin}");
        let mut command =
            self.host.command("sh").args(["-c", r#"exec "$0" <"$1""#]).arg(plugin).arg(file.path());
        command = command.env("CNI_COMMAND", verb).env("CNI_PATH", "/opt/cni/bin").env("CNI_ARGS", args);
        if !container.is_empty() {
            command = command.env("CNI_CONTAINERID", container).env("CNI_IFNAME", "eth0");
        }
        if let Some(pod) = pod {
            command = command.env("CNI_NETNS", &pod.path);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let json = if text.trim().is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        Said { code: output.status.code().unwrap(), json }
    }

    /// ADD, CHECK or DEL for a pod, with the pod's name as container id.
    pub fn attach(&self, verb: &str, pod: &Pod, config: &Value) -> Said {
        self.call(verb, &pod.name, Some(pod), config)
    }

    /// What the embedded API answers.
    pub fn get(&self, path: &str) -> (u16, Value) {
        http(&self.path("/run/tenure/api.sock"), path)
    }

    /// What the agent tells of itself.
    pub fn state(&self, path: &str) -> (u16, Value) {
        http(&self.path("/run/tenure/state.sock"), path)
    }

    /// Who holds addresses, as the agent tells it: the containers.
    pub fn holds(&self) -> Vec<String> {
        let (code, view) = self.state("/v1/node");
        assert_eq!(code, 200, "{view}");
        let holds = view["holds"].as_array().unwrap_or_else(|| panic!("no holds in {view}"));
        holds
            .iter()
            .map(|hold| hold["container"].as_str().unwrap_or_else(|| panic!("{hold}")).to_owned())
            .collect()
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("tenured.log")
    }

    /// All that `tenured` has logged.
    pub fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }
}

impl Drop for Alone {
    #[expect(clippy::disallowed_macros, reason = "a failing test says what the program under it said")]
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.logged());
        }
    }
}

/// The rights that the unit gives the program, as setpriv takes them.
fn rights() -> String {
    let unit = include_str!("../../deploy/standalone/tenured.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let rights =
        line.split(' ').map(|right| format!(",+{}", right.trim_start_matches("CAP_").to_lowercase()));
    format!("-all{}", rights.collect::<String>())
}

/// A GET over a unix socket.
pub fn http(socket: &Path, path: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: box\r\nAccept: application/json\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, serde_json::from_str(body).unwrap_or_else(|_| json!(body)))
}
