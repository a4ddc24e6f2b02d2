//! The table that a measurement ends in.

use std::fmt;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

/// Rows of figures, each with its peer's and the ratio; shown as a Markdown table.
pub(crate) struct Report {
    title: String,
    table: Table,
}

impl Report {
    /// A report of figures beside those of `peer`.
    pub(crate) fn new(title: &str, peer: &str) -> Self {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(["what", "Tenure", peer, "ratio", "target"]);
        Self { title: title.to_owned(), table }
    }

    /// A row where less is better.
    pub(crate) fn less_is_better(&mut self, what: &str, ours: f64, peer: f64, unit: Unit, target: &str) {
        self.row(what, ours, peer, peer / ours, unit, target);
    }

    /// A row where more is better.
    pub(crate) fn more_is_better(&mut self, what: &str, ours: f64, peer: f64, unit: Unit, target: &str) {
        self.row(what, ours, peer, ours / peer, unit, target);
    }

    fn row(&mut self, what: &str, ours: f64, peer: f64, ratio: f64, unit: Unit, target: &str) {
        let ratio = format!("{ratio:.1}×");
        self.table.add_row([what, &unit.show(ours), &unit.show(peer), &ratio, target]);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "### {}\n\n{}", self.title, self.table)
    }
}

/// What a figure counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Nanoseconds an operation.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Operations a second.
    PerSecond,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds if value >= 1e9 => format!("{:.2} s", value / 1e9),
            Self::Nanoseconds if value >= 1e6 => format!("{:.2} ms", value / 1e6),
            Self::Nanoseconds if value >= 1e4 => format!("{:.1} µs", value / 1e3),
            Self::Nanoseconds => format!("{value:.0} ns"),
            Self::Bytes => format!("{value:.1} B"),
            Self::PerSecond => format!("{value:.0}/s"),
        }
    }
}
