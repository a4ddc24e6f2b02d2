//! The table.

use super::Figures;
use super::adds::Kind;
use super::size::Size;
use crate::host::sampled::percentile;
use crate::measure::median;
use crate::report::{Report, Unit};

/// The table; what stands beside ours is said in each row.
pub(super) fn report(size: &Size, Figures { crowd, adds, moves }: &Figures) -> Report {
    let mut report = Report::new("Claims: addresses that outlive pods", "beside");
    let mut rate = |what: &str, ours: &[f64], theirs: &[f64], target: &str| {
        report.more_is_better(what, median(ours.to_vec()), median(theirs.to_vec()), Unit::PerSecond, target);
    };
    let claims = size.claims;
    let what = format!("{claims} claims at once, from the first create to the last status: claims a second");
    rate(&format!("{what} (beside: plain updates of a status)"), &crowd.at_once, &crowd.updates, "");
    rate(&format!("{what} (beside: plain creates, then updates)"), &crowd.at_once, &crowd.both, "");
    let what = format!("{claims} claims that wait for the controller: statuses a second");
    rate(&format!("{what} (beside: plain updates of a status)"), &crowd.waiting, &crowd.updates, "");
    let from_start = Unit::PerSecond.show(median(crowd.from_start.clone()));
    report.fact("the same, from the start of its program", &from_start, "", "");
    let writes = Unit::Average.show(median(crowd.writes.clone()));
    report.fact("writes to the API server a claim, but for its creation", &writes, "", "≤ 2");
    let what =
        "processor time a claim, controller + kube-apiserver + etcd (beside: plain creates, then updates)";
    report.fact(what, &processor(&crowd.processor), &processor(&crowd.plain_processor), "");
    let kinds = [("without a claim", &adds.unclaimed), ("on a network that does not opt in", &adds.ordinary)];
    for (than, other) in kinds {
        for (percentile, of) in [("p50", 50), ("p99", 99)] {
            let what = format!("ADD with a claim, {percentile} (beside: {than})");
            let times =
                [&adds.claimed, other].map(|kind| if of == 50 { kind.add.p50() } else { kind.add.p99() });
            report.less_is_better(&what, times[0], times[1], Unit::Nanoseconds, "");
        }
        let inside = |kind: &Kind| percentile(&kind.inside, 50);
        let what = format!("ADD with a claim, inside the agent, p50 (beside: {than})");
        report.less_is_better(&what, inside(&adds.claimed), inside(other), Unit::Nanoseconds, "");
        let what = format!("DEL with a claim, p50 (beside: {than})");
        report.less_is_better(&what, adds.claimed.del.p50(), other.del.p50(), Unit::Nanoseconds, "");
    }
    let calls = |kind: &Kind| Unit::Average.show(median(kind.api_calls.clone()));
    let what = "calls to the API server an ADD with a claim (beside: without)";
    report.fact(what, &calls(&adds.claimed), &calls(&adds.unclaimed), "0");
    for of in [50, 99] {
        let what = format!(
            "a move, from its signal to the target's route, p{of} (beside: two writes, one after the other)"
        );
        let (ours, theirs) = (percentile(&moves.commits, of), percentile(&moves.chains, of));
        report.less_is_better(&what, ours, theirs, Unit::Nanoseconds, "");
    }
    let signal = Unit::Nanoseconds.show(percentile(&moves.signals, 50));
    report.fact("of that, until the API server has the signal, p50", &signal, "", "");
    report.fact("calls that failed", &format!("{} of {}", adds.failed, adds.calls), "", "0");
    report
}

fn processor(rounds: &[[f64; 3]]) -> String {
    if rounds.is_empty() {
        return String::new();
    }
    let part = |part: usize| format!("{:.2}", median(rounds.iter().map(|round| round[part]).collect()));
    format!("{} ms", [0, 1, 2].map(part).join(" + "))
}
