//! Arithmetic on addresses.

use serde_json::json;
use tenure_ipam::{Address, Notation};

use super::{Answer, Input, refused};

pub(super) fn address(text: &str) -> Result<Address, String> {
    Notation::Strict.address(text).map_err(refused)
}

pub(super) fn neighbour(kind: &str, input: &Input) -> Answer {
    let address = address(input.text("ip"))?;
    let neighbour = if kind == "inc" { address.wrapping_next() } else { address.wrapping_previous() };
    Ok(json!({ "ip": neighbour.to_string() }))
}

pub(super) fn compare(input: &Input) -> Answer {
    let order = address(input.text("a"))?.cmp(&address(input.text("b"))?);
    Ok(json!({ "cmp": order as i8 }))
}

pub(super) fn in_range(input: &Input) -> Answer {
    let (first, last) = (address(input.text("start"))?, address(input.text("end"))?);
    Ok(json!({ "in_range": address(input.text("ip"))?.is_between(first, last) }))
}

pub(super) fn offset(input: &Input) -> Answer {
    let distance = address(input.text("a"))?.distance_from(address(input.text("b"))?).map_err(refused)?;
    Ok(json!({ "offset": distance.to_string() }))
}

pub(super) fn add_offset(input: &Input) -> Answer {
    let text = input.text("offset");
    let offset =
        text.parse().map_err(|error| format!("offset {text:?} is no decimal number of 128 bits: {error}"))?;
    let sum = address(input.text("ip"))?.plus(offset).map_err(refused)?;
    Ok(json!({ "ip": sum.to_string() }))
}
