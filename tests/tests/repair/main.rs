//! Every kind of finding that `tenure check` knows, on a real API server with real agents, a real controller and pods that run: each is
//! planted, `check` finds it, `repair` does what its table (`crates/tenure/src/repair/kinds.rs`) says, `check` is clean afterwards, and the
//! pods have kept their addresses and connections. Needs root, iproute2, etcd, kube-apiserver and cc.
//!
//! | the table says | what has to be seen |
//! |---|---|
//! | repairs | `repair KIND --yes` makes its writes, and the finding is gone |
//! | waits | `repair` writes nothing; once the program that heals it may work, the finding goes |
//! | explains | `repair` writes nothing, and says why and what to do instead; once a person has done that, the finding is gone |
//!
//! `check` and `repair` run with the rights of `deploy/viewer.yaml` alone.

mod agents;
mod aliases;
mod bed;
mod case;
mod nodes;
mod objects;
mod pods;
mod ranges;

use std::collections::BTreeSet;

use bed::with_bed;
use case::{Case, run};

/// The cases, one list for each bed.
const ALL: [&[Case]; 5] = [objects::CASES, agents::CASES, ranges::CASES, nodes::CASES, aliases::CASES];

#[test]
fn every_kind_of_the_table_has_a_case() {
    let known: BTreeSet<&str> = tenure::findings().map(|(kind, _)| kind).collect();
    let planted: BTreeSet<&str> = ALL.iter().flat_map(|cases| cases.iter()).map(|case| case.kind).collect();
    assert_eq!(planted, known, "kinds that are planted here, and kinds of the table");
}

#[test]
fn pools_blocks_and_requests() {
    with_bed(objects::prepare, |bed| run(bed, objects::CASES));
}

#[test]
fn agents_holds_and_pods() {
    with_bed(agents::prepare, |bed| run(bed, agents::CASES));
}

#[test]
fn whereabouts_ranges_and_slices() {
    with_bed(ranges::prepare, |bed| {
        ranges::begin(bed);
        run(bed, ranges::CASES);
    });
}

#[test]
fn addresses_of_nodes() {
    with_bed(nodes::prepare, |bed| {
        nodes::begin(bed);
        run(bed, nodes::CASES);
    });
}

#[test]
fn alias_addresses_of_a_cloud() {
    with_bed(aliases::prepare, |bed| {
        aliases::begin(bed);
        run(bed, aliases::CASES);
    });
}
