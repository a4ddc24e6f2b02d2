//! From pools and a policy to interfaces, and back.

use std::collections::BTreeSet;

use kube::api::DeleteParams;
use serde_json::json;

use super::bed::{Bed, cluster};

fn range(third: u8, end: u8) -> serde_json::Value {
    json!({
        "cidr": format!("10.10.{third}.0/24"), "start": format!("10.10.{third}.1"), "end": format!("10.10.{third}.{end}"),
        "exclude": [format!("10.10.{third}.4"), format!("10.10.{third}.7")],
    })
}

#[test]
fn every_selected_node_has_its_addresses_and_they_reach_each_other_and_all_go_back() {
    let cluster = cluster();
    let mut bed = Bed::new(&cluster, 3);
    let (one, two) = (bed.pool("traffic-1", &range(20, 10)), bed.pool("traffic-2", &range(21, 10)));
    let policy = bed.policy("static-ip", &[&one, &two]);
    bed.until_available(&policy, 3);
    assert_eq!((bed.addresses("eth1").len(), bed.addresses("eth2").len()), (3, 3));
    bed.assert_connected("eth1");
    bed.assert_connected("eth2");
    // A node joins, and the others keep what they have.
    let before = bed.addresses("eth1");
    bed.join();
    bed.until_available(&policy, 4);
    assert!(bed.addresses("eth1").is_superset(&before));
    bed.assert_connected("eth1");
    // A node is no longer selected.
    bed.select(3, false);
    bed.until("the address to go", || bed.address(3, "eth1").is_none().then_some(()));
    bed.until("the enactment to go", || (bed.enactments_of(&policy).len() == 3).then_some(()));
    assert_eq!(bed.addresses("eth1"), before);
    // An agent is killed, and its node keeps its addresses.
    bed.machines[0].kill();
    bed.machines[0].launch();
    bed.until_available(&policy, 3);
    assert_eq!(bed.addresses("eth1"), before);
    bed.delete_policy(&policy);
    bed.until("all enactments to go", || bed.enactments_of(&policy).is_empty().then_some(()));
    assert_eq!((bed.addresses("eth1"), bed.addresses("eth2")), (BTreeSet::new(), BTreeSet::new()));
    for pool in [&one, &two] {
        bed.until("all offsets to be free", || {
            let offsets = bed.offsets(pool);
            offsets.as_array().is_none_or(Vec::is_empty).then_some(())
        });
    }
    // The same policy again.
    let policy = bed.policy("static-ip", &[&one, &two]);
    bed.until_available(&policy, 3);
    bed.assert_connected("eth2");
}

#[test]
fn an_exhausted_pool_says_so_and_recovers_by_itself() {
    let cluster = cluster();
    let bed = Bed::new(&cluster, 3);
    let pool =
        bed.pool("small", &json!({"cidr": "10.10.22.0/24", "start": "10.10.22.1", "end": "10.10.22.2"}));
    let policy = bed.policy("few", &[&pool]);
    bed.until("the pool to be exhausted", || {
        (bed.pool_condition(&pool).0 == "ExhaustedIPPool").then_some(())
    });
    bed.until("two nodes to have addresses", || (bed.addresses("eth1").len() == 2).then_some(()));
    let without = (0..3).find(|it| bed.address(*it, "eth1").is_none()).unwrap();
    let with = (0..3).find(|it| bed.address(*it, "eth1").is_some()).unwrap();
    // Another node gives its address back.
    bed.select(with, false);
    bed.until("the third node to have an address", || bed.address(without, "eth1"));
    assert!(bed.address(with, "eth1").is_none());
    bed.until("the pool to be well", || (bed.pool_condition(&pool).0 == "ReconciledPool").then_some(()));
    bed.until_available(&policy, 2);
}

#[test]
fn a_reset_enactment_gets_another_address_and_a_pool_made_again_keeps_everyones() {
    let cluster = cluster();
    let bed = Bed::new(&cluster, 2);
    let pool = bed.pool("reset", &range(23, 10));
    let policy = bed.policy("again", &[&pool]);
    bed.until_available(&policy, 2);
    let (before, uid) = (bed.address(0, "eth1").unwrap(), bed.uid_of(0, &policy));
    bed.reset_enactment(0, &policy, &pool);
    bed.until("another enactment", || (bed.uid_of(0, &policy) != uid).then_some(()));
    bed.until_available(&policy, 2);
    assert_ne!(bed.address(0, "eth1"), Some(before), "a freed address cools");
    let all = bed.addresses("eth1");
    bed.wait(bed.pools().delete(&pool, &DeleteParams::default()));
    bed.until("the pool to go", || bed.wait(bed.pools().get_opt(&pool)).is_none().then_some(()));
    let again = bed.pool("reset", &range(23, 20));
    assert_eq!(again, pool);
    bed.until("the pool to know what is taken", || {
        let offsets = bed.offsets(&pool);
        offsets.as_array().is_some_and(|it| it.len() == 2).then_some(())
    });
    assert_eq!(bed.addresses("eth1"), all);
    bed.until_available(&policy, 2);
}
