//! A claim with two records, because a write of unknown outcome was done after all. The record that its status does
//! not name is removed, even while pods use the claim. What a pod was given stays.

use std::collections::BTreeSet;

use kube::ResourceExt;
use tenure_api::claims::IPAMClaimStatus;
use tenure_api::coil::AddressBlock;
use tenure_claims::{ClaimFacts, in_block};

use crate::plan::Planner;
use crate::plan::model::{Outcome, Server, tell};

fn server() -> Server {
    let mut server = Server::default();
    server.pool("default", 3, &["10.0.0.0/24"], &[]);
    server.node("n", None);
    server.settle(&mut Planner::default());
    server
}

/// A claim that got any address and, while nobody knew that, the one that its status came with.
fn with_two_records(server: &mut Server) -> String {
    let uid = server.claim("c", None);
    let first = Planner::default().plan(&server.world(), server.timestamp());
    let mut claim = server.claims["c"].clone();
    claim.status =
        Some(IPAMClaimStatus { ips: vec!["10.0.0.77/32".to_owned()], ..IPAMClaimStatus::default() });
    server.put_claim(claim);
    let second = Planner::default().plan(&server.world(), server.timestamp());
    for write in first.iter().chain(&second).filter(|write| write.verb() == "create") {
        assert_eq!(server.write(write), Outcome::Done);
    }
    assert_eq!(records(server, &uid).len(), 2);
    uid
}

/// The recorded addresses of a claim, each with the UIDs of the pods that its record names.
fn records(server: &Server, uid: &str) -> BTreeSet<(String, Vec<String>)> {
    let all = server.blocks.values().flat_map(in_block).filter(|(record, _)| record.uid == uid);
    all.map(|(record, addresses)| {
        let pods = record.pods.iter().map(|pod| pod.uid.clone()).collect();
        (addresses[0].to_string(), pods)
    })
    .collect()
}

fn says(server: &Server) -> Vec<String> {
    ClaimFacts::of(&server.claims["c"]).addresses.iter().map(|(address, _)| address.to_string()).collect()
}

#[test]
fn a_claim_that_a_write_in_flight_gives_something_is_given_nothing_else() {
    let mut server = server();
    server.claim("c", None);
    let (mut planner, mut world) = (Planner::default(), server.world());
    let first = planner.plan(&world, server.timestamp());
    assert_eq!(first.iter().filter(|write| write.verb() == "create").count(), 1);
    world.in_flight.clone_from(&first);
    let (heard, mut claim) = (server.log.len(), server.claims["c"].clone());
    claim.status =
        Some(IPAMClaimStatus { ips: vec!["10.0.0.77/32".to_owned()], ..IPAMClaimStatus::default() });
    server.put_claim(claim);
    server.log[heard..].iter().cloned().for_each(|update| tell(&mut world, update));
    assert_eq!(planner.plan(&world, server.timestamp()), [], "what is in flight may be done");
    world.in_flight.clear();
    let again = planner.plan(&world, server.timestamp());
    assert_eq!(again.iter().filter(|write| write.verb() == "create").count(), 1, "nothing was done");
}

#[test]
fn of_two_records_the_one_that_the_status_does_not_name_goes_though_a_pod_uses_the_claim() {
    let mut server = server();
    let uid = with_two_records(&mut server);
    let pod = server.pod("p", "c", "n");
    server.settle(&mut Planner::default());
    assert_eq!(says(&server), ["10.0.0.77"]);
    assert_eq!(records(&server, &uid), BTreeSet::from([("10.0.0.77".to_owned(), vec![pod.clone()])]));
    assert!(ClaimFacts::of(&server.claims["c"]).slots.is_active(&pod));
}

/// Names a pod in the claim's records at these addresses.
fn name(server: &mut Server, uid: &str, pod: &str, at: &str) {
    let named = |block: &AddressBlock| {
        in_block(block).any(|(it, all)| it.uid == uid && all.iter().any(|it| it.to_string() == at))
    };
    let mut block = server.blocks.values().find(|block| named(block)).cloned().unwrap();
    for record in block.spec.claims.values_mut() {
        let pod = serde_json::json!({"name": "p", "uid": pod, "node": "n"});
        record.pods.push(serde_json::from_value(pod).unwrap());
    }
    server.put_block(block);
}

#[test]
fn what_a_pod_was_given_stays_the_claims_whatever_its_status_says() {
    let mut server = server();
    let uid = with_two_records(&mut server);
    let pod = server.pod("p", "c", "n");
    name(&mut server, &uid, &pod, "10.0.0.0");
    server.settle(&mut Planner::default());
    assert_eq!(says(&server), ["10.0.0.0"]);
    assert_eq!(records(&server, &uid), BTreeSet::from([("10.0.0.0".to_owned(), vec![pod])]));
}

#[test]
fn two_records_that_both_name_a_pod_stay_until_it_has_ended() {
    let mut server = server();
    let uid = with_two_records(&mut server);
    let pod = server.pod("p", "c", "n");
    name(&mut server, &uid, &pod, "10.0.0.0");
    name(&mut server, &uid, &pod, "10.0.0.77");
    let mut planner = Planner::default();
    server.settle(&mut planner);
    assert_eq!(records(&server, &uid).len(), 2);
    server.delete_pod("p");
    server.settle(&mut planner);
    assert_eq!(says(&server), ["10.0.0.77"]);
    assert_eq!(records(&server, &uid).len(), 1);
}

#[test]
fn a_status_that_names_a_record_which_was_not_seen_yet_is_not_written_over() {
    let mut server = server();
    with_two_records(&mut server);
    for write in Planner::default().plan(&server.world(), server.timestamp()) {
        server.write(&write);
    }
    assert_eq!(says(&server), ["10.0.0.77"]);
    let mut late = server.world();
    let unseen = server.blocks["default-9"].clone();
    late.coil_mut().blocks.remove("default-9", &unseen.uid().unwrap());
    let writes = Planner::default().plan(&late, server.timestamp());
    let status = writes.iter().find(|write| write.verb() == "claim_status").unwrap();
    assert_eq!(server.write(status), Outcome::Conflict, "{status:?}");
    server.return_block("default-9");
    assert_eq!(server.write(status), Outcome::Done, "nothing is on record where it said");
}
