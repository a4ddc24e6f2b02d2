//! The table beside one peer.

use super::figures::Figures;
use super::party::Party;
use super::size::Size;
use crate::host::sampled::percentile;
use crate::report::{Report, Unit};

/// What only we tell of ourselves.
pub(super) struct Own<'a> {
    /// How long ADD and DEL took inside the agent.
    pub(super) inside: &'a [Vec<f64>; 2],
    pub(super) calls_per_add: f64,
    /// Of the plugin, the agent and the controller.
    pub(super) sizes: [f64; 3],
    /// All calls, and those that failed.
    pub(super) calls: (u64, u64),
    /// Interfaces that stayed after their DELs.
    pub(super) left: usize,
    /// What the last one said that failed.
    pub(super) said: Option<String>,
}

/// The table.
pub(super) fn report(
    size: &Size,
    own: &Own<'_>,
    ours: &Figures,
    peer: &mut dyn Party,
    theirs: &Figures,
) -> Report {
    let name = peer.side().name;
    let mut report = Report::new(&format!("Pods: whole executions of the plugin, beside {name}"), name);
    let mut time = |what: &str, ours: f64, theirs: f64, target: &str| {
        report.less_is_better(what, ours, theirs, Unit::Nanoseconds, target);
    };
    let pods = size.pods;
    time("ADD, one at a time, p50", ours.add.p50(), theirs.add.p50(), "≥ 8×");
    time("ADD, one at a time, p10", ours.add.p10(), theirs.add.p10(), "");
    time("ADD, one at a time, p99", ours.add.p99(), theirs.add.p99(), "");
    time("DEL, one at a time, p50", ours.del.p50(), theirs.del.p50(), "≥ 20×");
    time("DEL, one at a time, p10", ours.del.p10(), theirs.del.p10(), "");
    time("DEL, one at a time, p99", ours.del.p99(), theirs.del.p99(), "");
    time(&format!("{pods} ADD at once, all"), ours.add_at_once.wall(), theirs.add_at_once.wall(), "≥ 8×");
    time(&format!("{pods} ADD at once, p50"), ours.add_at_once.p50(), theirs.add_at_once.p50(), "");
    time(&format!("{pods} DEL at once, all"), ours.del_at_once.wall(), theirs.del_at_once.wall(), "≥ 20×");
    time(&format!("{pods} DEL at once, p50"), ours.del_at_once.p50(), theirs.del_at_once.p50(), "");
    let gone = (crate::measure::median(ours.gone.clone()), crate::measure::median(theirs.gone.clone()));
    time(&format!("{pods} DEL at once, until the last interface is gone"), gone.0, gone.1, "");
    let without = if peer.has_blocks() { "" } else { " (the peer needs none)" };
    let what = format!("{pods} ADD at once on a node without blocks{without}");
    time(&format!("{what}, all"), ours.crowd.wall(), theirs.crowd.wall(), "≥ 5×");
    time(&format!("{what}, slowest round"), ours.crowd.worst(), theirs.crowd.worst(), "");
    time(&format!("ADD that needs a block{without}"), ours.single.p50(), theirs.single.p50(), "");
    for (level, (add, del)) in &ours.beside {
        let Some((their_add, their_del)) = theirs.beside.get(level) else { continue };
        let with = format!("with {level} on the node");
        time(&format!("ADD {with}, p50"), add.p50(), their_add.p50(), "flat");
        time(&format!("DEL {with}, p50"), del.p50(), their_del.p50(), "flat");
    }
    for (verb, inside) in ["ADD", "DEL"].iter().zip(own.inside) {
        for percent in [10, 50, 99] {
            let taken = Unit::Nanoseconds.show(percentile(inside, percent));
            report.fact(&format!("{verb}, one at a time, inside the agent, p{percent}"), &taken, "", "");
        }
    }
    report.fact("calls to the API server an ADD", &Unit::Average.show(own.calls_per_add), "", "0");
    let failures = |figures: &Figures| format!("{} of {}", figures.crowd.failures, figures.crowd.calls());
    report.fact("ADDs that failed on a node without blocks", &failures(ours), &failures(theirs), "0");
    let side = peer.side();
    let all = |calls: u64, failed: u64| format!("{failed} of {calls}");
    let (our_calls, our_failures) = own.calls;
    report.fact("calls that failed", &all(our_calls, our_failures), &all(side.calls, side.failed), "0");
    let (our_left, their_left) = (own.left.to_string(), side.left.to_string());
    report.fact("interfaces that stayed after DEL", &our_left, &their_left, "0");
    for said in [own.said.as_ref(), side.last_failure.as_ref()].into_iter().flatten() {
        report.note(&format!("A call that failed said: {said}"));
    }
    let pair = |memory: Option<(f64, f64)>| memory.map(|(before, after)| [before, after]);
    let (mine, their) = (pair(ours.memory), pair(theirs.memory));
    let what = [
        format!("memory of the agent, {} pods on the node", size.memory_at),
        format!("the same, and {} pods on other nodes", size.strangers),
    ];
    for (index, (what, target)) in what.iter().zip(["< 20 MB", "no more"]).enumerate() {
        let figure = |all: Option<[f64; 2]>| all.map(|all| all[index]);
        report.either(what, figure(mine), figure(their), Unit::Megabytes, target);
    }
    let programs = ["plugin", "agent", "controller"];
    for ((what, ours), theirs) in programs.iter().zip(own.sizes).zip(peer.sizes()) {
        report.either(&format!("size of the {what}"), Some(ours), theirs, Unit::Megabytes, "");
    }
    report
}
