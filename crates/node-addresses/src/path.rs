//! Values by their paths, as nmstate finds them: a number is a position in a list, and any other name after a list is looked
//! for in all items of it.

use serde_json::{Map, Value};

/// The value at a path; says which step failed.
pub(crate) fn get(value: &Value, path: &[String]) -> Result<Value, String> {
    let Some((first, rest)) = path.split_first() else { return Ok(value.clone()) };
    match value {
        Value::Object(map) => match map.get(first) {
            Some(inner) => get(inner, rest),
            None => Err(format!("there is no {first:?}; there are {}", keys(map))),
        },
        Value::Array(items) => {
            let Ok(position) = first.parse::<usize>() else {
                let of_objects = items.iter().filter(|item| item.is_object());
                return Ok(Value::Array(of_objects.filter_map(|item| get(item, path).ok()).collect()));
            };
            match items.get(position) {
                Some(item) => get(item, rest),
                None => Err(format!("there is no item {position}, but {} of them", items.len())),
            }
        }
        other => Err(format!("{first:?} cannot be looked up in {other}")),
    }
}

/// Whether a value, or one of a list, reads like this text.
pub(crate) fn matches(value: &Value, text: &str) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| matches(item, text)),
        other => as_text(other) == text,
    }
}

/// How a value reads.
pub(crate) fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// Sets the property at a path, and makes the objects on the way to it.
pub(crate) fn set(item: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), String> {
    match path {
        [] => Err("there is no property to set".to_owned()),
        [last] => {
            item.insert(last.clone(), value);
            Ok(())
        }
        [first, rest @ ..] => {
            let inner = item.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
            match inner {
                Value::Object(inner) => set(inner, rest, value),
                other => Err(format!("{first:?} is {other}, which has no properties")),
            }
        }
    }
}

/// Removes everything that is not on the path. Lists on the way are kept whole.
pub(crate) fn retain(value: &mut Value, path: &[String]) {
    if let (Value::Object(map), Some((first, rest))) = (value, path.split_first()) {
        map.retain(|key, _| key == first);
        if let Some(inner) = map.get_mut(first) {
            retain(inner, rest);
        }
    }
}

fn keys(map: &Map<String, Value>) -> String {
    let keys: Vec<&str> = map.keys().map(String::as_str).collect();
    if keys.is_empty() { "no properties".to_owned() } else { keys.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn numbers_are_positions_and_names_are_looked_for_in_all_items() {
        let state = json!({"interfaces": [{"name": "a", "ipv4": {"address": [{"ip": "1"}, {"ip": "2"}]}}, {"name": "b"}]});
        assert_eq!(get(&state, &path("interfaces.1.name")), Ok(json!("b")));
        assert_eq!(get(&state, &path("interfaces.name")), Ok(json!(["a", "b"])));
        assert_eq!(get(&state, &path("interfaces.0.ipv4.address.ip")), Ok(json!(["1", "2"])));
        assert!(get(&state, &path("interfaces.2")).unwrap_err().contains("item 2"));
        assert!(get(&state, &path("routes")).unwrap_err().contains("there are interfaces"));
        assert!(get(&state, &path("interfaces.0.name.x")).is_err());
    }

    #[test]
    fn a_property_is_set_with_the_objects_on_the_way() {
        let mut item = Map::new();
        set(&mut item, &path("ipv4.enabled"), json!("true")).unwrap();
        assert_eq!(Value::Object(item.clone()), json!({"ipv4": {"enabled": "true"}}));
        assert!(set(&mut item, &path("ipv4.enabled.x"), json!(1)).is_err());
    }

    #[test]
    fn what_is_not_on_the_path_is_removed() {
        let mut state = json!({"routes": {"running": [{"a": 1}], "config": []}, "interfaces": []});
        retain(&mut state, &path("routes.running"));
        assert_eq!(state, json!({"routes": {"running": [{"a": 1}]}}));
    }
}
