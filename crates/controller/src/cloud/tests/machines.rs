//! Re-created machines, machines that take fewer ranges or have ranges of others, and nodes that are gone.

use std::time::Duration;

use serde_json::json;

use super::naive::Naive;
use super::rig::Rig;

#[test]
fn a_machine_that_was_made_anew_gets_its_ranges_back_soon() {
    for same_node in [false, true] {
        let mut rig = Rig::new(51);
        rig.pool(json!({}));
        rig.machine("a");
        rig.boot("a", "first");
        rig.want("a", 2);
        rig.settle();
        let had = rig.on_machine("a");
        assert_eq!((had.len(), rig.status("a").attached), (2, 2));
        rig.cloud.machines.lock().unwrap().insert("a".to_owned(), Naive::default());
        if same_node {
            rig.boot("a", "second");
        } else {
            rig.leave("a");
            rig.join("a");
        }
        // Otherwise it is looked at every ten minutes.
        rig.settle();
        assert_eq!(rig.on_machine("a"), had);
        assert_eq!(rig.status("a").attached, 2);
    }
}

#[test]
fn each_machine_takes_as_many_ranges_as_the_cloud_says() {
    let mut rig = Rig::new(52);
    rig.pool(json!({}));
    rig.machine("small");
    rig.machine("large");
    rig.cloud.machines.lock().unwrap().entry("small".to_owned()).or_default().limit = Some(3);
    rig.settle();
    rig.want("small", 5);
    rig.want("large", 5);
    rig.settle();
    assert_eq!((rig.on_machine("small").len(), rig.on_machine("large").len()), (3, 5));
    let problem = rig.status("small").problem.unwrap();
    assert!(problem.contains("takes 3 at most"), "{problem}");
}

#[test]
fn a_pool_over_the_cluster_s_own_range_takes_nothing_off_a_machine_that_it_did_not_attach() {
    let mut rig = Rig::new(53);
    rig.machine("a");
    rig.attach("a", "10.111.3.0/24");
    rig.pool(json!({"cidr": "10.111.0.0/16"}));
    rig.want("a", 1);
    rig.settle();
    assert!(rig.on_machine("a").contains("10.111.3.0/24"), "{:?}", rig.on_machine("a"));
    assert_eq!(rig.status("a").attached, 1);
}

#[test]
fn a_block_of_a_size_that_the_pool_had_before_is_still_removed() {
    let mut rig = Rig::new(54);
    rig.pool(json!({"attach": "block", "blockSizeBits": 4, "cooling": "0s"}));
    rig.machine("a");
    rig.want("a", 1);
    rig.settle();
    assert_eq!(rig.on_machine("a"), ["10.111.0.0/28".to_owned()].into());
    rig.pool(json!({"attach": "block", "blockSizeBits": 5, "cooling": "0s"}));
    rig.settle();
    rig.restart();
    rig.settle();
    rig.give_back("a", "10.111.0.0/28");
    rig.want("a", 0);
    rig.settle();
    assert!(rig.on_machine("a").is_empty() && rig.records().is_empty());
}

#[test]
fn what_a_node_wanted_goes_with_it_when_nothing_of_it_is_left() {
    let mut rig = Rig::new(55);
    rig.pool(json!({"cooling": "0s"}));
    rig.machine("a");
    rig.machine("b");
    rig.want("a", 1);
    rig.want("b", 0);
    rig.settle();
    rig.leave("a");
    rig.settle();
    assert!(rig.aliases.contains_key("a"), "it says which machine has the address");
    rig.clock.advance(Duration::from_mins(5));
    rig.settle();
    assert!(rig.records().is_empty() && rig.on_machine("a").is_empty());
    assert_eq!(rig.aliases.keys().collect::<Vec<_>>(), ["b"]);
    // One that the previous leader did not get to.
    rig.leave("b");
    rig.restart();
    rig.settle();
    assert!(rig.aliases.is_empty());
}
