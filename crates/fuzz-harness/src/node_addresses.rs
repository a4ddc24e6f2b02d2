//! A policy for node addresses, as `{"capture": {…}, "desiredState": …}`; input that is no such object is the text of a capture
//! and of a reference.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenure_node_addresses::{Allocated, Captures, DesiredState, Refusal, evaluate, fill};

use crate::{Violation, hold};

/// A refusal becomes the message of a condition.
const LONGEST: usize = 1_500;

pub(crate) fn run(input: &[u8]) -> Result<(), Violation> {
    let read: Option<Value> = serde_json::from_slice(input).ok();
    let text = String::from_utf8_lossy(input).into_owned();
    let policy = read.filter(Value::is_object).unwrap_or_else(|| {
        json!({"capture": {"x": text}, "desiredState": {"interfaces": [{"name": text}, {"name": "eth1", "mtu": text}]}})
    });
    match carried_out(&policy) {
        Ok(state) => {
            let again = serde_json::to_value(&state).and_then(serde_json::from_value::<DesiredState>);
            hold(again.is_ok_and(|again| again == state), || format!("{state:?} is not kept as it is"))
        }
        Err(refusal) => {
            let words = refusal.to_string();
            hold(words.contains("; accepted ") && words.chars().count() <= LONGEST, || {
                format!("{words:?} does not say what is accepted, or says too much")
            })
        }
    }
}

fn carried_out(policy: &Value) -> Result<DesiredState, Refusal> {
    let texts = policy["capture"].as_object().into_iter().flatten();
    let texts: BTreeMap<String, String> =
        texts.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned()))).collect();
    let captures = Captures::parse(&texts)?;
    let given = |number: usize| {
        let address = if number.is_multiple_of(2) { "10.10.10.8/24" } else { "fd00::f/116" };
        address.parse().ok().map(Allocated)
    };
    let allocated = captures.pools().enumerate();
    let allocated = allocated.filter_map(|(number, (name, _))| Some((name.to_owned(), given(number)?)));
    let held = evaluate(&captures, &allocated.collect(), &state())?;
    DesiredState::parse(&fill(&policy["desiredState"], &held)?)
}

/// A node with an uplink and another interface.
fn state() -> Value {
    json!({
        "interfaces": [
            {"name": "eth0", "type": "ethernet", "mtu": 1500,
             "ipv4": {"enabled": true, "dhcp": false, "address": [{"ip": "192.0.2.5", "prefix-length": 24}]}},
            {"name": "eth1", "type": "ethernet", "mtu": 9000, "ipv4": {"enabled": false}},
        ],
        "routes": {
            "running": [{"destination": "0.0.0.0/0", "next-hop-interface": "eth0", "next-hop-address": "192.0.2.1"}],
            "config": [],
        },
    })
}
