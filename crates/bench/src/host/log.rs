//! What an agent's log says about how long calls took.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// How long each call of a verb took, by the lines after the first `from` bytes.
pub(crate) fn taken(path: &Path, verb: &str, from: u64) -> Result<Vec<Duration>> {
    let mut file = std::fs::File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let verb = format!("verb=\"{verb}\"");
    let lines = text.lines().filter(|line| line.contains(&verb) && line.contains(" done "));
    lines.map(|line| took(line).with_context(|| format!("no time in {line:?}"))).collect()
}

/// Reads `took=612.3µs`.
fn took(line: &str) -> Option<Duration> {
    let text = line.split(" took=").nth(1)?.split_whitespace().next()?;
    let digits = text.find(|c: char| c.is_alphabetic())?;
    let (number, unit) = text.split_at_checked(digits)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Some(Duration::from_secs_f64(number.parse::<f64>().ok()? * seconds))
}

/// The last lines.
pub(crate) fn tail(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_call_took_is_read_in_every_unit() {
        let line = |took: &str| format!("INFO cni{{verb=\"ADD\"}}: tenure: done took={took}");
        assert_eq!(took(&line("612.5µs")), Some(Duration::from_nanos(612_500)));
        assert_eq!(took(&line("1.25ms")), Some(Duration::from_micros(1_250)));
        assert_eq!(took(&line("2s")), Some(Duration::from_secs(2)));
        assert_eq!(took(&line("soon")), None);
        assert_eq!(took("INFO done"), None);
    }
}
