//! Names of objects.

use serde_json::json;
use tenure_api::whereabouts;

use super::{Answer, Input, refused};

pub(super) fn pool_name(input: &Input) -> Answer {
    let (network, node) = (input.text("network_name"), input.text("node_name"));
    let name = whereabouts::pool_name(network, node, input.text("range")).map_err(refused)?;
    Ok(json!({ "name": name }))
}

pub(super) fn reservation_name(input: &Input) -> Answer {
    let text = input.text("ip");
    let address =
        text.parse().map_err(|_| format!("ip {text:?} is no address; accepted is 10.0.0.1 or fd00::1"))?;
    let name = whereabouts::reservation_name(input.text("network_name"), address).map_err(refused)?;
    Ok(json!({ "name": name }))
}
