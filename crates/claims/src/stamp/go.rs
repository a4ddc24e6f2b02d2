//! Times in the format of Go's `Time.String()`: `2006-01-02 15:04:05.999999999 -0700 MST`, followed by `
//! m=±1.234` if the time has a monotonic reading.
//!
//! The offset counts. The abbreviation of the zone is ignored: it is ambiguous, and some zones have a number
//! in its place. The monotonic reading means nothing to another process.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::civil::{Date, DateTime, Time};
use k8s_openapi::jiff::tz::Offset;

/// The time, if the text is one.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let mut words = text.split(' ');
    let (date, clock, offset, zone) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let monotonic = words.next();
    let is_zone = |zone: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '-';
        !zone.is_empty() && zone.chars().all(known)
    };
    let is_monotonic = |text: &str| text.strip_prefix("m=").is_some_and(is_reading);
    if words.next().is_some() || !is_zone(zone) || !monotonic.is_none_or(is_monotonic) {
        return None;
    }
    let local = DateTime::from_parts(of_date(date)?, of_clock(clock)?);
    of_offset(offset)?.to_timestamp(local).ok()
}

/// `2006-01-02`
fn of_date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() {
        return None;
    }
    Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()
}

/// `15:04:05`, with up to nine digits of a second behind a point.
fn of_clock(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut parts = whole.split(':');
    let (hour, minute, second) =
        (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let nanosecond = digits(&format!("{fraction:0<9}"), 9)?;
    let small = |number: i32| i8::try_from(number).ok();
    Time::new(small(hour)?, small(minute)?, small(second)?, nanosecond).ok()
}

/// `-0700`
fn of_offset(text: &str) -> Option<Offset> {
    let (sign, number) = match text.split_at_checked(1)? {
        ("+", number) => (1, number),
        ("-", number) => (-1, number),
        _ => return None,
    };
    let number = digits(number, 4)?;
    let (hours, minutes) = (number / 100, number % 100);
    if minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 60 + minutes) * 60).ok()
}

/// `+0.000123456`
fn is_reading(text: &str) -> bool {
    let number = text.strip_prefix(['+', '-']).unwrap_or_default();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(whole) && all_digits(fraction)
}

/// A number of exactly this many digits, and nothing else.
fn digits(text: &str, count: usize) -> Option<i32> {
    let only = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    only.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, expected) in [
            ("2026-11-16 14:04:44 +0000 UTC", "2026-11-16T14:04:44Z"),
            ("2026-11-16 14:04:44.5 +0000 UTC", "2026-11-16T14:04:44.5Z"),
            ("2026-11-16 14:04:44.123456789 +0000 UTC m=+0.000012345", "2026-11-16T14:04:44.123456789Z"),
            ("2026-11-16 14:04:44 +0000 UTC m=-17.5", "2026-11-16T14:04:44Z"),
            ("2026-11-16 15:04:44 +0100 CET", "2026-11-16T14:04:44Z"),
            ("2026-11-16 09:04:44 -0500 EST", "2026-11-16T14:04:44Z"),
            ("2026-11-16 19:49:44 +0545 +0545", "2026-11-16T14:04:44Z"),
            ("2026-11-16 11:04:44 -0300 -03", "2026-11-16T14:04:44Z"),
        ] {
            assert_eq!(time(text), Some(at(expected)), "{text}");
        }
    }

    #[test]
    fn what_go_would_not_write_is_not_read() {
        for text in [
            "",
            "2026-11-16",
            "2026-11-16 14:04:44",
            "2026-11-16 14:04:44 +0000",
            "2026-11-16 14:04:44 0000 UTC",
            "2026-11-16 14:04:44 +00:00 UTC",
            "2026-11-16 14:04:44 +0060 UTC",
            "2026-11-16 14:04:44 +9900 UTC",
            "2026-13-16 14:04:44 +0000 UTC",
            "2026-02-30 14:04:44 +0000 UTC",
            "2026-11-16 24:04:44 +0000 UTC",
            "2026-11-16 14:04:44. +0000 UTC",
            "2026-11-16 14:04:44.1234567890 +0000 UTC",
            "2026-11-16 14:04:44 +0000 UTC later",
            "2026-11-16 14:04:44 +0000 UTC m=1",
            "2026-11-16 14:04:44 +0000 UTC m=+0.1 m=+0.1",
            "2026-11-16  14:04:44 +0000 UTC",
            "+026-11-16 14:04:44 +0000 UTC",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_is_read_back_in_every_zone(
            seconds in 0_i64..4_102_444_800, nanosecond in 0_i32..1_000_000_000, minutes in -14 * 60_i32..=14 * 60, zone in "[A-Z]{1,5}",
            monotonic in proptest::option::of(any::<u64>()),
        ) {
            let moment = Timestamp::new(seconds, nanosecond).unwrap();
            let local = Offset::from_seconds(minutes * 60).unwrap().to_datetime(moment);
            let fraction = format!("{nanosecond:09}");
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            let (sign, offset) = (if minutes < 0 { '-' } else { '+' }, minutes.abs());
            let reading = monotonic.map(|it| format!(" m=+{}.{:09}", it / 1_000_000_000, it % 1_000_000_000)).unwrap_or_default();
            let text = format!(
                "{} {}{point}{fraction} {sign}{:02}{:02} {zone}{reading}",
                local.date(), local.strftime("%H:%M:%S"), offset / 60, offset % 60,
            );
            prop_assert_eq!(time(&text), Some(moment), "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}|[0-9:. +m=-]{0,50}|20[0-9-]{8} [0-9:.]{8,20} [+-][0-9]{0,5} [A-Z0-9+-]{0,5}( m=[+.0-9-]{0,9})?") {
            let _ = time(&text);
        }
    }
}
