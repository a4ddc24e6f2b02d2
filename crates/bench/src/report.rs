//! The table that a measurement ends in.

use std::fmt;

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

/// What was measured, and why no more.
pub(crate) struct Measured {
    pub(crate) reports: Vec<Report>,
    pub(crate) failure: Option<anyhow::Error>,
}

impl Measured {
    /// Nothing, because of this.
    pub(crate) fn failed(error: anyhow::Error) -> Self {
        Self { reports: Vec::new(), failure: Some(error) }
    }
}

impl From<Vec<Report>> for Measured {
    fn from(reports: Vec<Report>) -> Self {
        Self { reports, failure: None }
    }
}

impl From<Report> for Measured {
    fn from(report: Report) -> Self {
        vec![report].into()
    }
}

/// Rows of figures, each with its peer's and the ratio; shown as a Markdown table.
pub(crate) struct Report {
    title: String,
    table: Table,
    notes: Vec<String>,
}

impl Report {
    /// A report of figures beside those of `peer`.
    pub(crate) fn new(title: &str, peer: &str) -> Self {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(["what", "Tenure", peer, "ratio", "target"]);
        Self { title: title.to_owned(), table, notes: Vec::new() }
    }

    /// A report of figures in columns of its own.
    pub(crate) fn of_columns(title: &str, columns: &[String]) -> Self {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN).set_header(columns);
        Self { title: title.to_owned(), table, notes: Vec::new() }
    }

    /// A row of a report with columns of its own.
    pub(crate) fn cells(&mut self, cells: &[String]) {
        self.table.add_row(cells);
    }

    /// A row where less is better.
    pub(crate) fn less_is_better(&mut self, what: &str, ours: f64, peer: f64, unit: Unit, target: &str) {
        self.row(what, ours, peer, peer / ours, unit, target);
    }

    /// A row where more is better.
    pub(crate) fn more_is_better(&mut self, what: &str, ours: f64, peer: f64, unit: Unit, target: &str) {
        self.row(what, ours, peer, ours / peer, unit, target);
    }

    /// A row of which only one of both may have a figure; less is better.
    pub(crate) fn either(
        &mut self,
        what: &str,
        ours: Option<f64>,
        peer: Option<f64>,
        unit: Unit,
        target: &str,
    ) {
        match (ours, peer) {
            (Some(ours), Some(peer)) => self.less_is_better(what, ours, peer, unit, target),
            (ours, peer) => {
                let show = |value: Option<f64>| value.map_or(String::new(), |value| unit.show(value));
                self.fact(what, &show(ours), &show(peer), target);
            }
        }
    }

    /// A row without a ratio; none if neither was measured, because something failed before.
    pub(crate) fn fact(&mut self, what: &str, ours: &str, peer: &str, target: &str) {
        if ours.is_empty() && peer.is_empty() {
            return;
        }
        self.table.add_row([what, ours, peer, "", target]);
    }

    /// A line below the table.
    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    fn row(&mut self, what: &str, ours: f64, peer: f64, ratio: f64, unit: Unit, target: &str) {
        // What was not measured, because something failed before, is no row.
        if ours.is_nan() && peer.is_nan() {
            return;
        }
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.1}×") };
        self.table.add_row([what, &unit.show(ours), &unit.show(peer), &ratio, target]);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "### {}\n\n{}", self.title, self.table)?;
        self.notes.iter().try_for_each(|note| writeln!(out, "\n{note}"))
    }
}

/// What a figure counts.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    /// Nanoseconds an operation.
    Nanoseconds,
    /// Things.
    Count,
    /// Things, of which there may be less than one.
    Average,
    /// Things, in the mean.
    Tenths,
    /// Parts of one.
    Ratio,
    /// Bytes.
    Bytes,
    /// Thousands of bytes.
    Kilobytes,
    /// Millions of bytes.
    Megabytes,
    /// Operations a second.
    PerSecond,
    /// Bytes a second.
    BytesPerSecond,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => String::new(),
            Self::Nanoseconds if value >= 1e9 => format!("{:.2} s", value / 1e9),
            Self::Nanoseconds if value >= 1e6 => format!("{:.2} ms", value / 1e6),
            Self::Nanoseconds if value >= 1e4 => format!("{:.1} µs", value / 1e3),
            Self::Nanoseconds => format!("{value:.0} ns"),
            Self::Count => format!("{value:.0}"),
            Self::Average => format!("{value:.2}"),
            Self::Tenths => format!("{value:.1}"),
            Self::Ratio => format!("{value:.3}"),
            Self::Kilobytes => format!("{:.1} kB", value / 1e3),
            Self::Megabytes => format!("{:.1} MB", value / 1e6),
            Self::Bytes => format!("{value:.1} B"),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::BytesPerSecond => format!("{:.0} MB/s", value / 1e6),
        }
    }
}
