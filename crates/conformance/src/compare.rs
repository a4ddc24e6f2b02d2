//! When two answers are the same: refusals by being refusals, lists of records as sets, the words of an error by being
//! there, and only what the expected answer mentions.

use std::net::IpAddr;

use serde_json::Value;

/// Keys whose order carries no meaning: records of a pool, decoded or encoded entries.
const SETS: [&str; 4] = ["reservations", "remaining", "ips", "offsets"];

/// Whether `got` says what `expected` asks for.
pub(crate) fn agree(expected: &Value, got: &Value) -> bool {
    if is_refusal(expected) {
        return is_refusal(got);
    }
    if let (Value::Object(expected), Value::Object(got)) = (expected, got) {
        return expected.iter().all(|(key, wanted)| {
            let found = got.get(key).unwrap_or(&Value::Null);
            if key == "msg" {
                return found.as_str().is_some_and(|words| !words.is_empty());
            }
            if SETS.contains(&key.as_str()) {
                sorted(wanted) == sorted(&in_short(wanted, found))
            } else {
                agree(wanted, found)
            }
        });
    }
    if let (Value::Array(expected), Value::Array(got)) = (expected, got) {
        return expected.len() == got.len()
            && expected.iter().zip(got).all(|(wanted, found)| agree(wanted, found));
    }
    plain(expected) == plain(got)
}

/// A result's addresses as a case has them: in full, or the addresses alone.
fn in_short(wanted: &Value, found: &Value) -> Value {
    let short = wanted.as_array().is_some_and(|wanted| wanted.iter().all(Value::is_string));
    let address = |it: &Value| it.get("address").filter(|_| short).unwrap_or(it).clone();
    let list = found.as_array().map(|found| found.iter().map(address).collect());
    list.unwrap_or_else(|| found.clone())
}

/// A text that is an address, with or without a prefix length, in its usual spelling: which one a peer writes is no
/// difference.
fn plain(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let (address, rest) = text.split_at(text.find('/').unwrap_or(text.len()));
            match address.parse::<IpAddr>() {
                Ok(address) => Value::String(format!("{address}{rest}")),
                Err(_) => value.clone(),
            }
        }
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), plain(value))).collect(),
        other => other.clone(),
    }
}

/// A refusal is an object with one of these; the words may be ours, the refusal may not be missing.
fn is_refusal(answer: &Value) -> bool {
    ["error", "error_prefix"].iter().any(|key| answer.get(key).is_some_and(|value| !value.is_null()))
}

fn sorted(list: &Value) -> Vec<String> {
    let mut items: Vec<String> =
        list.as_array().into_iter().flatten().map(|item| plain(item).to_string()).collect();
    items.sort();
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sets_agree_in_any_order_and_lists_do_not() {
        assert!(agree(&json!({"ips": ["a", "b"]}), &json!({"ips": ["b", "a"]})));
        assert!(!agree(&json!({"slices": ["a", "b"]}), &json!({"slices": ["b", "a"]})));
    }

    #[test]
    fn entries_of_a_list_agree_one_by_one() {
        let steps = json!({"steps": [{"op": "ADD", "error_prefix": "theirs"}, {"op": "DEL", "ok": true}]});
        assert!(agree(
            &steps,
            &json!({"steps": [{"op": "ADD", "error": "ours"}, {"op": "DEL", "ok": true}]})
        ));
        assert!(!agree(
            &steps,
            &json!({"steps": [{"op": "ADD", "error": "ours"}, {"op": "DEL", "ok": false}]})
        ));
        assert!(!agree(&steps, &json!({"steps": [{"op": "ADD", "error": "ours"}]})));
    }

    #[test]
    fn the_words_of_an_error_may_be_ours_and_may_not_be_missing() {
        assert!(agree(&json!({"exit": 1, "msg": "theirs"}), &json!({"exit": 1, "msg": "ours"})));
        assert!(!agree(&json!({"exit": 1, "msg": "theirs"}), &json!({"exit": 1, "msg": ""})));
    }

    #[test]
    fn an_address_is_the_same_in_any_spelling() {
        assert!(agree(
            &json!({"ips": [{"address": "fd00:0:0:10:0:0:3:1/64"}]}),
            &json!({"ips": [{"address": "fd00::10:0:0:3:1/64"}]})
        ));
        assert!(!agree(&json!({"ip": "fd00::1/64"}), &json!({"ip": "fd00::1/65"})));
    }

    #[test]
    fn only_what_is_asked_for_is_compared() {
        assert!(agree(&json!({"count": 2}), &json!({"count": 2, "first": "x"})));
        assert!(!agree(&json!({"count": 2, "first": "y"}), &json!({"count": 2, "first": "x"})));
    }

    #[test]
    fn a_refusal_agrees_with_any_refusal_and_with_nothing_else() {
        assert!(agree(&json!({"error_prefix": "theirs"}), &json!({"error": "ours"})));
        assert!(!agree(&json!({"error": true}), &json!({"ip": "10.0.0.1"})));
        assert!(!agree(&json!({"ip": "10.0.0.1"}), &json!({"error": "ours"})));
    }
}
