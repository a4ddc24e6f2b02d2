//! Pools of node addresses.

use serde_json::json;
use tenure_api::nmstate::range::NodeRange;
use tenure_api::nmstate::{NodeIPPoolStatus, NodeIPRange, pool_of_capture};
use tenure_ipam::Address;

use super::{Answer, Input, refused};

fn range(input: &Input) -> Result<NodeRange, String> {
    let text = |key: &str| Some(input.text(key).to_owned()).filter(|text| !text.is_empty());
    let spec = NodeIPRange {
        cidr: input.text("cidr").to_owned(),
        start: text("start"),
        end: text("end"),
        exclude: input.texts("exclude").map(str::to_owned).collect(),
    };
    NodeRange::of(&spec).map_err(refused)
}

/// The offset of an address.
pub(super) fn offset(input: &Input) -> Answer {
    let range = range(input)?;
    let address: Address = input.text("address").parse().map_err(refused)?;
    let offset = range.offset(address).map_err(refused)?;
    Ok(json!({"offset": u64::try_from(offset).map_err(refused)?, "excluded": !range.is_usable(address)}))
}

/// The addresses of a list of offsets.
pub(super) fn taken(input: &Input) -> Answer {
    let range = range(input)?;
    let offsets = input.list("offsets").filter_map(serde_json::Value::as_i64).collect();
    let status = NodeIPPoolStatus { allocated_offsets: Some(offsets), ..NodeIPPoolStatus::default() };
    let taken = range.decode(&status);
    let addresses: Result<Vec<Address>, _> = taken.offsets.iter().map(|it| range.address(*it)).collect();
    let addresses = addresses.map_err(refused)?;
    let excluded: Vec<String> =
        addresses.iter().filter(|it| !range.is_usable(**it)).map(ToString::to_string).collect();
    Ok(json!({"ips": addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), "excluded": excluded}))
}

/// The pool of a capture.
pub(super) fn capture(input: &Input) -> Answer {
    let text = input.text("capture");
    let pool = pool_of_capture(text).ok_or_else(|| format!("{text:?} takes no address of a pool"))?;
    Ok(json!({ "pool": pool }))
}
