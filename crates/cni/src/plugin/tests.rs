//! The plugin as a runtime sees it, with an agent that is away or made of a few bytes.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::thread;

use serde_json::Value;

use super::*;

const CONFIG: &str = r#"{"cniVersion":"1.0.0","name":"net","type":"tenure"}"#;

struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn run(&self, verb: &str, config: &str) -> (Outcome, Value) {
        self.run_as("tenure", verb, config)
    }

    fn run_as(&self, plugin: &str, verb: &str, config: &str) -> (Outcome, Value) {
        let (socket, tombstones) =
            (self.directory.path().join("sock"), self.directory.path().join("tombstones"));
        let variables = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/run/netns/x"),
            ("CNI_IFNAME", "eth0"),
        ];
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let places = Places { socket: &socket, tombstones: &tombstones };
        let outcome = run(plugin, find, config.as_bytes().to_vec(), places);
        let json = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
        (outcome, json)
    }

    fn tombstones(&self) -> usize {
        tombstone::read_all(&self.directory.path().join("tombstones")).unwrap().len()
    }
}

#[test]
fn version_answers_without_an_agent_and_echoes_what_was_asked() {
    let (outcome, json) = Node::new().run("VERSION", r#"{"cniVersion":"0.4.0"}"#);
    assert_eq!((outcome.code, &json["cniVersion"]), (0, &"0.4.0".into()));
    assert!(json["supportedVersions"].as_array().unwrap().contains(&"1.1.0".into()));
}

/// As `ptp` calls its IPAM plugin.
#[test]
fn under_the_name_gcp_ipam_it_answers_for_itself() {
    let node = Node::new();
    let config = r#"{"cniVersion":"0.3.1","name":"gke-pod-network","type":"ptp","ipam":{"type":"gcp-ipam"}}"#;
    let (outcome, json) = node.run_as("gcp-ipam", "ADD", config);
    assert_eq!((outcome.code, &json["cniVersion"], &json["code"]), (1, &"0.3.1".into(), &11.into()));
    assert!(outcome.stderr.starts_with("gcp-ipam: cannot ask tenured for ADD"), "{}", outcome.stderr);
    let (outcome, _) = node.run_as("gcp-ipam", "DEL", config);
    assert_eq!((outcome.code, node.tombstones()), (0, 1), "{}", outcome.stderr);
}

/// A tenant's attachment definition is a network's configuration, and the plugin runs as root.
#[test]
fn a_configuration_cannot_name_another_socket_and_leaves_nothing_beside_it() {
    let node = Node::new();
    let other = node.directory.path().join("other/tenured.sock");
    std::fs::create_dir(node.directory.path().join("other")).unwrap();
    let listener = UnixListener::bind(&other).unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = serde_json::json!({"cniVersion": "1.1.0", "name": "net", "type": "tenure", "socket": other});
    for verb in ["ADD", "CHECK", "GC", "STATUS"] {
        let (outcome, json) = node.run(verb, &config.to_string());
        assert_eq!((outcome.code, &json["code"]), (1, &7.into()), "{verb}: {json}");
        assert!(json["msg"].as_str().unwrap().contains("socket"), "{json}");
        assert!(json["msg"].as_str().unwrap().contains("other/tenured.sock"), "{json}");
        let details = json["details"].as_str().unwrap();
        assert!(details.contains("sock") && details.contains(SOCKET_VARIABLE), "{json}");
    }
    let (outcome, _) = node.run("DEL", &config.to_string());
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(node.tombstones(), 1, "it is for the node's own agent");
    assert!(listener.accept().is_err(), "root connected to a tenant's socket");
    assert_eq!(std::fs::read_dir(other.parent().unwrap()).unwrap().count(), 1, "nothing but the socket");
}

#[test]
fn a_configuration_may_repeat_where_the_agent_answers() {
    let node = Node::new();
    let own = node.directory.path().join("sock");
    let config = serde_json::json!({"cniVersion": "1.0.0", "name": "net", "type": "tenure", "socket": own});
    let (_, json) = node.run("ADD", &config.to_string());
    assert_eq!(json["code"], 11, "nobody answers there: {json}");
}

#[test]
fn the_administrator_names_another_socket_and_tombstones_go_beside_it() {
    let usual = (PathBuf::from(rpc::SOCKET), PathBuf::from(tombstone::DIRECTORY));
    assert_eq!(places(None), usual);
    for none in ["", "relative.sock"] {
        assert_eq!(places(Some(none.into())), usual);
    }
    let other = (PathBuf::from("/run/x/a.sock"), PathBuf::from("/run/x/tombstones"));
    assert_eq!(places(Some("/run/x/a.sock".into())), other);
}

#[test]
fn a_del_without_an_agent_leaves_one_tombstone_and_succeeds() {
    let node = Node::new();
    for _ in 0..2 {
        let (outcome, _) = node.run("DEL", CONFIG);
        assert_eq!((outcome.code, outcome.stdout.is_empty()), (0, true), "{}", outcome.stderr);
    }
    assert_eq!(node.tombstones(), 1);
}

#[test]
fn everything_else_without_an_agent_is_code_11_and_status_is_50() {
    let node = Node::new();
    let with = |version: &str| CONFIG.replace("1.0.0", version);
    for (verb, version, code) in
        [("ADD", "0.3.1", 11), ("CHECK", "0.4.0", 11), ("GC", "1.1.0", 11), ("STATUS", "1.1.0", 50)]
    {
        let (outcome, json) = node.run(verb, &with(version));
        assert_eq!((outcome.code, &json["code"]), (1, &code.into()), "{verb}: {json}");
        assert_eq!(json["cniVersion"], version);
        assert!(json["details"].as_str().unwrap().contains("sock"), "{json}");
    }
    assert_eq!(node.tombstones(), 0);
}

#[test]
fn a_verb_that_the_version_does_not_have_is_refused() {
    let (_, json) = Node::new().run("GC", CONFIG);
    assert_eq!(json["code"], 1);
}

#[test]
fn an_unknown_version_is_echoed_in_the_refusal() {
    let (_, json) = Node::new().run("ADD", &CONFIG.replace("1.0.0", "9.9.9"));
    assert_eq!((&json["code"], &json["cniVersion"]), (&1.into(), &"9.9.9".into()));
}

/// An agent that dies in the middle of a call: the DEL becomes a tombstone and is not lost.
#[test]
fn an_agent_that_hangs_up_during_a_del_leaves_a_tombstone() {
    let node = Node::new();
    let listener = UnixListener::bind(node.directory.path().join("sock")).unwrap();
    let agent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 16]);
    });
    assert_eq!(node.run("DEL", CONFIG).0.code, 0);
    agent.join().unwrap();
    assert_eq!(node.tombstones(), 1);
}

#[test]
fn something_that_speaks_no_http2_is_a_protocol_error_and_no_panic() {
    use std::io::Write as _;
    let node = Node::new();
    let listener = UnixListener::bind(node.directory.path().join("sock")).unwrap();
    let agent = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 4096]);
    });
    let (_, json) = node.run("ADD", CONFIG);
    agent.join().unwrap();
    assert!(json["code"] == 999 || json["code"] == 11, "{json}");
}
