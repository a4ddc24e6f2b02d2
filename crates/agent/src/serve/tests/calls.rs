//! Every verb, as a runtime calls it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tenure_ipam::{Address, Subnet};

use super::rig::*;
use crate::journal::Image;
use crate::node::{Event, PoolFacts};

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_adds_checks_and_deletes_in_every_version() {
    let rig = Rig::ready();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let (container, config) = (format!("c-{version}"), config(version));
        let result = printed(&rig.plugin("ADD", &container, &config).await);
        assert_eq!(result["cniVersion"], version);
        let again = printed(&rig.plugin("ADD", &container, &config).await);
        assert_eq!(result, again, "repeated, it is the same");
        if version != "0.3.1" {
            let mut check = config.clone();
            check["prevResult"] = result.clone();
            assert_eq!(rig.plugin("CHECK", &container, &check).await.code, 0);
            check["prevResult"]["ips"][0]["address"] = json!("10.1.0.200/32");
            assert!(
                refused(&rig.plugin("CHECK", &container, &check).await)["msg"]
                    .to_string()
                    .contains("10.1.0.200")
            );
        }
        for _ in 0..2 {
            let del = rig.plugin("DEL", &container, &config).await;
            assert_eq!((del.code, del.stdout.len()), (0, 0));
        }
    }
    let holds = rig.node.look(|node| node.holds().len()).await.unwrap();
    assert_eq!(holds, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_has_the_pods_end_first_and_ipv4_before_ipv6() {
    let rig = Rig::ready();
    let mut config = config("1.1.0");
    config["mtu"] = json!(1400);
    let result = printed(&rig.plugin("ADD", "c1", &config).await);
    assert_eq!(
        result,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                {"name": "eth0", "mac": "02:00:00:00:00:07", "mtu": 1400, "sandbox": "/run/netns/c1"},
                {"name": "tnrc1", "mac": "0a:54:65:6e:75:72", "mtu": 1400},
            ],
            "ips": [
                {"address": "10.1.0.0/32", "gateway": "169.254.1.1", "interface": 0},
                {"address": "fd01::/128", "gateway": "fe80::1", "interface": 0},
            ],
            "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}, {"dst": "::/0", "gw": "fe80::1"}],
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn as_an_address_plugin_it_leaves_the_interface_to_the_other() {
    let rig = Rig::ready();
    let add = async |container: &str, config: &Value| printed(&rig.plugin("ADD", container, config).await);
    let of =
        |plugin: &str, ipam: Value| json!({"cniVersion": "1.0.0", "name": "n", "type": plugin, "ipam": ipam});
    let ptp = add("c1", &of("ptp", json!({"type": "tenure", "routes": [{"dst": "0.0.0.0/0"}]}))).await;
    let ips = json!([
        {"address": "10.1.0.0/24", "gateway": "169.254.1.1"},
        {"address": "fd01::/120", "gateway": "fe80::1"},
    ]);
    assert_eq!((&ptp["ips"], &ptp["routes"]), (&ips, &json!([{"dst": "0.0.0.0/0"}])));
    assert_eq!(ptp.get("interfaces"), None);

    let gateway = json!({"type": "coil", "pool": "public", "gateway": "192.0.2.254"});
    let bridge = add("c2", &of("bridge", gateway)).await;
    assert_eq!(bridge["ips"], json!([{"address": "192.0.2.0/24", "gateway": "192.0.2.254"}]));
    let macvlan = add("c3", &of("macvlan", json!({"type": "tenure"}))).await;
    assert_eq!(macvlan["ips"][0], json!({"address": "10.1.0.1/24"}));

    let broken = of("bridge", json!({"type": "tenure", "gateway": "none"}));
    let error = refused(&rig.plugin("ADD", "c4", &broken).await);
    assert_eq!(error["code"], 7);
    assert!(error["msg"].to_string().contains("ipam.gateway"), "{error}");
    let interfaces = rig.node.look(|node| node.holds().iter().filter(|hold| hold.interface).count()).await;
    assert_eq!(interfaces.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_link_pods_have_the_pools_network_and_never_its_edges_or_its_gateway() {
    let rig = Rig::ready();
    let pool = |exclude: &[&str]| Event::PoolChanged {
        name: "default".into(),
        facts: PoolFacts {
            subnets: vec![Subnet::dual("10.1.0.0/16".parse().unwrap(), "fd01::/112".parse().unwrap())],
            exclusions: exclude.iter().map(|text| text.parse::<Address>().unwrap().into()).collect(),
            ..facts()
        },
    };
    let config = |plugin: &str| json!({"cniVersion": "1.0.0", "name": "lan", "type": plugin, "ipam": {"type": "tenure"}});
    let mut bridge = config("bridge");
    bridge["isDefaultGateway"] = json!(true);

    rig.node.tell(pool(&[]));
    let refusal = refused(&rig.plugin("ADD", "c0", &config("ptp")).await);
    assert!(refusal["msg"].to_string().contains("give a pod 10.1.0.1, fd01::1, which"), "{refusal}");
    let refusal = refused(&rig.plugin("ADD", "c1", &bridge).await);
    assert_eq!(refusal["code"], 7);
    for named in [r#""default""#, r#""lan""#, "10.1.0.0, 10.1.0.1, 10.1.255.255, fd01::, fd01::1"] {
        assert!(refusal["msg"].as_str().unwrap().contains(named), "{named} in {refusal}");
    }
    let wanted = r#"exclude: ["10.1.0.0", "10.1.0.1", "10.1.255.255", "fd01::", "fd01::1"]"#;
    assert!(refusal["details"].as_str().unwrap().contains(wanted), "{refusal}");

    // An excluded address takes its partner with it.
    rig.node.tell(pool(&["10.1.0.0", "fd01::1", "10.1.255.255"]));
    let result = printed(&rig.plugin("ADD", "c2", &bridge).await);
    assert_eq!(
        result["ips"],
        json!([
            {"address": "10.1.0.2/16", "gateway": "10.1.0.1"},
            {"address": "fd01::2/112", "gateway": "fd01::1"},
        ])
    );
    let mut other = bridge.clone();
    other["ipam"]["gateway"] = json!(["10.1.0.9", "fd01::9"]);
    let refusal = refused(&rig.plugin("ADD", "c3", &other).await);
    assert!(refusal["msg"].to_string().contains("give a pod 10.1.0.9, fd01::9, which"), "{refusal}");
    let macvlan = printed(&rig.plugin("ADD", "c4", &config("macvlan")).await);
    assert_eq!(macvlan["ips"][0], json!({"address": "10.1.0.3/16"}));
    let ptp = printed(&rig.plugin("ADD", "c5", &config("ptp")).await);
    assert_eq!(ptp["ips"][0], json!({"address": "10.1.0.4/16", "gateway": "10.1.0.1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_is_that_of_the_namespace() {
    let rig = Rig::ready();
    let args = |namespace, name| format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}");
    let public = rig.plugin_for("ADD", "c1", &config("1.0.0"), &args("public", "web-0")).await;
    assert_eq!(printed(&public)["ips"][0]["address"], "192.0.2.0/32");
    let pod = rig.node.look(|node| node.holds()[0].pod.to_string()).await.unwrap();
    assert_eq!(pod, "public/web-0");
    let unknown = rig.plugin_for("ADD", "c2", &config("1.0.0"), &args("public", "unknown")).await;
    assert_eq!(refused(&unknown)["code"], 3);
    for (half, missing) in [("K8S_POD_NAME=x", "K8S_POD_NAMESPACE"), ("K8S_POD_NAMESPACE=x", "K8S_POD_NAME")]
    {
        let error = refused(&rig.plugin_for("ADD", "c3", &config("1.0.0"), half).await);
        assert_eq!(error["code"], 4);
        assert!(error["msg"].to_string().contains(missing), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_for_us_or_makes_no_sense_is_refused_by_name() {
    let rig = Rig::ready();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut config = config("1.1.0");
        change(&mut config);
        config
    };
    let cases: [(&str, Value, u64, &str); 7] = [
        ("ADD", with(&|it| it["type"] = json!("bridge")), 7, "bridge"),
        ("ADD", with(&|it| it["name"] = json!("")), 7, "no name"),
        ("ADD", with(&|it| it["prevResult"] = json!({"ips": []})), 7, "prevResult"),
        ("ADD", with(&|it| it["mtu"] = json!("large")), 7, "mtu is \\\"large\\\""),
        ("ADD", with(&|it| it["pool"] = json!(7)), 7, "pool is 7"),
        ("ADD", with(&|it| it["pool"] = json!("elsewhere")), 11, "elsewhere"),
        ("GC", config("1.1.0"), 7, "cni.dev/valid-attachments"),
    ];
    for (verb, config, code, says) in cases {
        let error = refused(&rig.plugin(verb, "c1", &config).await);
        assert_eq!(error["code"], code, "{error}");
        assert!(error["msg"].to_string().contains(says), "{error} says {says}");
    }
    assert_eq!(rig.node.look(|node| node.holds().len()).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_gc() {
    let rig = Rig::started();
    let early = refused(&rig.plugin("STATUS", "", &config("1.1.0")).await);
    assert_eq!(early["code"], 50);
    drop(rig);
    let rig = Rig::ready();
    assert_eq!(rig.plugin("STATUS", "", &config("1.1.0")).await.code, 0);
    for container in ["a", "b"] {
        printed(&rig.plugin("ADD", container, &config("1.1.0")).await);
    }
    let mut gc = config("1.1.0");
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "b", "ifname": "eth0"}]);
    assert_eq!(rig.plugin("GC", "", &gc).await.code, 0);
    let left = rig.node.look(|node| node.holds().iter().map(|hold| hold.key.to_string()).collect::<Vec<_>>());
    assert_eq!(left.await.unwrap(), ["k8s/b/eth0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_says_what_is_wrong_with_an_interface() {
    let intact = Arc::new(AtomicBool::new(true));
    let rig = Rig::with_intact(&intact);
    rig.node.tell(Event::PoolChanged { name: "default".into(), facts: facts() });
    rig.node.tell(Event::BlockSeen(crate::node::SeenBlock {
        name: "default-0".into(),
        uid: "uid".into(),
        node: "node-1".into(),
        pool: "default".into(),
        subnet: tenure_ipam::Subnet::single("10.1.0.0/24".parse().unwrap()),
        reserved: false,
        deleting: false,
        releasing: false,
        draining: false,
        pod: None,
    }));
    rig.node.tell(Event::Journal(Image::default()));
    rig.node.tell(Event::Kernel(Vec::new()));
    rig.node.tell(Event::ApiRead);
    printed(&rig.plugin("ADD", "c1", &config("1.0.0")).await);
    assert_eq!(rig.plugin("CHECK", "c1", &config("1.0.0")).await.code, 0);
    intact.store(false, Ordering::SeqCst);
    let error = refused(&rig.plugin("CHECK", "c1", &config("1.0.0")).await);
    assert!(error["msg"].to_string().contains("host link tnr1: expected up"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_at_once_get_a_hundred_addresses() {
    let rig = Arc::new(Rig::ready());
    let calls = (0..100).map(|number| {
        let rig = Arc::clone(&rig);
        tokio::spawn(async move {
            let result = printed(&rig.plugin("ADD", &format!("c{number}"), &config("1.0.0")).await);
            result["ips"][0]["address"].as_str().unwrap().to_owned()
        })
    });
    let mut addresses = futures::future::try_join_all(calls).await.unwrap();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_agent_a_del_succeeds_and_the_rest_says_to_try_again() {
    let mut rig = Rig::ready();
    printed(&rig.plugin("ADD", "c1", &config("1.1.0")).await);
    rig.end().await;
    let add = refused(&rig.plugin("ADD", "c2", &config("1.1.0")).await);
    assert_eq!(add["code"], 11);
    assert_eq!(refused(&rig.plugin("STATUS", "", &config("1.1.0")).await)["code"], 50);
    assert_eq!(rig.plugin("DEL", "c1", &config("1.1.0")).await.code, 0);
    let tombstones = tenure_cni::tombstone::read_all(&rig.directory.path().join("tombstones")).unwrap();
    assert_eq!(tombstones.len(), 1);
}

/// Whoever looks for a pod, a container or a namespace finds the line.
#[tokio::test]
async fn a_call_leaves_a_line_that_names_pod_container_and_outcome() {
    let rig = Rig::ready();
    let lines = Lines::of_all();
    let call = tenure_cni::rpc::Call {
        container_id: "c0ffee".into(),
        ifname: "eth0".into(),
        netns: "/run/netns/x".into(),
        args: [("K8S_POD_NAMESPACE", "shop"), ("K8S_POD_NAME", "web-0")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        config: config("1.0.0").to_string().into_bytes(),
        ..tenure_cni::rpc::Call::default()
    };
    let reply = rig.service.answer(tenure_cni::Verb::Add, call).await;
    assert_eq!(reply.failure, None);
    let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line = lines.lines().find(|line| line.contains("c0ffee")).expect("a line about the container");
    for part in ["ADD", "eth0", "/run/netns/x", "shop", "web-0", "done"] {
        assert!(line.contains(part), "{part} is in {line:?}");
    }
}

/// All lines that the tests of this program write.
#[derive(Clone)]
struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl Lines {
    /// For every thread and from the beginning: of a listener of one thread others may decide that nobody listens.
    fn of_all() -> Self {
        static ALL: LazyLock<Lines> = LazyLock::new(|| {
            let lines = Lines(Arc::default());
            let writer = lines.clone();
            tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).init();
            lines
        });
        ALL.clone()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
