//! etcd is restored from a backup under agents and a controller that run, and nobody restarts them. Needs root, iproute2, etcd
//! and kube-apiserver.
//!
//! What was written since the backup is lost, so objects are gone, are there again, and have lower versions than the programs have
//! seen. They must take that for what is, and go on. Pods that got addresses of blocks which the backup does not have are told to be
//! started anew, because nobody knows of their addresses any more; here somebody does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, AddressPool, BlockRequest};
use tenure_api::whereabouts::IPPool;
use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::until;
use tenure_tests::agent::{Cluster, Machine, Pod, assert_distinct, config};

/// Far more than all programs write during the test.
const WRITES: usize = 5_000;

/// A pod that runs: where, what it was attached by, and what it has.
struct Running {
    machine: usize,
    pod: Pod,
    config: Value,
    addresses: Vec<IpAddr>,
}

/// A network of a range that all nodes share.
fn shared() -> Value {
    let ipam = json!({"type": "whereabouts", "range": "10.70.0.0/24"});
    json!({"cniVersion": "1.0.0", "name": "shared", "type": "macvlan", "master": "uplink", "ipam": ipam})
}

struct Bed<'a> {
    cluster: &'a Cluster,
    machines: Vec<Machine<'a>>,
    pods: BTreeMap<String, Running>,
}

impl Bed<'_> {
    /// Starts a pod, as often as a runtime would until it has an address.
    fn start(&mut self, machine: usize, namespace: &str, name: &str, config: &Value) {
        let host = &self.machines[machine];
        let pod = host.pod_in(namespace, name);
        let addresses = host.until(&format!("addresses of {name}"), || {
            let called = host.call_with("ADD", &pod, config);
            (called.code == 0).then(|| called.addresses())
        });
        self.pods.insert(name.to_owned(), Running { machine, pod, config: config.clone(), addresses });
    }

    fn end(&mut self, name: &str) {
        let Running { machine, pod, config, .. } = self.pods.remove(name).unwrap();
        let host = &self.machines[machine];
        host.until(&format!("the end of {name}"), || {
            (host.call_with("DEL", &pod, &config).code == 0).then_some(())
        });
    }

    fn objects<K>(&self, api: &Api<K>) -> Vec<K>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        self.cluster.runtime.block_on(api.list(&ListParams::default())).unwrap().items
    }

    fn version(&self) -> u64 {
        let list = self.cluster.runtime.block_on(self.cluster.pools().list(&ListParams::default()));
        list.unwrap().metadata.resource_version.unwrap().parse().unwrap()
    }

    /// Makes many writes that nobody cares about.
    fn write_often(&self) {
        let maps: Api<ConfigMap> = Api::namespaced(self.cluster.client.clone(), "default");
        let create = |number: usize| {
            let map = json!({"metadata": {"name": format!("filler-{number}")}});
            let (maps, map) = (maps.clone(), serde_json::from_value(map).unwrap());
            async move { maps.create(&PostParams::default(), &map).await.unwrap() }
        };
        let created = stream::iter((0..WRITES).map(create)).buffer_unordered(32).count();
        assert_eq!(self.cluster.runtime.block_on(created), WRITES);
    }

    /// What differs between what pods have and what objects say.
    fn differences(&self) -> Vec<String> {
        let blocks: Vec<AddressBlock> = self.objects(&self.cluster.blocks());
        let ranges: Vec<IPPool> = self.objects(&Api::namespaced(self.cluster.client.clone(), "kube-system"));
        let mut found = Vec::new();
        for (name, running) in &self.pods {
            let node = &self.machines[running.machine].name;
            for address in &running.addresses {
                let is_known = if running.config == config() {
                    let within = |block: &AddressBlock| {
                        let cidr: tenure_ipam::Cidr = block.spec.ipv4.as_ref().unwrap().parse().unwrap();
                        cidr.contains((*address).into())
                    };
                    blocks.iter().any(|block| block.node() == Some(node) && within(block))
                } else {
                    let podref = format!("default/{name}");
                    let of_pod = |pool: &IPPool| {
                        pool.spec.allocations.values().filter(|it| it.podref == podref).count()
                    };
                    ranges.iter().map(of_pod).sum::<usize>() == 1
                };
                if !is_known {
                    found.push(format!("nobody knows of {address} of {name} on {node}"));
                }
            }
        }
        for pool in self.objects::<AddressPool>(&self.cluster.pools()) {
            let name = pool.name_any();
            let of_pool = blocks.iter().filter(|block| block.pool() == Some(&name)).count();
            let counted = pool.status.and_then(|status| status.blocks).map(|blocks| blocks.allocated);
            if counted.as_deref() != Some(of_pool.to_string().as_str()) {
                found.push(format!("{name} has {of_pool} blocks, and says {counted:?}"));
            }
        }
        let requests: Vec<BlockRequest> = self.objects(&Api::all(self.cluster.client.clone()));
        found.extend(requests.iter().map(|it| format!("{} is not answered", it.name_any())));
        found
    }

    /// Waits until all agree, and no two pods have one address.
    fn agree(&self) {
        let mut last = Vec::new();
        let mut looks = 0;
        until("everything to agree", || {
            last = self.differences();
            looks += 1;
            if looks % 250 == 0 {
                tenure_tests::whereabouts::say(&format!("{last:?}"));
            }
            last.is_empty().then_some(())
        });
        assert_distinct(&self.pods.values().flat_map(|it| it.addresses.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn programs_that_run_while_etcd_is_restored_from_a_backup_go_on_with_what_it_says() {
    let cluster = Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
    cluster.control("bed");
    cluster.pool("default", 1, json!([{"ipv4": "10.64.0.0/24"}]));
    cluster.tenant("short-lived", 1, json!([{"ipv4": "10.65.0.0/24"}]));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines: Vec<_> = (1..=2).map(|number| Machine::on(&cluster, &wire, number)).collect();
    machines.iter_mut().for_each(Machine::start);
    let mut bed = Bed { cluster: &cluster, machines, pods: BTreeMap::new() };
    for machine in 0..2 {
        for number in 0..3 {
            bed.start(machine, "default", &format!("kept-{machine}-{number}"), &config());
            bed.start(machine, "default", &format!("shared-{machine}-{number}"), &shared());
        }
    }
    bed.agree();
    let backup = cluster.runtime.block_on(cluster.plane().back_up()).unwrap();

    // Versions are far ahead of the backup's, so that the restored server does not reach them while the test runs.
    bed.write_often();
    // Some go, others come in new blocks, in a new pool and in the shared range, and a pool is deleted.
    for machine in 0..2 {
        bed.end(&format!("kept-{machine}-0"));
        bed.end(&format!("shared-{machine}-0"));
        for number in 0..6 {
            bed.start(machine, "default", &format!("lost-{machine}-{number}"), &config());
            bed.start(machine, "default", &format!("shared-lost-{machine}-{number}"), &shared());
        }
    }
    cluster.tenant("later", 1, json!([{"ipv4": "10.66.0.0/24"}]));
    bed.start(0, "later", "lost-in-later", &config());
    let delete = cluster.pools();
    cluster.runtime.block_on(delete.delete("short-lived", &DeleteParams::default())).unwrap();
    bed.agree();
    let before = bed.version();

    cluster.runtime.block_on(cluster.plane().restore(&backup)).unwrap();
    let after = bed.version();
    assert!(after < before, "versions went back from {before} to {after}");

    // Agents stop to hand out of blocks that nobody knows of, and say so.
    let blocks = bed.objects(&cluster.blocks());
    let is_lost = |address: &IpAddr| {
        let within = |block: &AddressBlock| {
            let cidr: tenure_ipam::Cidr = block.spec.ipv4.as_ref().unwrap().parse().unwrap();
            cidr.contains((*address).into())
        };
        !blocks.iter().any(within)
    };
    let lost: Vec<String> = bed
        .pods
        .iter()
        .filter(|(name, it)| {
            name.starts_with("shared-lost") || it.config == config() && is_lost(&it.addresses[0])
        })
        .map(|(name, _)| name.clone())
        .collect();
    assert!(lost.contains(&"lost-in-later".to_owned()), "{lost:?}");
    for machine in &bed.machines {
        machine.until("lost blocks to be fenced", || {
            machine.log().contains("this block assigns no more addresses").then_some(())
        });
    }
    // Whoever reads that starts the pods anew.
    for name in lost {
        let Running { machine, config, pod, .. } = &bed.pods[&name];
        let (machine, config, namespace) = (*machine, config.clone(), pod.namespace.clone());
        bed.end(&name);
        if namespace == "default" {
            bed.start(machine, "default", &format!("{name}-again"), &config);
        }
    }
    for machine in 0..2 {
        for number in 0..3 {
            bed.start(machine, "default", &format!("new-{machine}-{number}"), &config());
            bed.start(machine, "default", &format!("shared-new-{machine}-{number}"), &shared());
        }
        // The pool is there again, and serves.
        bed.start(machine, "short-lived", &format!("short-lived-{machine}"), &config());
    }
    bed.agree();
    assert!(
        bed.version() < before,
        "the restored server has caught up, so the test proves less than it should"
    );
    for name in bed.pods.keys().cloned().collect::<Vec<_>>() {
        bed.end(&name);
    }
    bed.agree();
}
