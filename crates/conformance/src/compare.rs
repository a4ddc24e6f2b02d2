//! When two answers are the same: refusals by being refusals, lists of records as sets, and only
//! what the expected answer mentions.

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
            if SETS.contains(&key.as_str()) { sorted(wanted) == sorted(found) } else { agree(wanted, found) }
        });
    }
    expected == got
}

/// A refusal is an object with one of these; the words may be ours, the refusal may not be missing.
fn is_refusal(answer: &Value) -> bool {
    ["error", "error_prefix"].iter().any(|key| answer.get(key).is_some_and(|value| !value.is_null()))
}

fn sorted(list: &Value) -> Vec<String> {
    let mut items: Vec<String> = list.as_array().into_iter().flatten().map(Value::to_string).collect();
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
