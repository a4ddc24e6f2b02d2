//! A node is taken over from Coil, with its objects and its pods as they are.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource as _, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{AddressBlock, BlockRequest};

use tenure_testbed::control_plane::ControlPlaneOptions;
use tenure_tests::agent::{Cluster, Machine, Pod};

/// The addresses of Coil's pod and of the block that it is in, and the pool.
const OLD: &str = "10.113.0.0";
const BLOCK: &str = "10.113.0.0/28";
const POOL: &str = "coils";

/// Attaches a pod as `coild` does: a link with its alias, a host route in table 116, and the rule that leads there.
fn attach(machine: &Machine<'_>, pod: &Pod) {
    let host = format!(
        "link add veth0a1b2c3d type veth peer name coils0\n\
         link set coils0 netns {}\n\
         link set veth0a1b2c3d alias COIL:{POOL}:{}:eth0\n\
         link set veth0a1b2c3d up\n\
         addr add {}/32 dev veth0a1b2c3d\n\
         route add {OLD} dev veth0a1b2c3d table 116 protocol 30\n\
         route add {BLOCK} dev lo table 119 protocol 30\n\
         rule add pref 2000 lookup 116\n",
        machine.host.path(&pod.path).unwrap().display(),
        pod.container,
        machine.addresses[0],
    );
    machine.host.ip(&host).unwrap();
    let pods = format!(
        "link set coils0 name eth0\n\
         link set eth0 up\n\
         addr add {OLD}/32 dev eth0\n\
         route add {0} dev eth0 scope link\n\
         route add default via {0}\n",
        machine.addresses[0],
    );
    pod.network.ip(&pods).unwrap();
}

/// The objects that Coil leaves on the API server: a block, and the answered request that it never deletes.
fn leave_objects(machine: &Machine<'_>) {
    let cluster = machine.cluster;
    cluster.runtime.block_on(async {
        let pool = cluster.pools().get(POOL).await.unwrap();
        let node = Api::<Node>::all(cluster.client.clone()).get(&machine.name).await.unwrap();
        let owner = |reference: Option<_>, controls: bool| {
            let mut reference: Value = serde_json::to_value(reference.unwrap()).unwrap();
            reference["controller"] = json!(controls);
            reference["blockOwnerDeletion"] = json!(true);
            reference
        };
        let requests: Api<BlockRequest> = Api::all(cluster.client.clone());
        let request = json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "BlockRequest",
            "metadata": {
                "name": format!("req-{POOL}-{}", machine.name),
                "ownerReferences": [owner(node.owner_ref(&()), false)],
            },
            "spec": {"nodeName": machine.name, "poolName": POOL},
        });
        let request: BlockRequest = serde_json::from_value(request).unwrap();
        let request = requests.create(&PostParams::default(), &request).await.unwrap();
        let block = json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock", "index": 0, "ipv4": BLOCK,
            "metadata": {
                "name": format!("{POOL}-0"), "finalizers": ["coil.cybozu.com"],
                "labels": {
                    "coil.cybozu.com/pool": POOL, "coil.cybozu.com/node": machine.name,
                    "coil.cybozu.com/request": request.uid().unwrap(),
                },
                "ownerReferences": [owner(pool.controller_owner_ref(&()), true)],
            },
        });
        let block: AddressBlock = serde_json::from_value(block).unwrap();
        cluster.blocks().create(&PostParams::default(), &block).await.unwrap();
        let now = "2024-01-01T00:00:00Z";
        let status = json!({"status": {
            "addressBlockName": format!("{POOL}-0"),
            "conditions": [{
                "type": "Complete", "status": "True", "reason": "completed", "message": "completed",
                "lastProbeTime": now, "lastTransitionTime": now,
            }],
        }});
        requests
            .patch_status(&request.name_any(), &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    });
}

#[test]
fn a_node_is_taken_over_from_coil_with_its_pods_running() {
    // Coil's controllers are stopped before ours run.
    let cluster = Cluster::without_controller(ControlPlaneOptions::default().without_controller_manager());
    cluster.tenant(POOL, 4, json!([{"ipv4": "10.113.0.0/27"}]));
    let mut machine = Machine::new(&cluster);
    machine.arguments = ["--cooling", "1s"].map(str::to_owned).to_vec();
    let old = machine.pod_in(POOL, "coils-pod");
    attach(&machine, &old);
    let address = OLD.parse().unwrap();
    machine.assert_reached(&old, &[address]);
    leave_objects(&machine);

    cluster.control("bed");
    machine.start();
    machine.assert_reached(&old, &[address]);
    assert_eq!(machine.blocks(), [format!("{POOL}-0")], "the block stays the node's");
    machine.until("the request that Coil left to go", || {
        cluster.requests_of(&machine.name).is_empty().then_some(())
    });

    // New pods get every address of both blocks but the one in use. An ADD fails while none is left that may be assigned.
    let pods: Vec<Pod> = (0..31).map(|number| machine.pod_in(POOL, &format!("new{number}"))).collect();
    let mut assigned = BTreeSet::new();
    machine.until("all other addresses to be assigned", || {
        let called = machine.call("ADD", &pods[assigned.len()]);
        if called.code == 0 {
            assigned.extend(called.addresses());
        }
        assert!(!assigned.contains(&address), "the address of a pod that runs was assigned");
        (assigned.len() == 31).then_some(())
    });
    machine.assert_reached(&old, &[address]);
    assert!(machine.table(116).contains(&OLD.to_owned()));
    assert!(machine.table(119).contains(&BLOCK.to_owned()), "the block is exported as before");

    // The old pod ends: the runtime calls DEL, and the link goes with the namespace.
    machine.del(&old);
    machine.host.ip("link delete veth0a1b2c3d").unwrap();
    assert!(!machine.table(116).contains(&OLD.to_owned()));
}
