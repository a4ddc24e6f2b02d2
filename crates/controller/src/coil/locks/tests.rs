//! Pools that share addresses: which blocks are carved, and which names are occupied.

use std::collections::BTreeMap;

use kube::ResourceExt;
use tenure_api::coil::{AddressBlock, AddressPool, RequestOutcome};
use tenure_api::whereabouts::{Allocation, IPPool, IPPoolSpec};

use super::super::write::BlockWrite;
use super::{NoLock, locks};
use crate::plan::Planner;
use crate::plan::model::{Outcome, Server};

fn outcome<'a>(server: &'a Server, request: &str) -> RequestOutcome<'a> {
    server.requests[request].outcome()
}

fn ipv4<'a>(server: &'a Server, block: &str) -> Option<&'a str> {
    server.blocks.get(block)?.spec.ipv4.as_deref()
}

fn pools(server: &Server) -> Vec<AddressPool> {
    server.pools.values().cloned().collect()
}

/// Pool `a` has 10.1.0.0/28, the younger pool `b` 10.2.0.0/28, of which node n1 has the first block.
fn two_pools() -> (Server, Planner) {
    let (mut server, mut planner) = (Server::default(), Planner::default());
    server.pool("a", 2, &["10.1.0.0/28"], &[]);
    server.now += 5_000;
    server.pool("b", 2, &["10.2.0.0/28"], &[]);
    for node in ["n1", "n2"] {
        server.node(node, None);
    }
    server.request("of-n1", "n1", "b");
    server.settle(&mut planner);
    assert_eq!(ipv4(&server, "b-0"), Some("10.2.0.0/30"));
    (server, planner)
}

#[test]
fn an_older_pool_that_grows_carves_nothing_that_a_younger_ones_block_has() {
    let (mut server, mut planner) = two_pools();
    server.pool("a", 2, &["10.1.0.0/28", "10.2.0.0/28"], &[]);
    for number in 1..=7 {
        server.request(&format!("r{number}"), "n2", "a");
        server.now += 1_000;
    }
    server.settle(&mut planner);
    for (request, block) in [("r4", "a-3"), ("r5", "a-5"), ("r6", "a-6"), ("r7", "a-7")] {
        assert_eq!(outcome(&server, request), RequestOutcome::Block(block), "{request}");
    }
    assert_eq!(ipv4(&server, "a-5"), Some("10.2.0.4/30"), "age decides about what is free");
    // The names of the younger pool's blocks are occupied, and nobody assigns from them.
    let occupied: Vec<&str> = server
        .blocks
        .iter()
        .filter(|(_, block)| block.is_withheld())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(occupied, ["b-1", "b-2", "b-3"]);
    let free = |pool: &str| server.pools[pool].status.clone().unwrap().blocks.unwrap();
    assert_eq!((free("a").allocated.as_str(), free("a").free.as_str()), ("7", "0"));
    assert_eq!((free("b").allocated.as_str(), free("b").free.as_str()), ("1", "0"));
    server.request("late", "n1", "b");
    server.request("r8", "n2", "a");
    server.settle(&mut planner);
    assert!(matches!(outcome(&server, "late"), RequestOutcome::Failed { reason: "OutOfBlocks", .. }));
    assert!(matches!(outcome(&server, "r8"), RequestOutcome::Failed { reason: "OutOfBlocks", .. }));
    // Its owner returns the block: now it is free, and the older pool may carve it.
    server.return_block("b-0");
    server.request("r9", "n2", "a");
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r9"), RequestOutcome::Block("a-4"));
}

#[test]
fn of_two_pools_of_one_second_the_one_that_carved_first_keeps_what_it_has() {
    let (mut server, mut planner) = (Server::default(), Planner::default());
    server.node("n1", None);
    server.pool("z", 2, &["10.2.0.0/29"], &[]);
    server.request("first", "n1", "z");
    server.settle(&mut planner);
    // Both are from the same second; by name this is the older one.
    server.pool("a", 2, &["10.2.0.0/29"], &[]);
    for request in ["second", "third"] {
        server.request(request, "n1", "a");
    }
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "second"), RequestOutcome::Block("a-1"));
    assert!(matches!(outcome(&server, "third"), RequestOutcome::Failed { .. }));
    assert_eq!(ipv4(&server, "z-0"), Some("10.2.0.0/30"));
}

#[test]
fn claims_are_given_nothing_of_a_block_that_another_pool_has() {
    let (mut server, mut planner) = (Server::default(), Planner::default());
    server.node("n1", None);
    server.pool("default", 2, &["10.1.0.0/30"], &[]);
    server.now += 5_000;
    server.pool("b", 2, &["10.2.0.0/30"], &[]);
    server.request("of-n1", "n1", "b");
    server.request("all", "n1", "default");
    server.settle(&mut planner);
    server.pool("default", 2, &["10.1.0.0/30", "10.2.0.0/30", "10.3.0.0/30"], &[]);
    server.claim("c", None);
    server.settle(&mut planner);
    let floating: Vec<&AddressBlock> = server.blocks.values().filter(|block| block.is_floating()).collect();
    assert_eq!(floating.iter().map(|block| block.name_any()).collect::<Vec<_>>(), ["default-2"]);
}

#[test]
fn what_whereabouts_has_on_record_is_not_carved() {
    let (mut server, mut planner) = (Server::default(), Planner::default());
    server.node("n1", None);
    server.pool("p", 2, &["10.2.0.0/28"], &[]);
    server.request("r", "n1", "p");
    let mut world = server.world();
    let ledger = |name: &str, offsets: &[&str], network: Option<&str>| {
        let allocations =
            offsets.iter().map(|offset| ((*offset).to_owned(), Allocation::default())).collect();
        let mut pool = IPPool::new(name, IPPoolSpec { range: "10.2.0.0/24".into(), allocations });
        let network = network.map(|name| ("whereabouts.cni.cncf.io/network".to_owned(), name.to_owned()));
        pool.metadata.labels = network.map(|label| BTreeMap::from([label]));
        pool
    };
    world.apply_ledger(ledger("10.2.0.0-24", &["3", "4"], None));
    // A network with a name has its own address space.
    world.apply_ledger(ledger("net-10.2.0.0-24", &["8"], Some("net")));
    let plan = planner.plan(&world, server.timestamp());
    let carved = plan.iter().find_map(|write| write.of::<BlockWrite>()?.block()).map(ResourceExt::name_any);
    assert_eq!(carved.as_deref(), Some("p-2"), "10.2.0.3 and 10.2.0.4 are somebody's");
}

#[test]
fn a_block_that_pools_have_grown_over_is_not_carved() {
    let (mut server, mut planner) = two_pools();
    server.request("r", "n2", "b");
    let create = planner.plan(&server.world(), server.timestamp()).remove(0);
    let carved = create.of::<BlockWrite>().and_then(BlockWrite::block).map(ResourceExt::name_any);
    assert_eq!(carved.as_deref(), Some("b-1"), "{create:?}");
    // Before it is created, the older pool grows over it and carves.
    server.pool("a", 2, &["10.1.0.0/28", "10.2.0.0/28"], &[]);
    assert_eq!(server.write(&create), Outcome::Conflict, "a live list shows who is older");
    server.pool("b", 2, &["10.2.0.0/28", "10.4.0.0/30"], &[]);
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r"), RequestOutcome::Block("b-4"));
}

#[test]
fn whoever_is_late_finds_the_name_occupied_or_does_not_carve() {
    let (mut server, _) = two_pools();
    let before = pools(&server);
    let late = AddressBlock::carve(&server.pools["b"], 1, "n1", Some("uid")).unwrap();
    assert_eq!(locks(&before, &late), Ok(Vec::new()), "nobody has these addresses yet");
    server.pool("a", 2, &["10.1.0.0/28", "10.2.0.0/28"], &[]);
    let after = pools(&server);
    assert_eq!(locks(&after, &late), Err(NoLock::Older("a".to_owned())));
    let of_older = AddressBlock::carve(&server.pools["a"], 5, "n2", Some("uid")).unwrap();
    assert_eq!(locks(&before, &of_older), Err(NoLock::Unknown), "that list is too old");
    let needed = locks(&after, &of_older).unwrap();
    assert_eq!(needed.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["b-1"]);
    assert!(needed[0].is_withheld() && needed[0].node().is_none() && needed[0].finalizers().is_empty());
    // Whoever comes first gets the name.
    assert!(server.occupy(&needed[0]));
    assert_eq!(server.create(&late), Outcome::AlreadyExists);
    server.return_block("b-1");
    assert_eq!(server.create(&late), Outcome::Done);
    assert!(!server.occupy(&needed[0]));
}

#[test]
fn names_are_given_back_when_the_older_pool_is_gone_and_not_before() {
    let (mut server, mut planner) = two_pools();
    server.pool("a", 2, &["10.1.0.0/30", "10.2.0.0/28"], &[]);
    for request in ["r1", "r2"] {
        server.request(request, "n2", "a");
    }
    server.settle(&mut planner);
    server.return_block("a-0");
    server.return_block("a-2");
    server.settle(&mut planner);
    assert!(server.blocks["b-1"].is_withheld(), "a creation may still be on its way");
    server.delete_pool("a");
    server.settle(&mut planner);
    assert!(!server.pools.contains_key("a") && !server.blocks.contains_key("b-1"));
    server.request("r3", "n2", "b");
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r3"), RequestOutcome::Block("b-1"));
}

#[test]
fn what_would_need_too_many_names_is_not_carved() {
    let (mut server, mut planner) = (Server::default(), Planner::default());
    server.node("n1", None);
    server.pool("a", 10, &["10.1.0.0/22"], &[]);
    server.now += 5_000;
    server.pool("b", 0, &["10.2.0.0/22"], &[]);
    server.pool("a", 10, &["10.1.0.0/22", "10.2.0.0/22"], &[]);
    for request in ["r1", "r2"] {
        server.request(request, "n1", "a");
    }
    server.settle(&mut planner);
    assert_eq!(outcome(&server, "r1"), RequestOutcome::Block("a-0"));
    assert!(matches!(outcome(&server, "r2"), RequestOutcome::Failed { reason: "OutOfBlocks", .. }));
}
