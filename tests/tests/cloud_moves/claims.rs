//! Addresses of claims are aliases, too: they are where the pod is that has the claim.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use tenure_api::claims::annotation;
use tenure_testbed::hosts::Segment;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::cloud::NETWORK;

use crate::stage::{Stage, ZONES};

/// A pod of the claim.
fn refers() -> Value {
    json!({"annotations": {annotation::CLAIM: "db"}})
}

#[test]
fn the_address_of_a_claim_follows_its_pods_when_they_move_stop_and_start() {
    let stage = Stage::with_claims();
    let wire = Arc::new(Segment::new("wire").unwrap());
    let machines = stage.machines(&wire);
    let addresses = stage.claim("db", NETWORK, "eth0", &json!({}));
    let [IpAddr::V4(address)] = addresses[..] else { panic!("{addresses:?}") };
    assert!(address.to_string().starts_with("10.111.255."), "{address}");
    assert_eq!(stage.cloud.updates(), 0, "nobody has the claim");

    let first = stage.pod(&machines[0], "db-a", &refers());
    assert_eq!(first.add(), addresses);
    stage.assert_only_on(0, machines.each_ref(), &addresses);
    machines[2].host.ping(address.into(), PATIENCE).unwrap();
    let ordinary = stage.pod(&machines[0], "web", &json!({}));
    assert!(!ordinary.add().contains(&address.into()));

    // The next pod is prepared while the first has the address, and the mover says when it is to have it.
    let second = stage.pod(&machines[1], "db-b", &refers());
    assert_eq!(second.add(), addresses);
    stage.assert_only_on(0, machines.each_ref(), &addresses);
    let before = stage.cloud.updates();
    stage.change("db-b", &json!({"annotations": {annotation::ACTIVE: "1"}}));
    let range = format!("{address}/32");
    until("the address on the second machine", || {
        stage.cloud.fake.aliases(ZONES[1], &machines[1].name).contains(&range).then_some(())
    });
    stage.assert_only_on(1, machines.each_ref(), &addresses);
    assert_eq!(stage.cloud.updates() - before, 2, "one removal and one addition");
    stage.end(&[&first]);
    machines[2].host.ping(address.into(), PATIENCE).unwrap();

    // It stops, and is started elsewhere.
    stage.end(&[&second]);
    until("the address on no machine", || {
        (!stage.cloud.fake.aliases(ZONES[1], &machines[1].name).contains(&range)).then_some(())
    });
    let third = stage.pod(&machines[0], "db-c", &refers());
    assert_eq!(third.add(), addresses);
    stage.assert_only_on(0, machines.each_ref(), &addresses);
    machines[2].host.ping(address.into(), PATIENCE).unwrap();
}
