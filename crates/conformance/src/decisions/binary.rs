//! What we decided for the plugin as a process, computed the long and plain way.

use serde_json::{Value, json};

use super::{address, cidr, host_mask, number, strings};

/// The answer that we decided to give, if we decided differently from the peer.
pub(super) fn decide(input: &Value) -> Option<Value> {
    let text = |key: &str| input.get(key).and_then(Value::as_str).unwrap_or_default();
    let (cmd, state) = (text("cmd"), text("state"));
    if !text("api").is_empty() {
        // A DEL is done later, and that is sure before it is said; an ADD that is not done leaves nothing.
        return Some(if cmd.starts_with("DEL") {
            json!({"exit": 0, "later": true})
        } else {
            json!({"exit": 1, "code": 11, "pool_entry": false, "orip": false})
        });
    }
    if text("node").contains("not in") {
        // The ADD is refused with words; there is nothing for the DEL to do.
        let exit = |verb: &str| i32::from(verb == "ADD");
        let exits: Vec<i32> = cmd.split('/').map(exit).collect();
        return Some(json!({"exits": exits, "msg": "no slice"}));
    }
    if state.contains("gone") {
        return Some(json!({"exit": 0, "v4_entry_left": false, "v6_entry_left": false}));
    }
    if state.contains("exhausted") {
        return Some(json!({"exit": 1, "first_range_entry_left": false, "orip": false}));
    }
    if input.get("range").is_some_and(|range| *range == json!("")) && input.get("ipRanges").is_none() {
        return Some(json!({"exit": 1, "msg": "there is nothing to hand out"}));
    }
    match cmd {
        "CHECK" | "GC/STATUS" | "GC" | "STATUS" => return Some(json!({"exit": 0, "stdout": ""})),
        "ADD/DEL" => return Some(json!({"exits": [0, 0]})),
        _ => {}
    }
    if cmd.starts_with("re-ADD") {
        return Some(json!({"exit": 0, "ips": ["10.0.0.1/24", "fd00::1/120"], "orip_for_v6": true}));
    }
    if let Some(answer) = on_ranges(cmd) {
        return Some(answer);
    }
    if !cmd.starts_with("ADD") {
        return None;
    }
    let pods: usize = cmd.split(" x").nth(1).and_then(|times| times.trim().parse().ok()).unwrap_or(1);
    let mut used = Vec::new();
    let mut answer = json!({});
    for pod in 1..=pods {
        let ips = pod_ips(input, &mut used)?;
        if pods == 1 {
            return Some(json!({"exit": 0, "ips": ips}));
        }
        answer[format!("pod{pod}")] = ips.first()?["address"].clone();
    }
    Some(answer)
}

/// The addresses of a pod: the lowest of each range that nobody has, with the gateway of its family.
fn pod_ips(input: &Value, used: &mut Vec<(u128, u32)>) -> Option<Vec<Value>> {
    let mut ranges = vec![input.clone()];
    ranges.extend(input.get("ipRanges").and_then(Value::as_array).into_iter().flatten().cloned());
    let gateway = input.get("gateway").and_then(Value::as_str);
    let mut ips = Vec::new();
    for range in ranges {
        let text = range.get("range").and_then(Value::as_str).unwrap_or("10.0.0.0/24");
        let (ip, bits) = lowest(text, &range, input.get("slice").and_then(Value::as_str), used)?;
        used.push((ip, bits));
        let mut found = json!({"address": format!("{}/{}", address(ip, bits), text.split('/').nth(1)?)});
        if let Some(gateway) =
            gateway.filter(|gateway| number(gateway).is_some_and(|(_, other)| other == bits))
        {
            found["gateway"] = json!(gateway);
        }
        ips.push(found);
    }
    Some(ips)
}

/// The lowest address of a range, or of this node's slice of it, within its window, not excluded and nobody's.
fn lowest(text: &str, range: &Value, slice: Option<&str>, used: &[(u128, u32)]) -> Option<(u128, u32)> {
    let (base, bits, prefix) = cidr(slice.unwrap_or(text))?;
    let hosts = host_mask(bits, prefix);
    let end = |key: &str| range.get(key).and_then(Value::as_str).and_then(number).map(|(ip, _)| ip);
    let edges = u128::from(hosts >= 3);
    let first = ((base & !hosts) + edges).max(end("range_start").unwrap_or(0));
    let last = ((base | hosts) - edges).min(end("range_end").unwrap_or(u128::MAX));
    let excluded: Vec<(u128, u128)> = strings(range, "exclude")
        .iter()
        .filter_map(|text| {
            let (base, bits, prefix) =
                cidr(text).or_else(|| number(text).map(|(ip, bits)| (ip, bits, bits)))?;
            let hosts = host_mask(bits, prefix);
            Some((base & !hosts, base | hosts))
        })
        .collect();
    let mut at = first;
    while at <= last {
        if let Some((_, end)) = excluded.iter().find(|(from, to)| (*from..=*to).contains(&at)) {
            at = end + 1;
        } else if used.contains(&(at, bits)) {
            at += 1;
        } else {
            return Some((at, bits));
        }
    }
    None
}

/// `ADD net1 on RANGE, then ADD net2 of the SAME pod on RANGE`: an address has one holder, and that is an interface.
fn on_ranges(cmd: &str) -> Option<Value> {
    let (mut answer, mut used) = (json!({}), Vec::new());
    for clause in cmd.split(", then ") {
        let words: Vec<&str> = clause.split_whitespace().collect();
        let range = words.get(words.iter().position(|word| *word == "on")? + 1)?;
        let interface = words.iter().find(|word| word.starts_with("net"))?;
        let (ip, bits) = lowest(range, &json!({}), None, &used)?;
        used.push((ip, bits));
        answer[*interface] = json!(format!("{}/{}", address(ip, bits), range.split('/').nth(1)?));
    }
    Some(answer)
}
