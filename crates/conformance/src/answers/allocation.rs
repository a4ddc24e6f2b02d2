//! Ranges, what is assigned from them next, and their slices.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_handles::Timestamp;
use tenure_ipam::{Address, Block, Choice, Exclusion, Notation, Range, Slices, Usable};

use super::arithmetic::address;
use super::{Answer, Input, refused};
use crate::decisions::count_value;

/// The L2 range of a question, with its window as Whereabouts reads it, and its exclusions.
pub(super) fn range(input: &Input) -> Result<Range, String> {
    let cidr = Notation::LeadingZeros.cidr(input.text("range")).map_err(refused)?;
    let end = |key| Some(input.text(key)).filter(|text| !text.is_empty()).map(address).transpose();
    let window = Range::new(cidr, Usable::WithoutEdges).map_err(refused)?;
    // Whereabouts ignores an end that is not usable. A configuration with such an end is refused (`config`).
    let within = |end: Option<Address>, from| end.filter(|end| end.is_between(from, window.last()));
    let first = within(end("range_start")?, window.first());
    let last = within(end("range_end")?, first.unwrap_or(window.first()));
    let window = window.clone().between(first, last).map_err(refused)?;
    let excluded = |text: &str| Notation::Strict.cidr_or_address(text).map(Exclusion::from).map_err(refused);
    Ok(window.without(input.texts("exclude").map(excluded).collect::<Result<Vec<_>, _>>()?))
}

pub(super) fn iterate(input: &Input) -> Answer {
    let mut block: Block<u8> = Block::new(range(input)?, Duration::ZERO);
    for reserved in input.texts("reserved") {
        let (first, last) = reserved.split_once("..").unwrap_or((reserved, reserved));
        // An address outside the range is in nobody's way.
        let _ = block.reserve(address(first)?, address(last)?);
    }
    let granted = block.hold(0, Choice::LowestFree, Timestamp::default()).map_err(refused)?;
    Ok(json!({ "ip": granted.hold().addresses.to_string() }))
}

pub(super) fn ip_range(input: &Input) -> Answer {
    let range = range(input)?;
    Ok(json!({ "first": range.first().to_string(), "last": range.last().to_string() }))
}

pub(super) fn subnet(input: &Input) -> Answer {
    let cidr = Notation::LeadingZeros.cidr(input.text("range")).map_err(refused)?;
    let usable = Range::new(cidr, Usable::WithoutEdges);
    let end = |pick: fn(&Range) -> Address| match &usable {
        Ok(range) => json!(pick(range).to_string()),
        Err(error) => json!({ "error": error.to_string() }),
    };
    Ok(json!({
        "network": cidr.first().to_string(),
        "broadcast": cidr.last().to_string(),
        "first_usable": end(Range::first),
        "last_usable": end(Range::last),
        "has_usable": usable.is_ok(),
    }))
}

/// More slices than this are answered by their count, the first and the last.
const MOST_LISTED: u128 = 65_536;

pub(super) fn divide(input: &Input) -> Answer {
    let slices = Slices::parse(input.text("range"), input.text("slice_size")).map_err(refused)?;
    let text = |index| slices.get(index).map(|slice| slice.to_string());
    let mut answer = json!({
        "count": count_value(slices.count()),
        "first": text(0),
        "last": text(slices.last_index()),
    });
    if slices.count() <= MOST_LISTED {
        answer["slices"] = Value::from(slices.iter().map(|slice| slice.to_string()).collect::<Vec<_>>());
    }
    Ok(answer)
}
