//! Parts of timestamps and durations.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};

use super::super::EvalError;
use super::super::value::Val;

type Result<'a> = std::result::Result<Val<'a>, EvalError>;

/// The timestamp in the zone that the second argument names, by default UTC.
fn zoned(args: &[Val<'_>]) -> std::result::Result<Zoned, EvalError> {
    let Val::Timestamp(time) = &args[0] else { return Err(EvalError::no_such_overload()) };
    let zone = match args.get(1) {
        None => TimeZone::UTC,
        Some(Val::Text(name)) => zone(name)?,
        Some(_) => return Err(EvalError::no_such_overload()),
    };
    Ok(time.to_zoned(zone))
}

fn zone(name: &str) -> std::result::Result<TimeZone, EvalError> {
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let offset = || {
        let (sign, rest) = match name.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, name.strip_prefix('+').unwrap_or(name)),
        };
        let (hours, minutes) = rest.split_once(':')?;
        let seconds =
            hours.parse::<i32>().ok()?.checked_mul(3600)? + minutes.parse::<i32>().ok()?.checked_mul(60)?;
        jiff::tz::Offset::from_seconds(sign * seconds).ok().map(jiff::tz::Offset::to_time_zone)
    };
    offset()
        .or_else(|| TimeZone::get(name).ok())
        .ok_or_else(|| EvalError::new(format!("unknown time zone {name}")))
}

fn int<'a>(value: impl Into<i64>) -> Val<'a> {
    Val::Int(value.into())
}

fn span(args: &[Val<'_>]) -> Option<SignedDuration> {
    match (args.len(), &args[0]) {
        (1, Val::Duration(duration)) => Some(*duration),
        _ => None,
    }
}

pub(super) fn full_year<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.year()))
}

pub(super) fn month<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.month() - 1))
}

pub(super) fn day_of_year<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.day_of_year() - 1))
}

pub(super) fn day_of_month<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.day() - 1))
}

pub(super) fn date<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.day()))
}

pub(super) fn day_of_week<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(int(zoned(args)?.weekday().to_sunday_zero_offset()))
}

pub(super) fn hours<'a>(args: &[Val<'a>]) -> Result<'a> {
    match span(args) {
        Some(duration) => Ok(int(duration.as_hours())),
        None => Ok(int(zoned(args)?.hour())),
    }
}

pub(super) fn minutes<'a>(args: &[Val<'a>]) -> Result<'a> {
    match span(args) {
        Some(duration) => Ok(int(duration.as_mins())),
        None => Ok(int(zoned(args)?.minute())),
    }
}

pub(super) fn seconds<'a>(args: &[Val<'a>]) -> Result<'a> {
    match span(args) {
        Some(duration) => Ok(int(duration.as_secs())),
        None => Ok(int(zoned(args)?.second())),
    }
}

pub(super) fn milliseconds<'a>(args: &[Val<'a>]) -> Result<'a> {
    match span(args) {
        Some(duration) => Ok(Val::Int(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))),
        None => Ok(int(zoned(args)?.millisecond())),
    }
}
