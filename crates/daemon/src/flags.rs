//! Values of flags.

use std::time::Duration;

/// Parses a positive duration such as `500ms`, `10s` or `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok();
    let positive =
        parsed.and_then(|duration| Duration::try_from(duration).ok()).filter(|duration| !duration.is_zero());
    positive.ok_or_else(|| format!("\"{text}\" is no duration; accepted are such as 500ms, 10s and 1m30s"))
}

/// Parses a number of bytes such as `0`, `500KiB` or `64MiB`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let shift = match &text[digits.len()..] {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let bytes =
        shift.zip(digits.parse::<u64>().ok()).and_then(|(shift, number)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("\"{text}\" is no size; accepted are such as 0, 500KiB, 64MiB and 1GiB"))
}

/// Parses an age: a duration, or a number of days such as `30d`.
pub fn age(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()).filter(|days| *days > 0);
    match days {
        Some(days) => Ok(Duration::from_hours(24) * days),
        None => {
            duration(text).map_err(|_| format!("\"{text}\" is no age; accepted are such as 12h, 90m and 30d"))
        }
    }
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

    #[test]
    fn sizes_and_ages_have_units() {
        assert_eq!(
            ["0", "500KiB", "64MiB", "2GiB"].map(size),
            [Ok(0), Ok(512_000), Ok(67_108_864), Ok(2 << 30)]
        );
        for bad in ["", "MiB", "-1", "5 MiB", "64MB", "99999999999GiB"] {
            assert!(size(bad).is_err_and(|error| error.contains(bad)), "{bad:?}");
        }
        assert_eq!(age("30d"), Ok(Duration::from_hours(720)));
        assert_eq!(age("90m"), Ok(Duration::from_mins(90)));
        for bad in ["", "0d", "d", "-1d", "5"] {
            assert!(age(bad).is_err_and(|error| error.contains(bad)), "{bad:?}");
        }
    }
}
