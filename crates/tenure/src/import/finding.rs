//! Findings about what was read: errors keep everything from being imported, notes are for whoever imports.
//!
//! The values come from others: they are shortened and quoted, so that none of them can forge a line or fill the screen.

use std::fmt;

use serde::Serialize;

/// The most characters of a value that are shown.
const SHOWN: usize = 160;

/// Whether a finding keeps the records from being imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// It does.
    Error,
    /// It does not: the manifests are right, but somebody should know.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The key, file or object that it is about.
    pub(super) at: String,
    /// What is the matter, with the value.
    pub(super) problem: String,
    /// What would be accepted, or what to do.
    pub(super) accepted: String,
}

impl Finding {
    pub(super) fn error(
        at: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Error, at: at.into(), problem: problem.into(), accepted: accepted.into() }
    }

    pub(super) fn note(
        at: impl Into<String>,
        problem: impl Into<String>,
        accepted: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Note, ..Self::error(at, problem, accepted) }
    }

    pub(super) fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = if self.is_error() { "error" } else { "note" };
        write!(formatter, "{severity}: {}: {}", self.at, self.problem)?;
        if self.accepted.is_empty() { Ok(()) } else { write!(formatter, "; {}", self.accepted) }
    }
}

/// A value of others, quoted and shortened.
pub(super) fn quoted(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        None => format!("{value:?}"),
        Some((end, _)) => format!("{:?}… ({} bytes)", &value[..end], value.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_others_forges_no_line_and_fills_no_screen() {
        assert_eq!(quoted("a\nerror: \u{1b}[2J"), r#""a\nerror: \u{1b}[2J""#);
        let long = "ä".repeat(1000);
        assert_eq!(quoted(&long), format!("\"{}\"… (2000 bytes)", "ä".repeat(SHOWN)));
        let finding = Finding::error("pool/x", "is no JSON", "accepted is JSON");
        assert_eq!(finding.to_string(), "error: pool/x: is no JSON; accepted is JSON");
        assert_eq!(Finding::note("a", "b", "").to_string(), "note: a: b");
    }
}
