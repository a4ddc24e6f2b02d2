//! What we decided where a peer's answer is a defect, as rules over any input of that kind.
//!
//! `docs/whereabouts-differences.md` gives the reasons. The rules are computed here a second time, the
//! long and plain way, so that the engine is compared with something other than itself. A kind without
//! a rule has no decision of its own: there the peer's refusal is ours as well.

mod binary;

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
        "binary_run" => binary::decide(input),
        "encode_allocations" => Some(encode(text("pool_range"), &strings(input, "ips"))),
        "pool_name" => Some(pool_name(text("network_name"), text("node_name"), text("range"))),
        "normalize_ip" => Some(reservation_name(text("network_name"), text("ip"))),
        "assign" => assign(input),
        "dealloc" => Some(dealloc(input)),
        "config" => config(input),
        "node_slices" => node_slices(input),
        "reconcile" => Some(reconcile(input)),
        "node_pool_offset" => Some(node_pool_offset(input)),
        "node_pool_taken" => node_pool_taken(text("start"), text("end")),
        _ => None,
    }
}

/// An offset is the distance from the start, excluded addresses and those that end in 0 or 255 counted.
fn node_pool_offset(input: &Value) -> Value {
    let text = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some((address, start)) = number(text("address")).zip(number(text("start"))) else { return refusal() };
    let excluded = strings(input, "exclude").iter().filter_map(|it| number(it)).any(|it| it == address);
    json!({"offset": u64::try_from(address.0 - start.0).unwrap_or_default(), "excluded": excluded})
}

/// A pool between what are no addresses is none.
fn node_pool_taken(start: &str, end: &str) -> Option<Value> {
    (number(start).is_none() || number(end).is_none()).then(refusal)
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

/// What Whereabouts loads and cannot serve, or ignores, is refused at once: no range, a window that is none or lies
/// elsewhere, an exclusion that cannot be read. A flat file is not needed. All else is as Whereabouts has it, also that
/// `ipRanges` takes no leading zeros and that the flat file has no say about overlapping ranges.
fn config(input: &Value) -> Option<Value> {
    let ipam = &input["conf"]["ipam"];
    let text = |key: &str| ipam[key].as_str().unwrap_or_default();
    let has_static = !ipam["addresses"].as_array().is_none_or(Vec::is_empty)
        || input["cni_args"].as_str().unwrap_or_default().contains("IP=");
    let has_more = !ipam["ipRanges"].as_array().is_none_or(Vec::is_empty);
    if text("range").is_empty() {
        return (!has_more && !has_static).then(refusal);
    }
    let zeros = |text: &str| {
        let part = |part: &str| {
            Some(part.trim_start_matches('0')).filter(|part| !part.is_empty()).unwrap_or("0").to_owned()
        };
        if text.contains(':') {
            text.to_owned()
        } else {
            text.split('.').map(part).collect::<Vec<_>>().join(".")
        }
    };
    let (first, cidr_text) = match text("range").split_once('-') {
        Some((first, rest)) => (Some(first.to_owned()), rest),
        None => (Some(text("range_start").to_owned()).filter(|text| !text.is_empty()), text("range")),
    };
    let last = if text("range").contains('-') {
        cidr_text.split('/').next().map(str::to_owned)
    } else {
        Some(text("range_end").to_owned()).filter(|text| !text.is_empty())
    };
    let (address_text, prefix) = cidr_text.split_once('/')?;
    let Some((base, bits, prefix)) = cidr(&format!("{}/{prefix}", zeros(address_text))) else {
        return Some(refusal());
    };
    let hosts = host_mask(bits, prefix);
    let (network, broadcast) = (base & !hosts, base | hosts);
    let end = |text: &Option<String>| match text {
        None => Some(None),
        Some(text) => {
            number(&zeros(text)).filter(|(_, other)| *other == bits).map(|(number, _)| Some(number))
        }
    };
    let (Some(start), Some(stop)) = (end(&first), end(&last)) else { return Some(refusal()) };
    let inside = |end: Option<u128>| end.is_none_or(|end| (network..=broadcast).contains(&end));
    let excluded = strings(ipam, "exclude");
    let readable =
        |text: &String| if text.contains('/') { cidr(text).is_some() } else { number(text).is_some() };
    let swapped = start.unwrap_or(network) > stop.unwrap_or(broadcast);
    if !inside(start) || !inside(stop) || swapped || !excluded.iter().all(readable) {
        return Some(refusal());
    }
    if !input["flat"].is_null() {
        return None;
    }
    let range = format!("{}/{prefix}", address(network, bits));
    let start = address(start.unwrap_or(network), bits);
    Some(
        json!({"name": input["conf"]["name"], "overlapping": true, "ranges": [{"range": range, "range_start": start}]}),
    )
}

/// Networks without a name are separate networks, and those without slices are nobody's business here. A size that is
/// none is refused, and so are two definitions of one name that differ; both families are cut.
fn node_slices(input: &Value) -> Option<Value> {
    let sliced = |nad: &&Value| nad["node_slice_size"].as_str().is_some_and(|size| !size.is_empty());
    let nads: Vec<&Value> = input["nads"].as_array()?.iter().filter(sliced).collect();
    let name = |nad: &Value| nad["network_name"].as_str().unwrap_or_default().to_owned();
    let cut = |nad: &Value| {
        let (base, bits, prefix) = cidr(nad["range"].as_str()?)?;
        let size: u32 = nad["node_slice_size"].as_str()?.trim_start_matches('/').parse().ok()?;
        let fits = (prefix..=bits).contains(&size) && size - prefix <= 14;
        fits.then(|| (base & !host_mask(bits, prefix), bits, prefix, size))
    };
    let first = nads.first()?;
    let differs =
        |other: &&Value| !name(first).is_empty() && name(other) == name(first) && cut(other) != cut(first);
    if nads.iter().any(|nad| cut(nad).is_none()) || nads.iter().any(differs) {
        return Some(refusal());
    }
    let (base, bits, prefix, size) = cut(first)?;
    let mut nodes = strings(input, "nodes");
    nodes.sort();
    let slice = |n: u128| {
        let node = usize::try_from(n).ok().and_then(|n| nodes.get(n).cloned()).unwrap_or_default();
        let address = address(base + n * (host_mask(bits, size) + 1), bits);
        json!({"nodeName": node, "sliceRange": format!("{address}/{size}")})
    };
    let slices: Vec<Value> = (0..1_u128 << (size - prefix)).map(slice).collect();
    let pool = Some(name(first)).filter(|name| !name.is_empty()).map_or(first["name"].clone(), Value::from);
    Some(json!({"action": "create", "pool": pool, "allocations": slices}))
}

/// A pod that lives keeps what it has: a missing annotation, a network's name in front of an address and a zero behind it
/// are no reasons.
fn reconcile(input: &Value) -> Value {
    let mut answer = json!({"orip_deleted": false});
    if input.get("pool").is_some() {
        answer["released"] = json!([]);
    }
    answer
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
