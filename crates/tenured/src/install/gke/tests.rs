//! The configurations of the cloud's agents in a temporary directory.

use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;
use tenure_testbed::wait::eventually;

use super::*;

/// As the cloud's agents write it, without and with Dataplane V2.
fn theirs(dataplane_v2: bool) -> Value {
    let mut list = json!({
        "name": "gke-pod-network",
        "cniVersion": "0.3.1",
        "plugins": [
            {
                "type": "ptp",
                "mtu": 1460,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": "10.8.3.0/24"}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
            {"type": "bandwidth", "capabilities": {"bandwidth": true}},
        ],
    });
    if dataplane_v2 {
        let cilium = json!({"type": "cilium-cni", "enable-route-mtu": true});
        list["plugins"].as_array_mut().unwrap().push(cilium);
    }
    list
}

struct Node {
    directory: TempDir,
}

impl Node {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &Value) {
        fs::write(self.path(name), content.to_string()).unwrap();
    }

    fn apply(&self) -> Outcome {
        apply(self.directory.path(), false).unwrap()
    }

    fn ours(&self) -> Option<Value> {
        fs::read(self.path(OURS)).ok().map(|text| serde_json::from_slice(&text).unwrap())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn in_place(of: &str) -> Outcome {
    Outcome::InPlace { of: of.to_owned() }
}

#[test]
fn only_the_ipam_plugin_differs_and_theirs_is_not_touched() {
    for (name, dataplane_v2) in [(THEIRS[0], false), (THEIRS[0], true), (THEIRS[1], false), (THEIRS[1], true)]
    {
        let node = Node::new();
        // In their own format, which ours would not repeat.
        let text = format!("{}\n\n", theirs(dataplane_v2));
        fs::write(node.path(name), &text).unwrap();
        assert_eq!(node.apply(), in_place(name));
        assert_eq!(fs::read_to_string(node.path(name)).unwrap(), text);
        let mut ours = node.ours().unwrap();
        assert_eq!(ours["cniVersion"], "0.3.1");
        assert_eq!(ours["plugins"][0]["ipam"]["type"], PLUGIN);
        ours["plugins"][0]["ipam"]["type"] = json!("host-local");
        assert_eq!(ours, theirs(dataplane_v2), "every other value is the same, in the same place");
        assert_eq!(node.names(), [OURS, name], "the runtime finds ours first");
    }
}

#[test]
fn what_is_right_is_not_written_again() {
    use std::os::unix::fs::MetadataExt as _;
    let node = Node::new();
    node.write(THEIRS[0], &theirs(false));
    node.apply();
    let inode = || fs::metadata(node.path(OURS)).unwrap().ino();
    let before = inode();
    assert_eq!(node.apply(), in_place(THEIRS[0]));
    assert_eq!(inode(), before);
}

#[test]
fn theirs_changes_and_so_does_ours() {
    let node = Node::new();
    node.write(THEIRS[0], &theirs(false));
    node.apply();
    let mut changed = theirs(true);
    changed["plugins"][0]["mtu"] = json!(8896);
    node.write(THEIRS[0], &changed);
    node.apply();
    let ours = node.ours().unwrap();
    assert_eq!(
        (&ours["plugins"][0]["mtu"], &ours["plugins"][3]["type"]),
        (&json!(8896), &json!("cilium-cni"))
    );
    // A newer version of their agents has another name for it.
    fs::rename(node.path(THEIRS[0]), node.path(THEIRS[1])).unwrap();
    assert_eq!(node.apply(), in_place(THEIRS[1]));
}

#[test]
fn theirs_is_deleted_while_their_network_is_ill_and_ours_with_it() {
    let node = Node::new();
    assert_eq!(node.apply(), Outcome::Missing);
    node.write(THEIRS[0], &theirs(true));
    node.apply();
    fs::remove_file(node.path(THEIRS[0])).unwrap();
    assert_eq!(node.apply(), Outcome::Missing);
    assert!(node.names().is_empty(), "a network that they took back is not ready by ours");
    node.write(THEIRS[0], &theirs(true));
    assert_eq!(node.apply(), in_place(THEIRS[0]));
    assert!(node.ours().is_some());
}

#[test]
fn a_file_that_is_half_written_changes_nothing() {
    let node = Node::new();
    fs::write(node.path(THEIRS[0]), "").unwrap();
    assert!(matches!(node.apply(), Outcome::Unreadable(_)));
    assert_eq!(node.ours(), None);
    node.write(THEIRS[0], &theirs(false));
    node.apply();
    let before = node.ours();
    let text = theirs(true).to_string();
    fs::write(node.path(THEIRS[0]), &text[..text.len() / 2]).unwrap();
    let Outcome::Unreadable(why) = node.apply() else { panic!("read") };
    assert!(why.starts_with("10-containerd-net.conflist is no JSON"), "{why}");
    assert_eq!(node.ours(), before);
    node.write(THEIRS[0], &theirs(true));
    assert_eq!(node.apply(), in_place(THEIRS[0]));
    assert_ne!(node.ours(), before);
}

#[test]
fn what_a_crash_left_half_written_is_replaced() {
    let node = Node::new();
    node.write(THEIRS[0], &theirs(false));
    fs::write(node.path("05-tenure-gke.conflist.new"), "half of").unwrap();
    fs::write(node.path(OURS), "not even JSON").unwrap();
    assert_eq!(node.apply(), in_place(THEIRS[0]));
    assert_eq!(node.names(), [OURS, THEIRS[0]]);
    assert!(node.ours().is_some());
}

#[test]
fn a_network_that_cannot_be_changed_is_said_and_left_alone() {
    let impossible = |node: &Node| match node.apply() {
        Outcome::Impossible(why) => why,
        other => panic!("{other:?}"),
    };
    let node = Node::new();
    node.write(THEIRS[0], &theirs(true));
    node.apply();
    // The node becomes one with the unified CNI: Cilium's own file, before theirs.
    node.write("05-cilium.conflist", &json!({"plugins": [{"type": "cilium-cni"}]}));
    assert!(impossible(&node).contains("uses 05-cilium.conflist"));
    assert_eq!(node.names(), ["05-cilium.conflist", THEIRS[0]], "ours is gone");
    fs::remove_file(node.path("05-cilium.conflist")).unwrap();

    let unified = apply(node.directory.path(), true).unwrap();
    assert_eq!(unified, Outcome::Impossible(format!("the node has the label {UNIFIED}")));
    node.write(THEIRS[0], &json!({"plugins": [{"type": "cilium-cni"}]}));
    assert!(impossible(&node).contains("has no ptp plugin, but cilium-cni"));
    let mut other = theirs(false);
    other["plugins"][0]["ipam"] = json!({"type": "dhcp"});
    node.write(THEIRS[0], &other);
    assert!(impossible(&node).contains("gets addresses from \"dhcp\", not from host-local"));
    node.write(THEIRS[0], &json!({"type": "ptp"}));
    assert!(impossible(&node).contains("has no list of plugins"));
    assert_eq!(node.names(), [THEIRS[0]]);
}

#[test]
fn a_file_that_the_prototype_changed_in_place_stays_as_it_is() {
    let node = Node::new();
    let mut changed = theirs(false);
    changed["plugins"][0]["ipam"]["type"] = json!(PLUGIN);
    node.write(THEIRS[0], &changed);
    assert_eq!(node.apply(), Outcome::AlreadyTheirs(THEIRS[0].to_owned()));
    assert_eq!(node.names(), [THEIRS[0]]);
}

#[test]
fn undoing_leaves_what_was_there_before() {
    let node = Node::new();
    node.write(THEIRS[0], &theirs(true));
    node.apply();
    assert!(undo(node.directory.path()).unwrap());
    assert!(!undo(node.directory.path()).unwrap(), "it can be repeated");
    assert_eq!(node.names(), [THEIRS[0]]);
    let read: Value = serde_json::from_slice(&fs::read(node.path(THEIRS[0])).unwrap()).unwrap();
    assert_eq!(read, theirs(true));
    assert!(!undo(&node.path("no/such/directory")).unwrap());
}

#[test]
fn a_place_that_cannot_be_read_is_named() {
    let node = Node::new();
    fs::write(node.path("file"), "").unwrap();
    let failed = apply(&node.path("file"), false).unwrap_err();
    assert!(say_all(&failed).contains("list") && say_all(&failed).contains("/file"), "{failed}");
}

#[tokio::test]
async fn it_is_kept_in_place_while_theirs_comes_changes_and_goes() {
    let node = Node::new();
    let stop = CancellationToken::new();
    let labels = Labels { nodes: None, name: "node1".to_owned(), unified: false };
    let looks = async |what: &str, so: &dyn Fn() -> bool| {
        eventually(what, async || Ok(so().then_some(()))).await.unwrap();
    };
    let agents = async {
        node.write(THEIRS[0], &theirs(false));
        looks("ours", &|| node.ours().is_some()).await;
        let mut changed = theirs(true);
        changed["plugins"][0]["mtu"] = json!(8896);
        node.write(THEIRS[0], &changed);
        looks("their change in ours", &|| node.ours().is_some_and(|ours| ours["plugins"][0]["mtu"] == 8896))
            .await;
        fs::remove_file(node.path(OURS)).unwrap();
        looks("ours after somebody deleted it", &|| node.ours().is_some()).await;
        fs::remove_file(node.path(THEIRS[0])).unwrap();
        looks("no file", &|| node.names().is_empty()).await;
        node.write(THEIRS[1], &theirs(true));
        looks("ours again", &|| node.ours().is_some()).await;
        stop.cancel();
    };
    tokio::join!(keep_in_place(node.directory.path(), labels, &stop), agents);
    assert_eq!(node.names(), [OURS, THEIRS[1]], "a restart of the agent changes nothing");
}

#[tokio::test]
async fn it_is_kept_away_from_nodes_that_lost_the_label_though_a_stopping_agent_writes_it_again() {
    let node = Node::new();
    node.write(THEIRS[0], &theirs(false));
    node.apply();
    let stop = CancellationToken::new();
    let looks = async |what: &str| {
        eventually(what, async || Ok(node.ours().is_none().then_some(()))).await.unwrap();
    };
    let agent = async {
        looks("no file of ours").await;
        node.apply();
        looks("no file of ours again").await;
        stop.cancel();
    };
    tokio::join!(keep_away(node.directory.path(), &stop), agent);
    assert_eq!(node.names(), [THEIRS[0]]);
}

/// The agent and what undoes its change are on different nodes, by one label.
#[test]
fn every_node_has_either_the_agent_or_what_undoes_its_change() {
    let read = |text: &str| -> Value { serde_saphyr::from_str(text).unwrap() };
    let agent = read(include_str!("../../../../../deploy/optional/gcp/agent.yaml"));
    let undo = read(include_str!("../../../../../deploy/optional/gcp/undo.yaml"));
    assert_eq!(agent["spec"]["template"]["spec"]["nodeSelector"], json!({"tenure/alias-addresses": "true"}));
    let affinity = &undo["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let others = json!([{"matchExpressions": [{"key": "tenure/alias-addresses", "operator": "NotIn", "values": ["true"]}]}]);
    assert_eq!(terms, &others);
    let container = &undo["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].as_array().unwrap().contains(&json!("--cni-rewrite=none")));
}

#[test]
fn there_is_one_network_of_a_node_and_not_two() {
    use clap::Parser as _;
    let parse = |arguments: &[&str]| crate::Flags::try_parse_from([&["tenured"], arguments].concat());
    assert_eq!(parse(&["--cni-rewrite=gke"]).unwrap().cni_config_dir, Path::new("/etc/cni/net.d"));
    assert_eq!(parse(&[]).unwrap().cni_rewrite, None, "it is off unless asked for");
    for other in ["--standalone", "--install-config-to=/etc/cni/net.d"] {
        assert!(parse(&["--cni-rewrite=gke", other]).is_err(), "{other}");
    }
}
