//! The tables.

use super::caller::Caller;
use super::figures::{Figures, Kind};
use super::ours::PARTS;
use super::size::Size;
use crate::host::sampled::{Sampled, percentile};
use crate::measure::median;
use crate::report::{Report, Unit};

/// What was measured of ourselves.
pub(super) struct Own<'a> {
    pub(super) size: &'a Size,
    pub(super) figures: &'a Figures,
    pub(super) caller: &'a Caller,
}

/// Ours beside what the API server can do at all.
pub(super) fn beside_creates(own: &Own<'_>, creates: &Figures) -> Report {
    let mut report = table(own, creates, "kube-apiserver's creates", ["≥ 1140/s", "≥ 1×"]);
    for ((kind, callers), pace) in &own.figures.paces {
        let with = format!("{}, {callers} at once", kind.as_str());
        let taken = Unit::Nanoseconds.show(percentile(&pace.inside, 50));
        report.fact(&format!("{with}: ADD inside the agent, p50"), &taken, "", "");
        let used: Vec<String> = pace.processor.iter().map(|used| format!("{:.2}", used / 1e6)).collect();
        let what = format!("{with}: processor time an ADD, {}", PARTS.join(" + "));
        report.fact(&what, &format!("{} ms", used.join(" + ")), "", "");
    }
    report.fact("calls that failed", &failures(own.caller), "", "0");
    if let Some(said) = &own.caller.last_failure {
        report.note(&format!("A call that failed said: {said}"));
    }
    report
}

/// Ours beside a Whereabouts.
pub(super) fn beside_peer(own: &Own<'_>, theirs: &Figures, peer: &Caller) -> Report {
    let mut report = table(own, theirs, peer.name, ["≥ 100×", ""]);
    report.fact("calls that failed", &failures(own.caller), &failures(peer), "0");
    if let Some(said) = &peer.last_failure {
        report.note(&format!("A call of the peer that failed said: {said}"));
    }
    report
}

/// The rows that both tables have; the targets are for 100 at once, unsliced and sliced.
fn table(own: &Own<'_>, theirs: &Figures, peer: &str, targets: [&str; 2]) -> Report {
    let title = format!("Whereabouts' ranges: whole executions of the plugin, beside {peer}");
    let mut rows = Rows { report: Report::new(&title, peer) };
    for kind in [Kind::Shared, Kind::Sliced] {
        for pace in &own.size.paces {
            let key = (kind, pace.callers);
            let Some(ours) = own.figures.paces.get(&key) else { continue };
            let their = theirs.paces.get(&key);
            let with = format!("{}, {} at once", kind.as_str(), pace.callers);
            let target = if pace.callers < 100 { "" } else { targets[usize::from(kind == Kind::Sliced)] };
            rows.a_second(&format!("{with}: ADD"), &ours.add, their.map(|it| &it.add), target);
            rows.times(&format!("{with}: ADD"), &ours.add, their.map(|it| &it.add));
            if pace.callers >= 100 {
                let what = format!("{with}, and no more: ADD");
                rows.a_second(&what, &ours.burst, their.map(|it| &it.burst), "");
            }
            rows.a_second(&format!("{with}: DEL"), &ours.del, their.map(|it| &it.del), "");
            rows.times(&format!("{with}: DEL"), &ours.del, their.map(|it| &it.del));
            let target = if kind == Kind::Sliced { "0 on the way" } else { "" };
            let calls = their.map(|it| it.api_calls.as_slice());
            rows.api_calls(&with, &ours.api_calls, calls.unwrap_or_default(), target);
        }
    }
    for (level, ours) in &own.figures.held {
        let their = theirs.held.get(level);
        let (with, many) = (format!("unsliced, {level} held"), own.size.beside_at_once.callers);
        rows.times(&format!("{with}: ADD"), &ours.add, their.map(|it| &it.add));
        rows.times(&format!("{with}: DEL"), &ours.del, their.map(|it| &it.del));
        let their_many = their.map(|it| &it.add_at_once);
        rows.a_second(&format!("{with}, {many} at once: ADD"), &ours.add_at_once, their_many, "");
        let their_many = their.map(|it| &it.del_at_once);
        rows.a_second(&format!("{with}, {many} at once: DEL"), &ours.del_at_once, their_many, "");
        rows.api_calls(&with, &ours.api_calls, &[], "");
        if let Some(first) = ours.first {
            let first = Unit::Nanoseconds.show(first);
            rows.report.fact(&format!("{with}: the node's first ADD ever"), &first, "", "");
        }
    }
    rows.report
}

fn failures(caller: &Caller) -> String {
    format!("{} of {}", caller.failed, caller.calls)
}

struct Rows {
    report: Report,
}

impl Rows {
    fn a_second(&mut self, what: &str, ours: &Sampled, theirs: Option<&Sampled>, target: &str) {
        let what = format!("{what} a second");
        match theirs.filter(|theirs| theirs.calls() > 0) {
            Some(theirs) => {
                self.report.more_is_better(&what, ours.rate(), theirs.rate(), Unit::PerSecond, target);
            }
            None => self.report.fact(&what, &Unit::PerSecond.show(ours.rate()), "", target),
        }
    }

    fn times(&mut self, what: &str, ours: &Sampled, theirs: Option<&Sampled>) {
        let theirs = theirs.filter(|theirs| theirs.calls() > 0);
        let figures =
            [("p50", ours.p50(), theirs.map(Sampled::p50)), ("p99", ours.p99(), theirs.map(Sampled::p99))];
        for (percentile, ours, theirs) in figures {
            let what = format!("{what}, {percentile}");
            self.report.either(&what, Some(ours), theirs, Unit::Nanoseconds, "");
        }
    }

    fn api_calls(&mut self, what: &str, ours: &[f64], theirs: &[f64], target: &str) {
        let show = |rounds: &[f64]| Unit::Average.show(median(rounds.to_vec()));
        let what = format!("{what}: calls to the API server an ADD");
        self.report.fact(&what, &show(ours), &show(theirs), target);
    }
}
