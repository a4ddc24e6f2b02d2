//! What we decided where a peer's answer is a defect, as rules over any input of that kind.
//!
//! `docs/whereabouts-differences.md` gives the reasons. The rules are computed here a second time, the
//! long and plain way, so that the engine is compared with something other than itself. A kind without
//! a rule has no decision of its own: there the peer's refusal is ours as well.

use std::net::IpAddr;

use serde_json::{Value, json};

/// The answer that we decided to give to a quirk, if we decided differently from the peer.
pub(crate) fn decide(kind: &str, input: &Value) -> Option<Value> {
    let text = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "offset" => Some(offset(text("a"), text("b"))),
        "add_offset" => Some(add_offset(text("ip"), text("offset"))),
        "divide" => Some(divide(text("range"), text("slice_size"))),
        "decode_allocations" => Some(decode(text("pool_range"), &strings(input, "offsets"))),
        "encode_allocations" => Some(encode(text("pool_range"), &strings(input, "ips"))),
        "pool_name" => Some(pool_name(text("network_name"), text("node_name"), text("range"))),
        "normalize_ip" => Some(reservation_name(text("network_name"), text("ip"))),
        "assign" => assign(input),
        "dealloc" => Some(dealloc(input)),
        _ => None,
    }
}

/// Distances are exact over all 128 bits; a distance below zero or between families is refused.
fn offset(a: &str, b: &str) -> Value {
    match (number(a), number(b)) {
        (Some((a, a_bits)), Some((b, b_bits))) if a_bits == b_bits && a >= b => {
            json!({"offset": (a - b).to_string()})
        }
        _ => refusal(),
    }
}

/// Adding is exact; what leaves the family's last address is refused.
fn add_offset(ip: &str, offset: &str) -> Value {
    let sum = number(ip).and_then(|(ip, bits)| Some((ip.checked_add(offset.parse().ok()?)?, bits)));
    match sum {
        Some((sum, bits)) if sum <= last(bits) => json!({"ip": address(sum, bits)}),
        _ => refusal(),
    }
}

/// Slices exist for both families; a size that is no number, shorter than the range or longer than the
/// family's addresses is refused.
fn divide(range: &str, size: &str) -> Value {
    let Some((ip, bits, prefix)) = cidr(range) else { return refusal() };
    let size = size.strip_prefix('/').unwrap_or(size).parse::<u32>().ok();
    let Some(size) = size.filter(|size| (prefix..=bits).contains(size) && size - prefix < 127) else {
        return refusal();
    };
    if ip & host_mask(bits, prefix) != 0 {
        return refusal();
    }
    let count = 1_u128 << (size - prefix);
    let nth = |n: u128| format!("{}/{size}", address(ip + n * (host_mask(bits, size) + 1), bits));
    json!({"count": count_value(count), "first": nth(0), "last": nth(count - 1)})
}

/// Offsets count from the network address over all 128 bits. A key that is no offset inside the range is
/// reported and never read as an address; the others are still held.
fn decode(range: &str, offsets: &[String]) -> Value {
    let Some((ip, bits, prefix)) = cidr(range) else { return refusal() };
    let hosts = host_mask(bits, prefix);
    let (mut ips, mut rejected) = (Vec::new(), Vec::new());
    for offset in offsets {
        match offset.parse::<u128>() {
            Ok(number) if number <= hosts => ips.push(address((ip & !hosts) + number, bits)),
            _ => rejected.push(offset),
        }
    }
    json!({"ips": ips, "rejected": rejected})
}

/// The way back of [`decode`]: every address has its own key.
fn encode(range: &str, ips: &[String]) -> Value {
    let Some((base, bits, prefix)) = cidr(range) else { return refusal() };
    let hosts = host_mask(bits, prefix);
    let offset = |ip: &String| {
        let (ip, ip_bits) = number(ip)?;
        (ip_bits == bits && ip & !hosts == base & !hosts).then(|| (ip & hosts).to_string())
    };
    ips.iter()
        .map(offset)
        .collect::<Option<Vec<_>>>()
        .map_or_else(refusal, |offsets| json!({"offsets": offsets}))
}

/// The peer's name where Kubernetes accepts it; an address that starts with a colon gets its leading zero, a range in
/// upper case becomes lower case, and a network or node name that no object may have is refused.
fn pool_name(network: &str, node: &str, range: &str) -> Value {
    name([network, node, &range.to_lowercase().replace([':', '/'], "-")])
}

/// As [`pool_name`], and an address that ends with a colon gets a zero behind it.
fn reservation_name(network: &str, ip: &str) -> Value {
    let zero = if ip.ends_with(':') { "0" } else { "" };
    name([network, "", &format!("{}{zero}", ip.to_lowercase().replace(':', "-"))])
}

fn name(parts: [&str; 3]) -> Value {
    let mut name = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.starts_with('-') {
        name.insert(0, '0');
    }
    let accepted = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.len() <= 253 && name.chars().all(accepted) { json!({ "name": name }) } else { refusal() }
}

/// A record of old versions without an interface belongs to its pod: a repeated ADD takes it over.
fn assign(input: &Value) -> Option<Value> {
    let mut reservations = input.get("reservations")?.as_array()?.clone();
    let belongs =
        |record: &Value, ifname: &str| record["podref"] == input["podref"] && record["ifname"] == ifname;
    let ifname = input.get("ifname")?.as_str()?;
    let found = reservations
        .iter()
        .position(|record| belongs(record, ifname))
        .or_else(|| reservations.iter().position(|record| belongs(record, "")))?;
    let record = reservations.get_mut(found)?;
    record["id"] = input["id"].clone();
    record["ifname"] = input["ifname"].clone();
    let prefix = cidr(input.get("range")?.as_str()?)?.2;
    let address = format!("{}/{prefix}", record["ip"].as_str()?);
    Some(json!({"address": address, "reservations": reservations}))
}

/// A record of old versions without an interface is released by its container's DEL.
fn dealloc(input: &Value) -> Value {
    let reservations = input.get("reservations").and_then(Value::as_array).cloned().unwrap_or_default();
    let by =
        |ifname: &Value| reservations.iter().position(|r| r["id"] == input["id"] && r["ifname"] == *ifname);
    let found = by(&input["ifname"]).or_else(|| by(&json!("")));
    let ip = |record: &Value| record["ip"].clone();
    let others = reservations.iter().enumerate().filter(|(place, _)| Some(*place) != found);
    let remaining: Vec<Value> = others.map(|(_, record)| ip(record)).collect();
    let released = found.and_then(|place| reservations.get(place)).map(ip);
    json!({"released": released, "remaining": remaining})
}

fn refusal() -> Value {
    json!({"error": true})
}

fn strings(input: &Value, key: &str) -> Vec<String> {
    let list = input.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A count as a number where JSON has one, else as its digits.
pub(crate) fn count_value(count: u128) -> Value {
    u64::try_from(count).map_or_else(|_| json!(count.to_string()), |count| json!(count))
}

/// An address as a number, with the number of bits of its family.
fn number(ip: &str) -> Option<(u128, u32)> {
    match ip.parse::<IpAddr>().ok()? {
        IpAddr::V4(v4) => Some((u128::from(u32::from(v4)), 32)),
        IpAddr::V6(v6) => Some((u128::from(v6), 128)),
    }
}

fn cidr(text: &str) -> Option<(u128, u32, u32)> {
    let (ip, prefix) = text.split_once('/')?;
    let (ip, bits) = number(ip)?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= bits)?;
    Some((ip, bits, prefix))
}

fn last(bits: u32) -> u128 {
    u128::MAX >> (128 - bits)
}

fn host_mask(bits: u32, prefix: u32) -> u128 {
    last(bits).checked_shr(prefix).unwrap_or(0)
}

fn address(number: u128, bits: u32) -> String {
    if bits == 32 {
        std::net::Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).to_string()
    } else {
        std::net::Ipv6Addr::from(number).to_string()
    }
}
