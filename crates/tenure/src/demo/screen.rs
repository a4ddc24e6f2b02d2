//! The demo's output: numbered steps of one line each, and small tables.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;

/// The terminal, or another writer.
pub(crate) struct Screen<'a, W> {
    out: &'a mut W,
    step: usize,
}

impl<'a, W: Write> Screen<'a, W> {
    pub(crate) fn new(out: &'a mut W) -> Self {
        Self { out, step: 0 }
    }

    /// Starts the next step.
    pub(crate) fn step(&mut self, line: &str) -> Result<()> {
        self.step += 1;
        Ok(writeln!(self.out, "\n{}. {line}", self.step)?)
    }

    /// Prints one or more lines about the current step.
    pub(crate) fn say(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            writeln!(self.out, "{}", format!("   {line}").trim_end())?;
        }
        Ok(self.out.flush()?)
    }

    /// Shows rows under a header.
    pub(crate) fn table<const N: usize>(
        &mut self,
        header: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Result<()> {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_header(header).add_rows(rows);
        self.say(&table.to_string())
    }
}

/// A duration with a useful precision.
pub(crate) fn took(duration: Duration) -> String {
    match duration.as_secs_f64() * 1000.0 {
        millis if millis < 10.0 => format!("{millis:.2} ms"),
        millis if millis < 100.0 => format!("{millis:.1} ms"),
        millis => format!("{millis:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_and_what_belongs_to_them_is_indented() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out);
        screen.step("One.").unwrap();
        screen.say("a\n\nb").unwrap();
        screen.step("Two.").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\n1. One.\n   a\n\n   b\n\n2. Two.\n");
    }

    #[test]
    fn times_are_short() {
        let shown = [450, 12_340, 456_700].map(|micros| took(Duration::from_micros(micros)));
        assert_eq!(shown, ["0.45 ms", "12.3 ms", "457 ms"]);
    }
}
