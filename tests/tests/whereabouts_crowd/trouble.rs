//! What goes wrong: with agents and the controller one thing after the other, and with every call a little.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use http::StatusCode;
use tenure_testbed::faults::{Calls, Rule, RuleId, Verb};

use crate::plan::{Kind, Trouble};
use crate::work::Machine;
use tenure_tests::whereabouts::{Bed, Control, say};

/// Does all that is planned, in its order, and puts each right after its time.
pub fn make_trouble(
    bed: &Bed,
    machines: &[Machine<'_>],
    control: Control,
    trouble: &[Trouble],
    done: &AtomicUsize,
    over: &AtomicBool,
) {
    let mut control = Some(control);
    let mut controllers = 1;
    scope(|scope| {
        for it in trouble {
            while done.load(Ordering::SeqCst) < it.after && !over.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(20));
            }
            if over.load(Ordering::SeqCst) {
                return;
            }
            if it.kind == Kind::Controller {
                if let Some(control) = control.take() {
                    control.kill(bed);
                }
                controllers += 1;
                control = Some(bed.control(&format!("controller-{controllers}")));
                continue;
            }
            let machine = &machines[it.node];
            scope.spawn(move || hurt(machine, *it));
        }
    });
    // The last one stays until the end of the bed.
    drop(control);
    say("agents and the controller are left alone now");
}

fn hurt(machine: &Machine<'_>, it: Trouble) {
    let node = &machine.node;
    match it.kind {
        Kind::Crash | Kind::Stop => {
            if !node.end(it.kind == Kind::Crash) {
                return;
            }
            sleep(it.lasts);
            node.start();
            // Whatever was held back or cut when it started is not any more.
            node.serving();
        }
        Kind::Deaf => {
            let held = node.faults.hold_watches(Calls::all());
            sleep(it.lasts * 2);
            drop(held);
        }
        Kind::Cut => node.faults.cut_watches(&Calls::all()),
        Kind::Alone => {
            let rule = node.faults.add(Rule::lose_request());
            node.faults.cut_watches(&Calls::all());
            sleep(it.lasts * 2);
            node.faults.remove(rule);
        }
        Kind::Slow => {
            let slow = Duration::from_millis(50)..=Duration::from_millis(300);
            let rule = node.faults.add(Rule::delay(slow));
            sleep(it.lasts * 2);
            node.faults.remove(rule);
        }
        Kind::Controller => {}
    }
}

/// Every call may be lost, late or refused, until this is dropped.
pub struct Doubts<'a, 'b> {
    machines: &'a [Machine<'b>],
    rules: Vec<Vec<RuleId>>,
}

impl<'a, 'b> Doubts<'a, 'b> {
    pub fn begin(machines: &'a [Machine<'b>]) -> Self {
        let rules = machines.iter().map(|machine| rules().map(|rule| machine.node.faults.add(rule)).to_vec());
        Self { machines, rules: rules.collect() }
    }
}

impl Drop for Doubts<'_, '_> {
    fn drop(&mut self) {
        let mut struck = [0; 7];
        for (machine, rules) in self.machines.iter().zip(&self.rules) {
            for (number, rule) in rules.iter().enumerate() {
                struck[number] += machine.node.faults.struck(*rule);
                machine.node.faults.remove(*rule);
            }
        }
        say(&format!("late, lost, unanswered, twice, 409, 500, 429: {struck:?} calls"));
    }
}

fn rules() -> [Rule; 7] {
    let millis = Duration::from_millis;
    let all = || Calls::writes().or(Verb::Get).or(Verb::List);
    [
        Rule::delay(millis(1)..=millis(40)).on(all()).percent(5),
        Rule::lose_request().on(all()).percent(1),
        Rule::lose_answer().on(all()).percent(2),
        Rule::duplicate(tenure_testbed::faults::Answer::Second).on(Calls::writes()).percent(2),
        Rule::fail(StatusCode::CONFLICT).on(Calls::of(Verb::Patch).or(Verb::Update)).percent(2),
        Rule::fail(StatusCode::INTERNAL_SERVER_ERROR).on(all()).percent(1),
        Rule::fail(StatusCode::TOO_MANY_REQUESTS).on(all()).percent(1),
    ]
}
