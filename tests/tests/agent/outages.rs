//! Without the API server, and without the agent.

use std::path::Path;

use serde_json::json;
use tenure_testbed::wait::RUNTIME_TIMEOUT;

use tenure_tests::agent::{Cluster, Machine, assert_distinct, config};

#[test]
fn invariant_8_without_the_api_server_a_hundred_adds_and_dels_succeed_on_owned_blocks() {
    let cluster = Cluster::shared();
    cluster.tenant("cut", 8, json!([{"ipv4": "10.90.0.0/20"}]));
    let machine = Machine::running(&cluster);
    let first = machine.pod_in("cut", "first");
    machine.add(&first);
    machine.gate.shut();
    let pods: Vec<_> = (0..100).map(|number| machine.pod_in("cut", &format!("pod{number}"))).collect();
    let addresses: Vec<_> = pods.iter().flat_map(|pod| machine.add(pod)).collect();
    assert_distinct(&addresses);
    machine.assert_reached(&pods[99], &addresses[99..]);
    for pod in &pods {
        machine.del(pod);
    }
    assert_eq!(machine.table(116).len(), 1);
    machine.status().succeeded();
    // It is there again, and so is everything that needs it.
    machine.gate.reopen();
    cluster.tenant("mended", 4, json!([{"ipv4": "10.91.0.0/24"}]));
    let pod = machine.pod_in("mended", "late");
    machine.until("an ADD out of a new pool", || (machine.call("ADD", &pod).code == 0).then_some(()));
}

#[test]
fn status_is_50_without_an_agent_and_before_all_is_replayed() {
    let cluster = Cluster::shared();
    let mut machine = Machine::new(&cluster);
    assert_eq!(machine.status().refused(), 50);
    // The API server cannot be asked: it waits, with its door closed.
    machine.gate.shut();
    machine.launch();
    machine.until("the journal", || machine.log().contains("read the journal").then_some(()));
    std::thread::sleep(tenure_tests::agent::A_MOMENT);
    assert_eq!(machine.status().refused(), 50);
    assert!(!machine.has_socket(), "the door is open before all is known");
    machine.gate.reopen();
    machine.until("the socket", || machine.has_socket().then_some(()));
    machine.status().succeeded();
    machine.kill();
    assert_eq!(machine.status().refused(), 50);
}

#[test]
fn status_is_50_when_no_pool_is_there_and_when_the_last_address_is_taken() {
    let cluster = Cluster::embedded();
    cluster.control("own");
    let machine = Machine::running(&cluster);
    let status = machine.status();
    assert_eq!(status.refused(), 50);
    assert!(status.json["details"].as_str().unwrap().contains("create an AddressPool"), "{status:?}");
    cluster.pool("default", 0, json!([{"ipv4": "10.92.0.0/31"}]));
    machine.until("a pool", || (machine.status().code == 0).then_some(()));
    let pods: Vec<_> = (0..3).map(|number| machine.pod(&format!("pod{number}"))).collect();
    machine.add(&pods[0]);
    machine.add(&pods[1]);
    assert_eq!(machine.call("ADD", &pods[2]).refused(), 11);
    assert_eq!(machine.status().refused(), 50);
    machine.del(&pods[0]);
    machine.status().succeeded();
    machine.add(&pods[2]);
}

#[test]
fn without_an_agent_all_but_del_is_refused_with_code_11_within_a_second() {
    let cluster = Cluster::shared();
    let mut machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    machine.add(&pod);
    machine.kill();
    let mut gc = config();
    gc["cni.dev/valid-attachments"] = json!([]);
    for (verb, config) in [("ADD", &config()), ("CHECK", &config()), ("GC", &gc)] {
        let called = match verb {
            "GC" => machine.exec(verb, "", Path::new(""), "", config),
            _ => machine.call_with(verb, &pod, config),
        };
        assert_eq!(called.refused(), 11, "{called:?}");
        assert!(called.took < RUNTIME_TIMEOUT, "{called:?}");
        assert!(called.json["details"].as_str().unwrap().contains("tenured.sock"), "{called:?}");
    }
    let version = machine.exec("VERSION", "", Path::new(""), "", &config());
    version.succeeded();
    let deleted = machine.call("DEL", &pod);
    deleted.succeeded();
    assert!(deleted.took < RUNTIME_TIMEOUT, "{deleted:?}");
}

#[test]
fn without_a_controller_an_add_that_needs_a_block_is_refused_in_time_and_others_do_not_wait() {
    let cluster = Cluster::embedded();
    cluster.pool("default", 4, json!([{"ipv4": "10.93.0.0/24"}]));
    let machine = Machine::running(&cluster);
    let pod = machine.pod("web");
    let refused = machine.call("ADD", &pod);
    assert_eq!(refused.refused(), 11, "{refused:?}");
    assert!(refused.took < RUNTIME_TIMEOUT, "{refused:?}");
    // The runtime tries again, and meanwhile there is a controller: the block comes before or after the waiter.
    cluster.control("late");
    machine.until("an address", || (machine.call("ADD", &pod).code == 0).then_some(()));
}
