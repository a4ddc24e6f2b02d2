//! Values of flags.

use std::time::Duration;

/// Parses a positive duration such as `500ms`, `10s` or `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let positive =
        parsed.and_then(|duration| Duration::try_from(duration).ok()).filter(|duration| !duration.is_zero());
    positive.ok_or_else(|| format!("\"{text}\" is no duration; accepted are such as 500ms, 10s and 1m30s"))
}

/// The name of this host, if the kernel knows it.
pub fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_positive_and_have_units() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["", "5", "0s", "-1s", "soon", "1 fortnight"] {
            assert!(duration(bad).is_err_and(|error| error.contains(bad)), "{bad:?}");
        }
    }
}
