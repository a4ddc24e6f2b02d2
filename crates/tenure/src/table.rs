//! The output formats: plain columns that `awk` can read, or JSON.

use std::borrow::Cow;
use std::fmt::Write as _;

use clap::ValueEnum;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use jiff::Timestamp;
use serde::Serialize;

/// The exit code of a verb that could not read everything.
pub(crate) const COULD_NOT_LOOK: u8 = 2;

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs; the formats are documented and stable.
    Json,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Output {
    /// For standard output.
    pub(crate) text: String,
    /// For standard error.
    pub(crate) notes: String,
    /// The exit code.
    pub(crate) code: u8,
}

impl Output {
    pub(crate) fn nothing() -> Self {
        Self { text: String::new(), notes: String::new(), code: 0 }
    }

    pub(crate) fn text(text: String) -> Self {
        Self { text, ..Self::nothing() }
    }

    /// As JSON, or as text that is made only if needed.
    pub(crate) fn either(
        format: Format,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<Self> {
        Ok(match format {
            Format::Table => Self::text(text()),
            Format::Json => Self::text(serde_json::to_string_pretty(value)? + "\n"),
        })
    }

    /// Adds a line for each note, in the format for people.
    #[must_use]
    pub(crate) fn noting(mut self, format: Format, notes: &[String]) -> Self {
        if format == Format::Table {
            self.notes.extend(notes.iter().map(|note| format!("{note}\n")));
        }
        self
    }
}

/// Text in which every character that a terminal would act on is written out, all but line breaks and tabs: names and messages that others chose
/// change nothing on the screen. JSON stays JSON.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        !matches!(c, '\n' | '\t')
            && (c.is_control()
                || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if acts(c) {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    match visible(text) {
        Cow::Borrowed(text) if !text.contains('\n') => Cow::Borrowed(text),
        text => Cow::Owned(text.replace('\n', "\\n")),
    }
}

/// Columns under a header, without any lines.
pub(crate) fn columns<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Names and values, one per line.
pub(crate) fn fields(rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    rows.fold(String::new(), |text, (name, value)| text + &format!("{:<14}{value}\n", format!("{name}:")))
}

/// The age of something, for people.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - then.as_second();
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A number of bytes, for people.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut whole = number;
    while whole >= 10_240 && unit + 1 < UNITS.len() {
        whole /= 1024;
        unit += 1;
    }
    format!("{whole} {}", UNITS[unit])
}

/// A list in one cell; a dash for none.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    if items.is_empty() { "-".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_end_where_they_end() {
        let rows = [["default".into(), "12".into()], ["b".into(), String::new()]];
        assert_eq!(columns(["NAME", "USED"], rows), "NAME      USED\ndefault   12\nb\n");
    }

    #[test]
    fn what_a_terminal_would_act_on_is_written_out() {
        assert_eq!(visible("web-0\n日本 ä"), "web-0\n日本 ä");
        assert_eq!(visible("a\u{1b}[2Jb\r\u{9b}1m\u{7f}\u{202e}"), r"a\u001b[2Jb\u000d\u009b1m\u007f\u202e");
        let json = serde_json::json!({"name": "\u{9b}31m\u{7f}"});
        let shown: serde_json::Value = serde_json::from_str(&visible(&json.to_string())).unwrap();
        assert_eq!(shown, json, "JSON says the same");
        assert_eq!(one_line("one\ntwo"), r"one\ntwo");
    }

    #[test]
    fn ages_and_sizes_are_short() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ages: Vec<String> = [0, 119, 120, 7_199, 7_200, 172_800]
            .iter()
            .map(|age| ago(at(1_000_000 - age), at(1_000_000)))
            .collect();
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
        assert_eq!(ago(at(5), at(3)), "0s", "clocks of two hosts may differ");
        assert_eq!(
            [bytes(0), bytes(10_239), bytes(10_240), bytes(u64::MAX)],
            ["0 B", "10239 B", "10 KiB", "16383 PiB"]
        );
    }
}
