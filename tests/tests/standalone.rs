//! `tenured --standalone`, the program, on a host made of namespaces: pods come from pool files, and nothing is lost by a
//! crash or a reboot. Needs root and iproute2.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::alone::{Alone, first_address, pool};
use tenure_tests::reference;

const BLOCKS: &str = "/apis/coil.cybozu.com/v2/addressblocks";
const POOL: &str = "/apis/coil.cybozu.com/v2/addresspools/default";

fn config() -> Value {
    json!({"cniVersion": "1.1.0", "name": "pods", "type": "tenure"})
}

fn dual() -> Value {
    json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.70.0.0/24", "ipv6": "fd70::/120"}]})
}

/// Names and UIDs of all blocks.
fn blocks(alone: &Alone) -> BTreeSet<(String, String)> {
    let (code, list) = alone.get(BLOCKS);
    assert_eq!(code, 200, "{list}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|block| (text(&block["metadata"]["name"]), text(&block["metadata"]["uid"]))).collect()
}

#[test]
fn a_host_that_has_no_pool_yet_gets_one_by_a_file() {
    let mut alone = Alone::new();
    alone.start();
    let none = alone.call("STATUS", "", None, &config());
    assert_eq!(none.json["code"], 50, "{none:?}");
    let pod = alone.pod("first");
    let refused = alone.attach("ADD", &pod, &config());
    assert_eq!(refused.json["code"], 11, "{refused:?}");
    assert!(refused.json["msg"].as_str().unwrap().contains("\"default\""), "{refused:?}");

    alone.write("/etc/tenure/pools/default.yaml", "apiVersion: coil.cybozu.com/v2\nkind: AddressPol\n");
    until("the mistake", || {
        alone.logged().contains("kind is \"AddressPol\"; accepted is \"AddressPool\"").then_some(())
    });
    let (code, text) = alone.state("/readyz");
    assert!(code == 200 && text.as_str().unwrap().contains("pool file default.yaml, document 1"), "{text}");
    alone.write("/etc/tenure/pools/default.yaml", &pool("default", &dual()));
    until("a pool", || (alone.call("STATUS", "", None, &config()).code == 0).then_some(()));
    let result = alone.attach("ADD", &pod, &config()).result();
    for ip in result["ips"].as_array().unwrap() {
        let address = ip["address"].as_str().unwrap().split('/').next().unwrap();
        alone.host.ping(address.parse().unwrap(), PATIENCE).unwrap();
    }
    let (code, metrics) = alone.state("/metrics");
    let metrics = metrics.as_str().unwrap();
    assert_eq!(
        (code, metrics.matches("# EOF\n").count(), metrics.ends_with("# EOF\n")),
        (200, 1, true),
        "{metrics}"
    );
    assert_eq!(reference::metrics::wrong(metrics), Vec::<String>::new());
    // The controller counts at most once a second.
    for family in ["tenure_agent_holds 1", "tenure_controller_leader 1", "tenure_pool_blocks{"] {
        until(family, || alone.state("/metrics").1.as_str()?.contains(family).then_some(()));
    }
    let mode = |path: &str| std::fs::metadata(alone.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("/run/tenure"), mode("/run/tenure/api.sock"), mode("/var/lib/tenure")),
        (0o700, 0o600, 0o700)
    );
}

#[test]
fn pods_keep_their_addresses_when_tenured_is_killed_and_a_second_one_says_who_is_there() {
    let mut alone = Alone::running(&dual());
    let pods: Vec<_> = ["a", "b", "c"].iter().map(|name| alone.pod(name)).collect();
    let added: Vec<Value> = pods.iter().map(|pod| alone.attach("ADD", pod, &config()).result()).collect();

    let second = alone
        .host
        .command(tenure_tests::programs::tenured())
        .args(["--standalone", "--run-dir", "/run/other"])
        .env("NO_COLOR", "1");
    let second = second.output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && said.contains("/var/lib/tenure is in use by another tenured"),
        "{said}"
    );

    let before = blocks(&alone);
    alone.kill();
    for result in &added {
        alone.host.ping(first_address(result), PATIENCE).unwrap();
    }
    alone.start();
    assert_eq!(blocks(&alone), before);
    for (pod, result) in pods.iter().zip(&added) {
        let mut check = config();
        check["prevResult"] = result.clone();
        alone.attach("CHECK", pod, &check).result();
    }
    // The controller leads at once, or the next block would wait for the old lease.
    let more: Vec<_> = ["d", "e", "f", "g", "h"].iter().map(|name| alone.pod(name)).collect();
    let mut all: BTreeSet<_> = added.iter().map(first_address).collect();
    all.extend(more.iter().map(|pod| alone.attach("ADD", pod, &config()).address()));
    assert_eq!(all.len(), pods.len() + more.len(), "each has its own: {all:?}");
    alone.stop();
    alone.start();
    for pod in pods.iter().chain(&more) {
        alone.attach("DEL", pod, &config()).result();
    }
    assert_eq!(alone.holds(), Vec::<String>::new());
}

#[test]
fn after_a_reboot_blocks_are_still_this_hosts_and_their_addresses_are_handed_out_again() {
    let mut alone = Alone::running(&json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.70.0.0/29"}]}));
    let pods: Vec<_> = (0..8).map(|number| alone.pod(&format!("before-{number}"))).collect();
    for pod in &pods {
        alone.attach("ADD", pod, &config()).result();
    }
    let before = blocks(&alone);
    assert_eq!(before.len(), 2, "{before:?}");
    drop(pods);
    alone.reboot();
    alone.start();
    assert_eq!(blocks(&alone), before, "the same blocks, not others of the same name");
    // All eight addresses of the pool can be had, so nothing leaked.
    let pods: Vec<_> = (0..8).map(|number| alone.pod(&format!("after-{number}"))).collect();
    let addresses: BTreeSet<_> =
        pods.iter().map(|pod| alone.attach("ADD", pod, &config()).address()).collect();
    assert_eq!(addresses.len(), 8);
    assert_eq!(blocks(&alone), before);
    for address in addresses {
        alone.host.ping(address, PATIENCE).unwrap();
    }
}

#[test]
fn a_pool_whose_file_goes_stays_for_its_pods_and_goes_with_the_last() {
    let alone = Alone::running(&dual());
    let pod = alone.pod("last");
    let address = alone.attach("ADD", &pod, &config()).address();
    std::fs::remove_file(alone.path("/etc/tenure/pools/default.yaml")).unwrap();
    until("the pool is being deleted", || {
        alone.get(POOL).1["metadata"]["deletionTimestamp"].is_string().then_some(())
    });
    alone.host.ping(address, PATIENCE).unwrap();
    let late = alone.pod("late");
    // The agent learns of the deletion by its watch, so an ADD may still succeed just after it.
    until("an ADD is refused", || {
        if alone.attach("ADD", &late, &config()).code != 0 {
            return Some(());
        }
        alone.attach("DEL", &late, &config()).result();
        None
    });
    alone.attach("DEL", &pod, &config()).result();
    until("the pool is gone", || (alone.get(POOL).0 == 404).then_some(()));
    assert_eq!(alone.host.ping(address, Duration::from_millis(300)).ok(), None);
}
