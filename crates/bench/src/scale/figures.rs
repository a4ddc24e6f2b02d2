//! What came of a scenario, and the tables of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::order::Called;
use crate::host::sampled::{count, percentile};
use crate::plan::exponent;
use crate::report::{Report, Unit};

/// A figure: its name in files, what it says, and its unit.
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    unit: Unit,
}

impl Measure {
    /// A value of it, for people.
    pub(super) fn show(&self, value: f64) -> String {
        self.unit.show(value)
    }
}

const fn measure(name: &'static str, text: &'static str, unit: Unit) -> Measure {
    Measure { name, text, unit }
}

/// All of them, in the order of the table.
pub(super) const MEASURES: [Measure; 37] = [
    measure("answering", "until every agent answers", Unit::Nanoseconds),
    measure("served", "until every node has served its pods", Unit::Nanoseconds),
    measure("adds", "ADDs", Unit::Count),
    measure("failed", "calls that failed", Unit::Count),
    measure("rate", "addresses a second", Unit::PerSecond),
    measure("add_p50", "ADD, p50", Unit::Nanoseconds),
    measure("add_p99", "ADD, p99", Unit::Nanoseconds),
    measure("add_max", "ADD, longest", Unit::Nanoseconds),
    measure("stall", "longest time without an ADD", Unit::Nanoseconds),
    measure("away_p50", "an agent was away, p50", Unit::Nanoseconds),
    measure("away_max", "an agent was away, longest", Unit::Nanoseconds),
    measure("requests", "API requests", Unit::Count),
    measure("writes", "API writes of agents and controller", Unit::Count),
    measure("writes_add", "API writes an ADD", Unit::Ratio),
    measure("agent_requests", "requests an agent, mean", Unit::Tenths),
    measure("agent_requests_max", "requests an agent, most", Unit::Count),
    measure("agent_events", "events an agent, mean", Unit::Tenths),
    measure("agent_events_max", "events an agent, most", Unit::Count),
    measure("agent_received", "received by an agent, mean", Unit::Kilobytes),
    measure("agent_received_max", "received by an agent, most", Unit::Kilobytes),
    measure("agent_sent", "sent by an agent, mean", Unit::Kilobytes),
    measure("controller_requests", "requests of the controller", Unit::Count),
    measure("controller_events", "events of the controller", Unit::Count),
    measure("controller_received", "received by the controller", Unit::Megabytes),
    measure("controller_sent", "sent by the controller", Unit::Megabytes),
    measure("controller_processor", "processor time of the controller", Unit::Nanoseconds),
    measure("controller_memory", "memory of the controller", Unit::Megabytes),
    measure("agent_processor", "processor time an agent", Unit::Nanoseconds),
    measure("agent_memory", "memory an agent, in a shared process", Unit::Megabytes),
    measure("server_processor", "processor time of kube-apiserver", Unit::Nanoseconds),
    measure("server_memory", "memory of kube-apiserver", Unit::Megabytes),
    measure("etcd_processor", "processor time of etcd", Unit::Nanoseconds),
    measure("etcd_memory", "memory of etcd", Unit::Megabytes),
    measure("database", "etcd's file", Unit::Megabytes),
    measure("connections", "connections to kube-apiserver", Unit::Count),
    measure("reconnects", "lists and watches begun", Unit::Count),
    measure("reconnects_peak", "lists and watches begun, most in a second", Unit::Count),
];

/// What came of a scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Its name.
    pub scenario: String,
    /// Where addresses came from.
    pub kind: Kind,
    /// Nodes.
    pub nodes: usize,
    /// Networks.
    pub networks: usize,
    /// Pods of each node.
    pub pods: usize,
    /// Figures by name: times in nanoseconds, sizes in bytes.
    pub values: BTreeMap<String, f64>,
    /// What the API server answered, by verb and resource.
    pub requests: BTreeMap<String, u64>,
    /// Lists and watches that were asked for in each tenth of a second.
    pub curve: Vec<u64>,
}

impl Figures {
    /// A figure that was measured.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    pub(super) fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    /// Figures of calls that began at `began`, in milliseconds.
    pub(super) fn calls(&mut self, began: u64, calls: &[Called]) {
        let took: Vec<f64> = calls.iter().map(|call| millionths(call.took)).collect();
        let mut at: Vec<u64> = calls.iter().map(|call| call.at).collect();
        at.sort_unstable();
        self.set("adds", count(calls.len()));
        let Some(last) = at.last() else { return };
        let stall = at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        self.set("stall", thousandths(stall));
        self.set("rate", count(calls.len()) * 1e9 / thousandths(last.saturating_sub(began)).max(1e6));
        self.set("add_p50", percentile(&took, 50));
        self.set("add_p99", percentile(&took, 99));
        self.set("add_max", percentile(&took, 100));
    }
}

/// Milliseconds as nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(super) fn thousandths(milliseconds: u64) -> f64 {
    milliseconds as f64 * 1e6
}

/// Microseconds as nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn millionths(microseconds: u64) -> f64 {
    microseconds as f64 * 1e3
}

/// A table of all figures; a column for each scenario or size, and how the figures grow with the nodes if there are several sizes.
pub(super) fn table(title: &str, all: &[&Figures]) -> Report {
    let sizes: Vec<usize> = all.iter().map(|figures| figures.nodes).collect();
    let grows = sizes.windows(2).all(|pair| pair[0] < pair[1]) && sizes.len() > 1;
    let name = |figures: &&Figures| {
        if grows { format!("{} nodes", figures.nodes) } else { figures.scenario.clone() }
    };
    let mut columns = vec!["what".to_owned()];
    columns.extend(all.iter().map(name));
    columns.extend(grows.then(|| "exponent".to_owned()));
    let mut report = Report::of_columns(title, &columns);
    for Measure { name, text, unit } in &MEASURES {
        let values: Vec<f64> = all.iter().map(|figures| figures.value(name).unwrap_or(f64::NAN)).collect();
        if values.iter().all(|value| value.is_nan()) {
            continue;
        }
        let mut cells = vec![(*text).to_owned()];
        cells.extend(values.iter().map(|value| unit.show(*value)));
        if grows {
            let known = values.iter().all(|value| *value > 0.0);
            cells.push(if known { format!("{:.2}", exponent(&sizes, &values)) } else { String::new() });
        }
        report.cells(&cells);
    }
    report
}

/// A table of what the API server answered, most often first.
pub(super) fn requests(title: &str, all: &[&Figures]) -> Report {
    let mut columns = vec!["requests".to_owned()];
    columns.extend(all.iter().map(|figures| format!("{}, {} nodes", figures.scenario, figures.nodes)));
    let mut report = Report::of_columns(title, &columns);
    let mut kinds: BTreeMap<&String, u64> = BTreeMap::new();
    for (kind, number) in all.iter().flat_map(|figures| &figures.requests) {
        *kinds.entry(kind).or_default() += number;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    for (kind, _) in kinds {
        let mut cells = vec![kind.clone()];
        let each = all.iter().map(|figures| figures.requests.get(kind).copied().unwrap_or_default());
        cells.extend(each.map(|number| number.to_string()));
        report.cells(&cells);
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(nodes: usize, served: f64) -> Figures {
        let mut figures = Figures {
            scenario: "cold start".to_owned(),
            kind: Kind::Blocks,
            nodes,
            networks: 1,
            pods: 1,
            values: BTreeMap::new(),
            requests: BTreeMap::from([("POST pods".to_owned(), 7)]),
            curve: Vec::new(),
        };
        figures.set("served", served);
        figures
    }

    #[test]
    fn a_table_of_sizes_says_how_figures_grow() {
        let (small, large) = (figures(50, 1e9), figures(500, 1e10));
        let text = table("sizes", &[&small, &large]).to_string();
        assert!(text.contains("exponent") && text.contains("1.00") && text.contains("10.00 s"), "{text}");
        let text = table("one size", &[&small, &small]).to_string();
        assert!(!text.contains("exponent") && text.contains("cold start"), "{text}");
        assert!(requests("requests", &[&small]).to_string().contains("| POST pods"));
    }

    #[test]
    fn the_longest_time_without_a_call_counts_as_a_stall() {
        let mut figures = figures(1, 0.0);
        let call = |at| Called { at, took: at };
        figures.calls(1_000, &[call(5_000), call(1_500), call(2_000)]);
        assert_eq!(figures.value("stall"), Some(3e9));
        assert_eq!(figures.value("add_p50"), Some(2e6));
        assert_eq!(figures.value("add_max"), Some(5e6));
        assert_eq!(figures.value("rate"), Some(0.75));
    }
}
