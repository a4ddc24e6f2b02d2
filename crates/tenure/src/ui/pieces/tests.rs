//! Pieces of the example system, in the words of the map.

use super::super::feed::Kept as _;
use super::*;
use crate::snapshot::example::{aliases, cool, floating, moment, system, told, with_ranges};

fn said(pieces: &[Piece]) -> Vec<String> {
    let node = |node: &Option<Name>| node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let text = |piece: &Piece| match piece {
        Piece::Area { pool, first, last, kind, node: of, name } => {
            format!("{pool}: {first}-{last} {kind:?} {name}{}", node(of))
        }
        Piece::Mark { pool, address, state, node: of } => format!("{pool}: {address} {state:?}{}", node(of)),
    };
    pieces.iter().map(text).collect()
}

#[test]
fn an_agent_says_who_has_what_and_what_cools_and_is_fenced() {
    let mut snapshot = system();
    cool(&mut snapshot, "10.64.0.7");
    told(&mut snapshot, "node1").blocks[0].fenced = Some("it was given back".into());
    assert_eq!(
        said(&of_agent("node1", told(&mut snapshot, "node1"))),
        [
            "default: 10.64.0.0-10.64.0.15 Fenced default-0 on node1",
            "default: 10.64.0.0 Held on node1",
            "default: 10.64.0.1 Held on node1",
            "default: 10.64.0.7 Cooling on node1",
        ]
    );
}

#[test]
fn a_block_says_whose_it_is_and_for_claims_who_has_its_addresses() {
    let mut snapshot = system();
    let own = of_block(&snapshot.blocks[1], &snapshot);
    assert_eq!(said(&own), ["default: 10.64.0.16-10.64.0.31 Owned default-1 on node2"]);
    let expected = |state: &str| {
        [
            "default: 10.64.0.80-10.64.0.95 Floating default-5".to_owned(),
            format!("default: 10.64.0.81 {state}"),
            "default: 10.64.0.82 Cooling".to_owned(),
        ]
    };
    assert_eq!(said(&of_block(&floating(), &snapshot)), expected("Claimed"));
    let slot = tenure_claims::Slot { pod: "vm-2".into(), uid: "u".into(), node: "node2".into(), stamp: None };
    let slots = tenure_claims::Slots { incoming: Some(slot), ..tenure_claims::Slots::default() };
    snapshot.claims.insert("ns/vm.net".into(), slots);
    assert_eq!(said(&of_block(&floating(), &snapshot)), expected("Moving"));
}

#[test]
fn ledgers_and_slices_are_of_the_pools_that_have_a_row() {
    let snapshot = with_ranges();
    let ledgers: Vec<String> =
        snapshot.ranges.ledgers.iter().flat_map(|it| said(&of_ledger(it, &snapshot))).collect();
    assert_eq!(
        ledgers,
        ["10.9.0.0-24: 10.9.0.1 Held", "10.9.0.0-24: 10.9.0.2 Held", "net: 10.8.0.1 Held on node1"]
    );
    let names: Vec<String> = crate::pools::rows(&snapshot).into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["default", "10.9.0.0-24", "net"]);
    assert_eq!(
        said(&of_slices(&snapshot.ranges.slices[0])),
        [
            "net: 10.8.0.0-10.8.0.63 Owned 10.8.0.0/26 on node1",
            "net: 10.8.0.0-10.8.0.63 Told 10.8.0.0/26 on node1",
            "net: 10.8.0.64-10.8.0.127 Owned 10.8.0.64/26 on node2",
            "net: 10.8.0.64-10.8.0.127 Told 10.8.0.64/26 on node2",
        ]
    );
}

#[test]
fn alias_ranges_are_their_nodes_and_move_with_pods() {
    let known = aliases();
    let pieces = said(&of_alias_ledger(&known.ledgers[0]));
    for expected in [
        "live: 10.111.0.1-10.111.0.1 Owned 10.111.0.1/32 on node1",
        "live: 10.111.0.2 Moving on node1",
        "live: 10.111.0.3 Cooling on node1",
        "live: 10.111.0.4 Reserved on node2",
    ] {
        assert!(pieces.iter().any(|piece| piece == expected), "{expected} is not in {pieces:?}");
    }
    let excluded = said(&of_alias_pool(&known.pools[0]));
    assert!(excluded.iter().any(|it| it.contains("10.111.0.200-10.111.0.200 Excluded")), "{excluded:?}");
}

#[test]
fn a_node_pool_says_what_is_taken_and_cools_and_an_enactment_on_which_node() {
    let known = crate::offset::tests::known();
    let now = moment("2026-11-17T18:00:00Z");
    let pool = said(&of_node_pool(&known.pools[0], now));
    for expected in
        ["traffic-1: 10.10.10.1 Held", "traffic-1: 10.10.10.8 Held", "traffic-1: 10.10.10.2 Cooling"]
    {
        assert!(pool.iter().any(|piece| piece == expected), "{expected} is not in {pool:?}");
    }
    assert!(pool.iter().any(|it| it.contains("10.10.10.4-10.10.10.4 Excluded")), "{pool:?}");
    assert_eq!(said(&of_enactment(&known.enactments[0])), ["traffic-1: 10.10.10.8 Held on node01"]);
    assert_eq!(known.pools[0].key(), "traffic-1");
}
