//! The stage of all scenarios: a cluster with the product, pools of all families, and Ethernets over all nodes that claims are
//! made for, with one more host on each that is no pod.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::{Value, json};
use tenure_testbed::cluster::Cluster;
use tenure_testbed::hosts::Host;

use crate::kubevirt::kinds;
use crate::multus::Multus;
use tenure_tests::installed::{DEPLOY, install_from};
use tenure_tests::networks::{NETS, Network, Wires, bridge, macvlan, range};

/// The name of the cluster's network.
pub const CLUSTER_NETWORK: &str = "tenure";

/// Which addresses pods and machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Four,
    Six,
    Both,
}

impl Family {
    /// The pool of this family; none is the default one.
    pub fn pool(self) -> Option<&'static str> {
        match self {
            Self::Four => None,
            Self::Six => Some("six"),
            Self::Both => Some("both"),
        }
    }

    /// The network of this family that is not sliced, and the one that is.
    pub fn networks(self) -> [&'static str; 2] {
        match self {
            Self::Four => ["shared4", "sliced4"],
            Self::Six => ["shared6", "sliced6"],
            Self::Both => ["shared", "sliced"],
        }
    }
}

/// What scenarios play on.
pub struct Stage<'c> {
    pub cluster: &'c Cluster,
    pub client: Client,
    pub multus: &'c Multus<'c>,
    /// A host on each network, by its name.
    pub hosts: BTreeMap<String, Host>,
    #[expect(dead_code, reason = "held")]
    wires: Wires,
}

impl<'c> Stage<'c> {
    /// Installs the product and defines the networks.
    pub async fn set(cluster: &'c Cluster, multus: &'c Multus<'c>) -> Result<Self> {
        // What others have defined is there before the product is.
        let attachments = format!("{DEPLOY}/optional/network-attachment-definitions.yaml");
        cluster.kubectl(&["apply", "-f", &attachments]).await?;
        cluster.apply(&kinds::definitions()).await?;
        let networks = networks();
        let wires = Wires::new(cluster, &networks)?;
        let kustomization = kustomization(cluster.directory())?;
        install_from(cluster, kustomization.to_str().context("a path")?).await?;
        let items: Vec<Value> =
            [json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NETS}})]
                .into_iter()
                .chain(pools(cluster))
                .chain(networks.iter().map(Network::definition))
                .collect();
        cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
        let mut hosts = BTreeMap::new();
        for (network, segment) in networks.iter().zip(&wires.0) {
            let host = Host::new(&format!("host-{}", network.name))?;
            let addresses: Vec<String> = network.ranges.iter().filter_map(beside).collect();
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            segment.connect(&host, "eth0", &addresses)?;
            hosts.insert(network.name.clone(), host);
        }
        Ok(Self { cluster, client: cluster.client()?, multus, hosts, wires })
    }
}

/// The first address of those of a range that nobody gets, for the host that is no pod.
fn beside(range: &tenure_tests::networks::Range) -> Option<String> {
    let excluded = range.excluded.first()?;
    let first = excluded.hosts().next()?;
    Some(format!("{first}/{}", range.cidr.prefix_len()))
}

/// Our manifests, with the flags by which claims are for the cluster's network, too.
fn kustomization(scratch: &Path) -> Result<PathBuf> {
    let directory = scratch.join("kustomization");
    fs::create_dir_all(&directory)?;
    // A base must be a relative path.
    let up = directory.components().count() - 1;
    let deploy = fs::canonicalize(DEPLOY)?;
    let base = format!("{}{}", "../".repeat(up), deploy.strip_prefix("/")?.display());
    let flag = |kind: &str, name: &str, flag: String| {
        let patch = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag}]);
        json!({"target": {"kind": kind, "name": name}, "patch": patch.to_string()})
    };
    let text = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [base],
        "patches": [
            flag("DaemonSet", "tenured", "--persistent-ips".to_owned()),
            flag("Deployment", "tenure-controller", format!("--cluster-network={CLUSTER_NETWORK}")),
        ],
    });
    fs::write(directory.join("kustomization.yaml"), text.to_string())?;
    Ok(directory)
}

/// Beside the default pool, which has IPv4 addresses.
fn pools(cluster: &Cluster) -> [Value; 2] {
    let [a, b, ..] = cluster.machine().octets();
    let pool = |name: &str, subnet: Value| {
        json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": name},
            "spec": {"blockSizeBits": 4, "subnets": [subnet]},
        })
    };
    let both = json!({"ipv4": format!("{a}.{b}.192.0/20"), "ipv6": format!("fd00:{b}:b::/116")});
    [pool("six", json!({"ipv6": format!("fd00:{b}:6::/116")})), pool("both", both)]
}

/// The networks: bridge and macvlan, opting in at each of the places where that can be said.
fn networks() -> Vec<Network> {
    let four =
        |number: usize| (format!("10.{}.0.0/24", 100 + number), format!("10.{}.0.240/28", 100 + number));
    let six =
        |number: usize| (format!("fd00:{}::/64", 100 + number), format!("fd00:{}::ff00/120", 100 + number));
    let of = |(range, exclude): &(String, String)| json!({"range": range, "exclude": [exclude]});
    let ranges = |all: &[(String, String)]| {
        all.iter().map(|(cidr, exclude)| range(cidr, "", &[exclude])).collect::<Vec<_>>()
    };
    let network =
        |number: usize, name: &str, config: Value, sliced: bool, all: &[(String, String)]| Network {
            number,
            name: name.to_owned(),
            namespace: NETS,
            named: "",
            config,
            sliced,
            ranges: ranges(all),
        };
    let ipam = |all: &[(String, String)], size: Option<&str>| {
        let mut ipam = of(&all[0]);
        ipam["type"] = json!("whereabouts");
        if all.len() > 1 {
            ipam["ipRanges"] = json!(all[1..].iter().map(of).collect::<Vec<_>>());
        }
        if let Some(size) = size {
            ipam["node_slice_size"] = json!(size);
        }
        ipam
    };
    let with = |mut plugin: Value, ipam: Value| {
        plugin["ipam"] = ipam;
        plugin
    };
    let plain = |name: &str, mut plugin: Value| {
        plugin["cniVersion"] = json!("1.0.0");
        plugin["name"] = json!(name);
        plugin
    };
    // At the top level, where KubeVirt's ipam-extensions looks.
    let mut shared4 = plain("shared4", with(bridge(1), ipam(&[four(1)], None)));
    shared4["allowPersistentIPs"] = json!(true);
    let mut shared6 = plain("shared6", with(macvlan(2), ipam(&[six(2)], None)));
    shared6["ipam"]["allowPersistentIPs"] = json!(true);
    // In the list, which the plugin never sees.
    let mut shared = json!({"plugins": [with(macvlan(3), ipam(&[four(3), six(3)], None))]});
    shared = plain("shared", shared);
    shared["allowPersistentIPs"] = json!(true);
    let mut sliced4 = plain("sliced4", with(macvlan(4), ipam(&[four(4)], Some("/26"))));
    sliced4["allowPersistentIPs"] = json!(true);
    let mut sliced6 = plain("sliced6", with(bridge(5), ipam(&[six(5)], Some("/72"))));
    sliced6["allowPersistentIPs"] = json!(true);
    // In a plugin of a list.
    let mut of_list = with(macvlan(6), ipam(&[four(6), six(6)], Some("/26")));
    of_list["allowPersistentIPs"] = json!(true);
    let sliced = plain("sliced", json!({"plugins": [of_list]}));
    let not_so = plain("not-so", with(bridge(7), ipam(&[four(7)], None)));
    vec![
        network(1, "shared4", shared4, false, &[four(1)]),
        network(2, "shared6", shared6, false, &[six(2)]),
        network(3, "shared", shared, false, &[four(3), six(3)]),
        network(4, "sliced4", sliced4, true, &[four(4)]),
        network(5, "sliced6", sliced6, true, &[six(5)]),
        network(6, "sliced", sliced, true, &[four(6), six(6)]),
        network(7, "not-so", not_so, false, &[four(7)]),
    ]
}
