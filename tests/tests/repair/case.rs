//! A planted finding, and what has to come of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use tenure_testbed::wait::until;

use super::bed::{Bed, say};

/// A finding of a kind.
pub struct Case {
    pub kind: &'static str,
    /// Makes it.
    pub plant: fn(&mut Bed<'_>),
    /// Of what is only explained: removes the cause, as a person would. Of what heals: lets the program work that heals it. Of what is
    /// repaired: ends what kept the programs from seeing or healing it.
    pub cure: fn(&mut Bed<'_>),
    /// So many seconds later than it is, people look: findings that have an age need one, and objects' times are the API server's.
    pub later: i64,
    /// What `repair` writes asks a program for something, which works from the cure on.
    pub asks: bool,
}

impl Case {
    pub const fn new(kind: &'static str, plant: fn(&mut Bed<'_>), cure: fn(&mut Bed<'_>)) -> Self {
        Self { kind, plant, cure, later: 0, asks: false }
    }

    /// The same, seen so many seconds later.
    pub const fn seen_after(self, later: i64) -> Self {
        Self { later, ..self }
    }

    /// The same, repaired by a program that is asked.
    pub const fn asked(self) -> Self {
        Self { asks: true, ..self }
    }
}

/// Plants one after the other. All are planted, also after one that failed.
pub fn run(bed: &mut Bed<'_>, cases: &[Case]) {
    bed.keep_pods();
    bed.until_clean();
    let mut failed = Vec::new();
    for case in cases {
        say(&format!("{}: planted", case.kind));
        if catch_unwind(AssertUnwindSafe(|| run_one(bed, case))).is_err() {
            say(&format!("{}: failed", case.kind));
            failed.push(case.kind);
            bed.put_right();
        }
    }
    assert!(failed.is_empty(), "these failed, see above: {failed:?}");
    bed.finish();
}

fn run_one(bed: &mut Bed<'_>, case: &Case) {
    (case.plant)(bed);
    bed.clock.set(case.later);
    until_found(bed, case.kind);
    match does(case.kind) {
        "repairs" => is_repaired(bed, case),
        "waits" => is_waited_for(bed, case),
        "explains" => is_explained(bed, case),
        other => panic!("{}: the table says {other:?}", case.kind),
    }
    bed.clock.set(0);
    bed.until_clean();
    bed.assert_pods_did_not_notice();
}

fn does(kind: &str) -> &'static str {
    tenure::findings().find(|(name, _)| *name == kind).map(|(_, does)| does).expect("a kind of the table")
}

fn until_found(bed: &Bed<'_>, kind: &str) {
    let mut last = Value::Null;
    for _ in 0..400 {
        last = bed.check();
        if let Some(found) = all(&last["differences"]).find(|it| it["kind"] == kind) {
            say(&format!("{kind}: found: {}: {}", found["subject"], found["problem"]));
            return;
        }
    }
    panic!("check does not find {kind}: {last:#}");
}

/// `repair` makes writes, and the finding is gone.
fn is_repaired(bed: &mut Bed<'_>, case: &Case) {
    let kind = case.kind;
    let planned = bed.repair(&[kind, "--dry-run"]);
    let safe = all(&planned["findings"]).filter_map(|it| it["plan"]["repair"]["safe"].as_str());
    assert!(safe.count() > 0, "{kind}: nothing is planned: {planned:#}");
    assert_eq!(all(&planned["done"]).count(), 0, "{kind}: a plan writes nothing: {planned:#}");
    let report = bed.repair(&[kind, "--yes", "--wait", if case.asks { "1ms" } else { "3m" }]);
    let done = all(&report["done"]).filter(|it| it["kind"] == kind && it["outcome"] == "done");
    assert!(done.count() > 0, "{kind}: nothing was repaired: {report:#}");
    if !case.asks {
        assert_eq!(all(&report["remaining"]).count(), 0, "{kind}: {report:#}");
    }
    (case.cure)(bed);
    if case.asks {
        let report = bed.repair(&[kind, "--yes", "--wait", "3m"]);
        assert_eq!(all(&report["done"]).count(), 0, "{kind}: it was asked already: {report:#}");
        assert_eq!(all(&report["remaining"]).count(), 0, "{kind}: {report:#}");
    }
}

/// `repair` writes nothing, and waits until it is gone.
fn is_waited_for(bed: &mut Bed<'_>, case: &Case) {
    let kind = case.kind;
    let report = bed.repair(&[kind, "--yes", "--wait", "1ms"]);
    assert_eq!(all(&report["done"]).count(), 0, "{kind}: {report:#}");
    // It may have healed in this moment.
    let heals = |it: &Value| it["plan"]["heals"].as_str().is_some_and(|how| !how.is_empty());
    assert!(all(&report["findings"]).all(heals), "{kind}: {report:#}");
    (case.cure)(bed);
    let report = bed.repair(&[kind, "--yes", "--wait", "5m"]);
    assert_eq!(all(&report["done"]).count(), 0, "{kind}: {report:#}");
    assert_eq!(all(&report["remaining"]).count(), 0, "{kind}: {report:#}");
}

/// `repair` writes nothing, and says why, and what to do instead.
fn is_explained(bed: &mut Bed<'_>, case: &Case) {
    let kind = case.kind;
    let report = bed.repair(&[kind, "--yes", "--wait", "1ms"]);
    assert_eq!(all(&report["done"]).count(), 0, "{kind}: {report:#}");
    let said = |it: &Value| {
        let plan = &it["plan"]["cannot"];
        [&plan["because"], &plan["instead"]].iter().all(|it| it.as_str().is_some_and(|it| !it.is_empty()))
    };
    assert!(all(&report["findings"]).count() > 0 && all(&report["findings"]).all(said), "{kind}: {report:#}");
    assert!(all(&report["remaining"]).any(|it| it["kind"] == kind), "{kind} is gone: {report:#}");
    (case.cure)(bed);
    until(&format!("{kind} to be gone"), || {
        all(&bed.check()["differences"]).all(|it| it["kind"] != kind).then_some(())
    });
}

/// The elements of a list.
pub fn all(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
