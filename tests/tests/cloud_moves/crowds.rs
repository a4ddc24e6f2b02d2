//! Many pods at once: those that move together share updates, and those for which a warm set is large enough cost none.

use std::net::IpAddr;
use std::sync::Arc;

use kube::Api;
use serde_json::json;
use tenure_api::cloud::{AliasPool, annotation};
use tenure_testbed::compute::{Call, Fault, Harm};
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::agent::{Called, Calling, assert_distinct};
use tenure_tests::cloud::{POOL, aliases_of, ledgers};
use tenure_tests::moves::{Placed, insist};

use crate::stage::{Stage, ZONES, takes_over};

/// So many pods move at once.
const MOVERS: usize = 10;
/// So many pods start at once.
const CROWD: usize = 100;

/// ADD of all of them at once, as runtimes do it: again where that is asked for.
fn add_all(pods: &[Placed<'_>]) -> Vec<IpAddr> {
    let calls: Vec<Calling> = pods.iter().map(|pod| pod.call("ADD")).collect();
    let first: Vec<Called> = calls.into_iter().map(Calling::join).collect();
    let each = first.into_iter().zip(pods).flat_map(|(called, pod)| {
        let mut called = Some(called);
        insist(&pod.name, || called.take().unwrap_or_else(|| pod.call("ADD").join())).addresses()
    });
    each.collect()
}

#[test]
fn ten_pods_that_are_announced_together_move_with_two_updates() {
    let stage = Stage::new(&json!({"warm": 0}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let mut machines = stage.machines(&wire);
    let (source, others) = machines.split_at_mut(1);
    let (source, between, target) = (&mut source[0], &others[0], &others[1]);
    let names: Vec<String> = (0..MOVERS).map(|number| format!("from-{number}")).collect();
    let (addresses, ends): (Vec<IpAddr>, Vec<_>) = {
        let pods: Vec<Placed<'_>> = names.iter().map(|name| stage.pod(source, name, &json!({}))).collect();
        let addresses = add_all(&pods);
        (addresses, pods.into_iter().map(|pod| (pod.container(), pod.path.clone(), pod.args())).collect())
    };
    assert_distinct(&addresses);
    // Whoever takes over is there first, and nothing moves before the sources are marked.
    let moved: Vec<Placed<'_>> = addresses
        .iter()
        .enumerate()
        .map(|(number, address)| {
            stage.pod(target, &format!("to-{number}"), &takes_over(*address, &source.name))
        })
        .collect();
    let before = stage.cloud.updates();
    // The agent learns of all marks when it starts again, and says so with one write.
    source.kill();
    for name in &names {
        stage.change(name, &json!({"annotations": {annotation::MOVE_OUT: "true"}}));
    }
    source.start();
    assert_eq!(add_all(&moved), addresses, "each has the address that it names");
    assert_eq!(stage.cloud.updates() - before, 2, "one removal and one addition for {MOVERS} pods");
    // The first machine and the third are in one zone.
    stage.assert_only_on(2, [source, between, target], &addresses);
    for (container, path, args) in &ends {
        let about = (container.as_str(), path.as_path(), args.as_str());
        let network = &stage.network;
        source.start_program(&network.plugin, "eth0", "DEL", about, &network.config).join().succeeded();
    }
    for name in &names {
        stage.delete_pod(name);
    }
    until("the source to have nothing left to say", || {
        aliases_of(&stage.cluster, &source.name)?.spec.leaving.is_empty().then_some(())
    });
    for (pod, address) in moved.iter().zip(&addresses) {
        between.host.ping(*address, PATIENCE).unwrap();
        pod.del();
    }
}

#[test]
fn a_hundred_pods_from_a_warm_set_need_nothing_of_the_cloud() {
    let stage = Stage::new(&json!({"warm": CROWD}));
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let node = &machines[0].name;
    until("a warm set", || {
        let status = aliases_of(&stage.cluster, node)?.status?;
        let arrived = stage.cloud.fake.arriving(ZONES[0], node).len();
        (status.attached >= i32::try_from(CROWD).unwrap() && arrived >= CROWD).then_some(())
    });
    // From here on the cloud changes nothing.
    let harm = Harm::Refused { status: 503, reason: "backendError".to_owned(), message: "no".to_owned() };
    stage.cloud.fake.harm(Fault { call: Call::UpdateInterface, harm, times: usize::MAX });
    let before = stage.cloud.updates();
    let pods: Vec<Placed<'_>> =
        (0..CROWD).map(|number| stage.pod(&machines[0], &format!("warm-{number}"), &json!({}))).collect();
    let addresses = add_all(&pods);
    assert_eq!(addresses.len(), CROWD);
    assert_distinct(&addresses);
    assert_eq!(stage.cloud.updates() - before, 0, "nobody waited for an update");
    machines[1].host.ping(addresses[CROWD - 1], PATIENCE).unwrap();
    // Who has what is in ledgers; nobody has written the pool's spec.
    let pools: Api<AliasPool> = Api::all(stage.cluster.client.clone());
    let pool = stage.cluster.runtime.block_on(pools.get(POOL)).unwrap();
    assert_eq!((pool.metadata.generation, pool.spec.allocations.len()), (Some(1), 0));
    let records: usize = ledgers(&stage.cluster).iter().map(|ledger| ledger.spec.records.len()).sum();
    assert!(records >= CROWD, "{records} records");
}
