//! What a frame shows, from what is known and from what agents counted between two answers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tenure_view::{Calls, SlowAdd};

use crate::pools;
use crate::snapshot::Snapshot;
use crate::table::{self, ago};
use crate::ui::state::Shared;

/// How many of the slowest ADDs of all nodes are shown.
const SLOWEST: usize = 10;

/// Agents' counts at their last two answers.
#[derive(Debug, Default)]
pub(super) struct Samples {
    of_nodes: BTreeMap<String, Counted>,
}

/// The counts of an agent: now, and before.
#[derive(Clone, Debug)]
struct Counted {
    started: Option<Timestamp>,
    now: (Timestamp, Calls),
    before: Option<(Timestamp, Calls)>,
}

/// Calls per second, of all agents that answered twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rates {
    adds: f64,
    failed_adds: f64,
    dels: f64,
    failed_dels: f64,
    /// How many agents these are.
    agents: usize,
}

/// An ADD of those that took longest.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Slow {
    node: String,
    #[serde(flatten)]
    add: SlowAdd,
}

/// Everything that is shown.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frame {
    time: Timestamp,
    /// Whether all objects were listed.
    pub(super) complete: bool,
    /// How many agents answer.
    agents: usize,
    /// What cannot be seen, and why: agents by their nodes, and watches by their kinds.
    unseen: BTreeMap<String, String>,
    /// `null` until an agent has answered twice.
    rates: Option<Rates>,
    /// How many pods wait for an address.
    waiting: usize,
    /// How many differences `tenure check` finds; `null` before it has compared.
    findings: Option<usize>,
    pools: Vec<pools::Row>,
    /// The slowest ADDs of the last minutes.
    slowest_adds: Vec<Slow>,
}

impl Samples {
    /// Notes what agents have answered.
    pub(super) fn note(&mut self, snapshot: &Snapshot) {
        self.of_nodes.retain(|node, _| matches!(snapshot.agents.get(node), Some(Ok(_))));
        for (name, told) in &snapshot.agents {
            let Ok(node) = told else { continue };
            let now = (node.time, node.calls);
            match self.of_nodes.get_mut(name) {
                Some(known) if known.started == node.started => {
                    if known.now.0 != now.0 {
                        known.before = Some(std::mem::replace(&mut known.now, now));
                    }
                }
                // Its counts began again with the agent.
                _ => {
                    let counted = Counted { started: node.started, now, before: None };
                    self.of_nodes.insert(name.clone(), counted);
                }
            }
        }
    }

    /// Whether every agent that answers has answered twice.
    pub(super) fn all_rated(&self, snapshot: &Snapshot) -> bool {
        let answering = snapshot.agents.iter().filter(|(_, told)| told.is_ok());
        answering.clone().all(|(node, _)| self.of_nodes.get(node).is_some_and(|it| it.before.is_some()))
    }

    fn rates(&self) -> Option<Rates> {
        let mut rates = Rates::default();
        for it in self.of_nodes.values() {
            let Some((then, before)) = it.before else { continue };
            let (now, after) = it.now;
            let seconds = now.duration_since(then).as_secs_f64();
            if seconds <= 0.0 {
                continue;
            }
            let per_second = |after: u64, before: u64| float(after.saturating_sub(before)) / seconds;
            rates.adds += per_second(after.adds, before.adds);
            rates.failed_adds += per_second(after.failed_adds, before.failed_adds);
            rates.dels += per_second(after.dels, before.dels);
            rates.failed_dels += per_second(after.failed_dels, before.failed_dels);
            rates.agents += 1;
        }
        (rates.agents > 0).then_some(rates)
    }
}

fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

impl Frame {
    /// The present one.
    pub(super) fn of(shared: &Shared, samples: &Samples) -> Self {
        let (state, health) = (shared.read(), shared.health.look());
        let failing =
            health.watches.into_iter().filter_map(|(what, it)| Some((what.to_owned(), it.failing?)));
        let mut frame = Self::of_snapshot(&state.snapshot, samples);
        frame.unseen.extend(failing);
        frame.complete = health.complete;
        frame.findings = state.findings.as_ref().map(|it| it.differences.len());
        frame
    }

    fn of_snapshot(snapshot: &Snapshot, samples: &Samples) -> Self {
        let told = || snapshot.agents.iter().filter_map(|(name, told)| Some((name, told.as_ref().ok()?)));
        let silent = snapshot.agents.iter().filter_map(|(name, told)| Some((name, told.as_ref().err()?)));
        let slow = told().flat_map(|(name, node)| node.slowest_adds.iter().map(move |add| (name, add)));
        let mut slowest_adds: Vec<Slow> =
            slow.map(|(node, add)| Slow { node: node.clone(), add: add.clone() }).collect();
        slowest_adds.sort_by_key(|it| std::cmp::Reverse(it.add.microseconds));
        slowest_adds.truncate(SLOWEST);
        Self {
            time: snapshot.now,
            complete: false,
            agents: told().count(),
            unseen: silent.map(|(node, why)| (format!("node {node}"), why.clone())).collect(),
            rates: samples.rates(),
            waiting: told().map(|(_, node)| node.waiting.len()).sum(),
            findings: None,
            pools: pools::rows(snapshot),
            slowest_adds,
        }
    }

    /// The same for people, each line with its end. What is not known is a question mark.
    pub(super) fn lines(&self) -> Vec<String> {
        let rate =
            |of: fn(&Rates) -> f64| self.rates.map_or("?".to_owned(), |rates| format!("{:.1}", of(&rates)));
        let silent = self.unseen.len();
        let unseen = if silent == 0 { String::new() } else { format!(", ? {silent} not seen") };
        let partly = match self.rates {
            Some(rates) if rates.agents < self.agents => format!(" (of {} agents)", rates.agents),
            _ => String::new(),
        };
        let findings = self.findings.map_or("?".to_owned(), |count| count.to_string());
        let mut lines = vec![
            format!("tenure top  {:.0}  {} agents{unseen}\n", self.time, self.agents),
            format!(
                "ADD/s {} (failed {})   DEL/s {} (failed {}){partly}   waiting {}   findings {findings}\n",
                rate(|it| it.adds),
                rate(|it| it.failed_adds),
                rate(|it| it.dels),
                rate(|it| it.failed_dels),
                self.waiting,
            ),
        ];
        lines.extend(self.not_seen());
        lines.push("\n".to_owned());
        lines.extend(pools::text(&self.pools).lines().map(|line| line.to_owned() + "\n"));
        lines.push("\n".to_owned());
        if self.slowest_adds.is_empty() {
            lines.push("No ADDs in the last minutes.\n".to_owned());
        } else {
            let rows = self.slowest_adds.iter().map(|it| {
                let result =
                    if it.add.code == 0 { "ok".to_owned() } else { format!("error {}", it.add.code) };
                let took = Duration::from_micros(it.add.microseconds).as_secs_f64() * 1000.0;
                [
                    format!("{took:.1} ms"),
                    table::one_line(&it.add.holder.to_string()).into_owned(),
                    it.node.clone(),
                    table::one_line(&it.add.holder.network).into_owned(),
                    format!("{} ago", ago(it.add.at, self.time)),
                    result,
                ]
            });
            let header = ["SLOWEST ADD", "POD", "NODE", "NETWORK", "WHEN", "RESULT"];
            lines.extend(table::columns(header, rows).lines().map(|line| line.to_owned() + "\n"));
        }
        lines
    }

    /// The first few of what is not seen, agents before watches.
    fn not_seen(&self) -> Vec<String> {
        const SHOWN: usize = 4;
        let (agents, watches): (Vec<_>, Vec<_>) =
            self.unseen.iter().partition(|(what, _)| what.starts_with("node "));
        let said = |(what, why): (&String, &String)| format!("? {what}: {why}");
        let mut lines: Vec<String> = agents.into_iter().chain(watches).map(said).collect();
        if lines.len() > SHOWN {
            let more = lines.len() - SHOWN + 1;
            lines.truncate(SHOWN - 1);
            lines.push(format!("? and {more} more"));
        }
        lines.iter().map(|line| table::one_line(line).into_owned() + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::example::{holder, moment, system, told};

    #[test]
    fn rates_are_what_was_counted_between_two_answers_of_the_same_agent() {
        let (mut samples, mut snapshot) = (Samples::default(), system());
        let answer = |snapshot: &mut Snapshot, node: &str, time: &str, adds: u64, failed: u64| {
            let node = told(snapshot, node);
            node.time = moment(time);
            node.calls = Calls { adds, failed_adds: failed, dels: 5, failed_dels: 0 };
        };
        answer(&mut snapshot, "node1", "2026-11-15T12:00:00Z", 10, 0);
        answer(&mut snapshot, "node2", "2026-11-15T12:00:00Z", 100, 0);
        samples.note(&snapshot);
        samples.note(&snapshot);
        assert_eq!((samples.rates(), samples.all_rated(&snapshot)), (None, false), "one answer is no rate");
        answer(&mut snapshot, "node1", "2026-11-15T12:00:02Z", 30, 4);
        answer(&mut snapshot, "node2", "2026-11-15T12:00:04Z", 120, 0);
        samples.note(&snapshot);
        let rates = samples.rates().unwrap();
        assert_eq!((rates.adds, rates.failed_adds, rates.dels, rates.agents), (15.0, 2.0, 0.0, 2));
        assert!(samples.all_rated(&snapshot));
        told(&mut snapshot, "node1").started = Some(moment("2026-11-15T12:00:03Z"));
        snapshot.agents.insert("node2".into(), Err("it is down".into()));
        samples.note(&snapshot);
        assert_eq!(samples.rates(), None, "one began again, and the other does not answer");
    }

    #[test]
    fn what_is_not_seen_is_a_question_mark_and_names_stay_text() {
        let mut snapshot = system();
        snapshot.agents.insert("node2".into(), Err("no\nanswer \u{1b}[31m".into()));
        let mut whose = holder("web-0");
        whose.pod.as_mut().unwrap().name = "evil\u{1b}[2J\nroot".into();
        let slow =
            SlowAdd { holder: whose, microseconds: 12_345, at: moment("2026-11-15T11:59:00Z"), code: 11 };
        told(&mut snapshot, "node1").slowest_adds = vec![slow];
        let text = Frame::of_snapshot(&snapshot, &Samples::default()).lines().concat();
        assert!(text.contains("1 agents, ? 1 not seen") && text.contains("ADD/s ? (failed ?)"), "{text}");
        assert!(text.contains(r"? node node2: no\nanswer \u001b[31m"), "{text}");
        let row = text.lines().find(|line| line.starts_with("12.3 ms")).unwrap();
        for cell in [r"ns/evil\u001b[2J\nroot   ", "node1   ", "60s ago   ", "error 11"] {
            assert!(row.contains(cell), "{cell} in {row}");
        }
    }
}
