//! Durations: Go's notation, and numbers with words.

use super::DURATION_PART;

const UNITS: [(&[&str], i64); 8] = [
    (&["ns", "nano"], 1),
    (&["us", "µs", "micro"], 1_000),
    (&["ms", "milli"], 1_000_000),
    (&["s", "sec"], 1_000_000_000),
    (&["m", "min"], 60_000_000_000),
    (&["h", "hr", "hour"], 3_600_000_000_000),
    (&["d", "day"], 86_400_000_000_000),
    (&["w", "wk", "week"], 604_800_000_000_000),
];

/// A duration in nanoseconds: Go's notation (`1h30m`), or numbers with words (`2 weeks`).
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_go_duration(text) {
        return Some(nanos);
    }
    let mut total: Option<i64> = None;
    for part in DURATION_PART.as_ref()?.captures_iter(text) {
        let factor: i64 = part[1].parse().ok()?;
        let unit = part[2].to_lowercase();
        for (names, nanos) in UNITS {
            let last = names.len() - 1;
            for (index, name) in names.iter().enumerate() {
                if (index == last && unit.starts_with(name)) || unit == *name {
                    total = Some(total.unwrap_or(0).wrapping_add(factor.wrapping_mul(nanos)));
                }
            }
        }
    }
    total
}

/// Go's own duration notation: a sign, then numbers with a unit, or a bare `0`.
pub(crate) fn parse_go_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let unit_end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let nanos: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(nanos)?)?;
        let digits: String = fraction.chars().take(18).collect();
        if !digits.is_empty() {
            let scale = 10_i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
            total = total.checked_add(digits.parse::<i128>().ok()?.checked_mul(nanos)? / scale)?;
        }
        rest = next;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}
